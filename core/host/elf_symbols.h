// elf_symbols.h - what a shared library says about itself, read from its file: none of its code
// runs.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

// Names are cut off at 256 bytes: in a hostile file any number of them may share one endless text.
struct elf_symbols {
    std::vector<std::string_view> exported;    // defined here, visible to others
    std::vector<std::string_view> functions;   // those of them that can be called
    std::vector<std::string_view> taken;       // used here, defined elsewhere
    std::vector<std::string_view> shared;      // STB_GNU_UNIQUE: one for all libraries of a process
    std::vector<std::string_view> needed;      // libraries that are opened along with it
    std::unique_ptr<std::vector<char>> texts;  // what the names are of
};

// Reads the tables that the loader uses (the dynamic segment; sections may be stripped or lie).
// Every offset and count is checked against the file, whose segments must all be there. The error
// says what the file is instead, and the remedy, without its name.
result<elf_symbols> read_elf_symbols(const std::filesystem::path &file);

}  // namespace moorage::core
