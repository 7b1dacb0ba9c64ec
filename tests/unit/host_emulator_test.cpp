// Goal: the emulated CPU executor keeps the order and the turns of the real one, to the nanosecond.
// Method: a machine with round figures; every expected number is worked out in its comment.
#include "core/execute/host_emulator.h"

#include <doctest/doctest.h>

#include "core/execute/cost_model.h"
#include "toy_machine.h"

namespace host_emulator_test {

using namespace moorage::core;

namespace {

// An expert of 100,000 bytes takes 10,000 ns to read (10 bytes/ns) and 500 ns for the loop it is in
// (5 launches) plus 30 of its own; a copy takes 1,000 + 10,000 ns alone.
hardware_profile hardware() {
    hardware_profile profile = toy::hardware();
    device_profile &device = profile.device;
    device.memory_bytes_per_s = 10e9;
    device.launch_ns = 100;
    device.expert_kernels = 5;
    device.expert_ns = 30;
    device.sync_ns = 0;
    device.layer_ns = 0;
    device.is_host = true;
    return profile;
}

expert_work whole(uint32_t page, uint32_t tag, uint32_t transfer = MOORAGE_NONE) {
    expert_work work;
    work.page = page;
    work.tokens = 1;
    work.tag = tag;
    work.transfer = transfer;
    return work;
}

}  // namespace

TEST_CASE("experts that can run go in one loop, which pays its entry once") {
    const cost_model costs(hardware(), toy::shape(2, 4, 2));
    host_emulator machine(costs, 4, /*in_place=*/true, nullptr);
    machine.expert_on_device(whole(0, 5));
    machine.expert_on_device(whole(1, 6));
    CHECK(machine.wait().tag == 5);
    CHECK(*machine.clock() == 500 + 2 * (30 + 10'000));
    const completion second = machine.wait();
    CHECK(second.tag == 6);
    CHECK(second.duration_ns == 20'560 / 2);
    CHECK(*machine.clock() == 20'560);
    CHECK(machine.busy().gpu == 20'560);
}

TEST_CASE("experts of the CPU take turns with those of the device, on the same cores") {
    const cost_model costs(hardware(), toy::shape(2, 4, 2));
    host_emulator machine(costs, 4, true, nullptr);
    machine.expert_on_cpu(whole(2, 7));
    machine.expert_on_device(whole(0, 5));
    CHECK(machine.wait().kind == event_kind::device_expert);
    CHECK(*machine.clock() == 10'530);
    CHECK(machine.wait().kind == event_kind::cpu_expert);
    CHECK(*machine.clock() == 21'060);
    CHECK(machine.busy().cpu == 10'530);
}

TEST_CASE("a copy goes on beside computing, each at its share, and is noticed afterwards") {
    hardware_profile half = hardware();
    half.device.compute_share = 0.5;
    half.device.copy_share = 0.8;
    const cost_model costs(half, toy::shape(2, 4, 2));
    host_emulator machine(costs, 4, false, nullptr);
    machine.expect(1);
    machine.expert_on_device(whole(0, 5));
    machine.expert_on_device(whole(1, 6, 1));  // waits for the transfer
    machine.send({.link = link_h2d, .page = 1, .bytes = 100'000});
    // 11,000 ns of copying at 0.8 end at 13,750; by then 6,875 of 10,530 are computed, and the
    // other 3,655 follow at full speed.
    const completion piece = machine.wait();
    CHECK(piece.kind == event_kind::piece);
    CHECK(piece.duration_ns == 13'750);
    CHECK(*machine.clock() == 13'750 + 3'655);
    CHECK(machine.wait().tag == 5);
    machine.arrived(1);
    CHECK(machine.wait().tag == 6);
    CHECK(*machine.clock() == 17'405 + 10'530);
    CHECK(machine.busy().stall == 0);
}

TEST_CASE("what cannot run waits for its copy, and a copy that outlasts a loop goes on") {
    const cost_model costs(hardware(), toy::shape(2, 4, 2));
    host_emulator machine(costs, 4, false, nullptr);
    machine.expect(1);
    machine.expert_on_device(whole(0, 5));
    machine.expert_on_device(whole(1, 6, 1));
    machine.send({.link = link_h2d, .page = 1, .bytes = 100'000});
    CHECK(machine.wait().tag == 5);  // at 10,530, both at full speed
    CHECK(machine.wait().kind == event_kind::piece);
    CHECK(*machine.clock() == 11'000);
    CHECK(machine.busy().stall == 470);
}

TEST_CASE("the thread that copies has to wake, unless all have nothing to do but copy") {
    hardware_profile sleepy = hardware();
    sleepy.device.wake_ns = 3'000;
    SUBCASE("beside computing") {
        sleepy.device.compute_share = 0.5;
        sleepy.device.copy_share = 0.8;
        const cost_model costs(sleepy, toy::shape(2, 4, 2));
        host_emulator machine(costs, 4, false, nullptr);
        machine.expert_on_device(whole(0, 5));
        machine.send({.link = link_h2d, .page = 1, .bytes = 100'000});
        // Copied from 3,000 to 16,750; then 3,000 and 6,875 of 10,530 are computed.
        CHECK(machine.wait().duration_ns == 13'750);
        CHECK(*machine.clock() == 16'750 + 655);
    }
    SUBCASE("not before what is computed has ended") {
        const cost_model costs(sleepy, toy::shape(2, 4, 2));
        host_emulator machine(costs, 4, false, nullptr);
        pass now;
        now.tokens.push_back({});
        machine.attention(0, now);  // 2,000 ns
        machine.send({.link = link_h2d, .page = 1, .bytes = 100'000});
        CHECK(machine.wait().kind == event_kind::gate);
        CHECK(*machine.clock() == 2'000);
        CHECK(machine.wait().duration_ns == 11'000);
        CHECK(*machine.clock() == 13'000);
    }
    SUBCASE("while software hands over") {
        sleepy.device.load_ns = 4'000;
        const cost_model costs(sleepy, toy::shape(2, 4, 2));
        host_emulator machine(costs, 4, false, nullptr);
        machine.send({.link = link_h2d, .page = 1, .bytes = 100'000});
        CHECK(*machine.clock() == 4'000);  // 1,000 of 11,000 are copied
        CHECK(machine.wait().duration_ns == 11'000);
        CHECK(*machine.clock() == 14'000);
    }
}

TEST_CASE("a token is drawn from its logits by the host, before the next pass begins") {
    hardware_profile drawing = hardware();
    drawing.device.logits_per_s = 0.5e9;  // 1,000 logits: 2,000 ns a position
    const cost_model costs(drawing, toy::shape(2, 4, 2));
    host_emulator machine(costs, 4, true, nullptr);
    time_causes causes;
    machine.charge(causes);
    pass now;
    machine.begin(now);
    CHECK(*machine.clock() == 0);
    machine.head(3);
    machine.wait();
    const uint64_t computed_ns = *machine.clock();
    machine.begin(now);
    CHECK(*machine.clock() == computed_ns + 6'000);
    machine.begin(now);  // once
    CHECK(*machine.clock() == computed_ns + 6'000);
    time_causes rest;
    machine.charge(rest);
    CHECK(causes[cause::host] == 6'000);
    CHECK(causes[cause::compute] == computed_ns);
}

TEST_CASE("nothing is computed while policies decide, and copies go on at full speed") {
    const cost_model costs(hardware(), toy::shape(2, 4, 2));
    host_emulator machine(costs, 4, false, nullptr);
    time_causes causes, rest;
    machine.charge(causes);
    machine.expect(1);
    machine.expert_on_device(whole(1, 6, 1));
    machine.send({.link = link_h2d, .page = 1, .bytes = 100'000});  // is copied at 11,000
    machine.policies_took(700);
    CHECK(*machine.clock() == 700);
    CHECK(machine.wait().kind == event_kind::piece);
    CHECK(*machine.clock() == 11'000);
    machine.charge(rest);
    CHECK(causes[cause::policy] == 700);
    CHECK(causes[cause::link] == 10'300);
    CHECK(causes.sum() == 11'000);
}

TEST_CASE("every nanosecond has one cause") {
    hardware_profile slow = hardware();
    slow.device.load_ns = 400;
    const cost_model costs(slow, toy::shape(2, 4, 2));
    host_emulator machine(costs, 4, false, nullptr);
    time_causes causes, rest;
    machine.charge(causes);
    machine.expect(1);
    machine.expert_on_device(whole(0, 5));
    machine.expert_on_device(whole(1, 6, 1));
    machine.send({.link = link_h2d, .page = 1, .bytes = 100'000});  // hands over until 400
    machine.wait();                                                 // computes until 10,930
    CHECK(machine.wait().kind == event_kind::piece);                // is copied at 11,000
    machine.arrived(1);
    machine.expert_on_cpu(whole(2, 7));
    CHECK(machine.wait().tag == 6);
    CHECK(machine.wait().tag == 7);
    machine.charge(rest);
    CHECK(causes.ns ==
          std::array<uint64_t, cause_count>{2 * 10'530, 0, 70, 0, 10'530, 0, 0, 0, 400});
    CHECK(causes.sum() == *machine.clock());
}

TEST_CASE("a prediction takes the cores for an attention, between two loops of experts") {
    const cost_model costs(hardware(), toy::shape(2, 4, 2));
    host_emulator machine(costs, 4, true, nullptr);
    pass now;
    now.tokens.push_back({});
    machine.expert_on_device(whole(0, 5));
    machine.predict(0, now, {});
    machine.expert_on_device(whole(1, 6));
    CHECK(machine.wait().tag == 5);
    CHECK(*machine.clock() == 10'530);
    CHECK(machine.wait().kind == event_kind::prediction);
    CHECK(*machine.clock() == 10'530 + 2'000);  // 20,000 bytes at 10 a ns
    CHECK(machine.wait().tag == 6);
    CHECK(*machine.clock() == 2 * 10'530 + 2'000);
    CHECK(machine.busy().gpu == 2 * 10'530 + 2'000);
}

TEST_CASE("a piece that sets out takes load_ns from computing, and is copied meanwhile") {
    hardware_profile slow = hardware();
    slow.device.load_ns = 4'000;
    const cost_model costs(slow, toy::shape(2, 4, 2));
    SUBCASE("a long one") {
        host_emulator machine(costs, 4, false, nullptr);
        machine.send({.link = link_h2d, .page = 1, .bytes = 100'000});
        CHECK(*machine.clock() == 4'000);
        CHECK(machine.wait().duration_ns == 11'000);
        CHECK(*machine.clock() == 11'000);
    }
    SUBCASE("one that is over before") {
        host_emulator machine(costs, 4, false, nullptr);
        machine.send({.link = link_h2d, .page = 1, .bytes = 20'000});
        CHECK(machine.wait().duration_ns == 1'000 + 2'000);
        CHECK(*machine.clock() == 4'000);
    }
}

TEST_CASE("a layer step takes step_ns of software, which is the host's, and copies go on") {
    hardware_profile slow = hardware();
    slow.device.step_ns = 3'000;
    const cost_model costs(slow, toy::shape(2, 4, 2));
    host_emulator machine(costs, 4, false, nullptr);
    time_causes causes;
    machine.charge(causes);
    pass now;
    now.tokens.push_back({});
    machine.send({.link = link_h2d, .page = 1, .bytes = 20'000});  // 1,000 + 2,000
    machine.attention(0, now);
    CHECK(*machine.clock() == 3'000);
    CHECK(machine.wait().kind == event_kind::piece);  // ended with the software
    CHECK(machine.wait().kind == event_kind::gate);
    CHECK(*machine.clock() == 3'000 + 2'000);  // 20,000 bytes at 10 a ns
    time_causes rest;
    machine.charge(rest);
    CHECK(causes[cause::host] == 3'000);
    CHECK(causes[cause::compute] == 2'000);
}

TEST_CASE("in place nothing is copied, and the bottom of an expert follows its top") {
    const cost_model costs(hardware(), toy::shape(2, 4, 2));
    host_emulator machine(costs, 4, true, nullptr);
    CHECK(machine.unified_memory());
    machine.send({.link = link_h2d, .page = 1, .bytes = 100'000});
    CHECK(machine.wait().duration_ns == 0);
    CHECK(*machine.clock() == 0);
    expert_work top = whole(0, 1), bottom = whole(0, 2);
    top.segments = MOORAGE_SEGMENT(0, 2);
    bottom.segments = MOORAGE_SEGMENT(1, 2);
    top.share = bottom.share = 0.5;
    machine.expert_on_device(top);
    machine.expert_on_device(bottom);
    CHECK(machine.wait().segments == MOORAGE_SEGMENT(0, 2));
    CHECK(*machine.clock() == 5'530);
    CHECK(machine.wait().segments == MOORAGE_SEGMENT(1, 2));
    CHECK(*machine.clock() == 2 * 5'530);  // a loop of its own
}

TEST_CASE("weights of a pass that fit the cache are read at its rate") {
    hardware_profile cached = hardware();
    cached.device.cache_bytes_per_s = 100e9;
    // A token reads 50,000 bytes beside the experts and 2 x 2 experts.
    cached.device.cache_bytes = 450'000;
    CHECK(cost_model(cached, toy::shape(2, 4, 2)).gpu_expert_ns(1, 1) == 530 + 1'000);
    cached.device.cache_bytes = 449'999;
    CHECK(cost_model(cached, toy::shape(2, 4, 2)).gpu_expert_ns(1, 1) == 530 + 10'000);
}

TEST_CASE("past tokens cost by themselves where the profile says so, and a pass has its constant") {
    hardware_profile apart = hardware();
    apart.device.context_bytes_per_s = 1e9;
    apart.device.pass_ns = 700;
    model_shape shape = toy::shape(2, 4, 2);
    shape.kv_token_layer_bytes = 50;
    const cost_model costs(apart, shape);
    CHECK(costs.attention_ns(1, 10) == 2'000 + 500);
    CHECK(costs.head_ns(1) == 700 + 100 + 1'000);
    CHECK(costs.head_ns(0) == 700);  // no token wants logits
}

}  // namespace host_emulator_test
