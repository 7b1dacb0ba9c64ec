// elf_symbols.h - the symbols of a shared library, read from its file. None of its code runs.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

// Names are cut at 256 bytes. In a hostile file, any number of names may point into one endless
// text.
struct elf_symbols {
    std::vector<std::string_view> exported;    // defined here, visible to others
    std::vector<std::string_view> functions;   // those of `exported` that can be called
    std::vector<std::string_view> imported;    // used here, defined elsewhere
    std::vector<std::string_view> shared;      // STB_GNU_UNIQUE: one for all libraries of a process
    std::vector<std::string_view> needed;      // libraries that are loaded with it
    std::unique_ptr<std::vector<char>> texts;  // owns the bytes of all names
};

// Reads the tables that the loader uses: the dynamic segment. Sections may be stripped or wrong.
// Every offset and count is checked against the file, which must contain all its segments. The
// error says what the file is instead, and the remedy, without its name.
result<elf_symbols> read_elf_symbols(const std::filesystem::path &file);

}  // namespace moorage::core
