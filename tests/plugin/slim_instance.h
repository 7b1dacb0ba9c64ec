// slim_instance.h - SlimCaching's setting of Section VI-A, with drawn activation statistics.
//
// Servers and users are strewn over 1 km x 1 km. Rates are Eq. (3) and (4), also between servers.
// The cloud is 0.01 s away. The paper's statistics come from running the models, which a test
// cannot do. Here every user's tokens draw experts by rank^-zipf, with ranks shuffled for each
// layer of each data set. Every user has one of two data sets.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "placement_harness.h"

namespace moorage::test {

// A model family's member: configs/models.
struct slim_model {
    uint32_t layers, experts, top_k;
    uint64_t expert_bytes, hidden_bytes;
};
inline constexpr slim_model switch_base_8{12, 8, 1, 9'437'184, 768 * 4};
inline constexpr slim_model switch_base_16{12, 16, 1, 9'437'184, 768 * 4};
inline constexpr slim_model switch_base_32{12, 32, 1, 9'437'184, 768 * 4};
inline constexpr slim_model llava_stablelm{12, 4, 2, 69'206'016, 2048 * 2};
inline constexpr slim_model llava_qwen{12, 4, 2, 67'633'152, 2048 * 2};
inline constexpr slim_model llava_phi2{16, 4, 2, 104'857'600, 2560 * 2};
inline constexpr slim_model llama_moe_4_16{32, 16, 4, 16'908'288, 4096 * 2};

struct slim_setting {
    std::vector<slim_model> models;
    uint32_t servers = 4, users = 20;
    uint64_t server_bytes = 5'000'000'000;
    uint32_t local_experts = 200;
    uint32_t tokens = 256;  // drawn for each user, model and layer
    double expert_zipf = 1, model_zipf = 1;
    uint64_t seed = 1;
};

// 18 models of three families, 3,888 experts; the paper has "18 models with nearly 4,000".
inline slim_setting slim_full() {
    slim_setting setting;
    for (int copy = 0; copy < 3; ++copy)
        for (const slim_model &model : {switch_base_8, switch_base_16, switch_base_32,
                                        llava_stablelm, llava_qwen, llava_phi2})
            if (copy < 2 || model.top_k == 1) setting.models.push_back(model);
    for (int copy = 0; copy < 3; ++copy) setting.models.push_back(llama_moe_4_16);
    return setting;
}
// 3,360 experts of the Switch family alone: K = 1.
inline slim_setting slim_switch() {
    slim_setting setting;
    for (int copy = 0; copy < 5; ++copy)
        for (const slim_model &model : {switch_base_8, switch_base_16, switch_base_32})
            setting.models.push_back(model);
    return setting;
}

class slim_instance {
public:
    explicit slim_instance(const slim_setting &setting)
        : setting_(setting), generator_(setting.seed) {
        scene.flags = MOORAGE_CALLS_SERIAL | MOORAGE_RETURNS_EACH;
        for (const slim_model &model : setting.models)
            scene.add_model(model.layers, model.experts, model.top_k, model.expert_bytes,
                            model.hidden_bytes);
        place_servers();
        std::vector<uint32_t> set_of_user;
        for (uint32_t u = 0; u < setting.users; ++u) set_of_user.push_back(u % 2), add_user();
        draw_ranks();
        for (uint32_t u = 0; u < setting.users; ++u) draw_calls(u, set_of_user[u]);
        hold_favourites();
    }

    placement_scene scene;

private:
    struct point {
        double x, y;
    };
    // The same on every platform, which std::uniform_real_distribution is not.
    double uniform() { return static_cast<double>(generator_() >> 11) * 0x1p-53; }
    point random_position() { return {1000 * uniform(), 1000 * uniform()}; }
    // Bytes per second, Eq. (3).
    static double rate(point a, point b, double hertz, double watts) {
        const double metres = std::max(1.0, std::hypot(a.x - b.x, a.y - b.y));
        const double noise = 3.981e-21 * hertz;
        return hertz * std::log2(1 + watts * std::pow(metres, -4) / noise) / 8;
    }
    // Time of one expert for one token with a share of 1 / experts of `flops`. Each weight takes
    // two operations.
    static double call_s(const slim_model &model, double flops) {
        return static_cast<double>(model.expert_bytes) * model.experts / flops;
    }

    void place_servers() {
        for (uint32_t n = 0; n < setting_.servers; ++n) {
            servers_.push_back(random_position());
            scene.add_device(scene.add_server(), setting_.server_bytes);
            for (uint32_t m = 0; m < scene.models(); ++m)
                scene.device_call_s[size_t{n} * scene.models() + m] =
                    call_s(setting_.models[m], 82.58e12);
        }
        for (uint32_t a = 0; a < setting_.servers; ++a)
            for (uint32_t b = 0; b < a; ++b)
                scene.add_link(a, b, rate(servers_[a], servers_[b], 100e6, 6.3096));
        scene.add_cloud(infinite, 0.01, 0);
        for (uint32_t m = 0; m < scene.models(); ++m)
            scene.cloud_call_s[m] = call_s(setting_.models[m], 312e12);
    }
    void add_user() {
        const point position = random_position();
        uint32_t nearest = 0;
        double least = infinite;
        for (uint32_t n = 0; n < setting_.servers; ++n) {
            const double message_s = 1 / rate(position, servers_[n], 5e6, 0.01) +
                                     1 / rate(position, servers_[n], 5e6, 6.3096);
            if (message_s < least) least = message_s, nearest = n;
        }
        const uint32_t u = scene.add_home(nearest, 1, rate(position, servers_[nearest], 5e6, 0.01),
                                          rate(position, servers_[nearest], 5e6, 6.3096));
        for (uint32_t m = 0; m < scene.models(); ++m)
            scene.home_call_s[size_t{u} * scene.models() + m] = call_s(setting_.models[m], 50e12);
        std::vector<uint32_t> wanted(scene.models());
        std::iota(wanted.begin(), wanted.end(), 0u);
        const auto count = std::min<size_t>(wanted.size(), 3 + generator_() % 3);
        double sum = 0;
        for (size_t i = 0; i < count; ++i) {
            std::swap(wanted[i], wanted[i + generator_() % (wanted.size() - i)]);
            sum += std::pow(static_cast<double>(i + 1), -setting_.model_zipf);
        }
        for (size_t i = 0; i < count; ++i)
            scene.home_model[size_t{u} * scene.models() + wanted[i]] =
                std::pow(static_cast<double>(i + 1), -setting_.model_zipf) / sum;
    }
    // Experts of every layer, most popular first, for each data set.
    void draw_ranks() {
        for (auto &ranks : ranks_) {
            ranks.resize(scene.expert_count());
            std::iota(ranks.begin(), ranks.end(), 0u);
            for (uint32_t m = 0; m < scene.models(); ++m)
                for (uint32_t first = scene.first[m]; first < scene.first[m + 1];
                     first += scene.experts[m])
                    for (uint32_t e = 0; e < scene.experts[m]; ++e)
                        std::swap(ranks[first + e],
                                  ranks[first + e + generator_() % (scene.experts[m] - e)]);
        }
    }
    void draw_calls(uint32_t user, uint32_t set) {
        for (uint32_t m = 0; m < scene.models(); ++m) {
            const double share = scene.home_model[size_t{user} * scene.models() + m];
            if (share <= 0) continue;
            for (uint32_t l = 0; l < scene.layers[m]; ++l)
                draw_layer(user, m, ranks_[set].data() + scene.first[m] + l * scene.experts[m],
                           share / setting_.tokens);
        }
    }
    // Tokens with the same set are one call of a group of their own home.
    void draw_layer(uint32_t user, uint32_t m, const uint32_t *ranks, double share) {
        std::map<std::vector<uint32_t>, uint32_t> drawn;
        for (uint32_t t = 0; t < setting_.tokens; ++t) {
            std::vector<uint32_t> chosen;
            std::vector<double> weight;
            for (uint32_t e = 0; e < scene.experts[m]; ++e)
                weight.push_back(std::pow(e + 1.0, -setting_.expert_zipf));
            for (uint32_t k = 0; k < scene.top_k[m]; ++k) {
                double remaining = uniform() * std::accumulate(weight.begin(), weight.end(), 0.0);
                uint32_t e = 0;
                while (e + 1 < weight.size() && remaining >= weight[e]) remaining -= weight[e++];
                while (weight[e] == 0) --e;
                chosen.push_back(ranks[e]), weight[e] = 0;
            }
            std::sort(chosen.begin(), chosen.end());
            ++drawn[chosen];
        }
        for (const auto &[chosen, count] : drawn) {
            scene.group_experts.insert(scene.group_experts.end(), chosen.begin(), chosen.end());
            scene.group_first.push_back(scene.group_experts.size());
            scene.add_call_of_group(user, static_cast<uint32_t>(scene.group_first.size() - 2),
                                    count * share);
        }
    }
    void hold_favourites() {
        std::vector<uint32_t> order(scene.expert_count());
        for (uint32_t u = 0; u < scene.homes; ++u) {
            const double *frequency = scene.frequency.data() + size_t{u} * scene.expert_count();
            std::iota(order.begin(), order.end(), 0u);
            std::stable_sort(order.begin(), order.end(), [frequency](uint32_t a, uint32_t b) {
                return frequency[a] > frequency[b];
            });
            for (uint32_t i = 0; i < setting_.local_experts && i < scene.expert_count(); ++i)
                if (frequency[order[i]] > 0) scene.add_held_expert(u, order[i]);
        }
    }

    const slim_setting setting_;
    std::mt19937_64 generator_;
    std::vector<point> servers_;
    std::vector<uint32_t> ranks_[2];
};

}  // namespace moorage::test
