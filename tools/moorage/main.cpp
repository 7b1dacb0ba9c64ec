// main.cpp - the moorage program: parses the command line and runs one subcommand, in a child
// process.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/base/log.h"
#include "core/host/ending.h"
#include "core/host/supervise.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

// In the order of --help. A new subcommand is one line here and one file beside this one.
constexpr command (*installers[])(CLI::App &) = {
    install_run,   install_generate, install_eval,    install_compare,
    install_place, install_tune,     install_replay,  install_trace,
    install_model, install_tokenize, install_profile, install_plugins};

// Where figures of the chosen command go; "" where it gives none.
std::string json_file(const CLI::App &chosen) {
    for (const CLI::App *one : chosen.get_subcommands())
        if (const std::string below = json_file(*one); !below.empty()) return below;
    const CLI::Option *option = chosen.get_option_no_throw("--json");
    return option && option->count() > 0 ? option->results().front() : "";
}

int guarded(const command &action) {
    try {
        return action();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "moorage: %s\n", error.what());
        return exit_failed;
    }
}

// The command in a child process, so that whatever ends it can be told.
int supervised(const command &action, const std::string &figures) {
    if (const char *one = std::getenv("MOORAGE_ONE_PROCESS"); one && std::string(one) == "1")
        return guarded(action);
    const core::ending how =
        core::supervise([&](const core::sender &) { return guarded(action); }, {});
    if (how.finished) return how.exit_code;
    std::fprintf(stderr, "moorage: %s\n", how.text().c_str());
    if (!figures.empty())
        if (const auto done = write_json(figures, {{"failed", core::to_json(how)}}); !done)
            fail(done.failure());
    return how.policy_died() ? exit_policy_died : exit_failed;
}

}  // namespace

int run(int argc, char **argv) {
    CLI::App app("moorage: Mixture-of-Experts models whose experts do not fit in fast memory",
                 "moorage");
    app.require_subcommand(1);
    app.set_version_flag("--version", "moorage " MOORAGE_VERSION);
    app.footer(
        "Every command has --help. Exit code: 0 done, 1 failed, 2 wrong usage, 3 a policy died.\n"
        "MOORAGE_ONE_PROCESS=1 runs all in one process, for debuggers; then nobody says who died.");
    bool verbose = false;
    app.add_flag("-v,--verbose", verbose, "log what happens, not only warnings");

    std::vector<std::pair<CLI::App *, command>> commands;
    for (const auto install : installers) {
        command action = install(app);
        commands.emplace_back(app.get_subcommands({}).back(), std::move(action));
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        return app.exit(error) == 0 ? exit_ok : exit_usage;
    }
    if (verbose) core::set_log_level(core::log_level::info);
    for (const auto &[command, action] : commands)
        if (command->parsed()) return supervised(action, json_file(app));
    return exit_usage;
}

}  // namespace moorage::tool

int main(int argc, char **argv) { return moorage::tool::run(argc, argv); }
