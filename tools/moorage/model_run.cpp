// model_run.cpp - the common options of commands over a model directory.
#include "tools/moorage/model_run.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <utility>
#include <vector>

#include "core/base/foreign_file.h"
#include "core/base/text.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

void add_model_options(parser &command, model_run_options &options) {
    command
        .add_option("model", options.directory,
                    "model directory in Hugging Face layout, or GGUF file")
        ->required()
        ->type_name("MODEL_DIR");
    command
        .add_option("--config", options.config,
                    "run with the hardware, memory and policies of this configuration")
        ->type_name("CONFIG.toml");
    add_flag_of_key(command, options.settings, "--executor");
    add_settings(command, options.settings);
    add_json(command, options.json_file, "figures");
}

void add_prompt_options(parser &command, prompt_options &prompts, setting_options &settings) {
    command.add_option("--prompt", prompts.texts, "text to continue; repeatable")
        ->type_name("TEXT")
        ->take_all()
        ->expected(1);
    command
        .add_option("--prompt-file", prompts.files,
                    "file with a text to continue, - for standard input; repeatable")
        ->type_name("FILE")
        ->take_all()
        ->expected(1);
    add_flag_of_key(command, settings, "--max-tokens");
}

namespace {

constexpr size_t prompt_bytes_max = 64 << 20;

core::result<std::string> read_prompt(const std::string &file) {
    using core::error;
    const bool is_input = file == "-";
    const std::string name = is_input ? "standard input" : file;
    std::ifstream input(is_input ? "/dev/stdin" : file, std::ios::binary);
    if (!input) return error{core::format("{}: {}", name, std::strerror(errno))};
    std::string text;
    std::vector<char> piece(1 << 16);
    while (text.size() <= prompt_bytes_max && input) {
        input.read(piece.data(), static_cast<std::streamsize>(piece.size()));
        text.append(piece.data(), static_cast<size_t>(input.gcount()));
    }
    if (input.bad()) return error{core::format("{}: {}", name, std::strerror(errno))};
    if (text.size() > prompt_bytes_max)
        return error{
            core::format("{}: more than {} bytes, the limit of a prompt", name, prompt_bytes_max),
            true};
    if (const std::string foreign = core::non_text_problem(std::as_bytes(std::span(text)));
        !foreign.empty())
        return error{core::format("{}: {}", name, foreign), true};
    text.erase(0, text.size() - core::without_byte_order_mark(text).size());
    // Editors and echo end a file with a line break. The model would see an empty line.
    if (text.ends_with('\n')) text.resize(text.size() - (text.ends_with("\r\n") ? 2 : 1));
    if (text.empty()) return error{core::format("{}: holds no text to continue", name), true};
    return text;
}

}  // namespace

core::result<std::vector<std::string>> read_prompts(const prompt_options &prompts) {
    std::vector<std::string> texts = prompts.texts;
    if (std::ranges::count(prompts.files, "-") > 1)
        return core::error{"--prompt-file - is given twice, and standard input is read once", true};
    for (const std::string &file : prompts.files) {
        core::result<std::string> text = read_prompt(file);
        if (!text) return text.failure();
        texts.push_back(std::move(*text));
    }
    return texts;
}

core::result<core::run_config> model_config_of(const model_run_options &options,
                                               const core::run_config &defaults) {
    auto overrides = read_settings(options.settings);
    if (!overrides) return overrides.failure();
    std::vector<core::override_value> merged = {{"source", "model", options.directory}};
    if (options.config.empty()) merged.push_back({"run", "executor", "cpu"});
    merged.insert(merged.end(), overrides->begin(), overrides->end());
    auto config =
        options.config.empty()
            ? core::parse_run_config("", "defaults", merged, defaults)
            : core::load_run_config(options.config, merged, core::read_for::emulation, defaults);
    if (!config) return config.failure();
    config->prompts.clear();
    config->text.clear();
    return config;
}

}  // namespace moorage::tool
