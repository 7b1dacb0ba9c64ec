// trace_stats.cpp - counts choices, repetitions and right predictions per layer.
#include "core/source/trace_stats.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace moorage::core {

namespace {

void measure_lengths(const trace &trace, trace_statistics &statistics) {
    const auto offsets = trace.request_offsets();
    std::vector<uint64_t> lengths;
    for (size_t r = 0; r + 1 < offsets.size(); ++r) lengths.push_back(offsets[r + 1] - offsets[r]);
    std::ranges::sort(lengths);
    const size_t middle = lengths.size() / 2;
    statistics.length_min = lengths.front();
    statistics.length_max = lengths.back();
    statistics.length_median = lengths.size() % 2 == 1
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

uint64_t common(const uint32_t *first, uint32_t first_count, const uint32_t *second,
                uint32_t second_count) {
    uint64_t found = 0;
    for (uint32_t i = 0; i < first_count; ++i)
        found +=
            std::find(second, second + second_count, first[i]) != second + second_count ? 1 : 0;
    return found;
}

void add_token(const trace &trace, uint64_t token, bool follows, const uint32_t *current,
               const uint32_t *previous, counts &counts) {
    const uint32_t top_k = trace.top_k(), guesses = std::min(top_k, trace.predictions());
    std::vector<uint32_t> predicted(guesses);
    counts.followers += follows ? 1 : 0;
    for (uint32_t layer = 0; layer < trace.layers(); ++layer) {
        const uint32_t *experts = current + uint64_t{layer} * top_k;
        for (uint32_t k = 0; k < top_k; ++k)
            ++counts.chosen[uint64_t{layer} * trace.experts() + experts[k]];
        if (follows)
            counts.kept[layer] += common(experts, top_k, previous + uint64_t{layer} * top_k, top_k);
        for (uint32_t k = 0; k < guesses; ++k) predicted[k] = trace.predicted(token, layer, k);
        counts.right[layer] += common(experts, top_k, predicted.data(), guesses);
    }
}

}  // namespace

trace_statistics measure(const trace &trace) {
    trace_statistics statistics;
    measure_lengths(trace, statistics);
    const uint32_t layers = trace.layers(), experts = trace.experts();
    counts totals{std::vector<uint64_t>(uint64_t{layers} * experts), std::vector<uint64_t>(layers),
                  std::vector<uint64_t>(layers), 0};
    std::vector<uint32_t> current(uint64_t{layers} * trace.top_k()), previous(current.size());
    const auto offsets = trace.request_offsets();
    for (size_t request = 0; request + 1 < offsets.size(); ++request)
        for (uint64_t token = offsets[request]; token < offsets[request + 1]; ++token) {
            trace.read_experts(token, 1, current.data());
            add_token(trace, token, token > offsets[request], current.data(), previous.data(),
                      totals);
            current.swap(previous);
            if (token % 4096 == 0) trace.release_before(token);
        }

    const double choices = static_cast<double>(trace.tokens()) * trace.top_k();
    const double repeats = static_cast<double>(totals.followers) * trace.top_k();
    statistics.top_count = (experts + 3) / 4;
    for (uint32_t layer = 0; layer < layers; ++layer) {
        const auto first =
            totals.chosen.begin() + static_cast<ptrdiff_t>(uint64_t{layer} * experts);
        std::sort(first, first + experts, std::greater());
        statistics.distinct.push_back(
            static_cast<uint32_t>(experts - std::count(first, first + experts, 0u)));
        statistics.top_share.push_back(
            static_cast<double>(std::accumulate(first, first + statistics.top_count, uint64_t{0})) /
            choices);
        statistics.reuse.push_back(totals.followers == 0
                                       ? std::numeric_limits<double>::quiet_NaN()
                                       : static_cast<double>(totals.kept[layer]) / repeats);
        if (trace.has_predictions())
            statistics.accuracy.push_back(static_cast<double>(totals.right[layer]) / choices);
    }
    return statistics;
}

double mean_from(const std::vector<double> &values, size_t first) {
    if (first >= values.size()) return std::numeric_limits<double>::quiet_NaN();
    const double sum =
        std::accumulate(values.begin() + static_cast<ptrdiff_t>(first), values.end(), 0.0);
    return sum / static_cast<double>(values.size() - first);
}

}  // namespace moorage::core
