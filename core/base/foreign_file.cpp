// foreign_file.cpp - recognises files by their first bytes.
#include "core/base/foreign_file.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "core/base/text.h"

namespace moorage::core {

namespace {

using namespace std::string_view_literals;

struct compressed_format {
    std::string_view first_bytes, name, tool;
};
constexpr compressed_format packings[] = {{"\x1f\x8b"sv, "gzip", "gunzip"},
                                          {"\x28\xb5\x2f\xfd"sv, "zstd", "unzstd"},
                                          {"\xfd"
                                           "7zXZ\0"sv,
                                           "xz", "unxz"},
                                          {"BZh"sv, "bzip2", "bunzip2"},
                                          {"PK\x03\x04"sv, "zip", "unzip"},
                                          {"\x04\x22\x4d\x18"sv, "lz4", "unlz4"}};

std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

// By its byte order mark, or by the zero bytes beside ASCII letters.
bool is_utf16(std::string_view text) {
    if (text.starts_with("\xff\xfe"sv) || text.starts_with("\xfe\xff"sv)) return true;
    return text.size() >= 4 && ((text[0] != 0 && text[1] == 0 && text[2] != 0 && text[3] == 0) ||
                                (text[0] == 0 && text[1] != 0 && text[2] == 0 && text[3] != 0));
}

}  // namespace

std::string lfs_pointer_problem(std::span<const std::byte> begin) {
    constexpr std::string_view first = "version https://git-lfs.github.com/spec/", size = "\nsize ";
    const std::string_view text = text_of(begin);
    if (!text.starts_with(first)) return {};
    uint64_t bytes = 0;
    if (const size_t size_start = text.find(size); size_start != text.npos)
        std::from_chars(text.data() + size_start + size.size(), text.data() + text.size(), bytes);
    return format(
        "is a pointer of Git LFS to {} bytes that are not here; git lfs pull fetches "
        "them",
        bytes);
}

std::string non_text_problem(std::span<const std::byte> begin) {
    begin = begin.first(std::min(begin.size(), foreign_bytes));
    const std::string_view text = text_of(begin);
    for (const compressed_format &candidate : packings)
        if (text.starts_with(candidate.first_bytes))
            return format("is packed by {}; unpack it first, for example with {}", candidate.name,
                          candidate.tool);
    if (is_utf16(text)) return "is UTF-16; UTF-8 is needed: iconv -f UTF-16 -t UTF-8 writes it";
    return lfs_pointer_problem(begin);
}

std::string noexec_problem(const std::filesystem::path &file) {
    struct statvfs about {};
    if (::statvfs(file.c_str(), &about) != 0 || (about.f_flag & ST_NOEXEC) == 0) return {};
    return format(
        "{} is on a file system that is mounted noexec; copy it to another, or mount "
        "that one with exec",
        file.string());
}

}  // namespace moorage::core
