// Goal: `moorage profile compare` reports every composition as `validate` reports rows, in the same
// classes. Method: the program itself on the demo model, a few tokens; names, classes and the form
// of its output, no times.
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

// Times of so few tokens mean nothing, so by default any are near enough.
moorage::test::program_result compare(const std::vector<std::string> &extra_arguments,
                                      const std::string &within = "1000000") {
    std::vector<std::string> words{
        "profile",  "compare", demo,    "--profile",           "host",  "--runs",       "1",
        "--within", within,    "--set", "source.max_tokens=4", "--set", "run.threads=1"};
    words.insert(words.end(), extra_arguments.begin(), extra_arguments.end());
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
    const auto refused = [](const std::vector<std::string> &extra_arguments) {
        std::vector<std::string> words{"profile", "measure", "--seconds", "0.01"};
        words.insert(words.end(), extra_arguments.begin(), extra_arguments.end());
        const auto result = moorage::test::program().run(words);
        CHECK(result.code != 0);
        CHECK_FALSE(result.says("measuring"));
        return result.errors;
    };
    CHECK(refused({"--out", "no/such/folder/x.toml"}).find("no/such/folder") != std::string::npos);
    CHECK(refused({"--out", "x.toml", "--json", "no/such/y.json"}).find("no/such/y.json") !=
          std::string::npos);
    CHECK(
        refused({"--out", "x.toml", "--threads", "1024"}).find("run.threads 1024: this process") !=
        std::string::npos);
    const std::string local = std::string(MOORAGE_SOURCE_DIR) + "/configs/clusters/local.toml";
    const auto cluster = moorage::test::program().run({"profile", "compare", local});
    CHECK(cluster.code == 2);
    CHECK(cluster.says("local.toml: it has a [cluster]"));
}

TEST_CASE("compositions side by side: a row of decode and one of prefill each, by class") {
    const auto result = compare({"--sweep", "memory.experts=48,192", "--json", "-"});
    REQUIRE_MESSAGE(result.code == 0, result.errors);
    const json found = parse_json(result.output);
    CHECK(found["rows"].size() == 4);
    CHECK(found["terms"].size() == 2);
    const json cached = row_of(found, "demo experts=48", "decode");
    CHECK(cached["class"] == "PCIe, cached");
    CHECK(cached["measured"].get<double>() > 0);
    CHECK(cached["emulated"].get<double>() > 0);
    CHECK(cached["unit"] == "tpot_ms");
    CHECK(row_of(found, "demo experts=192", "decode")["class"] == "resident");
    const json prompt = row_of(found, "demo experts=192", "prefill");
    CHECK(prompt["class"] == "prefill");
    CHECK(prompt["unit"] == "ttft_ms");
    CHECK(found["summary"]["classes"].size() == 3);
}

// No real run takes the emulator's time to the nanosecond, so a limit of 0 always fails.
TEST_CASE("a row further off than the limit fails the verdict: in text, JSON and the exit code") {
    const auto kept = compare({"--json", "-"});
    REQUIRE_MESSAGE(kept.code == 0, kept.errors);
    const json good = parse_json(kept.output)["verdict"];
    CHECK(good["ok"] == true);
    CHECK(good["rows_off"] == 0);
    const auto shows = [](const moorage::test::program_result &run, const char *line) {
        return run.output.find(line) != std::string::npos;
    };
    CHECK(shows(compare({}), "verdict: ok, none of 2 rows off by more than 100000000.0 %\n"));
    const auto deviating = compare({"--json", "-"}, "0");
    CHECK(deviating.code == 1);
    const json bad = parse_json(deviating.output)["verdict"];
    CHECK(bad["ok"] == false);
    CHECK(bad["rows_off"] == 2);
    CHECK(bad["within"] == 0);
    const auto text = compare({}, "0%");
    CHECK(text.code == 1);
    CHECK(shows(text, "verdict: off, 2 of 2 rows by more than 0.0 %; worst demo ("));
    CHECK(compare({}, "-1").code == 2);
}

TEST_CASE("runs that offload little have no figures of offloading") {
    const auto offloading = [](const std::string &experts, const std::string &tokens) {
        return compare({"--offloading", "--set", "memory.experts=" + experts, "--set",
                        "source.max_tokens=" + tokens});
    };
    CHECK(offloading("48", "40").code == 0);  // a quarter of them
    const auto refused = [&](const std::string &experts, const std::string &tokens,
                             const std::string &reason) {
        const auto run = offloading(experts, tokens);
        CHECK(run.code == 1);
        CHECK_MESSAGE(run.says("demo on emulator: " + reason), run.errors);
        CHECK(run.output.find(" ms ") == std::string::npos);
    };
    // All are there; next to none; a few tokens ask for fewer than there are slots for.
    refused("192", "40", "100.0 % of the experts were there, not 50.0 % to 90.0 %: no figure of");
    refused("8", "40", "14.0 % of the experts were there, not 50.0 % to 90.0 %");
    refused("150", "12", "no more was brought than there is room for, so nothing was evicted");
}

TEST_CASE("experts on the CPU are a class of their own, and text has the layout of validate") {
    const auto result = compare({"--set", "dispatch.plugin=cpu_all"});
    REQUIRE_MESSAGE(result.code == 0, result.errors);
    for (const char *part :
         {"CPU layers\n", "prefill\n", "measured", "median error", "emulated speed over measured",
          "time per token, mean", "decode, by cause", "prefill, by cause", "Furthest apart: "})
        CHECK_MESSAGE(result.output.find(part) != std::string::npos, part, "\n", result.output);
    CHECK(compare({"--sweep", "nonsense"}).code == 2);
}

}  // namespace profile_command_test
