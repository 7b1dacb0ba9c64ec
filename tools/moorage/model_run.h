// model_run.h - what generate, eval and trace record share: a configuration around a model
// directory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/run_config.h"
#include "tools/moorage/parser.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

struct model_run_options {
    std::string directory, config, json_file;
    setting_options settings;
};

// Adds MODEL_DIR, --config, --executor, --json and the settings.
void add_model_options(parser &command, model_run_options &options);
// Adds --prompt and --max-tokens, and returns the former.
option *add_prompt_options(parser &command, std::vector<std::string> &prompts,
                           setting_options &settings);
// The configuration of the file, or the defaults (executor cpu, every expert in memory), with
// [source] model set to the directory and everything else of [source] that names work removed.
core::result<core::run_config> model_config_of(const model_run_options &options);

}  // namespace moorage::tool
