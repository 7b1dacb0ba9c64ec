// latency_figures.inl - the figures of a placement, for single tokens and batches; for latency.hpp.
#pragma once

#include "latency.hpp"

namespace moorage {

// The placement in the form that batch.hpp reads.
class latency_model::holder_view {
public:
    explicit holder_view(const latency_model &model) : model_(model) {}
    uint32_t at(uint32_t x, uint32_t n) const {
        return model_.serving_[size_t{x} * model_.servers_ + n];
    }
    template <class Each>
    void each(uint32_t x, Each call) const {
        for (size_t word = 0; word < model_.server_words_; ++word)
            for (uint64_t left = model_.holders_[size_t{x} * model_.server_words_ + word];
                 left != 0; left &= left - 1) {
                const auto n = static_cast<uint32_t>(word * 64) +
                               static_cast<uint32_t>(std::countr_zero(left));
                call(n, at(x, n));
            }
    }

private:
    const latency_model &model_;
};

// The time that layers take for a token alone, divided by the tokens of a batch, and the time that
// more tokens add.
inline double latency_model::batch_token_s(const batch_model &batches) const {
    const holder_view holders(*this);
    double sum = constant_s_;
    for (size_t i = 0; i < single_weight_.size(); ++i)
        if (single_weight_[i] > 0)
            sum += single_weight_[i] * single_s_[i] /
                   batches.batch(static_cast<uint32_t>(i % entries_));
    for (size_t t = 0; t < terms_.size(); ++t)
        sum += terms_[t].weight * terms_[t].seconds / batches.batch(terms_[t].entry);
    for (uint32_t m = 0; m < demand_.models; ++m)
        for (uint32_t l = 0; l < demand_.host_model_layers[m]; ++l)
            for (uint32_t e = 0; e < entries_; ++e)
                sum += batches.extra_s(
                    e, demand_.host_model_first[m] + l * demand_.host_model_experts[m], holders);
    return sum;
}

// Adds the calls of a home's token for a range of experts. If sets are unknown, also adds its time.
inline void latency_model::add_frequencies(uint32_t home, uint32_t begin, uint32_t end,
                                           home_sums &sums) const {
    const double *frequency = demand_.host_frequency + size_t{home} * experts_;
    const uint32_t server = cluster_.host_home_server[home], entry = server_entry_[server];
    const double *call = cluster_.host_home_call_s + size_t{home} * cluster_.models;
    for (uint32_t x = begin; x < end; ++x) {
        if (frequency[x] <= 0) continue;
        const bool is_held = held(home, x);
        sums.calls += frequency[x];
        if (!is_held && !holds(x, server)) sums.remote += frequency[x];
        if (grouped_) continue;
        const uint32_t m = model_of(x);
        sums.token_s +=
            frequency[x] * (is_held ? call[m] / std::max(1u, demand_.host_model_top_k[m])
                                    : base_s(home, m, 1) + single_s_[size_t{x} * entries_ + entry]);
    }
}

// Used if the sets are known.
inline double latency_model::home_s(uint32_t home) const {
    const uint32_t entry = server_entry_[cluster_.host_home_server[home]];
    const double *call = cluster_.host_home_call_s + size_t{home} * cluster_.models;
    double sum = 0;
    std::vector<uint32_t> missing;
    for (uint64_t c = demand_.host_home_first_call[home];
         c < demand_.host_home_first_call[home + 1]; ++c) {
        const uint32_t group = demand_.host_call_group[c];
        const std::span<const uint32_t> chosen(
            demand_.host_group_experts + demand_.host_group_first[group],
            demand_.host_group_first[group + 1] - demand_.host_group_first[group]);
        if (chosen.empty()) continue;
        missing.clear();
        for (const uint32_t expert : chosen)
            if (!held(home, expert)) missing.push_back(expert);
        const uint32_t m = model_of(chosen[0]);
        double layer = missing.empty() ? call[m] : base_s(home, m, missing.size());
        if (missing.size() == 1 || missing.size() > 16) {
            for (const uint32_t expert : missing)
                layer += single_s_[size_t{expert} * entries_ + entry];
        } else if (!missing.empty()) {
            missed_experts missed(m, entry, missing, {});
            layer += layer_s(missed);
        }
        sum += demand_.host_call_share[c] * layer;
    }
    return sum;
}

inline latency_figures latency_model::figures() const {
    latency_figures figures;
    const batch_model batches(cluster_, demand_);
    figures.token_s = token_s(), figures.empty_s = empty_s_;
    figures.saved_s = empty_s_ - figures.token_s;
    figures.batch_token_s = batches.any() ? batch_token_s(batches) : figures.token_s;
    std::vector<home_sums> sums(demand_.homes);
    for (uint32_t x = 0; x < experts_; x += block_experts)
        for (uint32_t h = 0; h < demand_.homes; ++h)
            add_frequencies(h, x, std::min(experts_, x + block_experts), sums[h]);
    for (uint32_t h = 0; h < demand_.homes; ++h) {
        const home_sums &home = sums[h];
        figures.home_token_s.push_back(grouped_ ? home_s(h) : home.token_s);
        figures.home_local_ratio.push_back(home.calls > 0 ? 1 - home.remote / home.calls : 1);
        figures.calls_per_s += home.calls * demand_.host_home_tokens_per_s[h];
        figures.remote_calls_per_s += home.remote * demand_.host_home_tokens_per_s[h];
    }
    if (figures.calls_per_s > 0)
        figures.local_ratio = 1 - figures.remote_calls_per_s / figures.calls_per_s;
    if (has_cloud()) return figures;
    for (uint32_t x = 0; x < experts_; ++x) {
        const uint8_t *found = single_found_.data() + size_t{x} * entries_;
        const bool unreached =
            std::any_of(found, found + entries_, [](uint8_t state) { return state == not_found; });
        figures.absent += unreached && asked(x) ? 1 : 0;
    }
    return figures;
}

}  // namespace moorage
