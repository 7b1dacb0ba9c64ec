// step_counts.cpp - sums of counts.
#include "core/source/step_counts.h"

namespace moorage::core {

double expert_counts::hit_rate() const {
    return requested == 0 ? 0 : double(hits) / double(requested);
}

expert_counts &expert_counts::operator+=(const expert_counts &other) {
    requested += other.requested;
    hits += other.hits;
    partial_hits += other.partial_hits;
    misses += other.misses;
    substituted += other.substituted;
    on_cpu += other.on_cpu;
    remote += other.remote;
    loaded += other.loaded;
    return *this;
}

routing_counts &routing_counts::operator+=(const routing_counts &other) {
    choices += other.choices;
    rows += other.rows;
    rows_unchanged += other.rows_unchanged;
    reweighted += other.reweighted;
    dropped += other.dropped;
    small += other.small;
    held_exact += other.held_exact;
    held_cap += other.held_cap;
    return *this;
}

version_counts &version_counts::operator+=(const version_counts &other) {
    computed += other.computed;
    loaded_bytes += other.loaded_bytes;
    return *this;
}

}  // namespace moorage::core
