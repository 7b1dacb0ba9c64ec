// foreign_file.h - files that are not what their names say: what to tell a person about them.
//
//   const std::string wrong = foreign_text(first_bytes);
//   if (!wrong.empty()) return error{format("{}: {}", path, wrong)};
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace moorage::core {

// So many bytes of a file's beginning are enough for both.
inline constexpr size_t foreign_bytes = 1024;

// "is a pointer of Git LFS ..."; empty: it is none.
std::string foreign_pointer(std::span<const std::byte> begin);
// Of a file that is to be text: a pointer, packed, or UTF-16. Empty: it is none of them.
std::string foreign_text(std::span<const std::byte> begin);

// Of a file that the system will not execute, a library or a program: what to do about the mount
// that it lies on. Empty: the mount lets files be executed, or nobody knows.
std::string noexec_text(const std::filesystem::path &file);

}  // namespace moorage::core
