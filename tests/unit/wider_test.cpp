// wider_test.cpp - goal: the additions of ABI 2 have the effect that the headers describe. Method:
// policies made for it (policies/wider.cpp) on the toy machine, worked by hand (gate after 170 ns,
// an expert takes 100 ns on the GPU, 11,000 over the link, 22,000 from the disk; the head 10 ns);
// the demo model where something must be computed.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "core/base/json.h"
#include "tests/unit/toy_run.h"

namespace wider_test {

using namespace moorage::core;
namespace test = moorage::test;

namespace {

using routing = std::vector<std::vector<std::vector<uint16_t>>>;  // [token][layer][rank]

struct bench : test::toy_run {
    bench() : toy_run({"plugins", "tests/policies/wider.so"}) {
        config.cache.plugin = "lru";
        config.experts = 4;
        config.buffer_experts = 0;
    }
    void use_keeper(int64_t hold, bool silent = false, bool give_up = false) {
        config.cache.plugin = "keeper";
        config.cache.params = {
            {"hold", hold, "test"}, {"silent", silent, "test"}, {"give_up", give_up, "test"}};
    }
    void use_placer(int64_t page, int64_t place) {
        config.buffer_experts = 1;
        config.prefetch.plugin = "placer";
        config.prefetch.params = {{"page", page, "test"}, {"place", place, "test"}};
    }
    void use_dropper(int64_t count, bool renormalise = false) {
        config.router.plugin = "dropper";
        config.router.params = {{"count", count, "test"}, {"renormalise", renormalise, "test"}};
    }
    void use_demo() {
        config.trace.clear();
        config.shape.clear();
        config.link.clear();
        config.node.clear();
        config.model = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo";
        config.profile = "rtx_4060_ti_16gb";
        config.experts = 48;
        config.prompts = {"The president said that"};
        config.max_tokens = 20;
    }
    run_report run_on(const routing &tokens) {
        write(toy::routing(tokens, 4, {0, tokens.size()}, false));
        return run_it();
    }
};

constexpr double gate = 170, expert = 100, load = 11'000, disk = 22'000, head = 10;

doctest::Approx ms(double ns) { return doctest::Approx(1e-6 * ns); }

double fact_of(const run_report &report, const std::string &policy, const std::string &name) {
    const auto stated = report.facts.find(policy);
    REQUIRE(stated != report.facts.end());
    for (const fact &figure : stated->second)
        if (figure.name == name) return figure.value;
    FAIL(name);
    return 0;
}

}  // namespace

TEST_CASE("what a cache policy holds stays, and what finds no room passes through") {
    for (const bool silent : {false, true}) {
        bench fixture;
        fixture.config.experts = 1;
        fixture.use_keeper(0, silent);
        const run_report report = fixture.run_on({{{0}}, {{1}}, {{0}}});
        CHECK(report.experts.hits == 1);
        CHECK(report.faults.empty());  // nothing that is not held may go
    }
    bench fixture;
    fixture.config.experts = 1;
    fixture.use_keeper(-1);
    const run_report report = fixture.run_on({{{0}}, {{1}}, {{0}}});
    CHECK(report.experts.hits == 0);
}

TEST_CASE("what a cache policy gives up is gone, and its figures stand in the report") {
    bench fixture;
    fixture.use_keeper(-1, false, true);
    const run_report report = fixture.run_on({{{0}}, {{0}}, {{1}}});
    CHECK(report.experts.hits == 0);
    CHECK(fact_of(report, "keeper", "given_up") == 3);
    CHECK(to_json(report)["facts"]["keeper"]["given_up"] == 3);
    CHECK(to_text(report).find("facts of keeper: given_up 3") != std::string::npos);
    bench plain;
    plain.config.cache.plugin = "lru";
    const run_report without = plain.run_on({{{0}}, {{0}}, {{1}}});
    CHECK(without.experts.hits == 1);
    CHECK_FALSE(to_json(without).contains("facts"));
}

TEST_CASE("what the policy of host memory gives up is read again") {
    for (const bool give_up : {false, true}) {
        bench fixture;
        fixture.config.disk = (fixture.folder / "disk.toml").string();
        fixture.config.experts = 1;
        fixture.config.host_experts = 2;
        fixture.config.host_cache.plugin = "keeper";
        fixture.config.host_cache.params = {{"give_up", give_up, "test"}};
        const run_report report = fixture.run_on({{{0}}, {{1}}, {{0}}});
        REQUIRE(report.host);
        CHECK(report.host->requested == 3);
        CHECK(report.host->hits == (give_up ? 0 : 1));
        CHECK(report.host->disk_bytes == (give_up ? 300'000 : 200'000));
        CHECK(fact_of(report, "keeper", "given_up") == (give_up ? 3 : 0));
    }
}

TEST_CASE("two instances of one name state their figures under two names") {
    bench fixture;
    fixture.config.disk = (fixture.folder / "disk.toml").string();
    fixture.config.experts = 1;
    fixture.config.host_experts = 2;
    fixture.use_keeper(-1, false, /*give_up=*/true);
    fixture.config.host_cache.plugin = "keeper";
    fixture.config.host_cache.params = {{"give_up", false, "test"}};
    const run_report report = fixture.run_on({{{0}}, {{0}}, {{1}}});
    CHECK(fact_of(report, "keeper of cache", "given_up") == 3);
    CHECK(fact_of(report, "keeper of host memory", "given_up") == 0);
    const auto facts = to_json(report)["facts"];
    CHECK(facts["keeper of cache"]["given_up"] == 3);
    CHECK(facts["keeper of host memory"]["given_up"] == 0);
    CHECK(facts.size() == 2);
}

TEST_CASE("dropped experts are neither brought nor computed, and count as substituted") {
    bench fixture;
    trace_data data = toy::routing({{{0, 1}}, {{2, 1}}, {{0, 3}}}, 4, {0, 3}, false);
    data.weights.values.assign(data.chosen.size(), 0.5f);
    fixture.write(data);
    fixture.use_dropper(1);
    const run_report report = fixture.run_it();
    CHECK(report.experts.requested == 3);
    CHECK(report.experts.hits == 1);
    CHECK(report.experts.substituted == 3);
    CHECK(report.routing.choices == 6);
    CHECK(report.routing.dropped == 3);
    CHECK(report.routing.rows_unchanged == 0);
    CHECK(report.bytes.h2d == 200'000);
    CHECK(report.total_ms == ms(2 * (gate + load + expert + head) + gate + expert + head));
    fixture.config.exact_requests = {0};
    const run_report held = fixture.run_it();
    CHECK(held.experts.requested == 6);
    CHECK(held.experts.substituted == 0);
    CHECK(held.routing.held_exact == 3);
}

TEST_CASE("one expert of a token has to stay") {
    bench fixture;
    trace_data data = toy::routing({{{0, 1}}}, 4, {0, 1}, false);
    data.weights.values.assign(2, 0.5f);
    fixture.write(data);
    fixture.use_dropper(2);
    auto done = run(fixture.config, fixture.shared, {});
    REQUIRE_FALSE(done.ok());
    CHECK(done.failure().text.find("all 2 experts of token 0 are dropped") != std::string::npos);
}

namespace {

// For each row what the model gives all k together, and what is computed with.
struct weigher final : step_watcher {
    std::vector<std::pair<double, double>> rows;
    void step(const moorage_step &view, const pass &pass, source &source) override {
        const size_t k = view.top_k, count = view.token_count * k;
        std::vector<float> own_weights(count, std::numeric_limits<float>::quiet_NaN());
        source.weigh(pass, view.layer, view.host_chosen, own_weights.data());
        for (size_t row = 0; row < count; row += k) {
            double total = 0, kept = 0;
            for (size_t i = row; i < row + k; ++i) {
                total += own_weights[i], kept += view.host_weights[i];
                if (view.host_classes[i] == MOORAGE_CLASS_DROPPED) CHECK(view.host_weights[i] == 0);
            }
            rows.emplace_back(total, kept);
        }
    }
};

}  // namespace

TEST_CASE("the model computes with fewer experts; their weight goes to the others if asked") {
    for (const bool renormalise : {false, true}) {
        bench fixture;
        fixture.use_demo();
        fixture.use_dropper(1, renormalise);
        weigher watcher;
        run_options options;
        options.watcher = &watcher;
        const run_report report = fixture.run_it(options);
        CHECK(report.routing.dropped > 0);
        REQUIRE_FALSE(watcher.rows.empty());
        for (const auto &[total, kept] : watcher.rows) {
            if (renormalise)
                CHECK(kept == doctest::Approx(total));
            else
                CHECK(kept < total);
        }
    }
}

// The fates of prefetched bytes. Every byte has one fate, and none is behind a dispatch.
struct fates {
    uint64_t used = 0, wasted = 0, late = 0, cut_off = 0;
};
static void check_prefetched(const run_report &report, const fates &expected) {
    CHECK(report.bytes.prefetched == expected.used + expected.wasted);
    CHECK(report.bytes.prefetch_used == expected.used);
    CHECK(report.bytes.prefetch_wasted == expected.wasted);
    CHECK(report.bytes.prefetch_late == expected.late);
    CHECK(report.bytes.prefetch_cut_off == expected.cut_off);
    CHECK(report.bytes.behind == 0);
}

TEST_CASE("an order into a slot is there for later steps, without a step that waits for it") {
    // The expert comes while token 0 is at its first loads: its own request, two tokens later,
    // hits.
    const routing tokens = {{{0}, {1}}, {{0}, {1}}, {{0}, {3}}};
    bench fixture;
    fixture.use_placer(7, MOORAGE_PLACE_SLOT);
    const run_report report = fixture.run_on(tokens);
    CHECK(report.experts.misses == 2);
    CHECK(report.experts.hits == 4);
    check_prefetched(report, {.used = 100'000});
    CHECK(report.bytes.h2d == 300'000);
    CHECK(report.faults.empty());
    bench buffered;
    buffered.use_placer(7, MOORAGE_PLACE_BUFFER);
    CHECK(buffered.run_on(tokens).bytes.behind == 0);
}

TEST_CASE("what an order into a slot brought and nobody asks for is wasted when the run ends") {
    bench fixture;
    fixture.use_placer(7, MOORAGE_PLACE_SLOT);
    check_prefetched(fixture.run_on({{{0}, {1}}, {{0}, {1}}}), {.wasted = 100'000});
    // A model of one layer. The token's own load ends at 11,170. Then the order's load begins; it
    // has not arrived when the token ends at 11,280. All its bytes are one piece.
    bench short_run;
    short_run.use_placer(3, MOORAGE_PLACE_SLOT);
    check_prefetched(short_run.run_on({{{0}}}), {.wasted = 100'000, .cut_off = 100'000});
}

TEST_CASE("a step that asks for what an order into a slot still brings takes it over") {
    const routing tokens = {{{0}}, {{3}}};
    bench fixture;
    fixture.use_placer(3, MOORAGE_PLACE_SLOT);
    // The order's load goes from 11,170 to 22,170, token 1 is routed at 11,450 and waits for it.
    const run_report report = fixture.run_on(tokens);
    check_prefetched(report, {.used = 100'000, .late = 100'000});
    CHECK(report.bytes.demand == 100'000);
    CHECK(report.total_ms == ms(gate + 2 * load + expert + head));
    // In ten pieces of 2,000 the step's own load ends at 20,170. When token 1 is routed, at 20,450,
    // one piece of the order is under way: the other nine are the step's.
    bench pieces;
    pieces.use_placer(3, MOORAGE_PLACE_SLOT);
    pieces.config.transport.plugin = "chunked";
    pieces.config.transport.params = {{"chunk_bytes", int64_t{10'000}, "test"}};
    const run_report divided = pieces.run_on(tokens);
    check_prefetched(divided, {.used = 10'000, .late = 10'000});
    CHECK(divided.bytes.demand == 190'000);
}

TEST_CASE("what loses its slot before a step asks for it was wasted") {
    bench fixture;
    fixture.config.experts = 2;
    fixture.use_placer(3, MOORAGE_PLACE_SLOT);
    // Beside expert 0 the order takes the second slot. Token 1 evicts 0, the least recently used,
    // and token 2 evicts 3, which has arrived at 22,170. It is ordered again, in the place of 1,
    // and is under way when the run ends.
    check_prefetched(fixture.run_on({{{0}}, {{1}}, {{2}}}),
                     {.wasted = 200'000, .cut_off = 100'000});
}

TEST_CASE("an order into host memory is read behind the step's own") {
    bench fixture;
    fixture.config.disk = (fixture.folder / "disk.toml").string();
    fixture.config.host_cache.plugin = "lru";
    fixture.config.experts = 1;
    fixture.config.host_experts = 2;
    fixture.use_placer(1, MOORAGE_PLACE_HOST);
    const run_report report = fixture.run_on({{{0}}, {{0}}, {{1}}});
    // Both reads in turn, from the first gate on; the link waits for the second.
    CHECK(report.total_ms == ms(gate + 2 * disk + load + expert + head));
    REQUIRE(report.host);
    CHECK(report.host->disk_bytes == 200'000);
    CHECK(report.host->requested == 2);
    CHECK(report.bytes.prefetched == 0);
    CHECK(fact_of(report, "placer", "stores") == 3);
    CHECK(fact_of(report, "placer", "links") == 2);
    CHECK(fact_of(report, "placer", "sound") == 1);
}

TEST_CASE("a place that there is not is a fault of the policy") {
    bench fixture;
    fixture.config.fault_action = on_fault::replace;
    fixture.use_placer(3, 7);
    const run_report report = fixture.run_on({{{0}}, {{0}}});
    REQUIRE(report.faults.contains("placer"));
    CHECK(report.faults.at("placer") == 2);
    CHECK(report.bytes.prefetched == 0);
}

TEST_CASE("steps carry token ids and positions, and hidden states where they are computed") {
    bench fixture;
    fixture.use_placer(0, MOORAGE_PLACE_BUFFER);
    trace_data data = toy::routing({{{0}}, {{1}}, {{2}}, {{3}}}, 4, {0, 3, 4}, false);
    data.token_ids = {5, 6, 7, 8};
    fixture.write(data);
    const run_report report = fixture.run_it();
    CHECK(fact_of(report, "placer", "token_ids") == 26);
    CHECK(fact_of(report, "placer", "positions") == 0 + 1 + 2 + 0);
    CHECK(fact_of(report, "placer", "hidden") == 0);
    CHECK(fact_of(report, "placer", "stores") == 2);
    CHECK(fact_of(report, "placer", "devices") == 2);
    CHECK(fact_of(report, "placer", "links") == 1);
    CHECK(fact_of(report, "placer", "sound") == 1);
    bench without;
    without.use_placer(0, MOORAGE_PLACE_BUFFER);
    CHECK(fact_of(without.run_on({{{0}}, {{1}}}), "placer", "token_ids") == 0);

    bench demo;
    demo.use_demo();
    demo.use_placer(0, MOORAGE_PLACE_BUFFER);
    const run_report computed = demo.run_it();
    CHECK(fact_of(computed, "placer", "hidden") > 0);
    CHECK(fact_of(computed, "placer", "token_ids") > 0);
}

}  // namespace wider_test
