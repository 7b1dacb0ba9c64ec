// hostile_program.h - the built program with hostile policies, its output and its end.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "core/base/json.h"

namespace hostile_program {

namespace fs = std::filesystem;
using moorage::core::json;

inline const fs::path build = MOORAGE_BINARY_DIR, source = MOORAGE_SOURCE_DIR;

inline std::string text_of(const fs::path &file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
}

struct outcome {
    int code = -1;  // of the program
    std::string text, errors;
    json figures;
};

// Runs "moorage ARGUMENTS --json F". `environment` goes in front, such as "NAME=1".
inline outcome program(const std::string &arguments, const std::string &environment = "") {
    const fs::path base =
        fs::temp_directory_path() / ("moorage-hostile-" + std::to_string(getpid()));
    const std::string json_file = base.string() + ".json", errors = base.string() + ".err",
                      text = base.string() + ".txt";
    const std::string command = environment + " '" + (build / "bin/moorage").string() + "' " +
                                arguments + " --json " + json_file + " > " + text + " 2> " + errors;
    const int state = std::system(command.c_str());
    outcome done;
    done.code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    done.text = text_of(text);
    done.errors = text_of(errors);
    done.figures = json::parse(text_of(json_file), nullptr, false);
    for (const std::string &file : {json_file, errors, text}) fs::remove(file);
    return done;
}

inline const std::string hostile = (build / "hostile/hostile").string();
inline const std::string door = (build / "hostile/door/door.so").string();

// A run of 12 tokens through 24 layers whose experts do not fit.
inline const std::string few_tokens = "'" + (source / "configs/quickstart.toml").string() +
                                      "' --set run.tokens=12 --set memory.experts=144";
inline const std::string buffered = few_tokens + " --set memory.buffer_experts=4";

}  // namespace hostile_program
