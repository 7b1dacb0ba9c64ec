// splits_pipeline_test.cpp - goal: layers with different splits are loaded, computed, moved and
// laid out anew by the rules. Method: runs on the toy machine worked by hand.
//
// The toy's experts have 5000 rows in parts of 640, so split = 0.512 is 2560 rows: a top segment
// has 51,200 bytes (6,120 ns over the link, 52 ns on the GPU, 103 ns to move: read and written), a
// bottom 48,800 (5,880 ns, 49 ns), a whole expert 11,000 and 100 ns.
#include <doctest/doctest.h>

#include "core/pipeline/run.h"
#include "tests/unit/toy_run.h"

namespace splits_pipeline_test {

using namespace moorage::core;
namespace test = moorage::test;

namespace {

struct bench : test::toy_run {
    explicit bench(const trace_data &data) : toy_run({"plugins", "tests/policies"}) {
        write(data);
        config.experts = 4;
        config.buffer_experts = 2;
        config.per_layer = true;
        config.budget.plugin = "splits";
        config.prefetch.plugin = "orders";
    }
    run_report run_it() {
        run_report done = toy_run::run_it();
        CHECK(done.faults.empty());
        return done;
    }
};

}  // namespace

TEST_CASE("a top that was prefetched moves to its slot after its expert has been computed") {
    bench fixture(toy::routing({{{0}, {0}}, {{1}, {0}}, {{1}, {0}}}, 4, {0, 3}, false));
    fixture.config.budget.params = {{"list", "2:0.512 2:1", "test"}};
    fixture.config.prefetch.params = {{"list", "1:1w", "test"}};  // at layer 1, expert 1 of layer 0
    const run_report report = fixture.run_it();
    // Token 0, layer 0: gate 170; top to 6,290, bottom to 12,170, done 12,219. Layer 1, not split:
    // gate 12,389, link to 23,389, done 23,489; prefetch of a top to 29,509, a bottom to 35,389.
    // Head 23,499.
    CHECK(report.ttft_ms.mean == doctest::Approx(0.023499));
    // Token 1, layer 0: gate 23,669; both segments are late: top 29,509 to 29,561, bottom 35,389 to
    // 35,438. The move follows the earlier queue, to 35,541. Layer 1: gate 35,711, a hit: 35,811;
    // the prefetch brings the bottom alone, 35,711 to 41,591. Head 35,821.
    CHECK(report.tpot_ms.p99 == doctest::Approx(0.012322));
    // Token 2, layer 0: gate 35,991, the top is in its slot: 36,043; bottom 41,591 to 41,640 and
    // nothing to move. Layer 1: gate 41,810, done 41,910; head 41,920.
    CHECK(report.tpot_ms.p50 == doctest::Approx(0.006099));
    CHECK(report.total_ms == doctest::Approx(0.041920));
    CHECK(report.time.compute ==
          doctest::Approx(1e-6 * (6 * 170 + 3 * (52 + 49 + 100 + 10) + 103)));
    CHECK(report.experts.hits == 2);
    CHECK(report.experts.partial_hits == 2);
    CHECK(report.experts.misses == 2);
    // When layer 0 was routed, only the top of the first prefetch had set out.
    CHECK(report.bytes.prefetch_used == 51'200 + 48'800);
    CHECK(report.arrangement.changes == 0);
}

TEST_CASE("another split: the caches are emptied, laid out and filled between two passes") {
    // Two experts a layer and two slots: in any order, all of them fill the cache.
    bench fixture(toy::routing({{{0}, {0}}, {{0}, {0}}}, 2, {0, 1, 2}, false));
    fixture.config.cache.plugin = "lcp";
    fixture.config.budget.params = {{"list", "2:0.512 2:1", "test"},
                                    {"then", "2:1 2:0.512", "test"},
                                    {"at", int64_t{1}, "test"}};
    run_report report = fixture.run_it();
    // First content: two tops and two whole experts, 2 x 6,120 + 2 x 11,000.
    CHECK(report.arrangement.first_bytes == 302'400);
    CHECK(report.arrangement.first_ms == doctest::Approx(0.034240));
    // Token 0, layer 0: gate 170, top to 222, bottom on the link to 6,050, done 6,099. Layer 1:
    // gate 6,269, done 6,369; head 6,379. Token 1: 170, 270; 440, 492 and 6,320, 6,369; head 6,379.
    CHECK(report.ttft_ms.p50 == doctest::Approx(0.006379));
    CHECK(report.ttft_ms.p99 == doctest::Approx(0.006379));
    CHECK(report.arrangement.changes == 1);
    CHECK(report.arrangement.bytes == 302'400);
    CHECK(report.arrangement.ms == doctest::Approx(0.034240));
    CHECK(report.total_ms == doctest::Approx(0.006379 + 0.034240 + 0.006379));
    CHECK(report.bytes.h2d == 2 * 48'800);

    // A bottom is on its way when the layout changes, 6,269 to 12,149: it is waited for, and lost.
    fixture.config.prefetch.params = {{"list", "1:0b", "test"}};
    report = fixture.run_it();
    CHECK(report.ttft_ms.p99 == doctest::Approx(0.006379));
    CHECK(report.arrangement.bytes == 302'400);
    CHECK(report.total_ms == doctest::Approx(0.012149 + 0.034240 + 0.006379));
    CHECK(report.bytes.prefetch_wasted == 48'800);
    CHECK(report.bytes.prefetch_used == 0);
}

TEST_CASE("a layer shrinks although its cached experts have their other segment in the buffer") {
    // Two layers of one expert a token, split in half. Layer 0 keeps experts 0 and 1. After token 1
    // the last step orders their bottoms, and the budget takes both slots for layer 1, which then
    // needs all the room.
    bench fixture(toy::routing({{{0}, {0}}, {{1}, {1}}, {{2}, {2}}, {{3}, {3}}}, 4, {0, 4}, false));
    fixture.config.experts = 2;  // four tops of a half
    fixture.config.buffer_experts = 3;
    fixture.config.budget.params = {{"list", "3:0.512 0:0.512", "test"},
                                    {"then", "0:0.512 3:0.512", "test"},
                                    {"at", int64_t{2}, "test"}};
    fixture.config.prefetch.params = {{"list", "1:0b 1:1b", "test"}};
    const run_report report = fixture.run_it();
    REQUIRE(report.layers.size() == 2);
    CHECK(report.layers[0].slots == 0);
    CHECK(report.layers[1].slots == 3);
    CHECK(report.experts.requested == 8);
    // The bottoms were under way when the layers changed; they are counted, not lost.
    CHECK(report.bytes.prefetched == report.bytes.prefetch_wasted);
    CHECK(report.bytes.prefetch_cut_off > 0);
}

}  // namespace splits_pipeline_test
