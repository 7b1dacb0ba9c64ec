// trace_record.cpp - runs a model and writes the choices of its routers.
#include "tools/moorage/trace_record.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/pipeline/run.h"
#include "tools/comparison/progress.h"
#include "core/source/trace_record.h"
#include "tools/moorage/model_run.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct trace_record_arguments {
    model_run_options common;
    prompt_options prompts;
    std::string text, windows, out_file;
    uint32_t predictions = UINT32_MAX;
    bool drop_gate_scores = false;
};

status configure(const trace_record_arguments &arguments, run_config &config) {
    const int ways =
        arguments.prompts.has_prompts() + !arguments.text.empty() + !arguments.windows.empty();
    if (ways != 1)
        return error{
            "give --prompt TEXT (or --prompt-file FILE), --text FILE or --windows FILE.json, one "
            "of them",
            true};
    auto prompts = read_prompts(arguments.prompts);
    if (!prompts) return prompts.failure();
    config.prompts = std::move(*prompts);
    config.text = arguments.text.empty() ? arguments.windows : arguments.text;
    return success();
}

int record(const trace_record_arguments &arguments) {
    auto config = model_config_of(arguments.common);
    if (!config) return fail(config.failure());
    if (const status done = configure(arguments, *config); !done) return fail(done.failure());
    run_resources shared;
    if (const status done = shared.scan(config->plugin_paths); !done) return fail(done.failure());
    const auto opened = shared.open_model(config->model);
    if (!opened) return fail(opened.failure());
    const model &source_model = *(*opened)->loaded_model;
    const uint32_t layers = static_cast<uint32_t>(source_model.config().moe_layers().size());
    const uint32_t known = std::min(source_model.config().experts, 4 * source_model.config().top_k);
    trace_recorder recorder(layers, source_model.config().experts, source_model.config().top_k,
                            arguments.predictions == UINT32_MAX
                                ? std::min(known, 2 * source_model.config().top_k)
                                : std::min(arguments.predictions, known));
    run_options options;
    options.watcher = &recorder;
    progress shown("trace record", config->tokens);
    options.progress = [&](uint64_t tokens) { shown.advance(tokens); };
    const auto report = run(*config, shared, options);
    if (!report) return fail(report.failure());
    trace_data data = recorder.finish();
    const std::string name = config->model.lexically_normal().filename().string();
    data.metadata["model"] = name;
    data.metadata["hidden_size"] = std::to_string(source_model.config().hidden);
    data.metadata["moe_intermediate_size"] = std::to_string(source_model.config().moe_intermediate);
    data.metadata["source"] =
        format("moorage trace record of {}, {}", name,
               config->text.empty() ? format("{} prompts", config->prompts.size())
                                    : config->text.filename().string());
    data.metadata["weights_are"] = "what the model multiplies each expert's output by";
    if (arguments.drop_gate_scores)
        if (const status done = drop_tensor(data, "gate_scores"); !done)
            return fail(done.failure());
    if (const status done = write_trace(data, arguments.out_file); !done)
        return fail(done.failure());
    if (arguments.common.json_file != "-")
        print(format("{}: {} tokens of {} requests, {} layers, top-{} of {} experts\n",
                     arguments.out_file, data.tokens, data.request_offsets.size() - 1, layers,
                     source_model.config().top_k, source_model.config().experts));
    if (!arguments.common.json_file.empty())
        if (const status done = write_json(arguments.common.json_file, to_json(*report)); !done)
            return fail(done.failure());
    return exit_ok;
}

}  // namespace

command install_record(parser &app) {
    parser *sub = app.add_subcommand("record", "run a model, and write its routing as a trace");
    const auto arguments = std::make_shared<trace_record_arguments>();
    add_model_options(*sub, arguments->common);
    sub->add_option("--out", arguments->out_file, "trace file to write")
        ->required()
        ->type_name("FILE.safetensors");
    add_prompt_options(*sub, arguments->prompts, arguments->common.settings);
    sub->add_option("--text", arguments->text,
                    "text file instead of prompts, in windows of [source] window ids")
        ->type_name("FILE");
    sub->add_option("--windows", arguments->windows,
                    "windows of ids instead of prompts, as for moorage eval")
        ->type_name("FILE.json");
    sub->add_option(
           "--predictions", arguments->predictions,
           "number of experts predicted for the next layer to keep (2 top-k; at most 4 top-k)")
        ->type_name("M");
    sub->add_flag("--drop-gate-scores", arguments->drop_gate_scores,
                  "leave out the scores of all experts, which are most of the file");
    return [arguments] { return record(*arguments); };
}

}  // namespace moorage::tool
