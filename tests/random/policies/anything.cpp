// anything.cpp - policies that do anything a policy may do, at random. A cache declines, holds and
// gives up. A router drops and exchanges experts. A prefetch orders any page to any place. A
// dispatch names any device that has an item. Their decisions make no sense, but none of them is
// wrong advice. So any error is the host's.
//
// Draws come from the host's random service, so a run is repeated by its seed.

#include <moorage/moorage.hpp>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace {

// One in `odds`.
bool chance(moorage::host &host, uint32_t odds) { return host.random_below(odds) == 0; }

class anything_cache {
public:
    static constexpr moorage::about about{.name = "anything_cache",
                                          .summary = "declines, holds, evicts and gives up",
                                          .flags = MOORAGE_POLICY_RANDOMISED};

    explicit anything_cache(const moorage::setup &setup) : host_(setup.host) {}
    void activate(const moorage::limits &limits) {
        state_ = host_.residency()->host_state;
        pages_ = limits.layers * limits.experts;
        pages_per_pool_ = pages_ / limits.pools;
        reset();
    }
    void reset() { salt_ = 0; }
    void observe(const moorage::step &) { salt_ = host_.random_below(1u << 20); }
    bool admit(const moorage::admission &) { return !chance(host_, 4); }
    // A fifth of the pages, others after each step: asked twice in a step, the answer is the same.
    bool hold(uint32_t page) { return (page * 2654435761u ^ salt_ * 40503u) % 5 == 0; }
    void victims(const moorage::room &room, moorage::pages &victims) {
        for_each_evictable(room, [&](uint32_t page) {
            if (!hold(page)) victims.push(page);
        });
    }
    void give_up(const moorage::room &room, moorage::pages &pages) {
        if (!chance(host_, 3)) return;
        for_each_evictable(room, [&](uint32_t page) {
            if (chance(host_, 4)) pages.push(page);
        });
    }
    void fill(const moorage::room &room, moorage::pages &pages) {
        for (uint32_t i = 0; i < pages_per_pool_; ++i) {
            const uint32_t page = room.pool * pages_per_pool_ + i;
            if (!moorage::resident(state_[page]) && chance(host_, 2)) pages.push(page);
        }
    }

private:
    // From a drawn page of the pool on, all round.
    template <class Work>
    void for_each_evictable(const moorage::room &room, const Work &work) {
        const uint32_t first = host_.random_below(pages_per_pool_);
        for (uint32_t i = 0; i < pages_per_pool_; ++i) {
            const uint32_t page = room.pool * pages_per_pool_ + (first + i) % pages_per_pool_;
            if (moorage::evictable(state_[page])) work(page);
        }
    }

    moorage::host host_;
    const uint32_t *state_ = nullptr;
    uint32_t pages_ = 0, pages_per_pool_ = 1, salt_ = 0;
};

class anything_router {
public:
    static constexpr moorage::about about{.name = "anything_router",
                                          .summary = "drops experts and exchanges them",
                                          .flags = MOORAGE_POLICY_LOSSY | MOORAGE_POLICY_RANDOMISED,
                                          .needs = MOORAGE_NEEDS_WEIGHTS};

    explicit anything_router(const moorage::setup &setup) : host_(setup.host) {}
    void activate(const moorage::limits &) {}
    void reset() {}
    uint32_t select(const moorage::step &step, moorage::route &route) {
        if (chance(host_, 5)) return 0;
        const uint32_t k = step.top_k;
        std::copy_n(step.host_chosen, size_t{step.token_count} * k, route.host_experts);
        if (chance(host_, 2)) route.flags |= MOORAGE_ROUTE_RENORMALISE;
        for (uint32_t token = 0; token < step.token_count; ++token) {
            exchange({route.host_experts + size_t{token} * k, k}, step.experts,
                     route.host_classes + size_t{token} * k);
            for (uint32_t rank = k - host_.random_below(k); rank < k; ++rank)
                if (chance(host_, 2)) route.host_classes[token * k + rank] = MOORAGE_CLASS_DROPPED;
        }
        return step.token_count;
    }

private:
    void exchange(std::span<uint32_t> experts, uint32_t count, uint8_t *classes) {
        const uint32_t substitute = host_.random_below(count);
        if (!chance(host_, 3) || std::ranges::find(experts, substitute) != experts.end()) return;
        const uint32_t rank = host_.random_below(static_cast<uint32_t>(experts.size()));
        experts[rank] = substitute;
        classes[rank] = MOORAGE_CLASS_SUBSTITUTE;
    }

    moorage::host host_;
};

class anything_prefetch {
public:
    static constexpr moorage::about about{
        .name = "anything_prefetch",
        .summary = "orders any page to any place",
        .flags = MOORAGE_POLICY_RANDOMISED | MOORAGE_POLICY_SEGMENTS};

    explicit anything_prefetch(const moorage::setup &setup) : host_(setup.host) {}
    void activate(const moorage::limits &limits) {
        state_ = host_.residency()->host_state;
        experts_ = limits.experts;
        pages_ = limits.layers * limits.experts;
        horizon_ = 1 + host_.random_below(limits.layers);
    }
    void reset() {}
    uint32_t horizon() { return horizon_; }
    uint32_t predict(const moorage::step &, uint32_t, uint32_t, std::span<uint32_t> experts,
                     std::span<float> scores) {
        if (chance(host_, 2)) return 0;
        const auto count = std::min(static_cast<uint32_t>(experts.size()), experts_);
        std::iota(experts.begin(), experts.begin() + count, 0u);
        for (uint32_t i = 0; i < count; ++i) {
            std::swap(experts[i], experts[i + host_.random_below(count - i)]);
            scores[i] = 1.0f / static_cast<float>(1 + i);
        }
        return 1 + host_.random_below(count);
    }
    void plan(const moorage::step &, const moorage::forecast &forecast, moorage::orders &orders) {
        for (uint32_t left = host_.random_below(2 * experts_); left > 0 && !orders.full(); --left) {
            const bool ahead = forecast.target_count != 0 && !chance(host_, 4);
            const uint32_t layer =
                ahead ? forecast.host_layers[host_.random_below(forecast.target_count)]
                      : host_.random_below(pages_ / experts_);
            const uint32_t page = layer * experts_ + host_.random_below(experts_);
            const uint8_t missing = moorage::missing(state_[page]);
            const auto place = static_cast<uint8_t>(host_.random_below(MOORAGE_PLACE_HOST + 1));
            if (missing != 0) orders.push(page, missing, place);
        }
        if (chance(host_, 10)) orders.complete();
    }

private:
    moorage::host host_;
    const uint32_t *state_ = nullptr;
    uint32_t experts_ = 1, pages_ = 1, horizon_ = 1;
};

class anything_dispatch {
public:
    static constexpr moorage::about about{.name = "anything_dispatch",
                                          .summary = "computes anywhere, in any order",
                                          .flags = MOORAGE_POLICY_RANDOMISED};

    explicit anything_dispatch(const moorage::setup &setup) : host_(setup.host) {}
    void activate(const moorage::limits &) {}
    void reset() {}
    uint32_t assign(const moorage::step &, const moorage::items &items,
                    std::span<uint32_t> item_devices, std::span<uint32_t> order) {
        if (chance(host_, 5)) return 0;
        for (uint32_t i = 0; i < items.count; ++i) {
            item_devices[i] = place_of(items, i);
            std::swap(order[i], order[i + host_.random_below(items.count - i)]);
        }
        return items.count;
    }

private:
    uint32_t place_of(const moorage::items &items, uint32_t item) {
        const bool loadable =
            items.host_missing[item] == 0 || items.host_load_ns[item] != MOORAGE_NEVER;
        const uint32_t first = items.host_remote_first ? items.host_remote_first[item] : 0;
        const uint32_t offers =
            items.host_remote_first ? items.host_remote_first[item + 1] - first : 0;
        if (offers != 0 && (!loadable || chance(host_, 2)))
            return items.host_remote_devices[first + host_.random_below(offers)];
        if (!chance(host_, 3)) return items.own(item);
        return items.cpu() | (chance(host_, 2) ? uint32_t{MOORAGE_AND_LOAD} : 0u);
    }

    moorage::host host_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.test.anything", "1.0.0", anything_cache, anything_router,
                 anything_prefetch, anything_dispatch)
