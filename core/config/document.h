// document.h - a parsed TOML file as a plain tree in which every value knows its line.
//
//   auto root = parse_document("[run]\ntokens = 5\n", "run.toml");
//   for (const entry &section : root->entries) ...
//
// The TOML library is used in document.cpp only; the rest of the folder works on this tree.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

// A configuration is small. A larger file is one that was named by mistake.
inline constexpr uint64_t document_bytes_max = 1 << 20;

enum class node_type { boolean, integer, number, text, date, list, table };
// With its article, for messages: "an integer".
const char *name_of(node_type type);

struct entry;
struct node {
    node_type type = node_type::text;
    uint32_t line = 0;  // 1-based; 0: the value comes from no file
    bool boolean = false;
    int64_t integer = 0;
    double number = 0;
    std::string text;            // for a date: as it would be written
    std::vector<node> items;     // of a list
    std::vector<entry> entries;  // of a table, in the order of the file
};
struct entry {
    std::string key;
    node value;
};

// Is the text a bare key: letters, digits, _ and -, at least one of them?
bool is_bare_key(std::string_view text);

// `name` stands for the file in messages. Errors name it and the line. Only bare keys are accepted.
result<node> parse_document(std::string_view text, std::string_view name);
// The error for a file that does not exist. It names the key that refers to the file, if any, and
// the nearest name in its folder.
error no_such_file(const std::filesystem::path &file, std::string_view key = {});
result<std::string> read_document(const std::filesystem::path &file);

// Parses what stands right of an equals sign. Text that is no TOML value, or is a date, stays text:
// `lru` and `"lru"` both give the text lru.
node parse_value(std::string_view text);

}  // namespace moorage::core
