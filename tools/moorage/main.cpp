// main.cpp - the moorage program: parses the command line and runs one subcommand, in a child
// process.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/freed_memory.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/partial_files.h"
#include "core/base/text.h"
#include "core/host/ending.h"
#include "core/host/supervise.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/row_file.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

namespace {

// A command and what declares it.
struct installer {
    std::string_view name;
    command (*install)(parser &);
    // It runs until it is told to end, and drains in its own time. A node has a supervisor of its
    // own, which knows at which request the node died.
    bool is_server = false;
    // It describes all commands.
    bool needs_all = false;
};

// In the order of --help. A new subcommand is one line here and one file beside this one.
constexpr installer installers[] = {{"run", install_run},
                                    {"generate", install_generate},
                                    {"eval", install_eval},
                                    {"compare", install_compare},
                                    {"place", install_place},
                                    {"tune", install_tune},
                                    {"replay", install_replay},
                                    {"trace", install_trace},
                                    {"model", install_model},
                                    {"tokenize", install_tokenize},
                                    {"profile", install_profile},
                                    {"validate", install_validate},
                                    {"executors", install_executors},
                                    {"plugins", install_plugins},
                                    {"cluster", install_cluster},
                                    {"help", install_help, false, true},
                                    {"completion", install_completion, false, true},
                                    {"man", install_man, false, true},
                                    {"node", install_node, true},
                                    {"load", install_load, true}};

// Is the command needed to read this command line? Options of all commands are half of what a short
// command does, so the others are left out if the first word is a command.
bool is_needed(const installer &candidate, std::string_view first_word) {
    const auto *const chosen =
        std::find_if(std::begin(installers), std::end(installers),
                     [&](const installer &known) { return known.name == first_word; });
    return chosen == std::end(installers) || chosen->needs_all || chosen == &candidate;
}

// The options that name output files.
constexpr const char *outputs[] = {"--json",     "--html", "--csv",    "--rows",
                                   "--timeline", "--out",  "--answers"};

// The system refused memory or a thread to this process.
int refused(const char *problem, const char *limits) {
    return fail(
        {core::format("{}; limits of this process: {} (`ulimit -a` shows them)", problem, limits)});
}

}  // namespace

bool is_one_process() {
    const char *const wanted = std::getenv("MOORAGE_ONE_PROCESS");
    return wanted && std::string(wanted) == "1";
}

int guarded(const command &action) {
    try {
        return finish_output(action());
    } catch (const std::bad_alloc &) {
        return refused("not enough memory", "ulimit -v, -d");
    } catch (const std::system_error &error) {
        if (error.code() != std::errc::resource_unavailable_try_again) return fail({error.what()});
        return refused("one more thread could not be started", "ulimit -u, -v, -d");
    } catch (const std::exception &error) {
        return fail({error.what()});
    }
}

namespace {

// Runs the command in a child process, so that this process can report how it ended.
int supervised(const command &action, const option_values &files) {
    if (is_one_process()) return guarded(action);
    core::supervision supervision;
    supervision.print = print_for_child;
    const core::ending process_end = core::supervise(
        [&](const core::sender &) {
            print_through_parent();
            return guarded(action);
        },
        supervision);
    // A process that died leaves workers of its own, which no policy has made.
    if (process_end.finished && !process_end.forked.empty())
        core::log_warning(core::format("{} made a second process of this one, which was ended",
                                       process_end.forked));
    if (process_end.finished) return finish_output(process_end.exit_code);
    core::remove_partial_files(0);
    fail({process_end.text()});
    if (const std::string remedy = remedy_of_rows(files); !remedy.empty())
        print_error(core::format("moorage: {}\n", remedy));
    for (const auto &[option, file] : files)
        // A document that was written, or cut off, stays the only one.
        if (option == "--json" && (file != "-" || !has_output_begun()))
            if (const auto done = write_json(file, {{"failed", core::to_json(process_end)}}); !done)
                fail(done.failure());
    return finish_output(process_end.policy_died() ? exit_policy_died : exit_failed);
}

// Reads the command line, and runs what it asks for. Nothing: it is wrong usage, and not all
// commands were declared, so that the error is not known yet.
std::optional<int> run_declared(int argc, char **argv, bool declares_all) {
    parser app(
        "moorage runs and emulates Mixture-of-Experts models whose experts do not fit in fast "
        "memory",
        "moorage");
    app.require_subcommand(1);
    app.set_version_flag("--version", "moorage " MOORAGE_VERSION);
    app.footer(
        "Every command has --help. Exit code: 0 done, 1 failed, 2 wrong usage, 3 a policy died.\n"
        "MOORAGE_ONE_PROCESS=1 runs all in one process, for debuggers. Then no message names a "
        "policy that died.");
    bool verbose = false;
    app.add_flag("-v,--verbose", verbose, "log events, not only warnings");

    struct installed_command {
        const parser *options;
        command action;
        bool is_server;
    };
    std::vector<installed_command> commands;
    for (const installer &known : installers) {
        if (!declares_all && !is_needed(known, argc > 1 ? argv[1] : "")) continue;
        command action = known.install(app);
        commands.push_back({app.last_subcommand(), std::move(action), known.is_server});
    }
    // Keys are the same for all commands. A command without use for them says so.
    setting_options unused_settings;
    std::vector<parser *> commands_without_keys;
    for (parser *leaf : app.leaves())
        if (!leaf->has_option("--set")) {
            add_set(*leaf, unused_settings);
            commands_without_keys.push_back(leaf);
        }
    if (const auto exit_code = app.parse(argc, argv, declares_all))
        return *exit_code == exit_usage && !declares_all ? std::optional<int>() : exit_code;
    keep_output_apart();
    if (verbose) core::set_log_level(core::log_level::info);
    const option_values files = app.values_of(outputs);
    if (const core::status distinct = check_outputs(files); !distinct)
        return fail(distinct.failure());
    if (const core::status apart = check_inputs(files, argc, argv); !apart)
        return fail(apart.failure());
    if (const core::status writable = check_can_be_written(files); !writable)
        return fail(writable.failure());
    for (const parser *leaf : commands_without_keys)
        if (leaf->parsed() && !unused_settings.set.empty())
            if (const auto checked = read_alone(unused_settings, leaf->name(), {}); !checked)
                return fail(checked.failure());
    for (const auto &[options, action, is_server] : commands)
        if (options->parsed()) return is_server ? guarded(action) : supervised(action, files);
    return exit_usage;
}

}  // namespace

int run(int argc, char **argv) {
    // Scripts ask for it often, so it is answered before commands are declared.
    if (argc == 2 && std::string_view(argv[1]) == "--version") {
        print("moorage " MOORAGE_VERSION "\n");
        return finish_output(exit_ok);
    }
    // An error may name other commands, so it is found with all of them.
    const std::optional<int> exit_code = run_declared(argc, argv, /*declares_all=*/false);
    return exit_code ? *exit_code : *run_declared(argc, argv, /*declares_all=*/true);
}

}  // namespace moorage::tool

int main(int argc, char **argv) {
    moorage::core::keep_freed_memory();
    moorage::tool::secure_standard_descriptors();
    // Writing to a closed pipe then gives an error, which is reported like any other.
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);  // and so is a file longer than ulimit -f
    moorage::core::remove_partial_files_on_signals();
    return moorage::tool::run(argc, argv);
}
