// activation.cpp - frequencies and groups from a routing trace, and those drawn by popularity.
#include "tools/placement/activation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "core/base/portable_math.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/source/zipf.h"

namespace moorage::core {

namespace {

// Sets of ranks with the probability that a token chooses them. Rank 0 is the most popular.
struct rank_groups {
    std::vector<uint32_t> ranks;  // [groups, top_k] ascending
    std::vector<double> share;    // [groups], sums to 1
};

// Binomial coefficient, or limit + 1 if it is larger.
uint64_t combinations(uint32_t total, uint32_t taken, uint64_t limit) {
    taken = std::min(taken, total - taken);
    uint64_t count = 1;
    for (uint32_t i = 1; i <= taken; ++i) {
        count = count * (total - taken + i) / i;  // always an integer
        if (count > limit) return limit + 1;
    }
    return count;
}

// Probability that drawing by weight without replacement gives exactly this set. It is the sum over
// all orders, computed over subsets: f(S) = sum over the last one taken of f(S without it) w / (1 -
// W).
double set_probability(const std::vector<double> &weights, std::span<const uint32_t> set) {
    const uint32_t size = static_cast<uint32_t>(set.size());
    std::array<double, size_t{1} << exact_top_k_max> reach{}, taken{};
    reach[0] = 1;
    for (uint32_t mask = 1; mask < 1u << size; ++mask) {
        const uint32_t low = static_cast<uint32_t>(std::countr_zero(mask));
        taken[mask] = taken[mask & (mask - 1)] + weights[set[low]];
        for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
            const uint32_t previous_mask = mask ^ (rest & -rest);
            const double weight = weights[set[static_cast<uint32_t>(std::countr_zero(rest))]];
            reach[mask] += reach[previous_mask] * weight / (1 - taken[previous_mask]);
        }
    }
    return reach[(size_t{1} << size) - 1];
}

rank_groups exact_groups(const model_shape &shape, double exponent) {
    std::vector<double> weights(shape.experts);
    for (uint32_t rank = 0; rank < shape.experts; ++rank)
        weights[rank] = portable_pow(rank + 1.0, -exponent);
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double &weight : weights) weight /= total;
    rank_groups groups;
    std::vector<uint32_t> set(shape.top_k);
    std::iota(set.begin(), set.end(), 0u);
    for (;;) {
        groups.ranks.insert(groups.ranks.end(), set.begin(), set.end());
        groups.share.push_back(set.size() == shape.experts ? 1 : set_probability(weights, set));
        // The next set in lexicographic order.
        size_t position = set.size();
        while (position > 0 && set[position - 1] == shape.experts - (set.size() - position) - 1)
            --position;
        if (position == 0) break;
        ++set[position - 1];
        for (; position < set.size(); ++position) set[position] = set[position - 1] + 1;
    }
    const double sum = std::accumulate(groups.share.begin(), groups.share.end(), 0.0);
    for (double &share : groups.share) share /= sum;  // only corrects rounding
    return groups;
}

// Merges equal neighbours of a sorted list of sets. Their count becomes a share.
rank_groups count_sets(std::vector<uint32_t> sets, uint32_t size) {
    const size_t count = sets.size() / size;
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0u);
    const auto set = [&](uint32_t n) { return std::span(sets).subspan(size_t{n} * size, size); };
    std::sort(order.begin(), order.end(), [&](uint32_t left, uint32_t right) {
        return std::lexicographical_compare(set(left).begin(), set(left).end(), set(right).begin(),
                                            set(right).end());
    });
    rank_groups groups;
    uint64_t equal = 0;
    for (size_t n = 0; n < count; ++n) {
        ++equal;
        const auto current = set(order[n]);
        if (n + 1 < count && std::equal(current.begin(), current.end(), set(order[n + 1]).begin()))
            continue;
        groups.ranks.insert(groups.ranks.end(), current.begin(), current.end());
        groups.share.push_back(static_cast<double>(equal) / static_cast<double>(count));
        equal = 0;
    }
    return groups;
}

rank_groups sampled_groups(const model_shape &shape, const draw_options &options, uint32_t tokens) {
    const zipf popularity(shape.experts, options.zipf, 0);
    random_stream random(options.seed, ~options.stream);
    std::vector<uint32_t> sets;
    std::vector<uint8_t> taken(shape.experts);
    for (uint32_t token = 0; token < tokens; ++token) {
        const size_t first = sets.size();
        for (uint32_t rank = 0; rank < shape.top_k; ++rank) {
            sets.push_back(popularity.draw_free(random, taken));
            taken[sets.back()] = 1;
        }
        for (size_t index = first; index < sets.size(); ++index) taken[sets[index]] = 0;
        std::sort(sets.begin() + static_cast<ptrdiff_t>(first), sets.end());
    }
    return count_sets(std::move(sets), shape.top_k);
}

// Appends the groups of a layer, with `ids` instead of ranks.
void add_layer(const rank_groups &groups, std::span<const uint32_t> ids, uint32_t top_k,
               uint32_t experts, activation &target) {
    const size_t first = target.frequency.size();
    target.frequency.resize(first + experts, 0.0);
    std::vector<uint32_t> set(top_k);
    for (size_t group = 0; group < groups.share.size(); ++group) {
        for (uint32_t n = 0; n < top_k; ++n) {
            const uint32_t rank = groups.ranks[group * top_k + n];
            set[n] = ids.empty() ? rank : ids[rank];
            target.frequency[first + set[n]] += groups.share[group];
        }
        std::sort(set.begin(), set.end());
        target.group_experts.insert(target.group_experts.end(), set.begin(), set.end());
        target.share.push_back(groups.share[group]);
    }
    target.layer_group.push_back(target.share.size());
}

void drop_groups(activation &target) {
    target.layer_group.clear();
    target.share.clear();
    target.group_experts.clear();
}

}  // namespace

activation draw_activation(const model_shape &shape, const draw_options &options) {
    const uint32_t limit = options.groups_max == 0 ? sample_tokens : options.groups_max;
    const uint32_t listed = std::min(limit, exact_groups_max);
    const bool exact = shape.top_k <= exact_top_k_max &&
                       combinations(shape.experts, shape.top_k, listed) <= listed;
    const rank_groups groups = exact
                                   ? exact_groups(shape, options.zipf)
                                   : sampled_groups(shape, options, std::min(limit, sample_tokens));
    activation drawn;
    drawn.layer_group.push_back(0);
    random_stream random(options.seed, options.stream);
    std::vector<uint32_t> ids(shape.experts);
    for (uint32_t layer = 0; layer < shape.moe_layers; ++layer) {
        std::iota(ids.begin(), ids.end(), 0u);
        for (uint32_t left = shape.experts; left > 1; --left)
            std::swap(ids[left - 1], ids[random.below(left)]);
        add_layer(groups, ids, shape.top_k, shape.experts, drawn);
    }
    if (options.groups_max == 0) drop_groups(drawn);
    return drawn;
}

bool fits(const trace &trace, const model_shape &shape) {
    return trace.layers() == shape.moe_layers && trace.experts() == shape.experts &&
           trace.top_k() == shape.top_k;
}

result<std::vector<uint64_t>> chosen_requests(const trace &trace,
                                              const cluster_workload &workload) {
    std::vector<uint8_t> wanted(trace.domains().size(), workload.domains.empty());
    for (const std::string &name : workload.domains) {
        const auto found = std::find(trace.domains().begin(), trace.domains().end(), name);
        if (found == trace.domains().end()) {
            const std::string hint = did_you_mean(name, trace.domains());
            const std::string domain_list =
                trace.domains().empty() ? "names none"
                                        : format("has {}", fmt::join(trace.domains(), ", "));
            return error{format("{}: [[cluster.workloads]] {}: {} has no domain {}{}",
                                workload.place, workload.name, trace.path().string(), name,
                                hint.empty() ? "; it " + domain_list : hint),
                         true};
        }
        wanted[static_cast<size_t>(found - trace.domains().begin())] = 1;
    }
    std::vector<uint64_t> requests;
    for (uint64_t n = workload.request_first; n < trace.requests(); n += workload.request_step) {
        if (!workload.domains.empty()) {
            const int32_t domain = trace.request_domain()[n];
            if (domain < 0 || !wanted[static_cast<size_t>(domain)]) continue;
        }
        requests.push_back(n);
    }
    if (requests.empty())
        return error{format("{}: [[cluster.workloads]] {}: no request of {} is chosen, it has {}",
                            workload.place, workload.name, trace.path().string(), trace.requests()),
                     true};
    return requests;
}

activation trace_activation(const trace &trace, const std::vector<uint64_t> &requests,
                            uint32_t groups_max) {
    std::vector<uint64_t> tokens;
    for (const uint64_t request : requests)
        for (uint64_t token = trace.request_offsets()[request];
             token < trace.request_offsets()[request + 1]; ++token)
            tokens.push_back(token);
    if (groups_max > 0 && tokens.size() > groups_max) {
        for (uint64_t n = 0; n < groups_max; ++n)
            tokens[n] = tokens[n * tokens.size() / groups_max];
        tokens.resize(groups_max);
    }
    activation seen;
    seen.layer_group.push_back(0);
    const uint32_t top_k = trace.top_k();
    for (uint32_t layer = 0; layer < trace.layers(); ++layer) {
        std::vector<uint32_t> sets(tokens.size() * top_k);
        for (size_t n = 0; n < tokens.size(); ++n) {
            const auto set = std::span(sets).subspan(n * top_k, top_k);
            for (uint32_t rank = 0; rank < top_k; ++rank)
                set[rank] = trace.expert(tokens[n], layer, rank);
            std::sort(set.begin(), set.end());
        }
        add_layer(count_sets(std::move(sets), top_k), {}, top_k, trace.experts(), seen);
    }
    if (groups_max == 0) drop_groups(seen);
    return seen;
}

}  // namespace moorage::core
