// command.h - the subcommands of the program: each is one file, named in the list in main.cpp.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace moorage::tool {

// Exit codes of the contract.
inline constexpr int exit_ok = 0, exit_failed = 1, exit_usage = 2, exit_policy_died = 3;

// Adds one subcommand to `app`; the function it returns runs it, once parsing chose it, and returns
// the exit code.
using command = std::function<int()>;
command install_plugins(CLI::App &app);
command install_trace(CLI::App &app);
command install_tune(CLI::App &app);
command install_replay(CLI::App &app);
command install_run(CLI::App &app);
command install_compare(CLI::App &app);
command install_place(CLI::App &app);
command install_generate(CLI::App &app);
command install_eval(CLI::App &app);
command install_model(CLI::App &app);
command install_tokenize(CLI::App &app);
command install_profile(CLI::App &app);

}  // namespace moorage::tool
