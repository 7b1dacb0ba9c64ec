// Goal: `moorage profile compare` says of every composition what `validate` says of rows, in the
// same classes. Method: the program itself on the demo model, a few tokens; names, classes and the
// form of what it prints, no times.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tests/unit/program.h"

namespace profile_command_test {

using namespace moorage::core;

namespace {

const std::string demo = std::string(MOORAGE_SOURCE_DIR) + "/configs/demo.toml";

moorage::test::ended compare(const std::vector<std::string> &more) {
    std::vector<std::string> words{"profile",   "compare",      demo,
                                   "--profile", "host",         "--runs",
                                   "1",         "--set",        "source.max_tokens=4",
                                   "--set",     "run.threads=1"};
    words.insert(words.end(), more.begin(), more.end());
    return moorage::test::program().run(words);
}

const json &row_of(const json &found, const std::string &id, const std::string &phase) {
    for (const json &row : found["rows"])
        if (row["id"] == id && row["phase"] == phase) return row;
    FAIL("no row " << id << ", " << phase);
    return found;
}

}  // namespace

TEST_CASE("what would be wrong after measuring is told before") {
    const auto refused = [](const std::vector<std::string> &more) {
        std::vector<std::string> words{"profile", "measure", "--seconds", "0.01"};
        words.insert(words.end(), more.begin(), more.end());
        const auto result = moorage::test::program().run(words);
        CHECK(result.code != 0);
        CHECK_FALSE(result.says("measuring"));
        return result.errors;
    };
    CHECK(refused({"--out", "no/such/folder/x.toml"}).find("no/such/folder") != std::string::npos);
    CHECK(refused({"--out", "x.toml", "--json", "no/such/y.json"}).find("no/such/y.json") !=
          std::string::npos);
    CHECK(
        refused({"--out", "x.toml", "--threads", "1024"}).find("run.threads 1024: this machine") !=
        std::string::npos);
    const std::string local = std::string(MOORAGE_SOURCE_DIR) + "/configs/clusters/local.toml";
    const auto cluster = moorage::test::program().run({"profile", "compare", local});
    CHECK(cluster.code == 2);
    CHECK(cluster.says("local.toml: it has a [cluster]"));
}

TEST_CASE("compositions side by side: a row of decode and one of prefill each, by class") {
    const auto result = compare({"--sweep", "memory.experts=48,192", "--json", "-"});
    REQUIRE_MESSAGE(result.code == 0, result.errors);
    const json found = parse_json(result.out);
    CHECK(found["rows"].size() == 4);
    CHECK(found["terms"].size() == 2);
    const json &cached = row_of(found, "demo experts=48", "decode");
    CHECK(cached["class"] == "PCIe, cached");
    CHECK(cached["measured"].get<double>() > 0);
    CHECK(cached["emulated"].get<double>() > 0);
    CHECK(cached["unit"] == "tpot_ms");
    CHECK(row_of(found, "demo experts=192", "decode")["class"] == "resident");
    const json &prompt = row_of(found, "demo experts=192", "prefill");
    CHECK(prompt["class"] == "prefill");
    CHECK(prompt["unit"] == "ttft_ms");
    CHECK(found["summary"]["classes"].size() == 3);
}

TEST_CASE("experts on the CPU are a class of their own, and text has the layout of validate") {
    const auto result = compare({"--set", "dispatch.plugin=cpu_all"});
    REQUIRE_MESSAGE(result.code == 0, result.errors);
    for (const char *part :
         {"CPU layers\n", "prefill\n", "measured", "median error", "emulated speed over measured",
          "time per token, mean", "decode, by cause", "prefill, by cause", "Furthest apart: "})
        CHECK_MESSAGE(result.out.find(part) != std::string::npos, part, "\n", result.out);
    CHECK(compare({"--sweep", "nonsense"}).code == 2);
}

}  // namespace profile_command_test
