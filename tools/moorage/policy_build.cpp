// policy_build.cpp - compiles one policy's source into a library beside it, for `plugins check`.
#include <cstdlib>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/text.h"
#include "tools/moorage/output.h"
#include "tools/moorage/plugins.h"

namespace moorage::tool {

namespace fs = std::filesystem;
using core::error;
using core::format;

namespace {

// The compiler in the environment variable, or the usual name.
std::string compiler(const char *variable, const char *usual) {
    const char *configured = std::getenv(variable);
    return configured && *configured ? configured : usual;
}

// The command in the first lines of each template.
std::vector<std::string> command_for(const fs::path &sdk, const fs::path &source,
                                     const fs::path &library) {
    if (source.extension() == ".rs")
        return {compiler("RUSTC", "rustc"),
                "--edition",
                "2021",
                "-O",
                "--crate-type",
                "cdylib",
                "-C",
                "panic=unwind",
                source.string(),
                "-o",
                library.string()};
    const bool c = source.extension() == ".c";
    return {c ? compiler("CC", "cc") : compiler("CXX", "c++"),
            c ? "-std=c11" : "-std=c++20",
            "-O2",
            "-fPIC",
            "-shared",
            "-fvisibility=hidden",
            "-ffp-contract=off",
            "-I",
            (sdk / "include").string(),
            "-I",
            (sdk / "latency/include").string(),
            "-Wl,--version-script=" + (sdk / "cmake/module.map").string(),
            source.string(),
            "-o",
            library.string()};
}

int run(const std::vector<std::string> &command) {
    std::vector<char *> arguments;
    for (const std::string &word : command) arguments.push_back(const_cast<char *>(word.c_str()));
    arguments.push_back(nullptr);
    pid_t child = 0;
    if (posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0)
        return 127;
    int state = 0;
    while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

}  // namespace

core::result<fs::path> sdk_folder() {
    if (const char *configured = std::getenv("MOORAGE_SDK"); configured && *configured) {
        if (fs::exists(fs::path(configured) / "include/moorage/module.h"))
            return fs::path(configured);
        return error{format("MOORAGE_SDK = {} holds no include/moorage/module.h", configured),
                     true};
    }
    std::error_code failed;
    const fs::path program = fs::read_symlink("/proc/self/exe", failed).parent_path();
    const fs::path places[] = {program.parent_path() / "share/moorage/sdk",
                               fs::path(MOORAGE_SOURCE_DIR) / "sdk"};
    for (const fs::path &place : places)
        if (fs::exists(place / "include/moorage/module.h")) return place;
    return error{format("the sdk is neither in {} nor in {}; set MOORAGE_SDK", places[0].string(),
                        places[1].string())};
}

core::result<fs::path> compile_policy(const fs::path &source) {
    const auto sdk = sdk_folder();
    if (!sdk) return sdk.failure();
    const fs::path library = fs::path(source).replace_extension(".so");
    const auto command = command_for(*sdk, source, library);
    setenv("MOORAGE_SDK", sdk->c_str(), 1);  // the Rust bindings are found through it
    print(format("{}{}\n", source.extension() == ".rs" ? "MOORAGE_SDK=" + sdk->string() + " " : "",
                 fmt::join(command, " ")));
    output_failed();  // flushes, so that the compiler's output comes after this
    const int code = run(command);
    if (code == 0) return library;
    if (code == 127)
        return error{
            format("{} is not installed; it compiles {}", command.front(), source.string())};
    return error{
        format("{} does not compile (exit code {} of {})", source.string(), code, command.front())};
}

}  // namespace moorage::tool
