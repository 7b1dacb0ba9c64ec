// drawn_routing.cpp - lays frequencies end to end, or groups into alias tables; draws by a hash.
#include "tools/cluster/drawn_routing.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "core/base/random.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr uint32_t unit = 1u << 24;  // a frequency of 1

status check_shape(uint32_t layers, uint32_t experts, uint32_t top_k) {
    // Positions are 32 bits of which 24 are behind the point; experts are kept in 16.
    if (layers == 0 || experts == 0 || experts > 65536 || top_k == 0 || top_k > experts ||
        top_k > 255)
        return error{
            format("routing of {} layers, {} experts, top {} cannot be drawn: up to 65536 "
                   "experts and top 255 can",
                   layers, experts, top_k)};
    return success();
}

// Frequencies of a layer in units: none above one unit, top_k units in all.
std::vector<uint32_t> widths_of(std::span<const double> frequency, uint32_t top_k) {
    std::vector<uint32_t> widths(frequency.size(), 0);
    std::vector<uint32_t> open;  // not known yet
    for (uint32_t expert = 0; expert < frequency.size(); ++expert)
        if (frequency[expert] > 0) open.push_back(expert);
    uint64_t left = uint64_t{top_k} * unit;
    if (open.size() <= top_k) {  // all of them always, the others alike
        for (const uint32_t expert : open) widths[expert] = unit;
        left -= open.size() * uint64_t{unit};
        open.clear();
    }
    while (!open.empty()) {
        double sum = 0;
        for (const uint32_t expert : open) sum += frequency[expert];
        const double scale = static_cast<double>(left) / sum;
        const auto rest = std::stable_partition(open.begin(), open.end(), [&](uint32_t expert) {
            return frequency[expert] * scale >= unit;
        });
        const std::span full(open.begin(), rest);
        if (full.empty()) {
            for (const uint32_t expert : open) {
                widths[expert] = static_cast<uint32_t>(frequency[expert] * scale);
                left -= std::min<uint64_t>(left, widths[expert]);
            }
            break;
        }
        for (const uint32_t expert : full) widths[expert] = unit;
        left -= full.size() * uint64_t{unit};
        open.erase(open.begin(), rest);
    }
    // The rest from rounding down goes in equal parts to the experts that are chosen at all. If
    // they have no room, it goes to the others.
    for (const bool chosen : {true, false}) {
        std::vector<uint32_t> takers;
        for (uint32_t expert = 0; expert < widths.size(); ++expert)
            if ((widths[expert] > 0) == chosen) takers.push_back(expert);
        while (left > 0) {
            std::erase_if(takers, [&](uint32_t expert) { return widths[expert] == unit; });
            if (takers.empty()) break;
            const uint64_t portion = std::max<uint64_t>(left / takers.size(), 1);
            for (const uint32_t expert : takers) {
                const uint64_t added = std::min({portion, uint64_t{unit} - widths[expert], left});
                widths[expert] += static_cast<uint32_t>(added);
                left -= added;
            }
        }
    }
    assert(left == 0);
    return widths;
}

}  // namespace

result<drawn_routing> drawn_routing::from_frequency(uint32_t layers, uint32_t experts,
                                                    uint32_t top_k,
                                                    std::span<const double> frequency,
                                                    uint64_t seed) {
    if (const status right = check_shape(layers, experts, top_k); !right) return right.failure();
    assert(frequency.size() == size_t{layers} * experts);
    for (size_t i = 0; i < frequency.size(); ++i)
        if (!(frequency[i] >= 0 && frequency[i] <= 1e18))
            return error{format("frequency of layer {}, expert {}: {} is not a number from 0 up",
                                i / experts, i % experts, frequency[i])};
    drawn_routing routing(layers, experts, top_k);
    routing.lay_out(frequency, seed);
    return routing;
}

void drawn_routing::lay_out(std::span<const double> frequency, uint64_t seed) {
    const uint64_t length = uint64_t{top_k_} * unit;
    guide_shift_ = 0;
    while ((length >> guide_shift_) > 2 * uint64_t{experts_}) ++guide_shift_;
    guides_ = static_cast<uint32_t>((length - 1) >> guide_shift_) + 1;
    const size_t tables = size_t{layers_} * orders;
    ends_.resize(tables * experts_);
    experts_at_.resize(tables * experts_);
    guide_.resize(tables * guides_);
    std::vector<uint16_t> order(experts_);
    for (uint32_t layer = 0; layer < layers_; ++layer) {
        const auto widths =
            widths_of(frequency.subspan(size_t{layer} * experts_, experts_), top_k_);
        for (uint32_t which = 0; which < orders; ++which) {
            random_stream random(seed, uint64_t{layer} * orders + which);
            std::iota(order.begin(), order.end(), uint16_t{0});
            for (size_t i = order.size(); i > 1; --i)
                std::swap(order[i - 1], order[random.below(i)]);
            const size_t table = size_t{layer} * orders + which;
            uint32_t *ends = &ends_[table * experts_];
            uint64_t end = 0;
            for (uint32_t place = 0; place < experts_; ++place) {
                experts_at_[table * experts_ + place] = order[place];
                ends[place] = static_cast<uint32_t>(end += widths[order[place]]);
            }
            uint16_t place = 0;
            for (uint64_t guide = 0; guide < guides_; ++guide) {
                while (ends[place] <= guide << guide_shift_) ++place;
                guide_[table * guides_ + guide] = place;
            }
        }
    }
}

result<drawn_routing> drawn_routing::from_demand(const demand_arrays &demand, uint32_t home,
                                                 uint32_t model, uint64_t seed) {
    assert(home < demand.homes && model < demand.models);
    const uint32_t layers = demand.model_layers[model], experts = demand.model_experts[model];
    const uint32_t top_k = demand.model_top_k[model];
    if (!demand.call_group.empty()) {
        if (const status right = check_shape(layers, experts, top_k); !right)
            return right.failure();
        drawn_routing routing(layers, experts, top_k);
        if (const status taken = routing.take_groups(demand, home, model); !taken)
            return taken.failure();
        return routing;
    }
    const size_t first = size_t{home} * demand.experts() + demand.model_first[model];
    return from_frequency(layers, experts, top_k,
                          std::span(demand.frequency).subspan(first, size_t{layers} * experts),
                          seed);
}

status drawn_routing::take_groups(const demand_arrays &demand, uint32_t home, uint32_t model) {
    const uint32_t begin = demand.model_first[model], end = demand.model_first[model + 1];
    std::vector<std::vector<std::pair<uint32_t, double>>> calls(layers_);  // group, share
    for (uint64_t call = demand.home_first_call[home]; call < demand.home_first_call[home + 1];
         ++call) {
        const uint32_t group = demand.call_group[call];
        const uint64_t first = demand.group_first[group];
        const uint64_t size = demand.group_first[group + 1] - first;
        if (size == 0 || demand.group_experts[first] < begin || demand.group_experts[first] >= end)
            continue;  // of another model
        if (size != top_k_)
            return error{format("home {}, group {}: {} experts, a token of model {} chooses {}",
                                home, group, size, model, top_k_)};
        if (!(demand.call_share[call] > 0)) continue;
        const uint32_t layer = (demand.group_experts[first] - begin) / experts_;
        calls[layer].emplace_back(static_cast<uint32_t>(group_experts_.size() / top_k_),
                                  demand.call_share[call]);
        for (uint64_t index = first; index < first + size; ++index)
            group_experts_.push_back(
                static_cast<uint16_t>((demand.group_experts[index] - begin) % experts_));
    }
    layer_first_.push_back(0);
    for (uint32_t layer = 0; layer < layers_; ++layer) {
        if (calls[layer].empty())
            return error{format("home {}, model {}: layer {} has no group of experts to draw from",
                                home, model, layer)};
        add_alias_table(calls[layer]);
        layer_first_.push_back(columns_.size());
    }
    return success();
}

// Walker's alias method over whole numbers: each column is its own group with a chance, else the
// other one.
void drawn_routing::add_alias_table(std::span<const std::pair<uint32_t, double>> calls) {
    double sum = 0;
    for (const auto &[group, share] : calls) sum += share;
    const uint64_t count = calls.size();
    std::vector<uint64_t> left(count);
    uint64_t total = 0;
    for (size_t i = 0; i < count; ++i)
        total += left[i] = static_cast<uint64_t>(calls[i].second / sum * 0x1p32) + 1;
    std::vector<size_t> small, large;
    for (size_t i = 0; i < count; ++i) {
        left[i] *= count;
        (left[i] < total ? small : large).push_back(i);
    }
    const size_t first = columns_.size();
    for (const auto &[group, share] : calls) columns_.push_back({0, group, group});
    while (!small.empty() && !large.empty()) {
        const size_t giver = large.back(), taker = small.back();
        small.pop_back();
        columns_[first + taker].chance =
            static_cast<uint32_t>((static_cast<uint128>(left[taker]) << 32) / total);
        columns_[first + taker].second_group = calls[giver].first;
        left[giver] -= total - left[taker];
        if (left[giver] >= total) continue;
        large.pop_back();
        small.push_back(giver);
    }
}

void drawn_routing::draw(uint64_t seed, uint64_t token, uint32_t layer, uint32_t *chosen) const {
    // The hash is the number (token, layer) of the seed's own splitmix64 stream.
    const uint64_t step = 0x9e3779b97f4a7c15u;
    const uint64_t bits = seed_stream(seed + (token * layers_ + layer) * step).next();
    if (!columns_.empty()) {
        const uint64_t first = layer_first_[layer], count = layer_first_[layer + 1] - first;
        const column &drawn = columns_[first + ((bits >> 32) * count >> 32)];
        const uint32_t group =
            static_cast<uint32_t>(bits) < drawn.chance ? drawn.first_group : drawn.second_group;
        const uint16_t *experts = &group_experts_[size_t{group} * top_k_];
        for (uint32_t rank = 0; rank < top_k_; ++rank) chosen[rank] = experts[rank];
        return;
    }
    const size_t table = size_t{layer} * orders + bits % orders;
    const uint32_t *ends = &ends_[table * experts_];
    const uint16_t *experts_at = &experts_at_[table * experts_];
    const uint16_t *guide = &guide_[table * guides_];
    uint32_t position = static_cast<uint32_t>(bits >> 40);
    for (uint32_t rank = 0; rank < top_k_; ++rank, position += unit) {
        uint32_t place = guide[position >> guide_shift_];
        while (ends[place] <= position) ++place;
        chosen[rank] = experts_at[place];
    }
}

}  // namespace moorage::core
