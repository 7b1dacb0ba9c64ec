// foreign_file_test.cpp - goal: files that contradict their names are recognised by their first
// bytes, and texts are not. Method: the formats' published magic numbers; each beginning cut short;
// mounts compared with the kernel's own list.
#include "core/base/foreign_file.h"

#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "tests/skip.h"

namespace foreign_file_test {

using namespace moorage::core;

namespace {

std::string text_of(const std::string &begin) {
    return non_text_problem(std::as_bytes(std::span(begin.data(), begin.size())));
}
bool holds(const std::string &text, const std::string &part) {
    CAPTURE(text);
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("packed files by their magic numbers") {
    const std::pair<std::string, const char *> packed[] = {{{"\x1f\x8b", 2}, "gzip"},
                                                           {{"\x28\xb5\x2f\xfd", 4}, "zstd"},
                                                           {{"\xfd"
                                                             "7zXZ\0",
                                                             6},
                                                            "xz"},
                                                           {"BZh91AY", "bzip2"},
                                                           {{"PK\x03\x04", 4}, "zip"},
                                                           {{"\x04\x22\x4d\x18", 4}, "lz4"}};
    for (const auto &[magic, name] : packed) {
        CHECK(holds(text_of(magic + "rest"), std::string("is packed by ") + name));
        CHECK_FALSE(holds(text_of(magic.substr(0, 1)), "packed"));
    }
}

TEST_CASE("UTF-16 with and without its mark, and texts that are none") {
    CHECK(holds(text_of({"\xff\xfe"
                         "a\0",
                         4}),
                "is UTF-16"));
    CHECK(holds(text_of({"\xfe\xff\0a", 4}), "is UTF-16"));
    CHECK(holds(text_of({"a\0b\0", 4}), "is UTF-16"));
    CHECK(holds(text_of({"\0a\0b", 4}), "is UTF-16"));
    for (const std::string &text :
         {std::string(), std::string("a"), std::string("token,layer\n"), std::string("{}"),
          std::string("\xef\xbb\xbf{}"), std::string("\xc3\xa9t\xc3\xa9"), std::string(4, '\0')})
        CHECK(text_of(text).empty());
}

TEST_CASE("pointers of Git LFS, whole and cut") {
    const std::string pointer =
        "version https://git-lfs.github.com/spec/v1\noid sha256:00ff\nsize 4711\n";
    CHECK(holds(text_of(pointer), "is a pointer of Git LFS to 4711 bytes that are not here"));
    CHECK(holds(text_of(pointer.substr(0, 60)), "to 0 bytes"));
    CHECK(text_of("version 1\nsize 4711\n").empty());
}

TEST_CASE("mounts that let nothing be executed") {
    // The last mount of a place is the one that is seen.
    std::ifstream list("/proc/self/mounts");
    std::map<std::string, bool> mounts;
    for (std::string line; std::getline(list, line);) {
        std::istringstream words(line);
        std::string device, place, kind, options;
        words >> device >> place >> kind >> options;
        mounts[place] = ("," + options + ",").find(",noexec,") != std::string::npos;
    }
    size_t forbidden = 0, allowed = 0;
    for (const auto &[folder, noexec] : mounts) {
        const std::string place = folder;  // clang 14 captures no structured binding
        if (place.find('\\') != std::string::npos || !std::filesystem::exists(place)) continue;
        CAPTURE(place);
        CHECK(noexec_problem(place).empty() == !noexec);
        ++(noexec ? forbidden : allowed);
    }
    CHECK(noexec_problem("/no/such/place").empty());
    if (forbidden == 0 || allowed == 0) moorage::test::skip("there are no mounts of both kinds");
}

}  // namespace foreign_file_test
