// model_run.cpp - the options that commands over a model directory have in common.
#include "tools/moorage/model_run.h"

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
                    "run as this configuration says: hardware, memory, policies")
        ->type_name("CONFIG.toml");
    add_flag_of_key(command, options.settings, "--executor");
    add_settings(command, options.settings);
    add_json(command, options.json_file, "figures");
}

option *add_prompt_options(parser &command, std::vector<std::string> &prompts,
                           setting_options &settings) {
    option *prompt = command.add_option("--prompt", prompts, "text to continue; repeatable")
                         ->type_name("TEXT")
                         ->take_all()
                         ->expected(1);
    add_flag_of_key(command, settings, "--max-tokens");
    return prompt;
}

core::result<core::run_config> model_config_of(const model_run_options &options) {
    auto overrides = read_settings(options.settings);
    if (!overrides) return overrides.failure();
    std::vector<core::override_value> all = {{"source", "model", options.directory}};
    if (options.config.empty()) all.push_back({"run", "executor", "cpu"});
    all.insert(all.end(), overrides->begin(), overrides->end());
    auto config = options.config.empty() ? core::parse_run_config("", "defaults", all)
                                         : core::load_run_config(options.config, all);
    if (!config) return config.failure();
    config->prompts.clear();
    config->text.clear();
    return config;
}

}  // namespace moorage::tool
