// model_command.cpp - `moorage model`: shows a model's contents, checks its results, writes other
// files of it.
#include <memory>
#include <utility>
#include <vector>

#include "tools/moorage/command.h"
#include "tools/moorage/model_check.h"
#include "tools/moorage/model_convert.h"
#include "tools/moorage/model_info.h"
#include "tools/moorage/model_shape.h"

namespace moorage::tool {

command install_model(parser &app) {
    parser *sub = app.add_subcommand("model", "show, check and convert models");
    sub->require_subcommand(1);
    // shared: std::function wants copies, and the list is the same for all of them
    using entries = std::vector<std::pair<parser *, command>>;
    const auto parts = std::make_shared<entries>();
    for (const auto install : {install_model_info, install_model_check, install_model_shape,
                               install_model_convert}) {
        command action = install(*sub);
        parts->emplace_back(sub->last_subcommand(), std::move(action));
    }
    return [parts] {
        for (const auto &[part, action] : *parts)
            if (part->parsed()) return action();
        return exit_usage;
    };
}

}  // namespace moorage::tool
