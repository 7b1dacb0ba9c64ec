// check_test.cpp - goal: `plugins check` passes every policy that keeps the rules, and fails each
// that breaks one, for the right reason. Method: run the program on all bundled libraries and on
// tests/abi/bad, and read its JSON. Each library there breaks one rule on purpose.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/host/program_part.h"
#include "tests/sanitizers.h"
#include "tests/skip.h"

namespace check_test {

namespace {

namespace fs = std::filesystem;
using moorage::core::json;

const fs::path build = MOORAGE_BINARY_DIR;

struct run_of_check {
    int exit_code = -1;
    json report;
};

// Runs the command line after "moorage plugins check", with a JSON report to a file of its own.
run_of_check check(const std::string &arguments) {
    const fs::path report =
        fs::temp_directory_path() / ("moorage-check-" + std::to_string(getpid()) + ".json");
    fs::remove(report);
    const std::string command = "'" + (build / "bin/moorage").string() + "' plugins check " +
                                arguments + " --json '" + report.string() + "' > /dev/null 2>&1";
    const int state = std::system(command.c_str());
    run_of_check done;
    done.exit_code = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    std::ifstream stream(report);
    if (stream) done.report = json::parse(stream, nullptr, false);
    fs::remove(report);
    return done;
}

std::string quoted(const fs::path &path) { return "'" + path.string() + "'"; }

// Names of the tests with this outcome.
std::vector<std::string> tests_that(const json &report, const std::string &outcome) {
    std::vector<std::string> names;
    for (const json &test : report["tests"])
        if (test["outcome"] == outcome) names.push_back(test["test"]);
    return names;
}

struct broken_rule {
    const char *library, *test, *outcome, *text;
    // Whether the library breaks this rule alone, so that no other test may fail.
    bool alone = true;
    // Whether only this test is run, because the others would all wait, or fail by chance.
    bool only = false;
};
constexpr broken_rule broken_rules[] = {
    {"abi_major", "loads", "failed", "is of abi 9, and abi 2 is needed"},
    {"abi_old", "loads", "failed", "is of abi 1 (exports moorage_module_v1)", false},
    {"minor_needed", "loads", "failed", "needs abi 2.9 at least, host offers 2.1"},
    {"size_garbage", "loads", "failed", "more than any record has"},
    {"size_small", "loads", "failed", "16 bytes, expected 72 or more"},
    {"create_missing", "loads", "failed", "create is null"},
    {"missing_symbol", "loads", "failed", "exports no moorage_module_v2", false},
    {"second_symbol", "exported-symbols-one", "failed", "second_symbol_helper"},
    {"slow_to_scan", "scan-time", "failed", "250 or more ms", true, true},
    {"descriptor_endless", "descriptor-consistency", "failed", "descriptor(1) is not null"},
    {"answers_anything", "unknown-interface-null", "failed", "is not null", false},
    {"compares_prefix", "id-trailing-garbage-null", "failed", "compare the whole id"},
    {"crashes", "life-cycle", "crashed", "in victims"},
    {"exits", "life-cycle", "crashed", "exit code 0 in observe"},
    {"hangs", "life-cycle", "failed", "did not end within 1 s in observe"},
    {"throws", "exception-contained", "failed", "victims threw an exception", false},
    {"victim_absent", "advice-in-range", "failed", "is not in the cache", false},
    {"victim_twice", "advice-in-range", "failed", "is named twice", false},
    {"victim_of_other_pool", "advice-in-range", "failed", "is not of pool", false},
    {"victim_pinned", "advice-pinned-never-named", "failed", "is pinned by the running step",
     false},
    {"gives_up", "advice-complete", "failed", "1 of 2 victims", false},
    {"over_capacity", "advice-over-capacity", "failed", "2 victims were named, 1 were asked for",
     false},
    {"needs_a_slot", "advice-capacity-zero", "crashed", ""},
    {"allocates", "no-allocation-in-step", "failed", "the last in observe"},
    {"blocks", "no-block-in-step", "failed", "nanosleep", true, true},
    {"wall_clock", "determinism-same-seed", "failed", "differs"},
    {"wall_clock", "reads-wall-clock", "warning", "the last in victims"},
    {"own_random", "determinism-same-seed", "failed", "differs", false},
    {"thread_bound", "determinism-thread-move", "failed", "differs", false},
    {"reset_partial", "reset-equals-new", "failed", "differs"},
    {"replay_differs", "replay-equals-steps", "failed", "step by step"},
    {"leaks", "leak", "failed", "left 2720 bytes behind", false},
    {"writes_past", "output-canaries", "failed", "written outside an array", false},
    {"writes_to_inputs", "inputs-left-alone", "failed", "observe wrote to an array"},
    {"reads_beyond", "struct-size-min", "crashed", "in observe", false},
    {"needs_log", "older-host-tables", "crashed", ""},
    {"bad_parameter", "params-fuzz", "crashed", "in observe"},
    {"router_repeats", "advice-in-range", "failed", "twice for one token", false},
    {"router_substitutes", "advice-in-range", "failed", "does not declare MOORAGE_POLICY_LOSSY",
     false},
    {"prints", "streams-kept", "failed", "\"hello"},
    {"closes_output", "streams-kept", "failed", "standard output was closed"},
    {"rounds_up", "surroundings-kept", "failed", "observe changed the floating-point"},
    {"budget_generous", "advice-over-capacity", "failed", "the plan costs 32 experts, 10 fit",
     false},
    {"prefetch_unknown", "advice-in-range", "failed", "prefetch of 32, which is no page", false},
    {"dispatch_disorder", "advice-in-range", "failed", "no permutation", false},
    {"dispatch_home", "advice-in-range", "failed", "absent and cannot be loaded", false},
    {"placement_overfull", "advice-over-capacity", "failed", "bytes on device 0, ", false},
    {"placement_gap", "advice-complete", "failed", "has no copy, and there is no cloud", false},
    {"placement_silent", "advice-complete", "failed", "without a text", false},
    {"wire_reorders", "wire-order", "failed", "out of order", false, true},
    {"wire_loses", "wire-order", "failed", "lost, doubled or out of order", false, true},
    {"wire_doubles", "wire-order", "failed", "lost, doubled or out of order", false, true},
    {"wire_borrows", "wire-order", "failed", "arrives otherwise", false, true},
    {"wire_truncates", "wire-sizes", "failed", "has 65536 bytes", false, true},
    {"wire_unaligned", "wire-sizes", "failed", "at a multiple of 8", false, true},
    {"wire_endless_queue", "wire-backpressure", "failed", "while nothing was released", false,
     true},
    {"wire_no_writable", "wire-backpressure", "failed", "was WRITABLE told?", false, true},
    {"wire_frees_early", "wire-memory-stays", "failed", "changed before it is released", false,
     true},
    {"wire_one_queue", "wire-channels", "failed", "calls wait behind bulk", false, true},
    {"wire_deaf_to_wake", "wire-wake", "failed", "did not end within 1 s", false, true},
    {"wire_drops_at_close", "wire-close", "failed", "that were taken before close", false, true},
    {"wire_silent_death", "wire-peer-death", "failed", "CLOSED after the peer's end", false, true},
    {"wire_any_address", "wire-wrong-address", "failed", "of 0 bytes is taken", false, true},
    {"wire_unbounded", "wire-limits", "failed", "where connections_max is 2", false, true},
    {"wire_takes_too_long", "wire-refusals", "failed", "longer than both sides take", false, true},
    {"wire_reuses_numbers", "wire-numbers", "failed", "was used", false, true},
    {"wire_claims_identities", "wire-identity", "failed", "that it cannot prove", false, true},
    {"wire_null_text", "wire-connects", "failed", "is null", false, true},
    {"transport_forgets", "advice-complete", "failed", "were never sent", false},
};

void expect_broken(const broken_rule &rule) {
    const std::string name = std::string(rule.library) + " in " + rule.test;
    CAPTURE(name);
    const fs::path library = build / "bad" / (std::string(rule.library) + ".so");
    const std::string library_name = rule.library;
    const char *limit_s = moorage::test::sanitized ? "60" : "20";
    if (library_name.starts_with("wire_")) limit_s = moorage::test::sanitized ? "20" : "10";
    if (library_name == "hangs" || library_name == "wire_deaf_to_wake") limit_s = "1";
    const auto done = check(quoted(library) + " --timeout " + limit_s +
                            (rule.only ? std::string(" --only ") + rule.test : ""));
    REQUIRE(done.report.is_object());
    std::string outcome, text, clock;
    for (const json &test : done.report["tests"])
        if (test["test"] == rule.test) outcome = test["outcome"], text = test["text"];
    for (const json &test : done.report["tests"])
        if (test["test"] == "reads-wall-clock") clock = test["outcome"];
    if (std::string(rule.library) == "wall_clock" && clock == "skipped") {
        MESSAGE(name << ": the clock cannot be moved in this build");
        return;
    }
    CAPTURE(text);
    if (outcome == "skipped" && (text.find("in this build") != std::string::npos ||
                                 text.find("sanitizer") != std::string::npos ||
                                 text.find("seccomp") != std::string::npos)) {
        MESSAGE(name << " is skipped: " << text);
        return;
    }
    CHECK(outcome == rule.outcome);
    CHECK(text.find(rule.text) != std::string::npos);
    auto wrong = tests_that(done.report, "failed");
    for (const std::string &name : tests_that(done.report, "crashed")) wrong.push_back(name);
    CHECK(done.report["pass"] == wrong.empty());
    CHECK(done.exit_code == (wrong.empty() ? 0 : 1));
    if (rule.alone) CHECK(wrong.size() == 1);
}

}  // namespace

TEST_CASE("every bundled policy keeps the rules") {
    size_t libraries = 0;
    for (const fs::directory_entry &entry : fs::recursive_directory_iterator(build / "plugins")) {
        if (entry.path().extension() != ".so") continue;
        if (!moorage::core::may_have_policies(entry.path().parent_path())) continue;
        CAPTURE(entry.path().string());
        const char *limit_s = moorage::test::sanitized ? "600" : "60";
        // This test does not look at a plan's quality. A shorter search of joint is enough.
        const bool joint = entry.path().stem() == "joint";
        const auto done = check(quoted(entry.path()) + " --timeout " + limit_s +
                                (joint ? " --param placement.joint.effort=20000" : ""));
        REQUIRE(done.report.is_object());
        for (const char *outcome : {"failed", "crashed", "warning"})
            CHECK(tests_that(done.report, outcome) == std::vector<std::string>{});
        CHECK(done.exit_code == 0);
        ++libraries;
    }
    CHECK(libraries >= 10);
}

TEST_CASE("each bad policy fails in the test of the rule that it breaks") {
    for (const broken_rule &rule : broken_rules) expect_broken(rule);
}

TEST_CASE("every bad policy that is built is expected to fail") {
    for (const fs::directory_entry &entry : fs::directory_iterator(build / "bad")) {
        if (entry.path().extension() != ".so") continue;
        CAPTURE(entry.path().string());
        const auto known = [&](const broken_rule &rule) {
            return entry.path().stem() == rule.library;
        };
        CHECK(std::any_of(std::begin(broken_rules), std::end(broken_rules), known));
    }
}

namespace {

// The calls that `plugins check` and `plugins describe` list for a library's first policy.
std::string calls_checked(const fs::path &library) {
    const auto done = check(quoted(library) + " --only calls-found");
    for (const json &test : done.report["tests"])
        if (test["test"] == "calls-found") return test["text"];
    return "nothing";
}
json calls_described(const std::string &policy, const fs::path &folder) {
    const fs::path file =
        fs::temp_directory_path() / ("moorage-calls-" + std::to_string(getpid()) + ".json");
    const std::string command = quoted(build / "bin/moorage") + " plugins describe " + policy +
                                " --set plugins.path=" + quoted(folder) + " --json " +
                                quoted(file) + " > /dev/null";
    REQUIRE(std::system(command.c_str()) == 0);
    std::ifstream stream(file);
    const json described = json::parse(stream, nullptr, false);
    fs::remove(file);
    return described["calls"][0];
}

}  // namespace

// One library of each language. All answer alike, but the template in C is no observer.
TEST_CASE("check and describe say which calls were found") {
    const fs::path templates = build / "tests/abi/templates", bundled = build / "plugins/cache";
    const std::string cache = "cache: victims, on_load, on_evict (not admit, fill, hold, give_up)";
    CHECK(calls_checked(bundled / "lru.so") == cache + "; observer: observe");
    CHECK(calls_checked(templates / "c_cache.so") == cache);
    CHECK(calls_described("static", bundled)["found"] == json({"victims", "admit", "fill"}));
    CHECK(calls_described("static", bundled)["absent"] ==
          json({"on_load", "on_evict", "hold", "give_up"}));
    CHECK(calls_described("c_cache", templates)["kind"] == "cache");
    CHECK(calls_described("c_cache", templates)["absent"] ==
          json({"admit", "fill", "hold", "give_up"}));
    if (!fs::exists(templates / "rust_cache.so"))
        return moorage::test::skip("no rustc when this was built: C++ and C were looked at");
    CHECK(calls_checked(templates / "rust_cache.so") == cache + "; observer: observe");
    CHECK(calls_described("rust_cache", templates)["found"] ==
          json({"victims", "on_load", "on_evict"}));
}

TEST_CASE("equal seeds give equal reports but for the times") {
    const auto strip = [](json report) {
        for (json &test : report["tests"]) test.erase("seconds");
        return report.dump();
    };
    const std::string arguments = quoted(build / "bad/own_random.so") + " --seed 7 --timeout 20";
    CHECK(strip(check(arguments).report) == strip(check(arguments).report));
}

TEST_CASE("parameters are for the policies of a kind, by name or not") {
    const std::string wants = quoted(build / "bad/bad_parameter.so"),
                      lfu = quoted(build / "plugins/cache/lfu.so");
    CHECK(check(lfu + " --only life-cycle --param cache.half_life=16").exit_code == 0);
    CHECK(check(lfu + " --only life-cycle --param cache.lfu.half_life=16").exit_code == 0);
    for (const char *wrong : {"cache.half=16", "cache.half_life=-1", "cache.lru.half_life=16",
                              "router.half_life=16", "half_life=16", "cache.half_life"})
        CHECK_MESSAGE(check(lfu + " --only life-cycle --param " + wrong).exit_code == 2, wrong);
    // Given parameters reach the policy, which dies of 0. The test of random parameters gets them
    // too.
    CHECK(check(wants + " --only params-fuzz").exit_code == 1);
    CHECK(check(wants + " --only params-fuzz --param cache.window_tokens=4").exit_code == 0);
    CHECK(check(wants + " --only life-cycle --param cache.window_tokens=4").exit_code == 0);
    CHECK(check(wants + " --only life-cycle --param cache.window_tokens=0").exit_code == 1);
}

TEST_CASE("what cannot be checked is wrong usage or a refusal with a reason") {
    CHECK(check("no/such/file.so").exit_code == 2);
    CHECK(check(quoted(build / "bad/leaks.so") + " --only no-such-test").exit_code == 2);
    CHECK(check(quoted(build / "bad/leaks.so") + " no_such_policy").exit_code == 2);
    const fs::path text =
        fs::temp_directory_path() / ("moorage-text-" + std::to_string(getpid()) + ".so");
    std::ofstream(text) << "this is no library";
    const auto done = check(quoted(text));
    fs::remove(text);
    REQUIRE(done.report.is_object());
    CHECK(done.exit_code == 1);
    CHECK(tests_that(done.report, "failed").size() == 2);
    CHECK(done.report["tests"][0]["text"].get<std::string>().find("no ELF header") !=
          std::string::npos);
}

}  // namespace check_test
