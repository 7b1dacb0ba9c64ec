// slim_reference.h - SlimCaching's latency, Eq. 5-12, and Prism's Eq. 1 written out slowly.
//
// Independent of moorage/latency.hpp. Every way to assign the wanted experts to their holders is
// tried, one after another. A home's latency is the sum over its calls. With a cloud only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "placement_harness.h"

namespace moorage::test {

// The server and device of each expert: [N][X], MOORAGE_NONE if the server lacks it.
using slim_placement = std::vector<std::vector<uint32_t>>;

class slim_reference {
public:
    explicit slim_reference(const placement_scene &scene) : scene_(scene) {}

    slim_placement empty() const {
        return slim_placement(scene_.servers,
                              std::vector<uint32_t>(scene_.expert_count(), MOORAGE_NONE));
    }
    slim_placement placement_of(const std::vector<moorage_copy> &copies) const {
        slim_placement placed = empty();
        for (const moorage_copy &copy : copies) {
            uint32_t &device = placed[scene_.device_server[copy.device]][copy.expert];
            const uint32_t m = model_of(copy.expert);
            if (device == MOORAGE_NONE || call_s(copy.device, m) < call_s(device, m))
                device = copy.device;
        }
        return placed;
    }

    // Eq. 14 and 17 without T_max: seconds of a token, mean over homes by their tokens.
    double token_s(const slim_placement &placed) const {
        double sum = 0, total = 0;
        for (uint32_t h = 0; h < scene_.homes; ++h) {
            sum += scene_.home_tokens_per_s[h] * home_s(h, placed);
            total += scene_.home_tokens_per_s[h];
        }
        return sum / total;
    }
    double saved_s(const slim_placement &placed) const {
        return token_s(empty()) - token_s(placed);
    }
    double home_s(uint32_t home, const slim_placement &placed) const {
        double sum = 0;
        for (uint64_t c = scene_.home_first_call[home]; c < scene_.home_first_call[home + 1]; ++c) {
            const uint32_t group = scene_.call_group[c];
            const std::vector<uint32_t> chosen(
                scene_.group_experts.begin() + static_cast<ptrdiff_t>(scene_.group_first[group]),
                scene_.group_experts.begin() +
                    static_cast<ptrdiff_t>(scene_.group_first[group + 1]));
            sum += scene_.call_share[c] * layer_s(home, chosen, placed);
        }
        return sum;
    }

    // Eq. 12.
    double layer_s(uint32_t home, const std::vector<uint32_t> &chosen,
                   const slim_placement &placed) const {
        const uint32_t m = model_of(chosen[0]), near = scene_.home_server[home];
        const bool returns_each = (scene_.flags & MOORAGE_RETURNS_EACH) != 0;
        std::vector<uint32_t> missing, resident, others, cloud;
        for (const uint32_t x : chosen)
            if (scene_.home_holds.empty() ||
                scene_.home_holds[size_t{home} * scene_.expert_count() + x] == 0)
                missing.push_back(x);
        if (missing.empty()) return scene_.home_call_s[size_t{home} * scene_.models() + m];
        for (const uint32_t x : missing) {
            bool elsewhere = false;
            for (uint32_t n = 0; n < scene_.servers; ++n)
                elsewhere = elsewhere || (placed[n][x] != MOORAGE_NONE && linked(near, n));
            (placed[near][x] != MOORAGE_NONE ? resident : elsewhere ? others : cloud).push_back(x);
        }
        const auto bits = static_cast<double>(scene_.hidden_bytes[m]);
        double base = bits / scene_.home_up[home];
        base += (returns_each ? static_cast<double>(missing.size()) : 1) * bits /
                scene_.home_down[home];
        double nearby = resident.empty() ? 0 : compute_s(near, resident, placed);
        double far = 0;
        if (!cloud.empty())
            far = bits / scene_.cloud_up[near] + scene_.cloud_s[near] + scene_.cloud_call_s[m] +
                  (returns_each ? static_cast<double>(cloud.size()) : 1) *
                      (bits / scene_.cloud_down[near] + scene_.cloud_s[near]);
        const double between = others.empty() ? 0 : others_s(near, others, placed);
        if ((scene_.flags & MOORAGE_CALLS_SERIAL) != 0) return base + nearby + between + far;
        return base + std::max({nearby, between, far});
    }

    uint32_t model_of(uint32_t expert) const {
        uint32_t m = 0;
        while (scene_.first[m + 1] <= expert) ++m;
        return m;
    }

private:
    double call_s(uint32_t device, uint32_t m) const {
        return scene_.device_call_s[size_t{device} * scene_.models() + m];
    }
    bool linked(uint32_t a, uint32_t b) const {
        return a == b || (scene_.link_rate[size_t{a} * scene_.servers + b] > 0 &&
                          scene_.link_rate[size_t{b} * scene_.servers + a] > 0);
    }
    double message_s(uint32_t source, uint32_t target, uint32_t m) const {
        const size_t pair = size_t{source} * scene_.servers + target;
        return scene_.link_s[pair] +
               static_cast<double>(scene_.hidden_bytes[m]) / scene_.link_rate[pair];
    }
    double compute_s(uint32_t n, const std::vector<uint32_t> &served,
                     const slim_placement &placed) const {
        std::vector<double> busy(scene_.devices());
        const uint32_t m = model_of(served[0]);
        for (const uint32_t x : served) {
            double &device = busy[placed[n][x]];
            const double call = call_s(placed[n][x], m);
            device = (scene_.flags & MOORAGE_CALLS_SERIAL) != 0 ? call : device + call;
        }
        return *std::max_element(busy.begin(), busy.end());
    }
    // Eq. 7, or its slowest term, for the best of all assignments.
    double others_s(uint32_t near, const std::vector<uint32_t> &sought,
                    const slim_placement &placed) const {
        const uint32_t m = model_of(sought[0]);
        const bool returns_each = (scene_.flags & MOORAGE_RETURNS_EACH) != 0;
        double best = std::numeric_limits<double>::infinity();
        std::vector<uint32_t> holders(sought.size(), 0);
        while (true) {
            bool possible = true;
            for (size_t i = 0; i < sought.size(); ++i)
                possible = possible && placed[holders[i]][sought[i]] != MOORAGE_NONE &&
                           linked(near, holders[i]);
            if (possible) {
                double total = 0;
                for (uint32_t n = 0; n < scene_.servers; ++n) {
                    std::vector<uint32_t> served;
                    for (size_t i = 0; i < sought.size(); ++i)
                        if (holders[i] == n) served.push_back(sought[i]);
                    if (served.empty()) continue;
                    const double part = message_s(near, n, m) + compute_s(n, served, placed) +
                                        (returns_each ? static_cast<double>(served.size()) : 1) *
                                            message_s(n, near, m);
                    total = (scene_.flags & MOORAGE_CALLS_SERIAL) != 0 ? total + part
                                                                       : std::max(total, part);
                }
                best = std::min(best, total);
            }
            size_t i = 0;
            while (i < holders.size() && ++holders[i] == scene_.servers) holders[i++] = 0;
            if (i == holders.size()) return best;
        }
    }

    const placement_scene &scene_;
};

// The shape of random scenes.
struct scene_shape {
    uint32_t servers = 3, homes = 3, layers = 1, experts = 4;
    std::vector<uint32_t> top_k{1};  // one model each
    uint32_t flags = MOORAGE_CALLS_SERIAL | MOORAGE_RETURNS_EACH;
    bool equal_sizes = true;
    bool messages_dominate = true;  // computing is shorter than any message; the cloud is farthest
    uint32_t devices = 1;           // of a server
    double linked = 1;              // chance of a link
    uint64_t room = 3;              // experts that fit on a device, about
};

// Each draw is a statement of its own. Compilers differ in the order in which they evaluate
// arguments, and every compiler must test the same scenes.
inline placement_scene random_scene(const scene_shape &shape, uint64_t seed) {
    std::mt19937_64 generator(seed);
    const auto uniform = [&](double low, double high) {
        return low + (high - low) * static_cast<double>(generator() >> 11) * 0x1p-53;
    };
    placement_scene scene;
    scene.flags = shape.flags;
    for (const uint32_t k : shape.top_k)
        scene.add_model(shape.layers, shape.experts, k,
                        shape.equal_sizes ? 10 : 5 + generator() % 12, 1000);
    for (uint32_t n = 0; n < shape.servers; ++n) {
        scene.add_server();
        for (uint32_t g = 0; g < shape.devices; ++g) {
            const double call_s = shape.messages_dominate ? uniform(0, 0.1) : uniform(0, 5);
            scene.add_device(n, 10 * shape.room + generator() % 10, call_s);
        }
    }
    for (uint32_t a = 0; a < shape.servers; ++a)
        for (uint32_t b = 0; b < a; ++b)
            if (uniform(0, 1) < shape.linked) {
                const double base_s = uniform(0.1, 0.5);
                scene.add_link(a, b, 1000 / uniform(0.5, 2), base_s);
            }
    const double cloud_call_s = uniform(0, 0.1);
    scene.add_cloud(infinite, shape.messages_dominate ? uniform(6, 9) : uniform(0.5, 9),
                    cloud_call_s);
    for (uint32_t h = 0; h < shape.homes; ++h) {
        const double base_s = uniform(0, 0.5);
        const double down = 1000 / uniform(1, 3), up = 1000 / uniform(1, 3);
        const double tokens_per_s = uniform(0.5, 2);
        scene.add_home(static_cast<uint32_t>(generator() % shape.servers), tokens_per_s, up, down,
                       base_s);
    }
    for (uint32_t h = 0; h < shape.homes; ++h) {
        for (uint32_t m = 0; m < scene.models(); ++m) {
            scene.home_model[size_t{h} * scene.models() + m] = 1.0 / scene.models();
            for (uint32_t l = 0; l < shape.layers; ++l) {
                for (uint32_t draw = 0; draw < 4; ++draw) {
                    std::vector<uint32_t> numbers(shape.experts);
                    for (uint32_t e = 0; e < shape.experts; ++e)
                        numbers[e] = scene.first[m] + l * shape.experts + e;
                    for (uint32_t i = 0; i < shape.top_k[m]; ++i)
                        std::swap(numbers[i], numbers[i + generator() % (shape.experts - i)]);
                    numbers.resize(shape.top_k[m]);
                    scene.add_call(h, numbers, 0.25 / scene.models());
                }
            }
        }
        for (uint32_t x = 0; x < scene.expert_count(); ++x)
            if (generator() % 6 == 0) scene.add_held_expert(h, x);
    }
    return scene;
}

}  // namespace moorage::test
