// Goal: the three stages of hybrimoe follow their description. Method: compare priorities with the
// weighted sum of all past scores. Compare the schedule with one that looks at every expert and
// resource anew for each decision, and with cases by hand. Compare the prefetch with a plan that
// tries every expert of every coming layer with that schedule.
#include <doctest/doctest.h>

#include <set>

#include "any_policy.h"
#include "one_gpu.h"
#include "order_bytes.h"

namespace cache_hybrimoe_test {

using namespace moorage::test;

namespace {

struct work {
    uint32_t tokens;
    bool absent;
    uint64_t load_ns, gpu_ns, cpu_ns;
};
struct dispatch_schedule {
    std::vector<uint32_t> sites, order;
    uint64_t end_ns = 0;
};

// The schedule as described: among the next possible decisions, the one that ends first. If ends
// are equal, GPU before link before CPU.
dispatch_schedule plain_schedule(const std::vector<work> &layer_work, uint64_t link_ns) {
    dispatch_schedule result;
    result.sites.assign(layer_work.size(), 0);
    std::set<uint32_t> open;
    for (uint32_t i = 0; i < layer_work.size(); ++i) open.insert(i);
    uint64_t gpu_ns = 0, cpu_ns = 0;
    // The heaviest or lightest open expert that is absent or not; of equals the heavier side keeps
    // the smaller number.
    const auto pick = [&](bool absent, bool heaviest) {
        uint32_t best = MOORAGE_NONE;
        for (const uint32_t i : open) {
            if (layer_work[i].absent != absent) continue;
            if (best == MOORAGE_NONE ||
                (heaviest ? layer_work[i].tokens > layer_work[best].tokens
                          : layer_work[i].tokens <= layer_work[best].tokens))
                best = i;
        }
        return best;
    };
    while (!open.empty()) {
        struct option {
            uint32_t item;
            uint64_t ends;
        };
        const uint32_t resident = pick(false, true), missing = pick(true, true);
        const uint32_t light = missing != MOORAGE_NONE ? pick(true, false) : pick(false, false);
        option gpu{resident, UINT64_MAX}, link{missing, UINT64_MAX};
        if (resident != MOORAGE_NONE) gpu.ends = gpu_ns + layer_work[resident].gpu_ns;
        if (missing != MOORAGE_NONE)
            link.ends = std::max(gpu_ns, link_ns + layer_work[missing].load_ns) +
                        layer_work[missing].gpu_ns;
        const option cpu{light, cpu_ns + layer_work[light].cpu_ns};
        const uint64_t first = std::min({gpu.ends, link.ends, cpu.ends});
        uint32_t item;
        if (gpu.ends == first) {
            item = gpu.item;
            gpu_ns = gpu.ends;
        } else if (link.ends == first) {
            item = link.item;
            link_ns += layer_work[item].load_ns;
            gpu_ns = link.ends;
        } else {
            item = cpu.item;
            cpu_ns = cpu.ends;
            result.sites[item] = cpu_device;
            result.end_ns = std::max(result.end_ns, cpu_ns);
        }
        result.order.push_back(item);
        open.erase(item);
    }
    result.end_ns = std::max(result.end_ns, gpu_ns);
    return result;
}

dispatch_schedule ask_schedule(any_policy &policy, const std::vector<work> &layer_work,
                               uint64_t link_ns) {
    std::vector<uint32_t> experts, tokens;
    std::vector<uint8_t> missing;
    std::vector<uint64_t> load, gpu, cpu;
    for (const work &expert : layer_work) {
        experts.push_back(static_cast<uint32_t>(experts.size()));
        tokens.push_back(expert.tokens);
        missing.push_back(expert.absent ? MOORAGE_WHOLE : 0);
        load.push_back(expert.load_ns), gpu.push_back(expert.gpu_ns), cpu.push_back(expert.cpu_ns);
    }
    const auto count = static_cast<uint32_t>(layer_work.size());
    moorage_items items{};
    items.size = sizeof(items);
    items.count = count;
    place_on_first_gpu(items);
    items.load_backlog_ns = link_ns;
    items.host_experts = experts.data(), items.host_tokens = tokens.data();
    items.host_missing = missing.data();
    items.host_load_ns = load.data(), items.host_gpu_ns = gpu.data();
    items.host_cpu_ns = cpu.data();
    dispatch_schedule result;
    result.sites.assign(count, gpu_device);
    result.order.resize(count);
    moorage_step step{};
    step.size = sizeof(step);
    CHECK(policy.dispatch->assign(policy.plugin, &step, &items, result.sites.data(),
                                  result.order.data()) == count);
    return result;
}

}  // namespace

TEST_CASE("dispatch: the greedy schedule, decision by decision") {
    world test_world(1, 64, 8, true, 0);
    any_policy policy("cache/hybrimoe", test_world);
    std::mt19937_64 generator(5);
    const auto below = [&](uint32_t bound) { return static_cast<uint32_t>(generator() % bound); };
    for (int round = 0; round < 5000; ++round) {
        std::vector<work> layer_work(1 + below(16));
        const uint64_t load_ns = 1 + below(40), cpu_ns = 1 + below(20);
        for (work &expert : layer_work) {
            expert.tokens = 1 + below(4);
            expert.absent = below(2) == 0;
            expert.load_ns = expert.absent ? load_ns : 0;
            expert.gpu_ns = 1 + expert.tokens;
            expert.cpu_ns = cpu_ns * expert.tokens;
        }
        const uint64_t link = below(3) * 10;
        const dispatch_schedule expected = plain_schedule(layer_work, link);
        const dispatch_schedule schedule = ask_schedule(policy, layer_work, link);
        CAPTURE(round);
        REQUIRE(schedule.sites == expected.sites);
        REQUIRE(schedule.order == expected.order);
    }
}

TEST_CASE("dispatch: worked by hand") {
    world test_world(1, 64, 8, true, 0);
    any_policy policy("cache/hybrimoe", test_world);
    const uint64_t load = 10, gpu = 1;
    // Three absent, loads 10 each, CPU 6 each: the CPU takes the lightest at 6; the link's first
    // ends at 11, before the CPU's second at 12; then 12 is before 21.
    CHECK(ask_schedule(policy,
                       {{3, true, load, gpu, 6}, {1, true, load, gpu, 6}, {2, true, load, gpu, 6}},
                       0)
              .sites == std::vector<uint32_t>{gpu_device, cpu_device, cpu_device});
    // Three cached, GPU 4 each, CPU 7: the GPU takes the heaviest at 4, the CPU would end at 7, the
    // GPU's second at 8: the CPU gets the lightest.
    const dispatch_schedule schedule =
        ask_schedule(policy, {{1, false, 0, 4, 7}, {5, false, 0, 4, 7}, {2, false, 0, 4, 7}}, 0);
    CHECK(schedule.sites == std::vector<uint32_t>{cpu_device, gpu_device, gpu_device});
    CHECK(schedule.order == std::vector<uint32_t>{1, 0, 2});
}

TEST_CASE("dispatch: free slots are filled, unless told not to") {
    for (const bool fill : {true, false}) {
        world test_world(1, 8, 4, true, 2);
        any_policy policy("cache/hybrimoe", test_world, {{"fill", fill ? "1" : "0"}});
        const work slow{1, true, 1000, 1, 1};
        const dispatch_schedule schedule = ask_schedule(policy, {slow, slow, slow}, 0);
        CHECK(std::count(schedule.sites.begin(), schedule.sites.end(), gpu_device) ==
              (fill ? 2 : 0));
    }
}

TEST_CASE("cache: the least recent score goes, from weights or from all scores") {
    for (uint64_t seed = 0; seed < 200; ++seed) {
        std::mt19937_64 generator(seed);
        const auto below = [&](uint32_t bound) {
            return static_cast<uint32_t>(generator() % bound);
        };
        CAPTURE(seed);
        const uint32_t layers = 1 + below(3), experts = 4 + below(5), k = 1 + below(3);
        const uint32_t top_p = below(4), tokens = 1 + below(2);
        const bool all_scores = below(2), shared = below(2);
        // Halves and eighths: sums of them are exact, so equal priorities are equal.
        const double alpha = below(2) ? 0.5 : 0.25;
        world test_world(layers, experts, k, shared, layers * 2);
        test_world.limits.tokens_max = 2;
        any_policy policy("cache/hybrimoe", test_world,
                          {{"alpha", std::to_string(alpha)}, {"top_p", std::to_string(top_p)}});
        const uint32_t depth = std::min(top_p ? top_p : 2 * k, experts);
        std::vector<std::vector<std::vector<double>>> scores(layers);  // [layer][visit][expert]
        step_data data;
        for (uint64_t index = 0; index < layers * 12; ++index) {
            const auto layer = static_cast<uint32_t>(index % layers);
            std::vector<std::vector<uint32_t>> chosen;
            for (uint32_t i = 0; i < tokens; ++i)
                chosen.push_back(draw_distinct(generator, k, experts));
            fill_step(data, test_world, index, layer, chosen);
            std::vector<double> top(experts);
            std::vector<float> gate(tokens * experts);
            data.weights.assign(tokens * k, 0);
            for (uint32_t token = 0; token < tokens; ++token) {
                std::vector<std::pair<double, uint32_t>> known;  // of this token, best first
                if (all_scores) {
                    for (uint32_t e = 0; e < experts; ++e) {
                        gate[token * experts + e] = static_cast<float>(below(9)) / 8;
                        known.emplace_back(gate[token * experts + e], e);
                    }
                    std::stable_sort(known.begin(), known.end(), [](const auto &a, const auto &b) {
                        return a.first > b.first;
                    });
                } else {
                    for (uint32_t i = 0; i < k; ++i) {
                        data.weights[token * k + i] = static_cast<float>(8 - i) / 8;
                        known.emplace_back(data.weights[token * k + i], chosen[token][i]);
                    }
                }
                for (size_t i = 0; i < std::min<size_t>(depth, known.size()); ++i)
                    top[known[i].second] = std::max(top[known[i].second], known[i].first);
            }
            data.step.host_weights = data.weights.data();
            if (all_scores) data.step.host_gate_scores = gate.data();
            policy.observe(data.step);
            scores[layer].push_back(top);
            for (uint32_t &state : test_world.state) state = below(2) ? MOORAGE_WHOLE : 0;
            const uint32_t pool = shared ? 0 : below(layers), count = 1 + below(4);
            std::vector<uint32_t> candidates;
            for (uint32_t page = 0; page < test_world.state.size(); ++page)
                if (test_world.state[page] != 0 && (shared || page / experts == pool))
                    candidates.push_back(page);
            const auto priority = [&](uint32_t page) {
                double sum = 0, weight = alpha;
                const auto &past = scores[page / experts];
                for (size_t i = past.size(); i-- > 0; weight *= 1 - alpha)
                    sum += weight * past[i][page % experts];
                return sum;
            };
            std::stable_sort(candidates.begin(), candidates.end(),
                             [&](uint32_t a, uint32_t b) { return priority(a) < priority(b); });
            candidates.resize(std::min<size_t>(count, candidates.size()));
            REQUIRE(policy.victims(pool, shared ? 0 : pool, count) == candidates);
        }
    }
}

TEST_CASE("prefetch: what shortens the coming layers most, one after the other") {
    for (uint64_t seed = 0; seed < 400; ++seed) {
        std::mt19937_64 generator(seed);
        const auto below = [&](uint32_t bound) {
            return static_cast<uint32_t>(generator() % bound);
        };
        CAPTURE(seed);
        const uint32_t layers = 4, experts = 8, k = 1 + below(4), ahead = 1 + below(3);
        world test_world(layers, experts, k, true, 8);
        test_world.costs.load_ns = 1 + below(30);
        test_world.costs.gpu_expert_ns = 1 + below(4);
        test_world.costs.cpu_expert_ns = 1 + below(30);
        any_policy policy("cache/hybrimoe", test_world, {{"layers", std::to_string(ahead)}});
        for (uint32_t &state : test_world.state) state = below(3) ? 0 : MOORAGE_WHOLE;
        std::vector<uint32_t> targets, offsets{0}, predicted;
        std::vector<std::vector<uint32_t>> of_target;
        for (uint32_t i = 0; i < ahead; ++i) {
            targets.push_back(i + 1);
            of_target.push_back(draw_distinct(generator, 1 + below(6), experts));
            predicted.insert(predicted.end(), of_target[i].begin(), of_target[i].end());
            offsets.push_back(static_cast<uint32_t>(predicted.size()));
            of_target[i].resize(std::min<size_t>(of_target[i].size(), k));
        }
        const uint32_t room = below(8);
        moorage_forecast forecast{};
        forecast.size = sizeof(forecast);
        forecast.target_count = ahead;
        forecast.buffer_free = room;
        forecast.host_layers = targets.data();
        forecast.host_offsets = offsets.data();
        forecast.host_experts = predicted.data();
        std::vector<uint32_t> pages(ahead * experts);
        std::vector<uint8_t> segments(pages.size(), MOORAGE_WHOLE);
        moorage_orders orders{sizeof(orders),
                              0,
                              static_cast<uint32_t>(pages.size()),
                              0,
                              pages.data(),
                              segments.data(),
                              order_bytes(),
                              order_bytes()};
        moorage_step step{};
        step.size = sizeof(step);
        pages.resize(policy.prefetch->plan(policy.plugin, &step, &forecast, &orders));

        std::vector<uint32_t> state = test_world.state;
        const auto ends = [&](uint32_t target) {
            std::vector<work> layer_work;
            for (const uint32_t expert : of_target[target]) {
                const bool absent = state[targets[target] * experts + expert] == 0;
                layer_work.push_back({1, absent, test_world.costs.load_ns,
                                      test_world.costs.gpu_expert_ns,
                                      test_world.costs.cpu_expert_ns});
            }
            return plain_schedule(layer_work, 0).end_ns;
        };
        std::vector<uint32_t> expected;
        while (expected.size() < room) {
            uint64_t most = 0;
            uint32_t best = MOORAGE_NONE;
            for (uint32_t target = 0; target < ahead; ++target)
                for (const uint32_t expert : of_target[target]) {
                    const uint32_t page = targets[target] * experts + expert;
                    if (state[page] != 0) continue;
                    const uint64_t old_end_ns = ends(target);
                    state[page] = MOORAGE_WHOLE;
                    const uint64_t new_end_ns = ends(target);
                    state[page] = 0;
                    if (new_end_ns >= old_end_ns || old_end_ns - new_end_ns <= most) continue;
                    most = old_end_ns - new_end_ns;
                    best = page;
                }
            if (best == MOORAGE_NONE) break;
            expected.push_back(best);
            state[best] = MOORAGE_WHOLE;
        }
        REQUIRE(pages == expected);
    }
}

}  // namespace cache_hybrimoe_test
