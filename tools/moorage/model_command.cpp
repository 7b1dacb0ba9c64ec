// model_command.cpp - `moorage model`: what a model directory holds, and whether it computes right.
#include <memory>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/moorage/command.h"
#include "tools/moorage/model_check.h"
#include "tools/moorage/model_info.h"

namespace moorage::tool {

command install_model(CLI::App &app) {
    CLI::App *sub = app.add_subcommand("model", "look at and check model directories");
    sub->require_subcommand(1);
    // shared: std::function wants copies, and the list is the same for all of them
    using entries = std::vector<std::pair<CLI::App *, command>>;
    const auto parts = std::make_shared<entries>();
    for (const auto install : {install_model_info, install_model_check}) {
        command action = install(*sub);
        parts->emplace_back(sub->get_subcommands({}).back(), std::move(action));
    }
    return [parts] {
        for (const auto &[part, action] : *parts)
            if (part->parsed()) return action();
        return exit_usage;
    };
}

}  // namespace moorage::tool
