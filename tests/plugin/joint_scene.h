// joint_scene.h - random clusters of unequal GPU servers without a cloud, as Prism's Section IV-A.
//
// Calls are parallel, and every server is a home with its own demand. Its tokens draw experts by
// rank^-zipf, with ranks shuffled for each layer and server.
#pragma once

#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "placement_harness.h"

namespace moorage::test {

struct parallel_shape {
    std::vector<uint32_t> gpus{1, 1, 2};  // of each server
    uint32_t layers = 4, experts = 8, top_k = 2, tokens = 60;
    double room = 1.5;  // experts that fit, over experts
    double zipf = 1;
    double call_s = 20e-6;
    bool equal_devices = false;
};

class parallel_cluster {
public:
    parallel_cluster(const parallel_shape &shape, uint64_t seed) : shape_(shape), generator_(seed) {
        const uint64_t bytes = 1000, total_experts = uint64_t{shape.layers} * shape.experts;
        scene.add_model(shape.layers, shape.experts, shape.top_k, bytes, 4096);
        const uint32_t devices = std::accumulate(shape.gpus.begin(), shape.gpus.end(), 0u);
        for (const uint32_t gpus : shape.gpus) {
            const uint32_t server = scene.add_server();
            for (uint32_t g = 0; g < gpus; ++g) {
                const double part = shape.equal_devices ? 1 : 0.6 + 0.8 * uniform();
                const auto slots = static_cast<uint64_t>(
                    shape.room * static_cast<double>(total_experts) / devices * part);
                scene.add_device(server, (slots + 1) * bytes,
                                 shape.call_s * (shape.equal_devices ? 1 : 0.5 + uniform()));
            }
        }
        // Every policy here needs room for an even share of every layer.
        const uint64_t share = (shape.experts + devices - 1) / devices * shape.layers * bytes;
        for (uint64_t &capacity : scene.device_bytes) capacity = std::max(capacity, share);
        for (uint32_t a = 0; a < scene.servers; ++a)
            for (uint32_t b = 0; b < a; ++b) {
                // Each draw is a statement, because compilers differ in the order in which they
                // evaluate arguments.
                const double base_s = 0.5e-3 * (0.5 + uniform());
                scene.add_link(a, b, 62.5e6 * (0.5 + uniform()), base_s);
            }
        for (uint32_t h = 0; h < scene.servers; ++h) scene.add_home(h, 0.5 + uniform());
        for (uint32_t h = 0; h < scene.servers; ++h)
            for (uint32_t l = 0; l < shape.layers; ++l) draw_layer(h, l);
    }

    placement_scene scene;

private:
    double uniform() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }
    void draw_layer(uint32_t home, uint32_t layer) {
        std::vector<uint32_t> rank(shape_.experts);
        std::iota(rank.begin(), rank.end(), layer * shape_.experts);
        for (uint32_t e = 0; e < shape_.experts; ++e)
            std::swap(rank[e], rank[e + generator_() % (shape_.experts - e)]);
        std::map<std::vector<uint32_t>, uint32_t> drawn;
        for (uint32_t t = 0; t < shape_.tokens; ++t) {
            std::vector<double> weight;
            for (uint32_t e = 0; e < shape_.experts; ++e)
                weight.push_back(std::pow(e + 1.0, -shape_.zipf));
            std::vector<uint32_t> chosen;
            for (uint32_t i = 0; i < shape_.top_k; ++i) {
                double remaining = uniform() * std::accumulate(weight.begin(), weight.end(), 0.0);
                uint32_t e = 0;
                while (e + 1 < weight.size() && remaining >= weight[e]) remaining -= weight[e++];
                while (weight[e] == 0) --e;
                chosen.push_back(rank[e]), weight[e] = 0;
            }
            std::sort(chosen.begin(), chosen.end());
            ++drawn[chosen];
        }
        for (const auto &[chosen, count] : drawn) {
            scene.group_experts.insert(scene.group_experts.end(), chosen.begin(), chosen.end());
            scene.group_first.push_back(scene.group_experts.size());
            scene.add_call_of_group(home, static_cast<uint32_t>(scene.group_first.size() - 2),
                                    static_cast<double>(count) / shape_.tokens);
        }
    }

    const parallel_shape shape_;
    std::mt19937_64 generator_;
};

}  // namespace moorage::test
