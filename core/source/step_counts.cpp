// step_counts.cpp - sums of counts.
#include "core/source/step_counts.h"

namespace moorage::core {

double expert_counts::hit_rate() const {
    return requested == 0 ? 0 : double(hits) / double(requested);
}

expert_counts &expert_counts::operator+=(const expert_counts &right) {
    requested += right.requested;
    hits += right.hits;
    partial_hits += right.partial_hits;
    misses += right.misses;
    substituted += right.substituted;
    on_cpu += right.on_cpu;
    remote += right.remote;
    loaded += right.loaded;
    return *this;
}

routing_counts &routing_counts::operator+=(const routing_counts &right) {
    choices += right.choices;
    rows += right.rows;
    rows_unchanged += right.rows_unchanged;
    reweighted += right.reweighted;
    dropped += right.dropped;
    small += right.small;
    held_exact += right.held_exact;
    held_cap += right.held_cap;
    return *this;
}

version_counts &version_counts::operator+=(const version_counts &right) {
    computed += right.computed;
    loaded_bytes += right.loaded_bytes;
    return *this;
}

}  // namespace moorage::core
