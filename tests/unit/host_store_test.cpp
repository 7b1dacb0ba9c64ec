// host_store_test.cpp - goal: experts beyond host memory are read from disk by the rules, and
// nothing waits longer than necessary. Method: runs on the toy machine worked by hand (gate after
// 170 ns, an expert takes 100 ns on the GPU, 2,500 on the CPU, 11,000 over the link, 22,000 from
// the disk; the head 10 ns), and the views of policies.
#include <doctest/doctest.h>

#include "core/base/json.h"
#include "core/pipeline/run.h"
#include "tests/unit/toy_run.h"

namespace host_store_test {

using namespace moorage::core;
namespace test = moorage::test;

namespace {

using routing = std::vector<std::vector<std::vector<uint16_t>>>;  // [token][layer][rank]

struct bench : test::toy_run {
    explicit bench(uint32_t host_experts) {
        config.disk = (folder / "disk.toml").string();
        config.cache.plugin = config.host_cache.plugin = "lru";
        config.experts = 1;
        config.buffer_experts = 0;
        config.host_experts = host_experts;
    }
    run_report run_it(const routing &tokens, bool predict = false) {
        write(toy::routing(tokens, 4, {0, tokens.size()}, predict));
        return toy_run::run_it();
    }
};

constexpr double gate = 170, expert = 100, cpu = 2'500, load = 11'000, disk = 22'000, head = 10;

doctest::Approx ms(double ns) { return doctest::Approx(1e-6 * ns); }

}  // namespace

TEST_CASE("an expert comes from disk once, then from host memory") {
    bench fixture(2);
    const run_report report = fixture.run_it({{{0}}, {{0}}, {{1}}, {{0}}});
    CHECK(report.total_ms == ms(2 * (gate + disk + load + expert + head)  // 0 and 1
                                + (gate + expert + head)                  // a hit
                                + (gate + load + expert + head)));        // 0 again
    REQUIRE(report.host);
    CHECK(report.host->slots == 2);
    CHECK(report.host->requested == 3);
    CHECK(report.host->hits == 1);
    CHECK(report.host->disk_bytes == 200'000);
    CHECK(report.host->disk_ms == ms(2 * disk));
    CHECK(report.bytes.h2d == 300'000);
    CHECK(report.experts.misses == 3);
    CHECK((*report.config)["memory"]["host_experts"] == 2);
    CHECK((*report.config)["cache.host"]["plugin"] == "lru");
}

TEST_CASE("host memory evicts by its own policy") {
    bench fixture(1);
    // Every expert takes the other's place in both memories.
    const run_report report = fixture.run_it({{{0}}, {{1}}, {{0}}});
    CHECK(report.total_ms == ms(3 * (gate + disk + load + expert + head)));
    CHECK(report.host->hits == 0);
    CHECK(report.host->disk_bytes == 300'000);
}

TEST_CASE("the disk reads the next expert while the link carries the one before") {
    bench fixture(4);
    fixture.config.experts = 2;
    const run_report report = fixture.run_it({{{0, 1}}});
    CHECK(report.total_ms == ms(gate + 2 * disk + load + expert + head));
    // The GPU waits from the gate on, but while it computes the first.
    CHECK(report.time.stall == ms(2 * disk + load - expert));
}

TEST_CASE("what has no slot in host memory passes through") {
    bench fixture(1);
    fixture.config.experts = 3;
    // The first has the slot and is in use, the second passes through a frame, the third through
    // the other; all are read one after another.
    const run_report report = fixture.run_it({{{0, 1, 2}}, {{0, 1, 2}}});
    CHECK(report.host->requested == 3);
    CHECK(report.host->disk_bytes == 300'000);
    CHECK(report.total_ms == ms(gate + 3 * disk + load + expert + head + gate + 3 * expert + head));
}

TEST_CASE("more than host memory has room for at once wait their turn") {
    bench fixture(1);
    fixture.config.experts = 4;
    // Slot and both frames are taken. So the fourth is read when the first has crossed the link,
    // long before the third was read.
    const run_report report = fixture.run_it({{{0, 1, 2, 3}}});
    CHECK(report.total_ms == ms(gate + 4 * disk + load + expert + head));
    CHECK(report.host->disk_bytes == 400'000);
}

TEST_CASE("the CPU waits for what it reads") {
    bench fixture(2);
    fixture.config.dispatch.plugin = "cpu_all";
    fixture.config.dispatch.params = {{"fill", false, "test"}};
    const run_report report = fixture.run_it({{{0}}, {{0}}});
    CHECK(report.experts.on_cpu == 2);
    CHECK(report.total_ms == ms(gate + disk + cpu + head + gate + cpu + head));
    CHECK(report.host->requested == 2);
    CHECK(report.host->hits == 1);
    CHECK(report.bytes.h2d == 0);
}

TEST_CASE("a dispatch policy is told what the read takes besides") {
    // `cost` loads an expert if that takes at most twice the time on the CPU: 33,100 and 24,500 ns
    // when both must be read first, but not 11,100 and 2,500.
    bench fixture(4);
    fixture.config.dispatch.plugin = "cost";
    fixture.config.dispatch.params = {{"fill", false, "test"}, {"keep", 2.0, "test"}};
    const run_report report = fixture.run_it({{{0}}, {{1}}, {{0}}});
    CHECK(report.experts.on_cpu == 1);
    CHECK(report.total_ms == ms(2 * (gate + disk + load + expert + head) + gate + cpu + head));
}

TEST_CASE("a prefetch is read ahead of the link, and what is left of it becomes demand") {
    bench fixture(4);
    fixture.config.experts = 2;
    fixture.config.buffer_experts = 1;
    fixture.config.prefetch.plugin = "next_gate";
    // Its read follows the first layer's on the disk while that crosses the link.
    const run_report report = fixture.run_it({{{0}, {1}}}, true);
    CHECK(report.total_ms == ms(gate + 2 * disk + load + expert + head));
    CHECK(report.bytes.prefetched == 0);  // nothing of it was sent before it was demand
    CHECK(report.bytes.h2d == 200'000);
    CHECK(report.host->disk_bytes == 200'000);
}

TEST_CASE("a read that nobody waits for any more goes on into its slot") {
    bench fixture(4);
    fixture.config.experts = 2;
    fixture.config.buffer_experts = 1;
    fixture.config.prefetch.plugin = "next_gate";
    trace_data data = toy::routing({{{0}, {1}}}, 4, {0, 1}, true);
    data.predicted[1] = 2;  // and 1 is asked for
    fixture.write(data);
    const run_report report = fixture.toy_run::run_it();
    CHECK(report.total_ms == ms(gate + 3 * disk + load + expert + head));
    CHECK(report.host->disk_bytes == 300'000);
    CHECK(report.bytes.prefetched == 0);
}

TEST_CASE("causes name the disk, and sum to the whole") {
    bench fixture(2);
    const run_report report = fixture.run_it({{{0}}, {{0}}, {{1}}});
    time_causes causes;
    for (const auto &layer : report.causes)
        for (const time_causes &phase : layer) causes += phase;
    CHECK(1e-6 * static_cast<double>(causes.sum()) == doctest::Approx(report.total_ms));
    CHECK(causes[cause::disk] == static_cast<uint64_t>(2 * disk));
    CHECK(causes[cause::link] == static_cast<uint64_t>(2 * load));
}

TEST_CASE("the first content of host memory is its policy's") {
    bench fixture(2);
    fixture.config.host_cache.plugin = "static";
    const run_report report = fixture.run_it({{{0}}, {{3}}});
    // Experts that it chose not to keep pass through.
    CHECK(report.host->requested == 2);
    CHECK(report.host->disk_bytes >= 200'000);
}

TEST_CASE("a table of hits and reads that a second reference agrees with") {
    // An LRU of pages beside an LRU, by hand: fast memory of 1, host memory of 2, six tokens.
    bench fixture(2);
    const std::vector<uint16_t> asked{0, 1, 2, 0, 0, 2, 1, 1, 0};
    routing tokens;
    std::vector<uint16_t> fast, host;
    uint64_t uses = 0, hits = 0;
    const auto touch = [](std::vector<uint16_t> &list, uint16_t page, size_t room) {
        const bool had = std::erase(list, page) != 0;
        list.push_back(page);
        if (list.size() > room) list.erase(list.begin());
        return had;
    };
    for (const uint16_t expert : asked) {
        tokens.push_back({{expert}});
        // Host memory's policy sees every step, also experts that fast memory has.
        const bool in_host = std::find(host.begin(), host.end(), expert) != host.end();
        const bool missed = !touch(fast, expert, 1);
        if (missed) {
            ++uses;
            hits += in_host;
            touch(host, expert, 2);
        } else if (in_host) {
            touch(host, expert, 2);
        }
    }
    const run_report report = fixture.run_it(tokens);
    CHECK(report.host->requested == uses);
    CHECK(report.host->hits == hits);
    CHECK(report.host->disk_bytes == 100'000 * (uses - hits));
}

}  // namespace host_store_test
