// optimum.cpp - assigns intervals between uses to servers.
#include "core/cache/optimum.h"

#include <algorithm>
#include <bit>

#include "core/base/invariant.h"

namespace moorage::core {

namespace {

constexpr uint32_t span_requests = 1u << 15;  // told apart before time is told anew
constexpr uint32_t never = 0;                 // the bound of a page that was not used yet

}  // namespace

optimum_counter::optimum_counter(uint32_t layers, uint32_t experts,
                                 std::span<const uint32_t> pool_slots, uint32_t width)
    : experts_(experts), width_(width), shared_(pool_slots.size() == 1), pools_(pool_slots.size()) {
    MOORAGE_INVARIANT(width >= 1 && width <= experts && (shared_ || pool_slots.size() == layers));
    for (size_t i = 0; i < pool_slots.size(); ++i) {
        timeline &pool = pools_[i];
        pool.slots = pool_slots[i];
        pool.bounds.assign(shared_ ? size_t{layers} * experts : experts, never);
        if (pool.slots < width) continue;
        const uint32_t servers = pool.slots - width;
        pool.ends.assign((size_t{servers} + span_requests + 3 * width) / 64 + 1, 0);
        pool.filled.assign(pool.ends.size() / 64 + 1, 0);
        // All of them are free from the beginning; time begins after that.
        for (uint32_t server = 0; server < servers; ++server) {
            pool.ends[server / 64] |= uint64_t{1} << server % 64;
            pool.filled[server / 4096] |= uint64_t{1} << server / 64 % 64;
        }
        pool.now = servers;
    }
}

void optimum_counter::step(uint32_t layer, const uint32_t *experts) {
    timeline &pool = pools_[shared_ ? 0 : layer];
    const uint32_t base = shared_ ? layer * experts_ : 0;
    if (pool.slots < width_) {
        step_pages_.assign(experts, experts + width_);
        for (uint32_t &page : step_pages_) page += base;
        return step_small_pool(pool, step_pages_.data());
    }
    // A step's marks stay below the end, even if the step names an expert twice. That can happen if
    // a file changes while it is read.
    if (pool.now + 2 * width_ >= pool.ends.size() * 64) renumber_times(pool);
    const uint32_t now = pool.now;
    for (uint32_t i = 0; i < width_; ++i) {
        uint32_t &bound = pool.bounds[base + experts[i]];
        // From one step to the next nothing lies between. Otherwise take a server that was busy
        // until the step after the last use: that step's own requests need no server.
        const bool stays = bound == now + width_;
        if (!stays && (bound == never || !take_server(pool, bound, now + i))) ++misses_;
        bound = now + 2 * width_;
    }
    pool.now += width_;
}

// Moves the last bit below `bound` to `end`. False: there is none.
bool optimum_counter::take_server(timeline &pool, uint32_t bound, uint32_t end) {
    uint32_t word = bound / 64;
    uint64_t bits = pool.ends[word] & ((uint64_t{1} << bound % 64) - 1);
    if (bits == 0) {
        uint32_t group = word / 64;
        uint64_t words = pool.filled[group] & ((uint64_t{1} << word % 64) - 1);
        while (words == 0 && group > 0) words = pool.filled[--group];
        if (words == 0) return false;
        word = group * 64 + static_cast<uint32_t>(std::bit_width(words)) - 1;
        bits = pool.ends[word];
    }
    pool.ends[word] ^= uint64_t{1} << (std::bit_width(bits) - 1);
    if (pool.ends[word] == 0) pool.filled[word / 64] &= ~(uint64_t{1} << word % 64);
    pool.ends[end / 64] |= uint64_t{1} << end % 64;
    pool.filled[end / 4096] |= uint64_t{1} << end / 64 % 64;
    return true;
}

// The ends become 0, 1, ... in their order. A bound becomes the number of ends before it.
void optimum_counter::renumber_times(timeline &pool) {
    std::vector<uint32_t> ends_before(pool.ends.size() + 1, 0);
    for (size_t word = 0; word < pool.ends.size(); ++word)
        ends_before[word + 1] =
            ends_before[word] + static_cast<uint32_t>(std::popcount(pool.ends[word]));
    const uint32_t servers = pool.slots - width_, now = pool.now;
    for (uint32_t &bound : pool.bounds) {
        if (bound == never) continue;
        if (bound > now) {  // used in the last step
            bound = servers + (bound - now);
            continue;
        }
        const uint64_t below = pool.ends[bound / 64] & ((uint64_t{1} << bound % 64) - 1);
        bound = ends_before[bound / 64] + static_cast<uint32_t>(std::popcount(below));
    }
    std::ranges::fill(pool.ends, 0);
    std::ranges::fill(pool.filled, 0);
    for (uint32_t server = 0; server < servers; ++server) {
        pool.ends[server / 64] |= uint64_t{1} << server % 64;
        pool.filled[server / 4096] |= uint64_t{1} << server / 64 % 64;
    }
    pool.now = servers;
}

// Everything that the step does not use goes. The first of its own experts stay: there is nothing
// to choose.
void optimum_counter::step_small_pool(timeline &pool, const uint32_t *pages) {
    std::vector<uint32_t> kept, missing;
    for (uint32_t i = 0; i < width_; ++i) {
        const bool hit = std::ranges::find(pool.content, pages[i]) != pool.content.end();
        (hit ? kept : missing).push_back(pages[i]);
    }
    misses_ += missing.size();
    missing.resize(std::min<size_t>(missing.size(), pool.slots - kept.size()));
    kept.insert(kept.end(), missing.begin(), missing.end());
    pool.content = std::move(kept);
}

}  // namespace moorage::core
