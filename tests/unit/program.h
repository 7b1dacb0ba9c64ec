// program.h - runs the built program, in a folder of the test's own.
#pragma once

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/unit/toy_machine.h"

namespace moorage::test {

struct ended {
    int code = -1;  // 128 + the signal where one ended it, as a shell has it
    std::string out, errors;
    bool says(const std::string &text) const { return errors.find(text) != std::string::npos; }
};

// Runs `moorage ARGUMENTS`, read like a shell command, without standard input. `errors`: the file
// for standard error. The code stays -1 if a signal ended it.
inline ended run_line(const std::string &arguments, const std::string &errors) {
    const std::string line = std::string(MOORAGE_BINARY_DIR) + "/bin/moorage " + arguments + " 2>" +
                             errors + " </dev/null";
    ended how;
    std::FILE *pipe = popen(line.c_str(), "r");
    REQUIRE(pipe != nullptr);
    char part[4096];
    for (size_t count; (count = std::fread(part, 1, sizeof(part), pipe)) > 0;)
        how.out.append(part, count);
    const int status = pclose(pipe);
    if (WIFEXITED(status)) how.code = WEXITSTATUS(status);
    std::ifstream in(errors, std::ios::binary);
    how.errors.assign(std::istreambuf_iterator<char>(in), {});
    return how;
}

class program {
public:
    toy::folder folder;

    std::string file(const std::string &name) const { return folder / name; }
    std::string read(const std::string &name) const {
        std::ifstream in(folder / name, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    // Names in the folder.
    std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (const auto &one : std::filesystem::directory_iterator(folder.path()))
            all.push_back(one.path().filename());
        return all;
    }

    // Starts `moorage` with the arguments in that folder. Its output goes to descriptor `out`. It
    // gets a group of its own, so that a signal can be sent to all of it. `by`: the words of a
    // program that starts it.
    pid_t start(const std::vector<std::string> &arguments, int out, int errors,
                const std::vector<std::string> &by = {}) const {
        const std::string path = std::string(MOORAGE_BINARY_DIR) + "/bin/moorage";
        std::vector<char *> words;
        for (const std::string &one : by) words.push_back(const_cast<char *>(one.c_str()));
        words.push_back(const_cast<char *>(path.c_str()));
        for (const std::string &one : arguments) words.push_back(const_cast<char *>(one.c_str()));
        words.push_back(nullptr);
        const pid_t child = ::fork();
        if (child != 0) return child;
        ::setpgid(0, 0);
        if (::chdir(folder.path().c_str()) != 0) ::_exit(126);
        ::dup2(out, 1);
        ::dup2(errors, 2);
        ::execv(words.front(), words.data());
        ::_exit(127);
    }
    static int wait(pid_t child) {
        int state = 0;
        REQUIRE(::waitpid(child, &state, 0) == child);
        return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    }
    // `out`: a file for standard output, if it is not read back.
    ended run(const std::vector<std::string> &arguments, const char *out = nullptr) const {
        const auto open = [](const std::string &name) {
            return ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        };
        const int to = open(out ? out : file(".out")), errors = open(file(".errors"));
        ended how;
        how.code = wait(start(arguments, to, errors));
        ::close(to);
        ::close(errors);
        if (!out) how.out = read(".out");
        how.errors = read(".errors");
        std::filesystem::remove(file(".out"));
        std::filesystem::remove(file(".errors"));
        return how;
    }
};

}  // namespace moorage::test
