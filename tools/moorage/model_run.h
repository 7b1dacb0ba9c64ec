// model_run.h - shared by generate, eval and trace record: a configuration around a model
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
struct prompt_options {
    std::vector<std::string> texts, files;
    bool has_prompts() const { return !texts.empty() || !files.empty(); }
};
// Adds --prompt, --prompt-file and --max-tokens.
void add_prompt_options(parser &command, prompt_options &prompts, setting_options &settings);
// The texts, then those of the files and of standard input, each without its last line break.
core::result<std::vector<std::string>> read_prompts(const prompt_options &prompts);
// The configuration of the file, or the defaults (executor cpu, every expert in memory). [source]
// model is set to the directory. All other keys of [source] that name work are removed. `defaults`:
// values of keys that are given nowhere.
core::result<core::run_config> model_config_of(const model_run_options &options,
                                               const core::run_config &defaults = {});

}  // namespace moorage::tool
