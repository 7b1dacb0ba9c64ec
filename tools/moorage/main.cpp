// main.cpp - the moorage program: parses the command line and runs one subcommand, in a child
// process.
#include <csignal>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/base/log.h"
#include "core/base/partial_files.h"
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

// The options by which commands name what they write.
constexpr const char *outputs[] = {"--json", "--html", "--timeline", "--out"};

// Option and file, of those that were given.
using output_files = std::vector<std::pair<std::string, std::string>>;

output_files outputs_of(const CLI::App &command) {
    output_files named;
    for (const char *name : outputs)
        if (const CLI::Option *given = command.get_option_no_throw(name); given && given->count())
            named.emplace_back(name, given->results().front());
    for (const CLI::App *part : command.get_subcommands())
        for (auto &one : outputs_of(*part)) named.push_back(std::move(one));
    return named;
}

int guarded(const command &action) {
    try {
        return finish_output(action());
    } catch (const std::exception &error) {
        return fail({error.what()});
    }
}

// The command in a child process, so that whatever ends it can be told.
int supervised(const command &action, const output_files &files) {
    if (const char *one = std::getenv("MOORAGE_ONE_PROCESS"); one && std::string(one) == "1")
        return guarded(action);
    const core::ending how =
        core::supervise([&](const core::sender &) { return guarded(action); }, {});
    if (how.finished) return how.exit_code;
    core::remove_partial_files(0);
    fail({how.text()});
    for (const auto &[option, file] : files)
        if (option == "--json")
            if (const auto done = write_json(file, {{"failed", core::to_json(how)}}); !done)
                fail(done.failure());
    return finish_output(how.policy_died() ? exit_policy_died : exit_failed);
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
        std::ostringstream out, errors;
        const int code = app.exit(error, out, errors) == 0 ? exit_ok : exit_usage;
        print(out.str());
        print_error(errors.str());
        return finish_output(code);
    }
    if (verbose) core::set_log_level(core::log_level::info);
    const output_files files = outputs_of(app);
    if (const core::status distinct = check_outputs(files); !distinct)
        return fail(distinct.failure());
    for (const auto &[command, action] : commands)
        if (command->parsed()) return supervised(action, files);
    return exit_usage;
}

}  // namespace moorage::tool

int main(int argc, char **argv) {
    // A pipe that nobody reads any more is an error of the write, told like any other.
    std::signal(SIGPIPE, SIG_IGN);
    moorage::core::remove_partial_files_on_signals();
    return moorage::tool::run(argc, argv);
}
