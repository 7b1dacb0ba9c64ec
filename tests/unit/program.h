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

struct program_result {
    int code = -1;  // 128 + the signal where one ended it, as a shell has it
    std::string output, errors;
    bool says(const std::string &text) const { return errors.find(text) != std::string::npos; }
};

// Runs `moorage ARGUMENTS`, read like a shell command, without standard input. `errors`: the file
// for standard error. The code stays -1 if a signal ended it.
inline program_result run_line(const std::string &arguments, const std::string &errors) {
    const std::string line = std::string(MOORAGE_BINARY_DIR) + "/bin/moorage " + arguments + " 2>" +
                             errors + " </dev/null";
    program_result result;
    std::FILE *pipe = popen(line.c_str(), "r");
    REQUIRE(pipe != nullptr);
    char part[4096];
    for (size_t count; (count = std::fread(part, 1, sizeof(part), pipe)) > 0;)
        result.output.append(part, count);
    const int status = pclose(pipe);
    if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
    std::ifstream input(errors, std::ios::binary);
    result.errors.assign(std::istreambuf_iterator<char>(input), {});
    return result;
}

class program {
public:
    toy::folder folder;

    std::string file(const std::string &name) const { return folder / name; }
    std::string read(const std::string &name) const {
        std::ifstream input(folder / name, std::ios::binary);
        return {std::istreambuf_iterator<char>(input), {}};
    }
    // Names in the folder.
    std::vector<std::string> names() const {
        std::vector<std::string> file_names;
        for (const auto &entry : std::filesystem::directory_iterator(folder.path()))
            file_names.push_back(entry.path().filename());
        return file_names;
    }

    // Starts `moorage` with the arguments in that folder. Its output goes to descriptor `output`.
    // It gets a group of its own, so that a signal can be sent to all of it. `launcher`: the words
    // of a program that starts it.
    pid_t start(const std::vector<std::string> &arguments, int output, int errors,
                const std::vector<std::string> &launcher = {}) const {
        const std::string path = std::string(MOORAGE_BINARY_DIR) + "/bin/moorage";
        std::vector<char *> words;
        for (const std::string &word : launcher) words.push_back(const_cast<char *>(word.c_str()));
        words.push_back(const_cast<char *>(path.c_str()));
        for (const std::string &argument : arguments)
            words.push_back(const_cast<char *>(argument.c_str()));
        words.push_back(nullptr);
        const pid_t child = ::fork();
        if (child != 0) return child;
        ::setpgid(0, 0);
        if (::chdir(folder.path().c_str()) != 0) ::_exit(126);
        ::dup2(output, 1);
        ::dup2(errors, 2);
        ::execv(words.front(), words.data());
        ::_exit(127);
    }
    static int wait(pid_t child) {
        int state = 0;
        REQUIRE(::waitpid(child, &state, 0) == child);
        return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    }
    // `output_file`: a file for standard output, if it is not read back.
    program_result run(const std::vector<std::string> &arguments,
                       const char *output_file = nullptr) const {
        const auto open = [](const std::string &name) {
            return ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        };
        const int output = open(output_file ? output_file : file(".out")),
                  errors = open(file(".errors"));
        program_result result;
        result.code = wait(start(arguments, output, errors));
        ::close(output);
        ::close(errors);
        if (!output_file) result.output = read(".out");
        result.errors = read(".errors");
        std::filesystem::remove(file(".out"));
        std::filesystem::remove(file(".errors"));
        return result;
    }
};

}  // namespace moorage::test
