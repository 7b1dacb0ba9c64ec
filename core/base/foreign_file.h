// foreign_file.h - messages about files that are not what their names say.
//
//   const std::string problem = non_text_problem(first_bytes);
//   if (!problem.empty()) return error{format("{}: {}", path, problem)};
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace moorage::core {

// This many bytes of a file's beginning are enough for both functions.
inline constexpr size_t foreign_bytes = 1024;

// "is a pointer of Git LFS ..."; empty: it is not a pointer.
std::string lfs_pointer_problem(std::span<const std::byte> begin);
// For a file that should be text: says that it is a pointer, compressed, or UTF-16. Empty: none of
// them. Looks at the first foreign_bytes only.
std::string non_text_problem(std::span<const std::byte> begin);

// Without the byte order mark that some editors put before a text in UTF-8.
inline std::string_view without_byte_order_mark(std::string_view text) {
    constexpr std::string_view mark = "\xef\xbb\xbf";
    return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

// For a library or program that the system refuses to execute: what to do about the mount that it
// lies on. Empty: the mount allows execution, or it is not known.
std::string noexec_problem(const std::filesystem::path &file);

}  // namespace moorage::core
