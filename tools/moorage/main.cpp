// main.cpp - the moorage program: parses the command line and runs one subcommand.
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/base/log.h"
#include "tools/moorage/command.h"

namespace moorage::tool {

namespace {

// In the order of --help. A new subcommand is one line here and one file beside this one.
constexpr command (*installers[])(CLI::App &) = {
    install_run,   install_generate, install_eval,    install_compare,
    install_place, install_tune,     install_replay,  install_trace,
    install_model, install_tokenize, install_profile, install_plugins};

}  // namespace

int run(int argc, char **argv) {
    CLI::App app("moorage: Mixture-of-Experts models whose experts do not fit in fast memory",
                 "moorage");
    app.require_subcommand(1);
    app.set_version_flag("--version", "moorage " MOORAGE_VERSION);
    app.footer("Every command has --help. Exit code: 0 done, 1 failed, 2 wrong usage.");
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
        if (command->parsed()) return action();
    return exit_usage;
}

}  // namespace moorage::tool

int main(int argc, char **argv) {
    try {
        return moorage::tool::run(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "moorage: %s\n", error.what());
        return moorage::tool::exit_failed;
    }
}
