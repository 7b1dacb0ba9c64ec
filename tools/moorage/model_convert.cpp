// model_convert.cpp - reads the options, converts, and prints the result.
#include "tools/moorage/model_convert.h"

#include <memory>
#include <string>

#include "core/base/json.h"
#include "core/base/text.h"
#include "tools/convert/convert.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct model_convert_arguments {
    std::string input_path, output_path, format, json_file;
    setting_options settings;
    bool pure = false;
};

json to_json(const model_convert_arguments &arguments, const convert_report &report) {
    json formats = json::object();
    for (const auto &[name, count] : report.formats)
        formats[name] = {{"tensors", count.tensors}, {"bytes", count.bytes}};
    return {{"model", arguments.input_path}, {"out", arguments.output_path},
            {"format", arguments.format},    {"formats", std::move(formats)},
            {"bytes", report.bytes},         {"replaced", report.replaced}};
}

std::string to_text(const model_convert_arguments &arguments, const convert_report &report) {
    std::string text = format("{}: {} of weights\n", arguments.output_path,
                              human_bytes(static_cast<double>(report.bytes)));
    for (const auto &[name, count] : report.formats)
        text += format("  {:<7} {:>6} tensors  {:>8}\n", name, count.tensors,
                       human_bytes(static_cast<double>(count.bytes)));
    if (report.replaced != 0)
        text += format(
            "  {} matrices have rows that are no whole blocks of what {} asks for, and "
            "another format\n",
            report.replaced, arguments.format);
    return text;
}

int convert(const model_convert_arguments &arguments) {
    constexpr std::string_view used[] = {"run.threads"};
    const auto keys = read_alone(arguments.settings, "model convert", used);
    if (!keys) return fail(keys.failure());
    thread_pool pool(keys->threads);
    const auto done = convert_model(
        {arguments.input_path, arguments.output_path, arguments.format, arguments.pure}, pool);
    if (!done) return fail(done.failure());
    if (arguments.json_file != "-") print(to_text(arguments, *done));
    if (arguments.json_file.empty()) return exit_ok;
    if (const status written = write_json(arguments.json_file, to_json(arguments, *done)); !written)
        return fail(written.failure());
    return exit_ok;
}

}  // namespace

command install_model_convert(parser &model) {
    auto *app = model.add_subcommand("convert", "convert a model to another kind of file");
    app->footer(
        "FILE.gguf: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k_s|m|l, q4_k_s|m,\n"
        "q5_k_s|m, q6_k, iq4_nl, iq4_xs, mxfp4 (experts; the rest q8_0): llama.cpp's mixtures.\n"
        "A directory: bf16, f16, f32, fp8 (blocks of 128 x 128 share a scale).\n"
        "A model that the other kind of file cannot describe is refused before anything is "
        "written.\n"
        "If only parts of the tokenizer for rare texts are lost, there is a warning.");
    auto arguments =
        std::make_shared<model_convert_arguments>();  // shared by the parser and the command
    app->add_option("model", arguments->input_path, "model directory or GGUF file")->required();
    app->add_option("--format", arguments->format,
                    "format of the matrices, or a mixture of formats")
        ->type_name("NAME")
        ->required();
    app->add_option("--out", arguments->output_path, "FILE.gguf, or a new directory")->required();
    app->add_flag("--pure", arguments->pure, "write all matrices in this format, also the head");
    add_json(*app, arguments->json_file, "the figures");
    add_set(*app, arguments->settings);
    add_flag_of_key(*app, arguments->settings, "--threads");
    return [arguments] { return convert(*arguments); };
}

}  // namespace moorage::tool
