// trace_stats.cpp - counts choices, repetitions and right predictions per layer.
#include "core/source/trace_stats.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace moorage::core {

namespace {

void measure_lengths(const trace &of, trace_statistics &to) {
    const auto offsets = of.request_offsets();
    std::vector<uint64_t> lengths;
    for (size_t r = 0; r + 1 < offsets.size(); ++r) lengths.push_back(offsets[r + 1] - offsets[r]);
    std::ranges::sort(lengths);
    const size_t middle = lengths.size() / 2;
    to.length_min = lengths.front();
    to.length_max = lengths.back();
    to.length_median = lengths.size() % 2 == 1
                           ? static_cast<double>(lengths[middle])
                           : static_cast<double>(lengths[middle - 1] + lengths[middle]) / 2;
}

// Running counts.
struct counts {
    std::vector<uint64_t> chosen;  // [layers, experts]
    std::vector<uint64_t> kept;    // [layers] experts that the previous token also had
    std::vector<uint64_t> right;   // [layers] experts that were predicted
    uint64_t followers = 0;        // tokens that are not the first of their request
};

uint64_t common(const uint32_t *one, uint32_t one_count, const uint32_t *other,
                uint32_t other_count) {
    uint64_t found = 0;
    for (uint32_t i = 0; i < one_count; ++i)
        found += std::find(other, other + other_count, one[i]) != other + other_count ? 1 : 0;
    return found;
}

void add_token(const trace &of, uint64_t token, bool follows, const uint32_t *now,
               const uint32_t *before, counts &to) {
    const uint32_t top_k = of.top_k(), guesses = std::min(top_k, of.predictions());
    std::vector<uint32_t> predicted(guesses);
    to.followers += follows ? 1 : 0;
    for (uint32_t layer = 0; layer < of.layers(); ++layer) {
        const uint32_t *experts = now + uint64_t{layer} * top_k;
        for (uint32_t k = 0; k < top_k; ++k)
            ++to.chosen[uint64_t{layer} * of.experts() + experts[k]];
        if (follows)
            to.kept[layer] += common(experts, top_k, before + uint64_t{layer} * top_k, top_k);
        for (uint32_t k = 0; k < guesses; ++k) predicted[k] = of.predicted(token, layer, k);
        to.right[layer] += common(experts, top_k, predicted.data(), guesses);
    }
}

}  // namespace

trace_statistics measure(const trace &of) {
    trace_statistics to;
    measure_lengths(of, to);
    const uint32_t layers = of.layers(), experts = of.experts();
    counts all{std::vector<uint64_t>(uint64_t{layers} * experts), std::vector<uint64_t>(layers),
               std::vector<uint64_t>(layers), 0};
    std::vector<uint32_t> now(uint64_t{layers} * of.top_k()), before(now.size());
    const auto offsets = of.request_offsets();
    for (size_t request = 0; request + 1 < offsets.size(); ++request)
        for (uint64_t token = offsets[request]; token < offsets[request + 1]; ++token) {
            of.read_experts(token, 1, now.data());
            add_token(of, token, token > offsets[request], now.data(), before.data(), all);
            now.swap(before);
            if (token % 4096 == 0) of.release_before(token);
        }

    const double choices = static_cast<double>(of.tokens()) * of.top_k();
    const double repeats = static_cast<double>(all.followers) * of.top_k();
    to.top_count = (experts + 3) / 4;
    for (uint32_t layer = 0; layer < layers; ++layer) {
        const auto first = all.chosen.begin() + static_cast<ptrdiff_t>(uint64_t{layer} * experts);
        std::sort(first, first + experts, std::greater());
        to.distinct.push_back(
            static_cast<uint32_t>(experts - std::count(first, first + experts, 0u)));
        to.top_share.push_back(
            static_cast<double>(std::accumulate(first, first + to.top_count, uint64_t{0})) /
            choices);
        to.reuse.push_back(all.followers == 0 ? std::numeric_limits<double>::quiet_NaN()
                                              : static_cast<double>(all.kept[layer]) / repeats);
        if (of.has_predictions())
            to.accuracy.push_back(static_cast<double>(all.right[layer]) / choices);
    }
    return to;
}

double mean_from(const std::vector<double> &values, size_t first) {
    if (first >= values.size()) return std::numeric_limits<double>::quiet_NaN();
    const double sum =
        std::accumulate(values.begin() + static_cast<ptrdiff_t>(first), values.end(), 0.0);
    return sum / static_cast<double>(values.size() - first);
}

}  // namespace moorage::core
