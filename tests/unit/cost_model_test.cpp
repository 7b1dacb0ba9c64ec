// cost_model_test.cpp - goal: the costs that policies are told are right, and measured times
// correct them. Method: the toy machine's round figures (toy_machine.h), worked by hand.
#include <doctest/doctest.h>

#include "core/execute/cost_model.h"
#include "tests/unit/toy_machine.h"

namespace cost_model_test {

using namespace moorage::core;

TEST_CASE("the summary for policies") {
    hardware_profile machine = toy::hardware();
    machine.device.flops_per_s = 1e12;  // 100,000 operations a token and expert: 100 ns
    machine.node.cpu_flops_per_s = 25e9;
    cost_model model(machine, toy::shape(2, 4, 1));
    const moorage_costs costs = model.summary(1);
    CHECK(costs.expert_bytes == 100'000);
    CHECK(costs.load_ns == 11'000);
    CHECK(costs.transfer_issue_ns == 1000);
    CHECK(costs.attention_ns == 170);  // 50 + 20,000 bytes at 1,000 a ns + 100 for the hand-over
    CHECK(costs.gpu_expert_ns == 100);
    CHECK(costs.cpu_expert_ns == 500 + 4000);
    CHECK(costs.head_ns == 10);
    // 1,025 tokens: 102,500 ns on the GPU, 500 + 4,100,000 on the CPU; 1,024 more than one.
    CHECK(costs.gpu_token_ns == 100);
    CHECK(costs.cpu_token_ns == 4000);
}

TEST_CASE("a link is no faster than the memory that it reads") {
    hardware_profile machine = toy::hardware();
    machine.node.memory_bytes_per_s = 5e9;
    const cost_model slow(machine, toy::shape(1, 4, 1));
    CHECK(slow.load_ns(100'000) == 1000 + 20'000);
    machine.device.unified_memory = true;
    CHECK(cost_model(machine, toy::shape(1, 4, 1)).load_ns(100'000) == 0);
}

TEST_CASE("measured times correct the estimate slowly, whatever one of them says") {
    cost_model model(toy::hardware(), toy::shape(1, 4, 1));
    // Eight times as long at most: 1 + 7 / 16.
    model.observe(cost_model::device_expert, 100, 1'000'000);
    CHECK(model.gpu_expert_ns(1, 1) == 144);
    CHECK(model.cpu_expert_ns(1, 1) == 2500);
    CHECK(model.load_ns(100'000) == 11'000);
    model.observe(cost_model::device_expert, 144, 144);
    CHECK(model.gpu_expert_ns(1, 1) == 144);
    model.observe(cost_model::device_expert, 0, 5);  // says nothing
    model.observe(cost_model::device_expert, 5, 0);
    CHECK(model.gpu_expert_ns(1, 1) == 144);
    // An eighth at least: 1 - 7 / 8 / 16 = 121 / 128 of 11,000.
    model.observe(cost_model::load, 11'000, 1);
    CHECK(model.load_ns(100'000) == 10'398);
}

}  // namespace cost_model_test
