// command.h - the subcommands of the program. Each is one file, in the list of main.cpp.
#pragma once

#include <functional>

#include "tools/moorage/parser.h"

namespace moorage::tool {

// Exit codes of the contract.
inline constexpr int exit_ok = 0, exit_failed = 1, exit_usage = 2, exit_policy_died = 3;

// Adds one subcommand to `app`. The returned function runs it if parsing chose it, and returns the
// exit code.
using command = std::function<int()>;
// Runs it in this process. Prints any exception, and returns the exit code.
int guarded(const command &action);
// MOORAGE_ONE_PROCESS=1: no child processes are used.
bool is_one_process();
command install_plugins(parser &app);
command install_trace(parser &app);
command install_tune(parser &app);
command install_replay(parser &app);
command install_run(parser &app);
command install_compare(parser &app);
command install_place(parser &app);
command install_generate(parser &app);
command install_eval(parser &app);
command install_model(parser &app);
command install_tokenize(parser &app);
command install_validate(parser &app);
command install_profile(parser &app);
command install_node(parser &app);
command install_cluster(parser &app);
command install_executors(parser &app);
command install_load(parser &app);
// These keep `app` until they run.
command install_help(parser &app);
command install_completion(parser &app);
command install_man(parser &app);

}  // namespace moorage::tool
