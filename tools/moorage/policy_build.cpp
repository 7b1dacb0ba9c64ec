// policy_build.cpp - compiles one policy's source into a library beside it, for `plugins check`.
#include <cstdlib>
#include <fstream>
#include <iostream>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/text.h"
#include "tools/moorage/plugins.h"

namespace moorage::tool {

namespace fs = std::filesystem;
using core::error;
using core::format;

namespace {

// Compiler from the environment variable, else the usual name.
std::string compiler(const char *variable, const char *usual) {
    const char *given = std::getenv(variable);
    return given && *given ? given : usual;
}

// The map that leaves one symbol visible: the SDK's own, else one written for this call.
core::result<fs::path> symbol_map(const fs::path &include) {
    for (const char *place : {"../cmake/module.map", "../lib/cmake/moorage-sdk/module.map"})
        if (const fs::path map = include / place; fs::exists(map)) return map.lexically_normal();
    const fs::path map = fs::temp_directory_path() / format("moorage-module-{}.map", getpid());
    std::ofstream out(map);
    out << "{ global: moorage_module_v*; local: *; };\n" << std::flush;
    if (out) return map;
    return error{format("{} cannot be written; it is needed to link the policy", map.string())};
}

core::result<std::vector<std::string>> command_for(const fs::path &source, const fs::path &library) {
    if (source.extension() == ".rs")
        return std::vector<std::string>{compiler("RUSTC", "rustc"), "--edition", "2021", "--crate-type", "cdylib",
                                        "-O", "-o", library.string(), source.string()};
    const fs::path include = sdk_include_folder();
    if (include.empty()) return error{"the sdk's headers were not found; set MOORAGE_SDK_INCLUDE"};
    const auto map = symbol_map(include);
    if (!map) return map.failure();
    std::vector<std::string> command;
    if (source.extension() == ".c") command = {compiler("CC", "cc"), "-std=c11"};
    else command = {compiler("CXX", "c++"), "-std=c++20"};
    for (const std::string &flag : {std::string("-O2"), std::string("-fPIC"), std::string("-shared"),
                                    std::string("-fvisibility=hidden"), std::string("-ffp-contract=off"),
                                    "-I" + include.string(), "-Wl,--version-script=" + map->string(),
                                    std::string("-o"), library.string(), source.string()})
        command.push_back(flag);
    return command;
}

int run(const std::vector<std::string> &command) {
    std::vector<char *> arguments;
    for (const std::string &word : command) arguments.push_back(const_cast<char *>(word.c_str()));
    arguments.push_back(nullptr);
    pid_t child = 0;
    if (posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) return 127;
    int state = 0;
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

}  // namespace

fs::path program_folder() {
    std::error_code failed;
    return fs::read_symlink("/proc/self/exe", failed).parent_path();
}

fs::path sdk_include_folder() {
    if (const char *given = std::getenv("MOORAGE_SDK_INCLUDE"); given && *given) return given;
    for (const fs::path &place : {program_folder().parent_path() / "include",
                                  fs::path(MOORAGE_SOURCE_DIR) / "sdk/include"})
        if (fs::exists(place / "moorage/module.h")) return place;
    return {};
}

core::result<fs::path> compile_policy(const fs::path &source) {
    const fs::path library = fs::path(source).replace_extension(".so");
    const auto command = command_for(source, library);
    if (!command) return command.failure();
    std::cout << format("{}\n", fmt::join(*command, " ")) << std::flush;
    const int code = run(*command);
    if (code == 0) return library;
    if (code == 127) return error{format("{} is not installed; it compiles {}", command->front(), source.string())};
    return error{format("{} does not compile (exit code {} of {})", source.string(), code, command->front())};
}

}  // namespace moorage::tool
