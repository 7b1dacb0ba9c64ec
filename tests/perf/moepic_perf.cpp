// moepic_perf.cpp - MoEpic's own time: statistics and cache order in a layer step, a configuration.
//
//   bin/moepic_perf
//
// Workload: Qwen1.5-MoE's shape (24 layers x 60 experts, top-4), a third of the memory, independent
// draws of weight 1/rank, predictions of all 60 experts, right three times of four; through the C
// ABI. Targets: statistics <= 5 microseconds a layer step, a configuration <= 20 ms.
#include <benchmark/benchmark.h>

#include <filesystem>

namespace {

// The folder beside this program, where it is built.
std::string build_directory() {
    return std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
}

}  // namespace

#define MOORAGE_BINARY_DIR build_directory()
#include "tests/plugin/policy_host.h"

namespace {

using moorage::test::policy_host;

constexpr uint32_t layers = 24, experts = 60, top_k = 4, tokens = 4096;

struct routing {
    std::vector<std::vector<uint32_t>> chosen, predicted;  // [tokens * layers]

    explicit routing(uint32_t seed) {
        std::mt19937_64 generator(seed);
        std::vector<std::vector<uint32_t>> ranking(layers, std::vector<uint32_t>(experts));
        for (auto &layer_ranking : ranking) {
            for (uint32_t expert = 0; expert < experts; ++expert) layer_ranking[expert] = expert;
            std::shuffle(layer_ranking.begin(), layer_ranking.end(), generator);
        }
        std::vector<double> weights(experts);
        for (uint32_t rank = 0; rank < experts; ++rank) weights[rank] = 1.0 / (1 + rank);
        for (uint32_t step = 0; step < tokens * layers; ++step) {
            const auto &layer_ranking = ranking[step % layers];
            chosen.push_back(draw(generator, weights, layer_ranking, top_k, {}));
            std::vector<uint32_t> first;
            for (const uint32_t expert : chosen.back())
                if (generator() % 4) first.push_back(expert);
            predicted.push_back(draw(generator, weights, layer_ranking, experts, first));
        }
    }

private:
    static std::vector<uint32_t> draw(std::mt19937_64 &generator, std::vector<double> weights,
                                      const std::vector<uint32_t> &ranking, uint32_t count,
                                      std::vector<uint32_t> chosen) {
        for (uint32_t rank = 0; rank < experts; ++rank)
            if (std::find(chosen.begin(), chosen.end(), ranking[rank]) != chosen.end())
                weights[rank] = 0;
        if (count == experts) {  // the tail in order of popularity
            for (uint32_t rank = 0; rank < experts; ++rank)
                if (weights[rank] > 0) chosen.push_back(ranking[rank]);
            return chosen;
        }
        while (chosen.size() < count) {
            std::discrete_distribution<uint32_t> pick(weights.begin(), weights.end());
            const uint32_t rank = pick(generator);
            chosen.push_back(ranking[rank]);
            weights[rank] = 0;
        }
        return chosen;
    }
};

const routing &trace() {
    static const routing drawn(1);
    return drawn;
}

void steps(benchmark::State &state, const char *file, const char *statistics) {
    const routing &source = trace();
    std::map<std::string, std::string> settings;
    if (statistics) settings["statistics"] = statistics;
    policy_host policy(file, {layers, experts, top_k, 480}, settings);
    size_t step = 0;
    for (auto _ : state) {
        policy.observe(static_cast<uint32_t>(step % layers), source.chosen[step],
                       source.predicted[step]);
        if (++step == source.chosen.size()) step = 0;
    }
}
BENCHMARK_CAPTURE(steps, lcp, "cache/lcp", nullptr);
BENCHMARK_CAPTURE(steps, moepic_sim, "budget/moepic", "sim");
BENCHMARK_CAPTURE(steps, moepic_rank, "budget/moepic", "rank");

void configure(benchmark::State &state, uint32_t slots, float split_step) {
    const routing &source = trace();
    policy_host policy("budget/moepic", {layers, experts, top_k, slots},
                       {{"tau", "1"}, {"when", "due"}});
    // Qwen1.5-MoE on an RTX A6000, rounded: an expert of 17 MB over PCIe 4.0.
    policy.costs.attention_ns = 350'000, policy.costs.gpu_expert_ns = 60'000;
    policy.costs.head_ns = 900'000, policy.costs.load_ns = 700'000;
    std::vector<uint32_t> wanted(layers);
    std::vector<float> split(layers, 1);
    const auto ask = [&](uint64_t token) {
        const moorage_budget_request request{
            sizeof(request),     0, layers,    experts, slots, 2, token, policy.slots.data(),
            policy.split.data(), 1, split_step};
        moorage_budget_plan plan{sizeof(plan), 0, wanted.data(), split.data(), 0};
        return policy.budget->plan(policy.plugin, &request, &plan);
    };
    ask(0);
    policy.slots = wanted;
    policy.split = split;
    for (size_t step = 0; step < source.chosen.size(); ++step)
        policy.observe(static_cast<uint32_t>(step % layers), source.chosen[step],
                       source.predicted[step]);
    uint64_t token = tokens;
    for (auto _ : state) benchmark::DoNotOptimize(ask(++token));
    if (!policy.lines.empty()) state.SetLabel(policy.lines.back());
}
BENCHMARK_CAPTURE(configure, any_split, 480, 0.0f)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(configure, eleventh, 480, 1.0f / 11)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(configure, tight, 150, 0.0f)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
