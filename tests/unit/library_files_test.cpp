// library_files_test.cpp - goal: a file is inspected before any of it runs, and no file can harm
// the reader. Method: libraries that would end this process if they were opened; nm as the
// reference for symbols; a sound library damaged in thousands of ways.
#include <doctest/doctest.h>

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "core/base/log.h"
#include "core/host/elf_symbols.h"
#include "core/host/registry.h"
#include "tests/sanitizers.h"

namespace {

namespace fs = std::filesystem;
namespace core = moorage::core;

const fs::path build = MOORAGE_BINARY_DIR;

std::string bytes_of(const fs::path &file) {
    std::ifstream input(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(input), {}};
}

std::set<std::string> set_of(const std::vector<std::string_view> &names) {
    return {names.begin(), names.end()};
}

// Third words in nm's output for the dynamic symbols that an option selects.
std::set<std::string> nm(const char *option, const fs::path &file) {
    std::set<std::string> names;
    FILE *output =
        popen(("nm -D " + std::string(option) + " '" + file.string() + "'").c_str(), "r");
    REQUIRE(output);
    char line[4096];
    while (std::fgets(line, sizeof(line), output)) {
        std::istringstream words(line);
        std::string word, last;
        while (words >> word) last = word;
        names.insert(last.substr(0, last.find('@')));
    }
    pclose(output);
    return names;
}

std::string refusal_of(const fs::path &path) {
    core::set_log_level(core::log_level::off);
    core::registry registry;
    REQUIRE(registry.scan(std::vector{path}).ok());
    CHECK(registry.policies().empty());
    return registry.refusals().empty() ? "" : registry.refusals()[0].reason;
}

bool contains(const std::string &text, const char *part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the symbols of a library are those that nm prints") {
    for (const char *name : {"probe/probe.so", "bad/second_symbol.so", "plugins/cache/echo.so"}) {
        const auto symbols = core::read_elf_symbols(build / name);
        REQUIRE(symbols.ok());
        const auto exported = nm("--defined-only", build / name);
        CHECK(set_of(symbols->exported) == exported);
        CHECK(set_of(symbols->imported) == nm("--undefined-only", build / name));
        if (!moorage::test::sanitized) CHECK(symbols->functions.size() == symbols->exported.size());
    }
}

TEST_CASE("a library without the door is not opened: its constructors would end this process") {
    const fs::path strangers = build / "strangers";
    CHECK(contains(refusal_of(strangers / "no_door.so"), "exports no moorage_module_v2"));
    CHECK(contains(refusal_of(strangers / "door_is_data.so"), "exports no moorage_module_v2"));
    core::registry registry;
    REQUIRE(registry.scan(std::vector{strangers}).ok());
    REQUIRE(registry.policies().empty());
    const auto refusals = registry.refusals();
    const auto no_door = std::ranges::find_if(
        refusals, [](const auto &refusal) { return refusal.path.filename() == "no_door.so"; });
    REQUIRE(no_door != refusals.end());
    CHECK(contains(no_door->reason, "nothing of it was run"));
}

TEST_CASE(
    "what the loader refuses is told in its own words, without those of the library around it") {
    const std::string reason = refusal_of(build / "strangers/unresolved.so");
    CAPTURE(reason);
    CHECK(reason.starts_with("cannot be loaded: "));
    CHECK(reason.ends_with("undefined symbol: nobody_has_this"));
    CHECK_FALSE(contains(reason, "boost"));
}

TEST_CASE("a library built with a sanitizer is refused in words") {
    const fs::path file = build / "strangers/asan.so";
#if !defined(MOORAGE_COMPILER_HAS_ASAN)
    CHECK(core::read_elf_symbols(build / "probe/probe.so").ok());
#else
    CHECK(
        contains(refusal_of(file), "is built with -fsanitize=address, which this program is not"));
#endif
}

// Sections are for linkers and debuggers: the loader does without, and so must this.
TEST_CASE("a library whose section table is gone or lies is read all the same") {
    const fs::path file = fs::temp_directory_path() / ("moorage-elf-" + std::to_string(getpid()));
    std::string bytes = bytes_of(build / "probe/probe.so");
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    header.e_shoff = 0x7fffffffffffff00, header.e_shnum = 0xffff;
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::ofstream(file, std::ios::binary) << bytes;
    const auto symbols = core::read_elf_symbols(file);
    REQUIRE(symbols.ok());
    CHECK(set_of(symbols->functions) == std::set<std::string>{"moorage_module_v2"});
    fs::remove(file);
}

// Each read must come back with names or an error. Sanitizers and valgrind see the rest. The tables
// of a library lie in its first pages.
TEST_CASE("no damage to a file harms the reader") {
    const std::string sound = bytes_of(build / "probe/probe.so");
    const fs::path file = fs::temp_directory_path() / ("moorage-elf-" + std::to_string(getpid()));
    std::mt19937 draw(7);
    constexpr uint64_t odd[] = {0, 1, 0x7fffffffffffffff, 0xffffffffffffffff, 0xffffffff, 0x1000};
    const size_t tables = std::min<size_t>(sound.size(), 8192);
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 4000; ++i) {
        std::string bytes = sound;
        for (uint32_t change = draw() % 3 + 1; change > 0; --change) {
            const uint64_t value = draw() % 2 ? odd[draw() % std::size(odd)] : draw();
            const size_t width = size_t{1} << draw() % 4;
            // Every second one in the headers and the first segments.
            const size_t offset = draw() % (draw() % 2 ? 600 : tables - 8);
            std::memcpy(bytes.data() + offset, &value, width);
        }
        if (i % 5 == 0) bytes.resize(draw() % bytes.size());
        std::ofstream(file, std::ios::binary) << bytes;
        const auto symbols = core::read_elf_symbols(file);
        refused += !symbols.ok();
        if (!symbols) CHECK(!symbols.failure().text.empty());
    }
    CHECK(refused > 800);
    CHECK(refused < 4000);
    fs::remove(file);
}
