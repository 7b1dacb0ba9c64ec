// Goal: emulated time equals a schedule worked by hand, to the nanosecond. Method: the toy machine
// (toy_machine.h), whose figures are round. The comments derive every expected number.
#include "core/execute/emulator.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <doctest/doctest.h>

#include "core/execute/cost_model.h"
#include "toy_machine.h"

namespace emulator_test {

using namespace moorage::core;

namespace {

pass one_token() {
    pass pass;
    pass.tokens.push_back({});
    return pass;
}

}  // namespace

TEST_CASE("costs are roofline terms plus constants") {
    hardware_profile hardware = toy::hardware();
    const cost_model costs(hardware, toy::shape(2, 4, 1));
    CHECK(costs.attention_ns(1, 0) == 50 + 20);  // 20,000 bytes at 1000 bytes/ns
    CHECK(costs.head_ns(1) == 10);               // 1000 x 5 x 2 bytes
    CHECK(costs.gpu_expert_ns(1, 1) == 100);
    CHECK(costs.gpu_expert_ns(1, 0.25) == 25);
    CHECK(costs.cpu_expert_ns(1, 1) == 500 + 2000);
    CHECK(costs.load_ns(100'000) == 1000 + 10'000);
    CHECK(costs.load_ns(1) == 1001);  // a part of a nanosecond is a whole one

    SUBCASE("operations bind when there are many tokens") {
        hardware.device.flops_per_s = 1e12;  // 1000 a ns; one token of an expert: 2 x 50,000
        const cost_model slow(hardware, toy::shape(2, 4, 1));
        CHECK(slow.gpu_expert_ns(1, 1) == 100);
        CHECK(slow.gpu_expert_ns(8, 1) == 800);
    }
    SUBCASE("the KV cache and launches add up") {
        hardware.device.launch_ns = 3;
        hardware.device.attention_kernels = 7;
        hardware.device.expert_kernels = 2;
        model_shape shape = toy::shape(2, 4, 1);
        shape.kv_token_layer_bytes = 500;
        const cost_model costs_with_cache(hardware, shape);
        CHECK(costs_with_cache.attention_ns(1, 0) == 50 + 21 + 20);
        CHECK(costs_with_cache.attention_ns(1, 10) == 50 + 21 + 25);
        CHECK(costs_with_cache.gpu_expert_ns(1, 1) == 106);
    }
    SUBCASE("unified memory loads for nothing") {
        hardware.device.unified_memory = true;
        CHECK(cost_model(hardware, toy::shape(2, 4, 1)).load_ns(100'000) == 0);
    }
}

TEST_CASE("the GPU stream is in order, and waits for the transfer an expert needs") {
    const cost_model costs(toy::hardware(), toy::shape(2, 4, 1));
    emulator machine(costs, 4, nullptr);
    machine.attention(0, one_token());
    CHECK(machine.wait().kind == event_kind::gate);
    CHECK(*machine.clock() == 170);
    machine.expect(3);
    machine.expert_on_device({.page = 1, .tokens = 1, .transfer = 3, .tag = 7});
    machine.expert_on_device(
        {.page = 2, .tokens = 1, .tag = 8});  // ready, but behind the waiting one
    machine.send({.link = link_h2d, .page = 1, .bytes = 100'000});
    const completion piece = machine.wait();
    CHECK(piece.kind == event_kind::piece);
    CHECK(piece.tag == link_h2d);
    CHECK(piece.duration_ns == 11'000);
    CHECK(*machine.clock() == 11'170);
    machine.arrived(3);
    CHECK(machine.wait().tag == 7);
    CHECK(*machine.clock() == 11'270);
    CHECK(machine.wait().tag == 8);
    CHECK(*machine.clock() == 11'370);
    CHECK(machine.busy().gpu == 170 + 100 + 100);
    CHECK(machine.busy().stall == 11'000);
    CHECK(machine.busy().h2d == 11'000);
}

TEST_CASE("every nanosecond has one cause, and goes to who is charged") {
    hardware_profile hardware = toy::hardware();
    hardware.device.launch_ns = 3;
    hardware.device.expert_kernels = 2;
    const cost_model costs(hardware, toy::shape(2, 4, 1));
    emulator machine(costs, 4, nullptr);
    time_causes first, second;
    machine.charge(first);
    machine.attention(0, one_token());  // 50 and 100 are fixed, 20 for the reads
    machine.wait();
    machine.expect(3);
    machine.expert_on_device({.page = 1, .tokens = 1, .transfer = 3, .tag = 7});
    machine.expert_on_cpu({.page = 2, .tokens = 1, .tag = 9});  // until 170 + 2500, beside the link
    machine.send({.link = link_h2d, .page = 1, .bytes = 100'000});
    machine.wait();
    CHECK(machine.wait().kind == event_kind::piece);  // at 11,170
    machine.arrived(3);
    machine.charge(second);
    CHECK(first.ns == std::array<uint64_t, cause_count>{20, 150, 11'000, 0, 0, 0});
    machine.wait();  // two launches of 3, 100 for the expert
    machine.expert_on_cpu({.page = 3, .tokens = 1, .tag = 10});
    machine.wait();  // nothing else is left: 2,500 for the CPU
    machine.charge(first);
    CHECK(second.ns == std::array<uint64_t, cause_count>{100, 6, 0, 0, 2'500, 0, 0});
    CHECK(first.sum() + second.sum() == *machine.clock());
}

TEST_CASE("the next part waits for policies, launches and computes") {
    hardware_profile hardware = toy::hardware();
    const cost_model costs(hardware, toy::shape(2, 4, 1));
    emulator machine(costs, 4, nullptr);
    time_causes causes, rest;
    machine.charge(causes);
    machine.expert_on_device({.page = 1, .tokens = 1, .tag = 7});  // 100, as the policies say
    machine.policies_took(60);
    machine.policies_took(10);
    machine.attention(0, one_token());  // 150 of 170 are launches
    machine.wait();
    CHECK(*machine.clock() == 100);
    machine.wait();
    CHECK(*machine.clock() == 100 + 70 + 170);
    machine.charge(rest);
    CHECK(causes.ns == std::array<uint64_t, cause_count>{100 + 20, 150, 0, 0, 0, 0, 0, 70, 0, 0});
}

TEST_CASE("what the host takes to draw a token is the head's, and not the GPU's") {
    hardware_profile hardware = toy::hardware();
    const model_shape shape = toy::shape(2, 4, 1);
    hardware.device.logits_per_s = 1e9 * shape.vocabulary / 40;  // a token in 40 ns
    const cost_model costs(hardware, shape);
    emulator machine(costs, 4, nullptr);
    time_causes causes;
    machine.charge(causes);
    machine.attention(0, one_token());  // 170, of it 20 computing
    machine.wait();
    machine.head(1);  // 10
    const completion head = machine.wait();
    CHECK(head.duration_ns == 10);
    CHECK(*machine.clock() == 170 + 10 + 40);
    CHECK(machine.busy().gpu == 170 + 10);
    time_causes rest;
    machine.charge(rest);
    CHECK(causes[cause::compute] == 20 + 10);
    CHECK(causes[cause::launch] == 150);
    CHECK(causes[cause::host] == 40);
}

TEST_CASE("a prediction takes an attention of the GPU, ahead of what waits for a transfer") {
    hardware_profile hardware = toy::hardware();
    uint64_t load_ns = 11'000;
    SUBCASE("a load that takes longer hides it") {}
    SUBCASE("what waits for a shorter one is held up") {
        hardware.link.issue_ns = 100;
        hardware.link.h2d_bytes_per_s = 1000e9;
        load_ns = 200;
    }
    const cost_model costs(hardware, toy::shape(2, 4, 1));
    emulator machine(costs, 4, nullptr);
    machine.attention(0, one_token());
    machine.wait();
    machine.expect(3);
    machine.expert_on_device({.page = 0, .tokens = 1, .tag = 6});  // resident
    machine.predict(0, one_token(), {});
    machine.expert_on_device({.page = 1, .tokens = 1, .transfer = 3, .tag = 7});
    machine.send({.link = link_h2d, .page = 1, .bytes = 100'000});
    uint64_t predicted_ns = 0;
    for (completion done = machine.wait(); done.tag != 7; done = machine.wait()) {
        if (done.kind == event_kind::piece) machine.arrived(3);
        if (done.kind != event_kind::prediction) continue;
        predicted_ns = *machine.clock();
        CHECK(done.duration_ns == 170);
    }
    CHECK(predicted_ns == 170 + 100 + 170);
    CHECK(*machine.clock() == 170 + std::max<uint64_t>(load_ns, 270) + 100);
    CHECK(machine.busy().gpu == 170 + 100 + 170 + 100);
    CHECK(machine.busy().stall == (load_ns > 270 ? load_ns - 270 : 0));
}

TEST_CASE("copies and CPU experts share host memory once they exceed its ceiling") {
    hardware_profile hardware = toy::hardware();
    hardware.node.memory_bytes_per_s = 30e9;  // 30 bytes/ns; link 10 and CPU 50 want 60
    hardware.link.issue_ns = 0;
    hardware.node.cpu_issue_ns = 0;
    // The node alone allows the CPU 30 bytes/ns at most, so it wants 30, and both together 40.
    const cost_model costs(hardware, toy::shape(2, 4, 1));
    emulator machine(costs, 1, nullptr);
    machine.send({.link = link_h2d, .page = 0, .bytes = 100'000});
    machine.expert_on_cpu({.page = 1, .tokens = 1, .tag = 5});
    // Factor 30 / 40: link 7.5, CPU 22.5 bytes/ns. The CPU ends at 100,000 / 22.5 = 4444.4 -> 4445
    // (its rate alone is 100,000 bytes in 3334 ns, rounded up, so a little below 30: 29.994).
    const double alone = 100'000.0 / 3334, factor = 30 / (10 + alone);
    const auto cpu_ns = static_cast<uint64_t>(std::ceil(100'000 / (alone * factor)));
    completion done = machine.wait();
    CHECK(done.kind == event_kind::cpu_expert);
    CHECK(done.tag == 5);
    CHECK(*machine.clock() == cpu_ns);
    CHECK(cpu_ns == 4445);
    // Then the link is alone. The rest of 100,000 - 7.5 x 4445 goes at 10 bytes/ns.
    const double left = 100'000 - 10 * factor * static_cast<double>(cpu_ns);
    done = machine.wait();
    CHECK(done.kind == event_kind::piece);
    CHECK(*machine.clock() == cpu_ns + static_cast<uint64_t>(std::ceil(left / 10)));
    CHECK(*machine.clock() == 11'111);  // 4445 + 6665.2..: close to 4444.4 + 6666.7
}

TEST_CASE("the constant part of a transfer uses no bandwidth") {
    hardware_profile hardware = toy::hardware();
    hardware.node.memory_bytes_per_s = 50e9;  // CPU 50 alone fits, with the link 60 do not
    hardware.node.cpu_issue_ns = 0;
    const cost_model costs(hardware, toy::shape(2, 4, 1));
    emulator machine(costs, 1, nullptr);
    machine.send({.link = link_h2d, .page = 0, .bytes = 100'000});  // constant until 1000
    machine.expert_on_cpu({.page = 1, .tokens = 1, .tag = 0});  // 50,000 of 100,000 bytes by 1000
    // From 1000 on the factor is 50 / 60: CPU 41.67 bytes/ns, 50,000 more bytes take 1200 ns.
    CHECK(machine.wait().kind == event_kind::cpu_expert);
    CHECK(*machine.clock() == 2200);
    // The link had 8.333 bytes/ns for 1200 ns = 10,000 bytes; 90,000 are left at 10 bytes/ns.
    CHECK(machine.wait().kind == event_kind::piece);
    CHECK(*machine.clock() == 11'200);
}

TEST_CASE("the link and the disk work at the same time") {
    hardware_profile hardware = toy::hardware();
    hardware.disk.read_bytes_per_s = 12.5e9;  // 12.5 bytes a ns, the link 10
    hardware.disk.issue_ns = 1000;
    const cost_model costs(hardware, toy::shape(2, 4, 1));
    emulator machine(costs, 1, nullptr);
    machine.send({.link = link_h2d, .page = 0, .bytes = 100'000});
    machine.send({.link = link_disk, .page = 0, .bytes = 50'000});
    completion done = machine.wait();
    CHECK(done.tag == link_disk);
    CHECK(*machine.clock() == 5000);
    done = machine.wait();
    CHECK(done.tag == link_h2d);
    CHECK(*machine.clock() == 11'000);
    CHECK(machine.busy().h2d == 11'000);
    CHECK(machine.busy().disk == 5000);
}

TEST_CASE("the CPU pool computes one expert after the other; queues grow as needed") {
    const cost_model costs(toy::hardware(), toy::shape(2, 4, 1));
    emulator machine(costs, 1, nullptr);
    for (uint32_t i = 0; i < 200; ++i) machine.expert_on_cpu({.page = i, .tokens = 1, .tag = i});
    for (uint32_t i = 0; i < 200; ++i) {
        const completion done = machine.wait();
        CHECK(done.tag == i);
        CHECK(*machine.clock() == uint64_t{i + 1} * 2500);
    }
    CHECK(machine.busy().cpu == 200 * 2500);
}

// A copy towards the toy GPU slows its computing by a quarter.
static hardware_profile slowed_by_copies() {
    hardware_profile hardware = toy::hardware();
    hardware.device.busy_link_slowdown = 0.25;
    return hardware;
}

TEST_CASE("a copy under way makes computing and launching take longer, for as long as it goes on") {
    hardware_profile hardware = slowed_by_copies();
    SUBCASE("all of the time") {
        const cost_model costs(hardware, toy::shape(2, 4, 1));
        emulator machine(costs, 4, nullptr);
        time_causes causes, rest;
        machine.charge(causes);
        machine.send({.link = link_h2d, .page = 3, .bytes = 100'000});  // 11,000
        machine.attention(0, one_token());  // 150 of 170 are launches: 187.5 of 212.5
        CHECK(machine.wait().duration_ns == 213);
        CHECK(*machine.clock() == 213);
        machine.expert_on_device({.page = 1, .tokens = 1, .tag = 7});  // 100: 125
        CHECK(machine.wait().duration_ns == 125);
        CHECK(*machine.clock() == 213 + 125);
        CHECK(machine.busy().gpu == 213 + 125);
        machine.charge(rest);
        CHECK(causes[cause::launch] == 188);
        CHECK(causes[cause::compute] == 25 + 125);
        CHECK(causes.sum() == *machine.clock());
    }
    SUBCASE("at its beginning") {
        hardware.link.issue_ns = 0;
        const cost_model costs(hardware, toy::shape(2, 4, 1));
        emulator machine(costs, 4, nullptr);
        machine.send({.link = link_h2d, .page = 3, .bytes = 500});  // 50
        machine.attention(0, one_token());
        // In 50 ns 40 of 170 are done, the other 130 take as long as they do.
        CHECK(machine.wait().kind == event_kind::piece);
        CHECK(machine.wait().kind == event_kind::gate);
        CHECK(*machine.clock() == 50 + 130);
    }
    SUBCASE("at its end") {
        const cost_model costs(hardware, toy::shape(2, 4, 1));
        uint64_t clock = 0;
        emulator machine(costs, 4, nullptr, &clock);
        machine.expert_on_device({.page = 1, .tokens = 1, .tag = 7});
        CHECK(machine.due() == 100);
        clock = 60;
        machine.catch_up();
        machine.send({.link = link_h2d, .page = 3, .bytes = 100'000});
        CHECK(machine.due() == 60 + 50);  // 40 are left
    }
    SUBCASE("through pieces that follow each other at once") {
        hardware.link.issue_ns = 0;
        const cost_model costs(hardware, toy::shape(2, 4, 1));
        emulator machine(costs, 4, nullptr);
        machine.attention(0, one_token());
        for (uint32_t piece = 0; piece < 10; ++piece) {  // 10 ns each: 80 of 170 in 100
            machine.send({.link = link_h2d, .page = 3, .bytes = 100});
            CHECK(machine.wait().kind == event_kind::piece);
        }
        CHECK(machine.wait().kind == event_kind::gate);
        CHECK(*machine.clock() == 100 + 90);
    }
}

TEST_CASE(
    "a copy slows neither policies and the host, nor the CPU; a read from disk slows nothing") {
    hardware_profile hardware = slowed_by_copies();
    const model_shape shape = toy::shape(2, 4, 1);
    hardware.device.logits_per_s = 1e9 * shape.vocabulary / 40;  // a token in 40 ns
    hardware.disk.read_bytes_per_s = 5e9;
    hardware.disk.issue_ns = 0;
    const cost_model costs(hardware, shape);
    SUBCASE("a copy") {
        emulator machine(costs, 4, nullptr);
        machine.send({.link = link_h2d, .page = 3, .bytes = 100'000});
        machine.expert_on_cpu({.page = 2, .tokens = 1, .tag = 9});
        machine.policies_took(60);
        machine.attention(0, one_token());  // 60, then 212.5
        CHECK(machine.wait().kind == event_kind::gate);
        CHECK(*machine.clock() == 60 + 213);
        machine.head(1);  // 12.5, then 40
        const completion head = machine.wait();
        CHECK(head.duration_ns == 13);
        CHECK(*machine.clock() == 273 + 13 + 40);
        CHECK(machine.wait().kind == event_kind::cpu_expert);
        CHECK(*machine.clock() == 2500);
    }
    SUBCASE("a read") {
        emulator machine(costs, 4, nullptr);
        machine.send({.link = link_disk, .page = 3, .bytes = 100'000});
        machine.attention(0, one_token());
        CHECK(machine.wait().kind == event_kind::gate);
        CHECK(*machine.clock() == 170);
    }
}

// Against counting nanosecond by nanosecond, over drawn copies and kernels.
TEST_CASE("however copies and kernels lie, a kernel ends when its parts are done") {
    std::mt19937_64 random(42);
    const auto below = [&](uint64_t end) { return random() % end; };
    for (int round = 0; round < 300; ++round) {
        const uint64_t thousandths = round % 10 == 0 ? 0 : below(2000);
        hardware_profile hardware = toy::hardware();
        hardware.device.busy_link_slowdown = static_cast<double>(thousandths) / 1000;
        hardware.link.issue_ns = 0;
        const cost_model costs(hardware, toy::shape(2, 4, 1));
        uint64_t clock = 0;
        emulator machine(costs, 1, nullptr, &clock);
        uint64_t begun_ns = below(50), copy_ns = begun_ns + below(40), copied_ns = 0;
        const uint64_t work_ns = costs.gpu_expert_ns(1, 1);
        uint64_t left = work_ns * (1000 + thousandths), ended_ns = 0;
        for (uint64_t now_ns = 0; ended_ns == 0; ++now_ns) {
            REQUIRE(now_ns < 1000);
            clock = now_ns;
            machine.catch_up();
            // Takes the events of this nanosecond first, as a run does.
            while (machine.due() == now_ns) {
                const auto done = machine.step();
                if (done && done->kind == event_kind::device_expert) ended_ns = now_ns;
                if (done && done->kind == event_kind::piece) copy_ns = now_ns + below(30);
            }
            if (now_ns == begun_ns) machine.expert_on_device({.page = 1, .tokens = 1, .tag = 7});
            if (now_ns == copy_ns) {
                const uint64_t takes_ns = 1 + below(60);
                machine.send({.link = link_h2d, .page = 3, .bytes = 10 * takes_ns});
                copied_ns = now_ns + takes_ns;
            }
            if (ended_ns == 0 && now_ns >= begun_ns)
                left -= std::min(left, now_ns < copied_ns ? 1000 : 1000 + thousandths);
            if (ended_ns != 0)
                CHECK(left == 0);
            else if (left == 0)
                CHECK(machine.due() <= now_ns + 1);
        }
        CHECK(ended_ns >= begun_ns + work_ns);
    }
}

}  // namespace emulator_test
