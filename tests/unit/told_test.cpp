// told_test.cpp - goal: policies are told the truth: the order of items and the cost of each, the
// cause of every load and eviction, the fates of prefetches, the time until the next layer, the
// room. Method: a policy that writes down every call, in runs on the toy machine worked by hand (an
// expert takes 100 ns on the GPU, 11,000 ns over the link, 2,500 ns on the CPU; a layer's gate is
// there after 170 ns, the head takes 10 ns).
#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "core/cache/replay.h"
#include "core/pipeline/run.h"
#include "tests/unit/toy_run.h"

namespace told_test {

using namespace moorage::core;
namespace test = moorage::test;

namespace {

using lines = std::vector<std::string>;

struct bench : test::toy_run {
    explicit bench(const trace_data &data) : toy_run({"plugins", "tests/policies"}) {
        config.experts = 4;
        config.buffer_experts = 2;
        write(data);
    }
    void use_told(stage_config &stage, const std::string &list = "", int64_t fill = -1) {
        stage.plugin = "told";
        stage.params = {{"log", (folder / "log").string(), "test"},
                        {"list", list, "test"},
                        {"fill", fill, "test"}};
    }
    void use_told_everywhere(const std::string &list) {
        for (stage_config *stage : {&config.cache, &config.prefetch, &config.dispatch})
            use_told(*stage, list);
    }
    run_report run_it() {
        std::filesystem::remove(folder / "log");
        run_report done = toy_run::run_it();
        CHECK(done.faults.empty());
        return done;
    }
    // The lines that contain `part`.
    lines reported_lines(const std::string &part = "") const {
        std::ifstream input(folder / "log");
        lines found;
        for (std::string line; std::getline(input, line);)
            if (line.find(part) != std::string::npos) found.push_back(line);
        return found;
    }
};

// One text, so that a difference is shown.
std::string joined(const lines &report_lines) {
    std::string text;
    for (const std::string &line : report_lines) text += line + "\n";
    return text;
}

const std::string absent = " lacks 255 load 11000 gpu 100 cpu 2500;";
const std::string present = " lacks 0 load 0 gpu 100 cpu 2500;";

}  // namespace

TEST_CASE("every call of two tokens, word by word") {
    bench fixture(toy::routing({{{0, 1}, {0, 1}}, {{2, 1}, {0, 1}}}, 4, {0, 2}, false));
    fixture.use_told_everywhere("0:4 0:7");  // experts 0 and 3 of layer 1
    const run_report report = fixture.run_it();
    const lines expected = {
        "may fill 4 in pool 0: budget",
        // Gate 170. Two loads of 100,000 bytes: 1,000 + 20,000 ns of backlog, then 70 + 100 until
        // the next gate.
        "step 0 visit 0 token 0 layer 0: 0 x1 1 x1",
        "came to layer 0: used 0 late 0 wasted 0 cut 0 bytes 0",
        "items layer 0 behind 0: 0 x1" + absent + " 1 x1" + absent,
        "loads 0 (255): demand",
        "loads 1 (255): demand",
        "plan layer 1 after 0: window 21170 backlog 21000 room 2",
        "took 0 x1 of layer 0 at 0: load 11000 run 100",
        "took 1 x1 of layer 0 at 0: load 11000 run 100",
        // Gate 22,440; page 4 is on the link since 22,170, page 7 has not set out. The late one is
        // demand now: 11,000 ns lie before the step's own requests.
        "step 1 visit 1 token 0 layer 1: 0 x1 1 x1",
        "came to layer 1: used 0 late 1 wasted 0 cut 1 bytes 0",
        "items layer 1 behind 11000: 0 x1" + absent + " 1 x1" + absent,
        "loads 4 (255): demand",
        "loads 5 (255): demand",
        // The head comes before the next gate.
        "plan layer 0 after 1: window 21180 backlog 21000 room 2",
        "took 0 x1 of layer 1 at 0: load 11000 run 100",
        "took 1 x1 of layer 1 at 0: load 11000 run 100",
        // 44,280; gate 44,450. Expert 1 is resident: first, though the router says 2 first. All
        // slots are taken; of layer 0 expert 1 is pinned.
        "step 2 visit 2 token 1 layer 0: 2 x1 1 x1",
        "came to layer 0: used 0 late 0 wasted 0 cut 0 bytes 0",
        "items layer 0 behind 0: 1 x1" + present + " 2 x1" + absent,
        "room 1 in pool 0 for layer 0: demand",
        "evicts 0: demand",
        "loads 2 (255): demand",
        "plan layer 1 after 0: window 11170 backlog 11000 room 2",
        "took 1 x1 of layer 0 at 0: load 0 run 100",
        "took 2 x1 of layer 0 at 0: load 11000 run 100",
        // Gate 55,720; page 7 set out at 55,450, all its bytes at once. Page 4 was there already.
        "step 3 visit 3 token 1 layer 1: 0 x1 1 x1",
        "came to layer 1: used 0 late 0 wasted 0 cut 1 bytes 100000",
        "items layer 1 behind 0: 0 x1" + present + " 1 x1" + present,
        // Two experts of 100 ns, attention and hand-over, the head.
        "plan layer 0 after 1: window 380 backlog 0 room 2",
        "took 0 x1 of layer 1 at 0: load 0 run 100",
        "took 1 x1 of layer 1 at 0: load 0 run 100",
    };
    const lines found = fixture.reported_lines();
    for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i)
        CHECK(found[i] == expected[i]);
    CHECK(found.size() == expected.size());
    CHECK(report.total_ms == doctest::Approx(0.055930));
    CHECK(report.bytes.prefetched == 200'000);
    CHECK(report.bytes.prefetch_used == 100'000);
    CHECK(report.bytes.prefetch_wasted == 100'000);
}

TEST_CASE("what arrived is used or wasted, what did not is late or cut off") {
    bench fixture(toy::routing({{{0}, {0}, {0}}, {{0}, {0}, {0}}}, 4, {0, 2}, false));
    fixture.config.experts = 12;
    // The first of two is on the link 11,170 to 22,170, the demand of layer 1 goes before the
    // second, which sets out at 33,170; layer 2 has its gate at 33,440. Token 1 finds all it asks
    // for; expert 3 of layer 2 is ordered again, and the link is not done yet with the bytes that
    // were cut off, until 44,170.
    fixture.use_told_everywhere("0:8 0:11");  // of layer 2 expert 0, then 3
    CHECK(fixture.run_it().total_ms == doctest::Approx(0.034370));
    CHECK(joined(fixture.reported_lines("layer 2: used")) ==
          joined(lines{"came to layer 2: used 1 late 0 wasted 0 cut 1 bytes 100000",
                       "came to layer 2: used 0 late 0 wasted 0 cut 1 bytes 0"}));
    // The other way round the link is idle when token 1 orders again, at 44,450.
    fixture.use_told_everywhere("0:11 0:8");
    run_report report = fixture.run_it();
    CHECK(joined(fixture.reported_lines("layer 2: used")) ==
          joined(lines{"came to layer 2: used 0 late 1 wasted 1 cut 0 bytes 100000",
                       "came to layer 2: used 0 late 0 wasted 0 cut 1 bytes 100000"}));
    CHECK(report.bytes.prefetch_used == 100'000);
    CHECK(report.bytes.prefetch_wasted == 200'000);
    CHECK(report.layers[0].h2d_bytes == 100'000);
    CHECK(report.layers[1].h2d_bytes == 100'000);
    // Orders of the last layer are on the link when the run ends.
    bench last_orders(toy::routing({{{0}, {0}, {0}}}, 4, {0, 1}, false));
    last_orders.config.experts = 12;
    last_orders.use_told_everywhere("2:1");
    report = last_orders.run_it();
    CHECK(report.bytes.prefetched == 100'000);
    CHECK(report.bytes.prefetch_wasted == 100'000);
}

TEST_CASE("a frame that the running step holds is none for a prefetch") {
    bench fixture(toy::routing({{{0, 1}, {0, 1}}, {{2, 3}, {0, 1}}}, 4, {0, 2}, false));
    fixture.config.experts = fixture.config.buffer_experts = 1;
    fixture.use_told(fixture.config.prefetch,
                     "0:5 1:2");  // expert 1 of layer 1, expert 2 of layer 0
    // Token 0, layer 0: gate 170, loads to 11,170 and 22,170, computed to 22,270; page 5 on the
    // link to 33,170. Layer 1: gate 22,440; page 4 gets the slot and is on the link to 44,170; 5 is
    // late and stays in its frame until it is computed, at 44,370. Only then page 2 may set out, to
    // 55,370: the buffer has one frame. Head 44,380.
    // Token 1, layer 0: gate 44,550; 2 computed to 55,470, 3 on the link to 66,370, computed to
    // 66,470; page 5 to 77,370. Layer 1: gate 66,640, page 4 to 88,370; computed to 88,470 and
    // 88,570; head 88,580.
    CHECK(fixture.run_it().total_ms == doctest::Approx(0.088580));
    CHECK(fixture.reported_lines("plan layer").size() == 4);
    for (const std::string &line :
         fixture.reported_lines("plan layer"))  // until the next layer is routed
        CHECK(line.ends_with("room 1"));
}

TEST_CASE("loads behind the CPU, budgets and first contents have causes of their own") {
    {
        // One slot: token 1's load takes it while token 0's is on its way.
        bench fixture(toy::routing({{{0}}, {{1}}}, 4, {0, 2}, false));
        fixture.config.experts = 1;
        fixture.config.dispatch.plugin = "overlap";
        fixture.config.dispatch.params = {{"fill", false, "test"}};
        fixture.use_told(fixture.config.cache);
        fixture.run_it();
        CHECK(joined(fixture.reported_lines()) ==
              joined(lines{"may fill 1 in pool 0: budget", "step 0 visit 0 token 0 layer 0: 0 x1",
                           "loads 0 (255): prefetch", "step 1 visit 1 token 1 layer 0: 1 x1",
                           "room 1 in pool 0 for layer 0: prefetch", "evicts 0: prefetch",
                           "loads 1 (255): prefetch"}));
    }
    // Page 2 is there from the start; two slots a layer, then one and three.
    bench fixture(toy::routing({{{0}, {0}}, {{0}, {0}}}, 4, {0, 1, 2}, false));
    fixture.config.per_layer = true;
    fixture.use_told(fixture.config.cache, "", 2);
    fixture.config.budget.plugin = "splits";
    fixture.config.budget.params = {
        {"list", "2:1 2:1", "test"}, {"then", "1:1 3:1", "test"}, {"at", int64_t{1}, "test"}};
    const run_report report = fixture.run_it();
    CHECK(joined(fixture.reported_lines()) ==
          joined(lines{"may fill 2 in pool 0: budget", "loads 2 (255): budget",
                       "may fill 2 in pool 1: budget", "step 0 visit 0 token 0 layer 0: 0 x1",
                       "loads 0 (255): demand", "step 1 visit 1 token 0 layer 1: 0 x1",
                       "loads 4 (255): demand", "room 1 in pool 0 for layer 0: budget",
                       "evicts 0: budget", "step 2 visit 2 token 1 layer 0: request 1 0 x1",
                       "room 1 in pool 0 for layer 0: demand", "evicts 2: demand",
                       "loads 0 (255): demand", "step 3 visit 3 token 1 layer 1: request 1 0 x1"}));
    CHECK(report.bytes.h2d == 300'000);
    CHECK(report.arrangement.first_bytes == 100'000);
}

TEST_CASE("what has crossed already is not told as still to come") {
    bench fixture(toy::routing({{{0}, {0}, {0}}}, 4, {0, 1}, false));
    fixture.use_told_everywhere("0:8");  // expert 0 of layer 2
    fixture.config.transport.plugin = "chunked";
    fixture.config.transport.params = {{"chunk_bytes", int64_t{10'000}, "test"}};
    fixture.run_it();
    // A load is ten pieces of 1,000 + 1,000 ns. Layer 0's is there at 20,170; page 8's first piece
    // follows to 22,170, then the demand of layer 1 (gate 20,440) to 42,170, computed to 42,270.
    // Layer 2's gate at 42,440 finds page 8 with one piece there and one on the link.
    CHECK(joined(fixture.reported_lines("items layer 2")) ==
          joined(lines{"items layer 2 behind 10000: 0 x1 lacks 255 load 10000 gpu 100 cpu 2500;"}));
    CHECK(joined(fixture.reported_lines("layer 2: used")) ==
          joined(lines{"came to layer 2: used 0 late 1 wasted 0 cut 0 bytes 0"}));
}

TEST_CASE("several tokens: their number, the best score of each expert, merged predictions") {
    // Two requests at a time. Layer 0: 1 0 and 2 1; layer 1: 0 3 and 0 1, of which 2 0 and 0 3 were
    // predicted.
    trace_data data = toy::routing({{{1, 0}, {0, 3}}, {{2, 1}, {0, 1}}}, 4, {0, 1, 2}, false);
    data.weights.values = {0.75f, 0.25f, 0.5f, 0.25f, 0.5f, 0.25f, 0.625f, 0.25f};
    data.predictions = 2;
    data.predicted = {0, 1, 2, 0, 0, 1, 0, 3};
    data.prediction_scores.values = {0.5f, 0.25f, 0.75f, 0.5f, 0.5f, 0.25f, 0.625f, 0.125f};
    bench fixture(data);
    fixture.config.batch = 2;
    fixture.use_told_everywhere("9:0");
    for (stage_config *stage :
         {&fixture.config.cache, &fixture.config.prefetch, &fixture.config.dispatch})
        stage->plugin = "told_more";
    // Computing two tokens takes 100,000 operations each at 1e12 a second: 200 ns, above the 100 ns
    // that reading the weights takes; on the CPU as many at 50e9: 500 + 4,000 ns.
    fixture.change("device.toml", "flops_per_s = 1e18", "flops_per_s = 1e12");
    fixture.change("node.toml", "cpu_flops_per_s = 1e18", "cpu_flops_per_s = 50e9");
    const run_report report = fixture.run_it();
    CHECK(joined(fixture.reported_lines("step")) ==
          joined(lines{"step 0 visit 0 token 0 layer 0: 1 x2 @0.75 0 x1 @0.25 2 x1 @0.5",
                       "step 1 visit 1 token 0 layer 1: 0 x2 @0.625 3 x1 @0.25 1 x1 "
                       "@0.25 predicted 2 0 3"}));
    CHECK(joined(fixture.reported_lines("items layer 0")) ==
          joined(lines{"items layer 0 behind 0: 1 x2 lacks 255 load 11000 gpu 200 cpu 4500; 0 x1" +
                       absent + " 2 x1" + absent}));
    // Three experts are asked for; two of them are among the first three predicted.
    CHECK(report.predicted == 3);
    CHECK(report.predicted_right == 2);
}

TEST_CASE("no more predictions count than experts are asked for, and prefill is told as such") {
    // The prediction for layer 1 is 3, then 1; the choice is 1.
    trace_data data = toy::routing({{{0}, {1}}, {{0}, {1}}, {{0}, {1}}}, 4, {0, 3}, false);
    data.weights.values.assign(6, 1.0f);
    data.predictions = 2;
    data.predicted = {0, 1, 3, 1, 0, 1, 3, 1, 0, 1, 3, 1};
    bench fixture(data);
    fixture.use_told_everywhere("9:0");
    for (stage_config *stage :
         {&fixture.config.cache, &fixture.config.prefetch, &fixture.config.dispatch})
        stage->plugin = "told_more";
    const run_report report = fixture.run_it();
    // Every visit but the first: one expert each, right at layer 0 only.
    CHECK(report.predicted == 5);
    CHECK(report.predicted_right == 2);
    CHECK(report.layers[1].predicted == 3);
    CHECK(report.layers[1].predicted_right == 0);
    fixture.config.prefill = 8;  // two tokens at once, then one
    fixture.run_it();
    REQUIRE(fixture.reported_lines("step").size() == 4);
    CHECK(fixture.reported_lines("step")[0] == "step 0 visit 0 token 0 layer 0: prefill 0 x2 @1");
    CHECK(fixture.reported_lines("step")[2].starts_with("step 2 visit 2 token 2 layer 0: 0 x1 @1"));
}

TEST_CASE("a load behind the CPU is told, and taken over by the step that needs it sooner") {
    bench fixture(toy::routing({{{0}}, {{1}}, {{0}}}, 4, {0, 3}, false));
    fixture.use_told_everywhere("9:0");
    fixture.config.dispatch.params.push_back({"behind", int64_t{1}, "test"});
    fixture.config.cache.params = fixture.config.prefetch.params = fixture.config.dispatch.params;
    const run_report report = fixture.run_it();
    // Token 0 on the CPU, 170 to 2,670, its load on the link 170 to 11,170. Token 1: gate 2,850,
    // which the load behind keeps from the link for all of its 11,000 ns; demand to 22,170.
    CHECK(joined(fixture.reported_lines("items")) ==
          joined(lines{"items layer 0 behind 0: 0 x1" + absent,
                       "items layer 0 behind 0 and 11000: 1 x1" + absent,
                       "items layer 0 behind 0: 0 x1" + present}));
    CHECK(joined(fixture.reported_lines("loads")) ==
          joined(lines{"loads 0 (255): prefetch", "loads 1 (255): demand"}));
    CHECK(report.bytes.behind == 100'000);
    CHECK(report.experts.loaded == 1);
    CHECK(report.experts.on_cpu == 1);
}

TEST_CASE("a load behind that a step waits for counts as demand from then on") {
    bench fixture(toy::routing({{{0}}, {{0}}}, 4, {0, 2}, false));
    fixture.use_told_everywhere("9:0");
    fixture.config.dispatch.params.push_back({"behind", int64_t{1}, "test"});
    fixture.config.cache.params = fixture.config.prefetch.params = fixture.config.dispatch.params;
    fixture.run_it();
    CHECK(joined(fixture.reported_lines("plan")) ==
          joined(lines{"plan layer 0 after 0: window 180 backlog 0 room 2",
                       "plan layer 0 after 0: window 11180 backlog 11000 room 2"}));
}

TEST_CASE("what is evicted while it comes behind the CPU does not come after all") {
    bench fixture(toy::routing({{{0}}, {{1}}, {{0}}}, 4, {0, 3}, false));
    fixture.config.experts = 1;
    fixture.use_told(fixture.config.dispatch);
    fixture.config.dispatch.params.push_back({"behind", int64_t{1}, "test"});
    fixture.config.transport.plugin = "chunked";
    fixture.config.transport.params = {{"chunk_bytes", int64_t{10'000}, "test"}};
    // Token 0 on the CPU, from 170 to 2,670, its expert behind it in ten pieces of 2,000. Token 1
    // (gate at 2,850) evicts it when two pieces are sent: the second ends at 4,170, no third goes.
    const run_report report = fixture.run_it();
    CHECK(report.bytes.behind == 20'000);
    CHECK(report.bytes.demand == 200'000);
    CHECK(report.experts.misses == 3);
}

TEST_CASE("an expert that the CPU computes after all is not loaded, though its prefetch was late") {
    bench fixture(toy::routing({{{0}, {0}}}, 4, {0, 1}, false));
    fixture.use_told(fixture.config.prefetch, "0:4");
    fixture.config.dispatch.plugin = "cpu_all";
    fixture.config.dispatch.params = {{"fill", false, "test"}};
    const run_report report = fixture.run_it();
    CHECK(report.experts.on_cpu == 2);
    CHECK(report.experts.loaded == 0);
    CHECK(report.bytes.prefetch_wasted == 100'000);
}

TEST_CASE("a warning of too little memory counts what is beside the cache") {
    bench fixture(toy::routing({{{0}, {0}}}, 4, {0, 1}, false));
    // 49,980 bytes of everything else, four experts cached, two buffered and two staged: 849,980.
    fixture.change("device.toml", "memory_bytes = 1_000_000_000", "memory_bytes = 849_980");
    CHECK(fixture.run_it().warnings.empty());
    fixture.change("device.toml", "memory_bytes = 849_980", "memory_bytes = 849_979");
    const run_report report = fixture.run_it();
    REQUIRE(report.warnings.size() == 1);
    CHECK(report.warnings[0].find("at most 3 experts fit") != std::string::npos);
    CHECK(report.warnings[0].find("take 849,980 bytes, and") != std::string::npos);
    CHECK(report.warnings[0].find("has 849,979 bytes usable") != std::string::npos);
}

TEST_CASE("next_gate fetches no more than what the window leaves beside the backlog") {
    bench fixture(toy::routing({{{0, 1}, {0, 1}}}, 4, {0, 1}, true));
    fixture.config.prefetch.plugin = "next_gate";
    // When layer 1 is routed, only the first of two has set out. The second goes as demand.
    CHECK(fixture.run_it().bytes.prefetched == 100'000);
    // 21,170 ns until the next gate, of which the link is busy 21,000: a load takes 11,000.
    fixture.config.prefetch.params = {{"fit_window", true, "test"}};
    CHECK(fixture.run_it().bytes.prefetched == 0);
}

TEST_CASE("a replay tells requests and scores") {
    trace_data data = toy::routing({{{1, 0}}, {{2, 1}}, {{0, 3}}}, 4, {0, 1, 3}, false);
    data.gate_scores.values = {0.25f, 0.5f,   0.125f, 0, 0,      0.25f,
                               0.75f, 0.125f, 0.5f,   0, 0.125f, 0.25f};
    bench fixture(data);
    fixture.use_told(fixture.config.cache);
    const auto source = fixture.shared.open(fixture.config.trace);
    REQUIRE(source.ok());
    replay_job job{.cache_policy = *fixture.shared.policies().find("told_gates", "cache"),
                   .params = fixture.config.cache.params,
                   .slots = 4};
    const auto counted = replay(**source, nullptr, job);
    REQUIRE(counted.ok());
    CHECK(joined(fixture.reported_lines("step")) ==
          joined(lines{"step 0 visit 0 token 0 layer 0: 1 @0.5 0 @0.25",
                       "step 1 visit 1 token 1 layer 0: request 1 2 @0.75 1 @0.25",
                       "step 2 visit 2 token 2 layer 0: request 1 0 @0.5 3 @0.25"}));
}

}  // namespace told_test
