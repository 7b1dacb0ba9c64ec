// any_cluster.h - random clusters of every kind: one to six servers, one to three models of 12
// experts a layer, K from 1 to 8, with a cloud and without, all ways to wait and to return.
//
// Without a cloud the devices hold everything once, and some more. Homes are the servers, each with
// its own demand. With a cloud there are also users, who hold some experts themselves.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "placement_harness.h"

namespace moorage::test {

class any_cluster {
public:
    explicit any_cluster(uint64_t seed) : generator_(seed * 0x9e3779b97f4a7c15ull + 1) {
        clouded_ = generator_() % 2 == 0;
        scene.flags = static_cast<uint32_t>(generator_() % 4);
        const uint64_t models = 1 + generator_() % 3, servers = 1 + generator_() % 6;
        const bool equal_sizes = generator_() % 2 == 0;
        for (uint64_t m = 0; m < models; ++m)
            scene.add_model(1 + below(3), 12, 1 + below(8), equal_sizes ? 10 : 5 + below(12), 1000);
        for (uint64_t n = 0; n < servers; ++n) scene.add_server();
        add_devices();
        add_links();
        const uint32_t users = clouded_ ? below(4) : 0;
        for (uint32_t n = 0; n < scene.servers; ++n) scene.add_home(n, uniform(0.5, 2));
        for (uint32_t u = 0; u < users; ++u) {
            const double up = 1000 / uniform(0.2, 2), down = 1000 / uniform(0.2, 2);
            scene.add_home(below(scene.servers), uniform(0.5, 2), up, down, uniform(0, 0.5));
        }
        for (uint32_t h = 0; h < scene.homes; ++h) add_calls(h);
        for (uint32_t h = scene.servers; h < scene.homes; ++h)
            for (uint32_t x = 0; x < scene.expert_count(); ++x)
                if (below(8) == 0) scene.add_held_expert(h, x);
    }

    placement_scene scene;

private:
    double uniform(double low, double high) {
        return low + (high - low) * static_cast<double>(generator_() >> 11) * 0x1p-53;
    }
    uint32_t below(uint32_t bound) { return static_cast<uint32_t>(generator_() % bound); }

    void add_devices() {
        uint64_t total = 0, largest = 0;
        for (uint32_t m = 0; m < scene.models(); ++m) {
            total += scene.expert_bytes[m] * scene.layers[m] * scene.experts[m];
            largest = std::max(largest, scene.expert_bytes[m]);
        }
        const double room = clouded_ ? uniform(0.2, 1.5) : uniform(1.1, 2.5);
        const double slowest_s = below(3) == 0 ? 3 : 0.1;
        for (uint32_t n = 0; n < scene.servers; ++n) {
            const uint32_t devices = 1 + below(2);
            for (uint32_t d = 0; d < devices; ++d) {
                const double part = uniform(0.7, 1.3) * room / scene.servers / devices;
                const double call_s = uniform(0, slowest_s);
                scene.add_device(
                    n, static_cast<uint64_t>(part * static_cast<double>(total)) + largest, call_s);
            }
        }
        uint64_t bytes =
            std::accumulate(scene.device_bytes.begin(), scene.device_bytes.end(), uint64_t{0});
        for (; !clouded_ && bytes < total + largest * scene.devices(); bytes += largest)
            scene.device_bytes[below(scene.devices())] += largest;
    }
    void add_links() {
        const double chance = clouded_ && below(3) == 0 ? 0.6 : 1;
        for (uint32_t a = 0; a < scene.servers; ++a)
            for (uint32_t b = 0; b < a; ++b) {
                const double base_s = uniform(0.1, 0.5), bytes_per_s = 1000 / uniform(0.2, 2);
                if (uniform(0, 1) < chance) scene.add_link(a, b, bytes_per_s, base_s);
            }
        const double cloud_s = uniform(1, 8), call_s = uniform(0, 0.1);
        if (clouded_) scene.add_cloud(infinite, cloud_s, call_s);
    }
    // Adds sets of 24 tokens a layer, by rank^-zipf without replacement.
    void add_calls(uint32_t home) {
        const double zipf = uniform(0.2, 1.6);
        for (uint32_t m = 0; m < scene.models(); ++m) {
            scene.home_model[size_t{home} * scene.models() + m] = 1.0 / scene.models();
            for (uint32_t l = 0; l < scene.layers[m]; ++l) add_layer(home, m, l, zipf);
        }
    }
    void add_layer(uint32_t home, uint32_t m, uint32_t layer, double zipf) {
        std::vector<uint32_t> rank(12);
        std::iota(rank.begin(), rank.end(), scene.first[m] + layer * 12);
        for (uint32_t e = 0; e < 12; ++e) std::swap(rank[e], rank[e + below(12 - e)]);
        for (uint32_t t = 0; t < 24; ++t) {
            std::vector<double> weight;
            for (uint32_t e = 0; e < 12; ++e) weight.push_back(std::pow(e + 1.0, -zipf));
            std::vector<uint32_t> chosen;
            for (uint32_t i = 0; i < scene.top_k[m]; ++i) {
                double remaining = uniform(0, std::accumulate(weight.begin(), weight.end(), 0.0));
                uint32_t e = 0;
                while (e + 1 < weight.size() && remaining >= weight[e]) remaining -= weight[e++];
                while (weight[e] == 0) --e;
                chosen.push_back(rank[e]), weight[e] = 0;
            }
            scene.add_call(home, chosen, 1.0 / 24 / scene.models());
        }
    }

    std::mt19937_64 generator_;
    bool clouded_ = false;
};

}  // namespace moorage::test
