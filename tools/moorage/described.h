// described.h - the command line as data, for the manual page and the shells' completions.
// parser::described() fills it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moorage::tool {

enum class argument_kind : uint8_t { none, word, file, other };

struct described_option {
    std::vector<std::string> names;  // "--json", "-q"; of an argument without one: "config"
    bool positional = false, required = false, repeatable = false;
    std::string value;  // its placeholder in usage: "FILE"; "" for a flag
    argument_kind kind = argument_kind::none;
    std::vector<std::string> words;  // for kind `word`: all allowed words
    std::string bounds;              // "1 - 64", or ""
    std::string fallback;            // its default value, or ""
    std::string help;
};

struct described_command {
    std::string path;    // "trace synth"; "" for the program
    std::string title;   // one line
    std::string footer;  // own paragraphs, or ""
    std::vector<described_option> options;
    std::vector<described_command> commands;
};

// In mdoc, for man(1); `date` as in "November 23, 2026".
std::string manual_of(const described_command &program, const std::string &date);
// `shell`: bash, zsh or fish.
std::string completion_of(const described_command &program, const std::string &shell);

}  // namespace moorage::tool
