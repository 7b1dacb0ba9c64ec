// advice_test.cpp - goal: wrong advice of every stage is found, named and replaced by the default.
// Method: policies that each break one rule, on the toy machine. With faults replaced a run equals
// the default's, which is worked by hand elsewhere (pipeline_test.cpp).
#include <doctest/doctest.h>

#include "core/pipeline/run.h"
#include "tests/unit/toy_run.h"

namespace advice_test {

using namespace moorage::core;
namespace test = moorage::test;

namespace {

struct bench : test::toy_run {
    // Two layers of four experts, two of them a token.
    bench() : toy_run({"plugins", "tests/policies"}) {
        const std::filesystem::path build = MOORAGE_BINARY_DIR;
        for (const char *name : {"router_repeats", "dispatch_disorder", "budget_generous"})
            REQUIRE(shared.scan(std::vector{build / "bad" / (std::string(name) + ".so")}).ok());
        config.experts = 4;
        write(toy::routing({{{0, 1}, {0, 1}}, {{2, 1}, {0, 1}}}, 4, {0, 2}, false));
    }
    // The text that ends the run; replaced instead, it is the default's run.
    std::string fault_of(const std::string &plugin, double default_ms) {
        config.fault_action = on_fault::abort;
        const auto ended = run(config, shared, {});
        REQUIRE_FALSE(ended.ok());
        CHECK(ended.failure().text.find(plugin) != std::string::npos);
        config.fault_action = on_fault::replace;
        const run_report report = run_it();
        CHECK(report.faults.at(plugin) > 0);
        CHECK(report.total_ms == doctest::Approx(default_ms));
        return ended.failure().text;
    }
};

bool has(const std::string &text, const char *part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a dispatch that names an item twice or leaves one out") {
    bench fixture;
    const double default_ms = fixture.run_it().total_ms;
    fixture.config.dispatch.plugin = "dispatch_disorder";
    CHECK(has(fixture.fault_of("dispatch_disorder", default_ms), "names item 0 twice"));
    fixture.config.dispatch.plugin = "partial_dispatch";
    CHECK(has(fixture.fault_of("partial_dispatch", default_ms), "1 of 2 items assigned"));
}

TEST_CASE("a router that chooses an expert twice") {
    bench fixture;
    const double default_ms = fixture.run_it().total_ms;
    fixture.config.router.plugin = "router_repeats";
    CHECK(has(fixture.fault_of("router_repeats", default_ms),
              "expert 0 is chosen twice for token 0"));
}

TEST_CASE("a router with a class or flags that nobody knows") {
    bench fixture;
    const double default_ms = fixture.run_it().total_ms;
    fixture.config.router.plugin = "odd_router";
    CHECK(has(fixture.fault_of("odd_router", default_ms),
              "an expert of class 99, and 4 is the last"));
    fixture.config.router.params = {{"does", std::string("flags"), "test"}};
    CHECK(has(fixture.fault_of("odd_router", default_ms), "the route has flags 0xff00"));
}

TEST_CASE("facts that cannot be taken do not cost a run whose faults are replaced") {
    bench fixture;
    const double default_ms = fixture.run_it().total_ms;
    fixture.config.router.plugin = "odd_router";
    fixture.config.router.params = {{"does", std::string("facts"), "test"}};
    CHECK(has(fixture.fault_of("odd_router", default_ms), "facts returned 99"));
}

TEST_CASE("a prediction of more than there is room for, of one expert twice, or of no number") {
    bench fixture;
    fixture.config.buffer_experts = 2;
    const double default_ms = fixture.run_it().total_ms;
    fixture.config.prefetch.plugin = "odd_prefetch";
    const std::pair<const char *, const char *> ways[] = {
        {"many", "predicts 9 experts of layer 1, there was room for 4"},
        {"twice", "predicts expert 0 of layer 1 twice"},
        {"beyond", "predicts an expert of layer 1 beyond its 4 experts"},
        {"nan", "predicts expert 1 of layer 1 with the score nan"}};
    for (const auto &way : ways) {
        CAPTURE(way.first);
        fixture.config.prefetch.params = {{"does", std::string(way.first), "test"}};
        CHECK(has(fixture.fault_of("odd_prefetch", default_ms), way.second));
    }
}

TEST_CASE("a budget that gives more than there is, or a split that is none") {
    bench fixture;
    fixture.config.per_layer = true;
    // With replacement the plan stays the same: at first, no slot. A layer takes 170 + 2 x 11,000 +
    // 100.
    const double default_ms = 1e-6 * 2 * (2 * 22'270 + 10);
    fixture.config.budget.plugin = "budget_generous";
    CHECK(has(fixture.fault_of("budget_generous", default_ms),
              "slots for 8 experts are more than the 4"));
    fixture.config.budget.plugin = "splits";
    for (const char *list : {"2:0 2:1", "2:1 2:1.5", "2:-1 2:1"}) {
        fixture.config.budget.params = {{"list", std::string(list), "test"}};
        CHECK(has(fixture.fault_of("splits", default_ms), "is not above 0 and up to 1"));
    }
    fixture.config.budget.params = {{"list", std::string("5:1 1:1"), "test"}};
    CHECK(has(fixture.fault_of("splits", default_ms), "5 slots are more than its 4 experts"));
}

}  // namespace advice_test
