// devices_emulator_test.cpp - goal: two GPUs work side by side, each from its own memory and over
// its own link. Hidden states go there and come back in order. The time has one cause at every
// moment. Method: schedules on the toy machine, whose second GPU is half as fast, worked by hand.
#include <doctest/doctest.h>

#include <vector>

#include "core/execute/devices_emulator.h"
#include "tests/unit/toy_machine.h"

namespace devices_emulator_test {

using namespace moorage::core;

namespace {

struct seen final : span_sink {
    struct span_record {
        track track_id;
        std::string kind;
        uint64_t start, end;
    };
    std::vector<span_record> spans;
    void span(track track_id, const char *kind, uint32_t, uint32_t, uint64_t start_ns,
              uint64_t end_ns) override {
        spans.push_back({track_id, kind, start_ns, end_ns});
    }
};

// A hidden state of 5 values, 10 bytes, takes 300 ns + 1 ns there and 300 + 2 back.
struct bench {
    hardware_profile first = toy::hardware(), second = toy::hardware();
    model_shape shape = toy::shape(2, 4, 2);
    std::vector<cost_model> costs;
    seen sink;
    std::optional<devices_emulator> emulator;
    time_causes spent;

    explicit bench(bool through_host = true) {
        second.device.memory_bytes_per_s = 500e9;  // an expert takes 200 ns
        second.link.h2d_bytes_per_s = 20e9;        // 1,000 + 5,000 ns
        second.peer = {"between", 10e9, 5e9, 300};
        second.peer_through_host = through_host;
        costs = {cost_model(first, shape), cost_model(second, shape)};
        emulator.emplace(device_costs{costs[0], std::span(costs).subspan(1)}, 16, &sink);
        emulator->charge(spent);
    }
    completion wait(uint64_t at_ns) {
        const completion done = emulator->wait();
        CHECK(*emulator->clock() == at_ns);
        return done;
    }
    void expert(uint32_t device, uint32_t tag, uint32_t transfer = MOORAGE_NONE) {
        emulator->expert_on_device(
            {tag, 1, 1, transfer, tag, MOORAGE_WHOLE, static_cast<uint8_t>(device)});
    }
    void causes(uint64_t compute, uint64_t link, uint64_t cpu) {
        CHECK(spent[cause::compute] + spent[cause::launch] == compute);
        CHECK(spent[cause::link] == link);
        CHECK(spent[cause::cpu] == cpu);
        CHECK(spent.sum() == *emulator->clock());
    }
};

}  // namespace

TEST_CASE("both compute at one time, hidden states before and behind") {
    bench fixture;
    pass tokens;
    tokens.tokens.resize(1);
    fixture.emulator->attention(0, tokens);
    CHECK(fixture.wait(170).kind == event_kind::gate);
    // The first: 170 to 270 and 370. The other: states until 471, expert until 671, back until 973.
    fixture.emulator->hidden_states(1, 1, /*back=*/false);
    fixture.expert(0, 1);
    fixture.expert(0, 2);
    fixture.expert(1, 3);
    fixture.emulator->hidden_states(1, 1, /*back=*/true);
    CHECK(fixture.wait(270).tag == 1);
    CHECK(fixture.wait(370).tag == 2);
    const completion arrived = fixture.wait(471);
    CHECK(arrived.kind == event_kind::hidden_states);
    CHECK(arrived.duration_ns == 301);
    CHECK(fixture.wait(671).tag == 3);
    CHECK(fixture.wait(973).duration_ns == 302);
    // Computing until 370 and from 471 to 671; hidden states are a link's.
    fixture.causes(370 + 200, 101 + 302, 0);
    CHECK(fixture.emulator->busy_of(0).gpu == 370);
    CHECK(fixture.emulator->busy_of(1).gpu == 200);
    CHECK(fixture.emulator->busy().gpu == 570);
    REQUIRE(fixture.sink.spans.size() == 6);
    CHECK(fixture.sink.spans[5].kind == "hidden states");
    CHECK(fixture.sink.spans[5].track_id == span_sink::of_device(span_sink::gpu, 1));
    CHECK(fixture.sink.spans[5].start == 671);
}

TEST_CASE("each loads over its own link, and waits for its own transfer") {
    bench fixture;
    fixture.emulator->expect(1);
    fixture.emulator->expect(2);
    fixture.emulator->send({link_h2d, 1, MOORAGE_WHOLE, 0, 100'000});
    fixture.emulator->send({h2d_of(1), 2, MOORAGE_WHOLE, 0, 100'000});
    fixture.expert(0, 1, 1);
    fixture.expert(1, 2, 2);
    // 30 of the memory's 1,000 bytes a ns, so neither is slowed. The other's 6,000 ns, the first
    // 11,000.
    const completion second = fixture.wait(6'000);
    CHECK(second.kind == event_kind::piece);
    CHECK(second.tag == h2d_of(1));
    fixture.emulator->arrived(2);
    CHECK(fixture.wait(6'200).tag == 2);
    CHECK(fixture.wait(11'000).tag == link_h2d);
    fixture.emulator->arrived(1);
    CHECK(fixture.wait(11'100).tag == 1);
    fixture.causes(200 + 100, 6'000 + 4'800, 0);
    CHECK(fixture.emulator->busy_of(1).stall == 6'000);
    CHECK(fixture.emulator->busy_of(0).stall == 11'000);
    CHECK(fixture.emulator->busy_of(1).h2d == 6'000);
    CHECK(fixture.emulator->busy().h2d == 17'000);
    CHECK(fixture.emulator->stall_ns() == 17'000);
}

TEST_CASE("copies of both and the CPU share host memory; a link between the GPUs does not") {
    for (const bool through_host : {true, false}) {
        bench fixture(through_host);
        // Slower memory: 20 bytes a ns for two copies of 10 and 20 alone, two thirds of each.
        fixture.first.node.memory_bytes_per_s = 20e9;
        fixture.costs = {cost_model(fixture.first, fixture.shape),
                         cost_model(fixture.second, fixture.shape)};
        fixture.emulator.emplace(
            device_costs{fixture.costs[0], std::span(fixture.costs).subspan(1)}, 16, nullptr);
        fixture.emulator->charge(fixture.spent);
        fixture.emulator->send({link_h2d, 1, MOORAGE_WHOLE, 0, 100'000});
        fixture.emulator->send({h2d_of(1), 2, MOORAGE_WHOLE, 0, 100'000});
        // From 1,000 on at 6.67 and 13.33: the other has its 100,000 at 8,500; then 50,000 are left
        // of the first one's, at 10 alone: 13,500. States of no size come and go meanwhile.
        CHECK(fixture.wait(8'500).tag == h2d_of(1));
        CHECK(fixture.wait(13'500).tag == link_h2d);
        // Alone through a memory that the copy does not fill: 10 bytes at 10, as between the GPUs.
        fixture.emulator->hidden_states(1, 1, false);
        CHECK(fixture.wait(13'801).kind == event_kind::hidden_states);
        CHECK(fixture.spent.sum() == 13'801);
    }
}

TEST_CASE("while no GPU has anything the time is the CPU's") {
    bench fixture;
    fixture.emulator->expert_on_cpu({1, 1, 1, MOORAGE_NONE, 7});
    fixture.emulator->hidden_states(1, 1, false);
    fixture.expert(1, 2);
    CHECK(fixture.wait(301).kind == event_kind::hidden_states);
    CHECK(fixture.wait(501).tag == 2);
    CHECK(fixture.wait(2'500).tag == 7);  // 500 + 2,000
    fixture.causes(200, 301, 1'999);
}

TEST_CASE("each is slowed by copies on its own link alone") {
    bench fixture;
    fixture.first.device.busy_link_slowdown = fixture.second.device.busy_link_slowdown = 0.25;
    fixture.costs = {cost_model(fixture.first, fixture.shape),
                     cost_model(fixture.second, fixture.shape)};
    fixture.emulator.emplace(device_costs{fixture.costs[0], std::span(fixture.costs).subspan(1)},
                             16, &fixture.sink);
    // Over the second link, 6,000 ns. Its experts take 250, the first's 100 as before.
    fixture.emulator->send({.link = h2d_of(1), .page = 5, .bytes = 100'000});
    fixture.expert(0, 1);
    fixture.expert(1, 2);
    fixture.expert(0, 3);
    CHECK(fixture.wait(100).tag == 1);
    CHECK(fixture.wait(200).tag == 3);
    const completion slow = fixture.wait(250);
    CHECK(slow.tag == 2);
    CHECK(slow.duration_ns == 250);
    CHECK(fixture.emulator->busy_of(1).gpu == 250);
    fixture.expert(1, 4);
    fixture.wait(500);
    CHECK(fixture.wait(6000).kind == event_kind::piece);
    fixture.expert(1, 6);  // the link rests
    fixture.wait(6200);
}

}  // namespace devices_emulator_test
