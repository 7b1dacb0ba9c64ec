// executors_command.cpp - `moorage executors`: where a run can happen on this machine.
#include <memory>
#include <string>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/execute/executor_module.h"
#include "core/report/figures.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

namespace {

using core::format;
using core::json;

int list_executors(const std::string &json_file) {
    json list = json::array();
    for (const core::executor_module *module : core::executor_modules()) {
        const core::executor_probe found = module->probe();
        list.push_back({{"name", module->name},
                        {"available", !found.devices.empty()},
                        {"devices", found.devices},
                        {"problem", found.problem}});
        if (json_file == "-") continue;
        const std::string text = found.devices.empty()
                                     ? "not here: " + found.problem
                                     : format("{}", fmt::join(found.devices, ", "));
        print(format("{}\n", module->name));
        for (const std::string &line : core::wrapped(text, core::text_columns - 2))
            print(format("  {}\n", line));
    }
    if (json_file.empty()) return exit_ok;
    const core::status written = write_json(json_file, {{"executors", list}});
    return written ? exit_ok : fail(written.failure());
}

}  // namespace

command install_executors(parser &app) {
    parser *sub = app.add_subcommand(
        "executors", "list where a run can happen: executors, their devices, what is missing");
    const auto json_file = std::make_shared<std::string>();
    add_json(*sub, *json_file, "the list");
    return [=] { return list_executors(*json_file); };
}

}  // namespace moorage::tool
