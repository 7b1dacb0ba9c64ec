// latency_known.inl - remembered times of sets, by the devices that serve them; for latency.hpp.
#pragma once

#include "latency.hpp"

namespace moorage {

// The last steps of splitmix64.
inline uint64_t latency_model::mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

inline void latency_model::begin_known() {
    if (!grouped_) return;
    for (uint32_t d = 0; d < devices_; ++d) device_code_.push_back(mixed(d));
    for (uint32_t i = 0; i < 16; ++i) place_code_.push_back(mixed(~uint64_t{i}) | 1);
    const auto bits = static_cast<uint32_t>(std::bit_width(4 * terms_.size()));
    known_shift_ = 64 - std::clamp(bits, 6u, 18u);
    known_.assign(uint64_t{1} << (64 - known_shift_), {});
}

// Code of the expert seen from the entry, after the change: the home's own server alone if it has
// the expert, else all holders that it reaches.
inline uint64_t latency_model::code_with(uint32_t expert, uint32_t entry,
                                         const change &deviation) const {
    const uint32_t *serving = serving_.data() + size_t{expert} * servers_;
    const uint32_t own_server = entry_server_[entry];
    const uint32_t near = own_server == deviation.server ? deviation.device : serving[own_server];
    if (near != none) return device_code_[near];
    uint64_t holders = holders_[size_t{expert} * server_words_];
    if (deviation.server != none) holders = with_change(holders, deviation);
    uint64_t code = 0;
    for (uint64_t left = holders & reach_[entry]; left != 0; left &= left - 1) {
        const auto n = static_cast<uint32_t>(std::countr_zero(left));
        code += device_code_[n == deviation.server ? deviation.device : serving[n]];
    }
    return code;
}

// term_s(), or its value from the last time that the same devices served the set.
inline double latency_model::known_s(uint32_t term, uint64_t key, const change &deviation) const {
    remembered_time &slot = known_[key >> known_shift_];
    if (slot.key != key || key == 0) slot = {key, term_s(term, deviation)};
    return slot.seconds;
}

// Updates the keys of sets after a change of the expert's holders, and their times if `at_once`.
// Times must wait until all changes are made.
inline void latency_model::move_terms(uint32_t expert, bool at_once) {
    std::array<uint64_t, 64> shift{};
    for (uint32_t e = 0; e < entries_; ++e) {
        uint64_t &code = code_[size_t{expert} * entries_ + e];
        const uint64_t new_code = code_with(expert, e, {});
        shift[e] = new_code - code;
        code = new_code;
    }
    const uint8_t *found = single_found_.data() + size_t{expert} * entries_;
    for (uint64_t u = use_first_[expert]; u < use_first_[expert + 1]; ++u) {
        const uint32_t term = use_term_[u], e = terms_[term].entry, bit = 2 * use_position_[u];
        if (shift[e] == 0) continue;
        terms_[term].key += shift[e] * place_code_[use_position_[u]];
        terms_[term].found = (terms_[term].found & ~(3u << bit)) | uint32_t{found[e]} << bit;
        if (at_once) terms_[term].seconds = known_s(term, terms_[term].key, {});
    }
}

// Tells `sign` times the gains of the expert's partners in sets that homes of `entries` ask for.
template <class Target, class Each>
void latency_model::tell_partners(uint32_t expert, uint64_t entries, double sign, Target target,
                                  Each visit) const {
    for (uint64_t u = use_first_[expert]; u < use_first_[expert + 1]; ++u) {
        const uint32_t term = use_term_[u], e = terms_[term].entry, own_server = entry_server_[e];
        if ((entries >> e & 1) == 0) continue;
        const std::span<const uint32_t> set = term_set(term);
        const double weight = sign * terms_[term].weight;
        for (uint32_t i = 0; i < set.size(); ++i) {
            // A copy elsewhere does not help if the home's own server has one.
            if (set[i] == expert || (terms_[term].found >> (2 * i) & 3) == found_near) continue;
            const uint64_t code = code_[size_t{set[i]} * entries_ + e];
            for (uint64_t left = reach_[e]; left != 0; left &= left - 1) {
                const auto n = static_cast<uint32_t>(std::countr_zero(left));
                const uint32_t device = target(set[i], n);
                if (device == none) continue;
                const uint64_t shift = device_code_[device] - (n == own_server ? code : 0);
                const uint64_t key = terms_[term].key + shift * place_code_[i];
                visit(set[i], n,
                      weight * (terms_[term].seconds - known_s(term, key, {n, device, 1u << i})));
            }
        }
    }
}

template <class Target, class Each>
void latency_model::add_telling(uint32_t expert, uint32_t device, Target target, Each visit) {
    const uint32_t n = server_of(device);
    uint64_t entries = 0;  // entries for which the copy changes something
    if (grouped_ && better(device, serving_[size_t{expert} * servers_ + n], model_of(expert)))
        for (uint32_t e = 0; e < entries_; ++e)
            if (code_with(expert, e, {n, device, 0}) != code_[size_t{expert} * entries_ + e])
                entries |= uint64_t{1} << e;
    tell_partners(expert, entries, -1, target, visit);
    add(expert, device);
    tell_partners(expert, entries, 1, target, visit);
}

}  // namespace moorage
