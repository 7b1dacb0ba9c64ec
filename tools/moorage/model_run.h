// model_run.h - what generate, eval and trace record share: a configuration around a model
// directory.
#pragma once

#include <string>
#include <vector>

#include "core/config/run_config.h"

namespace CLI {
class App;
}

namespace moorage::tool {

struct model_run_options {
    std::string directory, config, executor, json_file;
    std::vector<std::string> overrides;
};

// Adds MODEL_DIR, --config, --executor, --set and --json.
void add_model_options(CLI::App &command, model_run_options &options);
// The configuration of the file, or the defaults (executor cpu, every expert in memory), with
// [source] model set to the directory and everything else of [source] that names work removed.
core::result<core::run_config> model_config_of(const model_run_options &options);

}  // namespace moorage::tool
