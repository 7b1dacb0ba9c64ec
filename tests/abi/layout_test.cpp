// layout_test.cpp - goal: a built policy stays loadable, so no change of the ABI goes unnoticed.
// Method: compare the layout in C++ with the golden file of the release, and the headers' text with
// the list behind the layout. Try the end-of-field rule at both sides of a boundary.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "layout_rows.h"

namespace layout_test {

namespace {

const std::filesystem::path sdk = std::filesystem::path(MOORAGE_SOURCE_DIR) / "sdk";

std::string contents(const std::filesystem::path &path) {
    std::ifstream file(path);
    REQUIRE_MESSAGE(file.good(), path.string());
    return {std::istreambuf_iterator<char>(file), {}};
}

// The output of `write`; `gaps` receives its result.
std::string printed(int (*write)(FILE *), int &gaps) {
    char *text = nullptr;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    REQUIRE(stream != nullptr);
    gaps = write(stream);
    std::fclose(stream);
    const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
    return {text, size};
}

std::string without_comments(std::string text) {
    return std::regex_replace(text, std::regex("/\\*[^*]*\\*+([^/*][^*]*\\*+)*/"), "");
}

// Second words of the lines that begin with `kind`.
std::set<std::string> names(const std::string &layout, const std::string &kind) {
    std::set<std::string> found;
    std::istringstream lines(layout);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string first, second;
        if (words >> first >> second && first == kind) found.insert(second);
    }
    return found;
}

std::set<std::string> matches(const std::string &text, const char *pattern) {
    std::set<std::string> found;
    const std::regex expression(pattern);
    for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end;
         ++match)
        found.insert((*match)[1].str());
    return found;
}

}  // namespace

TEST_CASE("the layout is the one of the golden file") {
    int gaps = -1;
    const std::string now = printed(write_layout, gaps);
    CHECK(gaps == 0);
    std::istringstream ours(now), golden(contents(sdk / "abi/layout_2_1.txt"));
    int number = 0;
    for (std::string expected, line; std::getline(golden, expected);) {
        ++number;
        REQUIRE_MESSAGE(static_cast<bool>(std::getline(ours, line)), "line ", number,
                        " of layout_2_1.txt is gone: ", expected);
        CHECK_MESSAGE(line == expected, "line ", number, " of layout_2_1.txt");
    }
    std::string extra_line;
    CHECK_MESSAGE(!std::getline(ours, extra_line), "not in layout_2_1.txt: ", extra_line);
}

TEST_CASE("every struct, constant and id of the headers is in the list") {
    int gaps = -1;
    const std::string layout = printed(write_layout, gaps);
    const std::set<std::string> structs = names(layout, "struct"),
                                constants = names(layout, "constant"), ids = names(layout, "id");
    int headers = 0;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(sdk / "include")) {
        if (entry.path().extension() != ".h") continue;
        ++headers;
        const std::string text = without_comments(contents(entry.path()));
        for (const std::string &name : matches(text, "struct (moorage_\\w+) \\{"))
            CHECK_MESSAGE(structs.count(name) == 1, name, " of ", entry.path().string());
        for (const std::string &name : matches(text, "(MOORAGE_[A-Z_0-9]+) = "))
            CHECK_MESSAGE(constants.count(name) == 1, name, " of ", entry.path().string());
        for (const std::string &name : matches(text, "#define (MOORAGE_[A-Z_0-9]+) \""))
            CHECK_MESSAGE(ids.count(name) == 1, name, " of ", entry.path().string());
    }
    CHECK(headers >= 13);
}

TEST_CASE("a field is there exactly when the writer's size reaches its end") {
    moorage_limits limits{};
    limits.size = offsetof(moorage_limits, expert_bytes);
    CHECK_FALSE(MOORAGE_HAS(&limits, moorage_limits, expert_bytes));
    limits.size += sizeof(limits.expert_bytes) - 1;  // half a field is no field
    CHECK_FALSE(MOORAGE_HAS(&limits, moorage_limits, expert_bytes));
    limits.size += 1;
    CHECK(MOORAGE_HAS(&limits, moorage_limits, expert_bytes));

    moorage_cache table{};
    table.size = offsetof(moorage_cache, on_evict);  // an older policy's shorter table
    CHECK(MOORAGE_HAS(&table, moorage_cache, on_load));
    CHECK_FALSE(MOORAGE_HAS(&table, moorage_cache, on_evict));
    table.size = sizeof(table) + 64;  // a newer policy's longer one
    CHECK(MOORAGE_HAS(&table, moorage_cache, give_up));
}

TEST_CASE("ids follow the rules: host ids, one revision, never draft, all different") {
    int gaps = -1;
    std::istringstream lines(printed(write_layout, gaps));
    std::set<std::string> seen;
    const std::regex shape("moorage\\.(host\\.)?[a-z-]+/[1-9][0-9]*");
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string first, name, id;
        if (!(words >> first >> name >> id) || first != "id" || name == "MOORAGE_MODULE_SYMBOL")
            continue;
        CHECK_MESSAGE(std::regex_match(id, shape), id);
        CHECK_MESSAGE(id.find("draft") == std::string::npos, id);
        CHECK_MESSAGE(seen.insert(id).second, id);
    }
    CHECK(seen.size() >= 18);
}

// Rust policies reach the host's arrays without raw pointers. Each array of a struct has an
// accessor in the impl of that struct. Output goes through wrappers (Pages, Orders, Plan, route's
// slices).
TEST_CASE("every array that the host lends has an accessor in Rust") {
    const std::string abi = contents(sdk / "rust/abi.rs"),
                      views = contents(sdk / "rust/views.rs") + contents(sdk / "rust/wire.rs");
    const std::set<std::string> elsewhere = {"moorage_host",   "moorage_value",
                                             "moorage_route",  "moorage_replay",
                                             "moorage_orders", "moorage_budget_plan"};
    const std::regex expression("struct (moorage_\\w+) \\{([^}]*)\\}");
    size_t fields = 0;
    for (std::sregex_iterator match(abi.begin(), abi.end(), expression), end; match != end;
         ++match) {
        const std::string name = (*match)[1].str();
        if (elsewhere.contains(name)) continue;
        std::string code;  // of all impls of the struct
        const std::string begin = "impl " + name + " {";
        for (size_t position = 0; (position = views.find(begin, position)) != std::string::npos;
             ++position)
            code += views.substr(position, views.find("\n}", position) - position);
        for (const std::string &field : matches((*match)[2].str(), "(host_\\w+):")) {
            ++fields;
            const bool read = code.find("." + field) != std::string::npos;
            const bool listed = code.find(" " + field + "[") != std::string::npos;
            CHECK_MESSAGE((read || listed), name, " ", field);
        }
    }
    CHECK(fields > 60);
}

}  // namespace layout_test
