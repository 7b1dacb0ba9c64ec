// optimum.cpp - assigns intervals between uses to servers.
#include "core/cache/optimum.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace moorage::core {

namespace {

constexpr uint32_t span_requests = 1u << 15;  // told apart before time is told anew
constexpr uint32_t never = 0;                 // the bound of a page that was not used yet

}  // namespace

optimum_counter::optimum_counter(uint32_t layers, uint32_t experts, std::span<const uint32_t> pools,
                                 uint32_t width)
    : experts_(experts), width_(width), shared_(pools.size() == 1), pools_(pools.size()) {
    assert(width >= 1 && width <= experts && (shared_ || pools.size() == layers));
    for (size_t i = 0; i < pools.size(); ++i) {
        timeline &one = pools_[i];
        one.slots = pools[i];
        one.bounds.assign(shared_ ? size_t{layers} * experts : experts, never);
        if (one.slots < width) continue;
        const uint32_t servers = one.slots - width;
        one.ends.assign((size_t{servers} + span_requests + 3 * width) / 64 + 1, 0);
        one.filled.assign(one.ends.size() / 64 + 1, 0);
        // All of them are free from the beginning; time begins after that.
        for (uint32_t server = 0; server < servers; ++server) {
            one.ends[server / 64] |= uint64_t{1} << server % 64;
            one.filled[server / 4096] |= uint64_t{1} << server / 64 % 64;
        }
        one.now = servers;
    }
}

void optimum_counter::step(uint32_t layer, const uint32_t *experts) {
    timeline &on = pools_[shared_ ? 0 : layer];
    const uint32_t base = shared_ ? layer * experts_ : 0;
    if (on.slots < width_) {
        next_.assign(experts, experts + width_);
        for (uint32_t &page : next_) page += base;
        return small_step(on, next_.data());
    }
    // A step's marks stay below the end, even if the step names an expert twice. That can happen if
    // a file changes while it is read.
    if (on.now + 2 * width_ >= on.ends.size() * 64) tell_anew(on);
    const uint32_t now = on.now;
    for (uint32_t i = 0; i < width_; ++i) {
        uint32_t &bound = on.bounds[base + experts[i]];
        // From one step to the next nothing lies between. Otherwise take a server that was busy
        // until the step after the last use: that step's own requests need no server.
        const bool stays = bound == now + width_;
        if (!stays && (bound == never || !take(on, bound, now + i))) ++misses_;
        bound = now + 2 * width_;
    }
    on.now += width_;
}

// Moves the last bit below `bound` to `end`. False: there is none.
bool optimum_counter::take(timeline &on, uint32_t bound, uint32_t end) {
    uint32_t word = bound / 64;
    uint64_t bits = on.ends[word] & ((uint64_t{1} << bound % 64) - 1);
    if (bits == 0) {
        uint32_t group = word / 64;
        uint64_t words = on.filled[group] & ((uint64_t{1} << word % 64) - 1);
        while (words == 0 && group > 0) words = on.filled[--group];
        if (words == 0) return false;
        word = group * 64 + static_cast<uint32_t>(std::bit_width(words)) - 1;
        bits = on.ends[word];
    }
    on.ends[word] ^= uint64_t{1} << (std::bit_width(bits) - 1);
    if (on.ends[word] == 0) on.filled[word / 64] &= ~(uint64_t{1} << word % 64);
    on.ends[end / 64] |= uint64_t{1} << end % 64;
    on.filled[end / 4096] |= uint64_t{1} << end / 64 % 64;
    return true;
}

// The ends become 0, 1, ... in their order. A bound becomes the number of ends before it.
void optimum_counter::tell_anew(timeline &on) {
    std::vector<uint32_t> before(on.ends.size() + 1, 0);
    for (size_t word = 0; word < on.ends.size(); ++word)
        before[word + 1] = before[word] + static_cast<uint32_t>(std::popcount(on.ends[word]));
    const uint32_t servers = on.slots - width_, now = on.now;
    for (uint32_t &bound : on.bounds) {
        if (bound == never) continue;
        if (bound > now) {  // used in the last step
            bound = servers + (bound - now);
            continue;
        }
        const uint64_t below = on.ends[bound / 64] & ((uint64_t{1} << bound % 64) - 1);
        bound = before[bound / 64] + static_cast<uint32_t>(std::popcount(below));
    }
    std::ranges::fill(on.ends, 0);
    std::ranges::fill(on.filled, 0);
    for (uint32_t server = 0; server < servers; ++server) {
        on.ends[server / 64] |= uint64_t{1} << server % 64;
        on.filled[server / 4096] |= uint64_t{1} << server / 64 % 64;
    }
    on.now = servers;
}

// Everything that the step does not use goes. The first of its own experts stay: there is nothing
// to choose.
void optimum_counter::small_step(timeline &on, const uint32_t *pages) {
    std::vector<uint32_t> kept, missing;
    for (uint32_t i = 0; i < width_; ++i) {
        const bool there = std::ranges::find(on.held, pages[i]) != on.held.end();
        (there ? kept : missing).push_back(pages[i]);
    }
    misses_ += missing.size();
    missing.resize(std::min<size_t>(missing.size(), on.slots - kept.size()));
    kept.insert(kept.end(), missing.begin(), missing.end());
    on.held = std::move(kept);
}

}  // namespace moorage::core
