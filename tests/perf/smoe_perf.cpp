// smoe_perf.cpp - the time of SMoE's policies in a layer step, called through the C ABI.
//
//   bin/smoe_perf
//
// 24 layers of 64 experts, top-6, half of the experts resident, skewed scores drawn anew for 512
// steps. `per_token` is the router's time per token and layer (limit: 2 us). The score cache is
// asked for one victim a step, in a pool shared by all layers. Measured at 2.6 GHz, with a
// substitute in 93 % of the tokens: router 0.36 us a token and layer, 0.45 us in batches of 4 and
// 8; score cache 0.23 us a step; schedule 0.03 us.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "core/base/log.h"
#include "core/host/instance.h"

namespace moorage::perf {

namespace {

constexpr uint32_t layers = 24, experts = 64, top_k = 6, tokens_max = 8, drawn_steps = 512;

// One layer step of `tokens` tokens with all its arrays.
struct perf_step {
    std::vector<uint32_t> chosen, streams;
    std::vector<uint64_t> requests;
    std::vector<float> scores, weights;
    moorage_step table{};

    void draw(std::mt19937_64 &source, uint32_t layer, uint32_t tokens) {
        std::vector<uint32_t> order(experts);
        streams.resize(tokens);
        requests.resize(tokens);
        for (uint32_t token = 0; token < tokens; ++token) {
            std::vector<float> row(experts);
            for (float &score : row)
                score = std::exp(3 * static_cast<float>(source() >> 40) * 0x1p-24f);
            const float sum = std::accumulate(row.begin(), row.end(), 0.0f);
            for (float &score : row) score /= sum;
            std::iota(order.begin(), order.end(), 0u);
            std::sort(order.begin(), order.end(), [&](auto a, auto b) { return row[a] > row[b]; });
            chosen.insert(chosen.end(), order.begin(), order.begin() + top_k);
            scores.insert(scores.end(), row.begin(), row.end());
            for (uint32_t rank = 0; rank < top_k; ++rank) weights.push_back(row[order[rank]]);
        }
        table.size = sizeof(table);
        table.layer = layer;
        table.phase = MOORAGE_DECODE;
        table.token_count = tokens;
        table.top_k = top_k;
        table.experts = experts;
        table.distinct_count = top_k;
        table.host_streams = streams.data();
        table.host_requests = requests.data();
        table.host_chosen = table.host_distinct = chosen.data();
        table.host_weights = weights.data();
        table.host_gate_scores = scores.data();
    }
};

struct bench {
    core::registry policies;
    std::vector<uint32_t> state = std::vector<uint32_t>(layers * experts);
    uint32_t slots = layers * experts / 2, used = slots;
    std::vector<float> split = std::vector<float>(layers, 1.0f);
    moorage_residency view{};

    bench() {
        std::mt19937_64 source(7);
        for (uint32_t &page_state : state) page_state = source() % 2 ? MOORAGE_WHOLE : 0;
        view = {sizeof(view), 0,      layers, experts,      1,       0,
                state.data(), &slots, &used,  split.data(), nullptr, nullptr};
    }
    std::unique_ptr<core::instance> make(const char *name, const char *kind) const {
        const auto found = policies.find(name, kind);
        if (!found) return nullptr;
        core::environment policy_environment;
        policy_environment.residency = &view;
        auto created = core::instance::create(**found, {}, policy_environment);
        if (!created) return nullptr;
        moorage_limits limits{};
        limits.size = sizeof(limits);
        limits.layers = layers;
        limits.experts = experts;
        limits.top_k = top_k;
        limits.tokens_max = limits.requests_max = tokens_max;
        limits.pools = limits.segments = 1;
        limits.slots = slots;
        return (*created)->activate(limits) ? std::move(*created) : nullptr;
    }
};

std::vector<perf_step> draw_steps(uint32_t tokens) {
    std::mt19937_64 source(1);
    std::vector<perf_step> steps(drawn_steps);
    for (uint32_t i = 0; i < drawn_steps; ++i) steps[i].draw(source, i % layers, tokens);
    return steps;
}

void set_per(benchmark::State &state, const char *unit, uint32_t count) {
    state.counters[unit] = benchmark::Counter(
        count, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void route(benchmark::State &state, const bench &fixture) {
    const auto policy = fixture.make("smoe", "router");
    if (!policy) return state.SkipWithError("router smoe was not found");
    const auto tokens = static_cast<uint32_t>(state.range(0));
    const std::vector<perf_step> steps = draw_steps(tokens);
    std::vector<uint32_t> selected(tokens * top_k);
    std::vector<float> weights(selected.size());
    std::vector<uint8_t> classes(selected.size());
    moorage_route route_table{sizeof(route_table), 0, selected.data(), weights.data(),
                              classes.data()};
    uint64_t changed = 0;
    size_t next = 0;
    for (auto _ : state) {
        policy->router->select(policy->plugin(), &steps[next++ % drawn_steps].table, &route_table);
        changed += classes[top_k - 1] == MOORAGE_CLASS_SUBSTITUTE;
    }
    set_per(state, "per_token", tokens);
    state.counters["changed"] =
        static_cast<double>(changed) / static_cast<double>(state.iterations());
}

void score(benchmark::State &state, const bench &fixture) {
    const auto policy = fixture.make("score", "cache");
    if (!policy) return state.SkipWithError("cache score was not found");
    const std::vector<perf_step> steps = draw_steps(1);
    size_t next = 0;
    for (auto _ : state) {
        const moorage_step &step = steps[next++ % drawn_steps].table;
        policy->observer->observe(policy->plugin(), &step);
        const moorage_room room{sizeof(room), 0, 0, step.layer, 1, MOORAGE_DEMAND};
        uint32_t page = MOORAGE_NONE;
        policy->cache->victims(policy->plugin(), &room, &page);
        benchmark::DoNotOptimize(page);
        // It goes and comes back, so that the pool stays as it is.
        policy->cache->on_evict(policy->plugin(), page, MOORAGE_DEMAND);
        policy->cache->on_load(policy->plugin(), page, MOORAGE_WHOLE, MOORAGE_DEMAND);
    }
}

void balance(benchmark::State &state, const bench &fixture) {
    const auto policy = fixture.make("balance", "dispatch");
    if (!policy) return state.SkipWithError("dispatch balance was not found");
    const std::vector<perf_step> steps = draw_steps(1);
    const std::vector<uint32_t> tokens(top_k, 1);
    const std::vector<uint8_t> missing = {0, 0, 255, 255, 255, 255};
    const std::vector<uint64_t> ns(top_k, 1000);
    const std::vector<uint32_t> devices(top_k, 0);
    std::vector<uint32_t> sites(top_k), order(top_k);
    size_t next = 0;
    for (auto _ : state) {
        const moorage_step &step = steps[next++ % drawn_steps].table;
        moorage_items items{};
        items.size = sizeof(items);
        items.count = top_k, items.devices = 2, items.gpus = 1;
        items.host_experts = step.host_chosen, items.host_tokens = tokens.data();
        items.host_missing = missing.data(), items.host_scores = step.host_weights;
        items.host_device = devices.data();
        items.host_load_ns = items.host_gpu_ns = items.host_cpu_ns = ns.data();
        policy->dispatch->assign(policy->plugin(), &step, &items, sites.data(), order.data());
        benchmark::DoNotOptimize(order.data());
    }
}

int run(int argc, char **argv) {
    core::set_log_level(core::log_level::error);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    bench fixture;
    const auto scanned = fixture.policies.scan(core::registry::default_paths());
    if (!scanned) std::fprintf(stderr, "%s\n", scanned.failure().text.c_str());
    benchmark::RegisterBenchmark("router", [&fixture](auto &state) { route(state, fixture); })
        ->Arg(1)
        ->Arg(4)
        ->Arg(8);
    benchmark::RegisterBenchmark("score", [&fixture](auto &state) { score(state, fixture); });
    benchmark::RegisterBenchmark("balance", [&fixture](auto &state) { balance(state, fixture); });
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}

}  // namespace

}  // namespace moorage::perf

int main(int argc, char **argv) { return moorage::perf::run(argc, argv); }
