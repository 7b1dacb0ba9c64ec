// expert_batch_test.cpp - goal: rows of several callers get the bits that each caller would get
// alone. Method: random callers, experts and types of weights, few rows and many, on every set of
// vector instructions, compared with one call of the kernel for each caller's expert.
#include "core/execute/cpu/expert_batch.h"

#include <doctest/doctest.h>

#include <cstring>
#include <deque>

#include "core/execute/cpu/kernels_vector.h"
#include "tests/unit/random_weights.h"

namespace expert_batch_test {

using namespace moorage::core;

namespace {

constexpr uint32_t hidden = 96, intermediate = 160, experts = 3, input_rows = 40;

struct random_set {
    std::deque<random_matrix> matrices;
    std::vector<std::vector<float>> biases;
    std::vector<mlp_weights> weights;

    random_set(std::mt19937_64 &random, weight_type type) {
        biases.reserve(experts);
        for (uint32_t i = 0; i < experts; ++i) {
            mlp_weights expert;
            expert.gate = matrices.emplace_back(random, type, intermediate, hidden).view();
            expert.up = matrices.emplace_back(random, type, intermediate, hidden).view();
            expert.down = matrices.emplace_back(random, type, hidden, intermediate).view();
            expert.down_bias = biases.emplace_back(random_floats(random, hidden));
            weights.push_back(expert);
        }
    }
};

struct caller {
    std::vector<float> input, outputs, alone;
    std::vector<uint32_t> rows;
    uint32_t expert;

    explicit caller(std::mt19937_64 &random)
        : input(random_floats(random, input_rows * hidden)), expert(random() % experts) {
        // Mostly few, as kernels change their order of sums above six.
        rows.resize(random() % 3 ? 1 + random() % 7 : 1 + random() % 39);
        for (uint32_t &row : rows) row = static_cast<uint32_t>(random() % input_rows);
        outputs.assign(rows.size() * hidden, NAN);
        alone = outputs;
    }
};

}  // namespace

TEST_CASE("together as each alone, bit by bit") {
    std::mt19937_64 random(11);
    model_config config;
    config.hidden = hidden;
    config.moe_intermediate = intermediate;
    config.activation = activation_kind::silu;
    thread_pool two_threads(2), one_thread(1);
    mlp_kernel kernel(one_thread);
    expert_batch batch(config, two_threads);
    for (const std::string &target : vector_targets()) {
        choose_vector_target(target);
        CAPTURE(target);
        for (const weight_type type : {weight_type::f32, weight_type::bf16, weight_type::mxfp4}) {
            const random_set set(random, type);
            for (int round = 0; round < 20; ++round) {
                std::deque<caller> callers;
                std::vector<batch_item> items;
                for (uint64_t left = 1 + random() % 12; left != 0; --left) {
                    caller &entry = callers.emplace_back(random);
                    items.push_back({&set.weights[entry.expert], entry.input.data(), entry.rows,
                                     entry.outputs.data()});
                    mlp_call call{};
                    call.weights = &set.weights[entry.expert];
                    call.intermediate = call.count = intermediate;
                    call.activation = config.activation;
                    call.tokens = static_cast<uint32_t>(entry.rows.size());
                    call.gathered = entry.rows.data();
                    call.input = {entry.input.data(), hidden};
                    call.output = {entry.alone.data(), hidden};
                    kernel(call);
                }
                batch.compute(items);
                for (const caller &entry : callers)
                    CHECK(std::memcmp(entry.outputs.data(), entry.alone.data(),
                                      entry.alone.size() * sizeof(float)) == 0);
            }
        }
    }
    choose_vector_target("");
    batch.compute({});
}

}  // namespace expert_batch_test
