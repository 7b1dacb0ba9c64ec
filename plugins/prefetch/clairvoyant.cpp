// clairvoyant.cpp - fetches future requests: the value of a perfect prediction.
//
// This is a yardstick, not a method. It needs the future of the trace, like the cache policy
// belady, whose slots it fills. Whenever the link would be idle, it orders one expert into a slot
// of the cache. It chooses among the absent experts that a load begun now would reach in time
// (link_pace.hpp), and takes the one that is requested first. That is greedy, so a better use of
// the same knowledge may be faster. configs/papers/beyond has a bound that nothing exceeds. Cost
// per call: a look-up of the future for every absent expert.

#include <moorage/moorage.hpp>

#include <stdexcept>

#include "link_pace.hpp"

namespace {

class clairvoyant {
public:
    static constexpr moorage::about about{
        .name = "clairvoyant",
        .summary = "fetches what will be asked for next and can still arrive (needs the future)",
        .source = "own: a bound for prefetch policies",
        .needs = MOORAGE_NEEDS_FUTURE,
    };
    static constexpr moorage::param params[] = {
        moorage::integer("waiting", 2, 1, 16, "loads that are under way or wait for the link"),
    };

    explicit clairvoyant(const moorage::setup &setup)
        : host_(setup.host), waiting_(static_cast<size_t>(setup.integer("waiting"))) {
        if (!host_.has_future())
            throw std::invalid_argument(
                "clairvoyant: the host offers no future of the trace; use it in an emulation");
    }

    void activate(const moorage::limits &limits) {
        pages_ = limits.layers * limits.experts;
        state_ = host_.residency()->host_state;
        costs_ = host_.costs();
        link_.activate(waiting_, state_);
        reset();
    }
    void reset() { link_.reset(); }
    uint32_t horizon() { return costs_ ? 1 : 0; }

    void plan(const moorage::step &step, const moorage::forecast &forecast,
              moorage::orders &orders) {
        link_.begin(host_.now_ns(), forecast.backlog_ns, forecast.window_ns);
        while (link_.idles() && !orders.full()) {
            const uint64_t first = step.index + link_.first_in_time(costs_->load_ns);
            const uint32_t page = wanted_from(first, step.index);
            if (page == moorage::none) return;
            orders.push(page, MOORAGE_WHOLE, MOORAGE_PLACE_SLOT);
            link_.order(page, costs_->load_ns);
        }
    }

private:
    uint32_t wanted_from(uint64_t first, uint64_t now) const {
        uint32_t found = moorage::none;
        uint64_t soonest = moorage::never;
        for (uint32_t page = 0; page < pages_; ++page) {
            if (state_[page] != 0 || link_.ordered(page)) continue;
            const uint64_t next = host_.next_use(page, now);
            if (next < first || next >= soonest) continue;
            soonest = next, found = page;
        }
        return found;
    }

    moorage::host host_;
    const size_t waiting_;
    uint32_t pages_ = 0;
    const uint32_t *state_ = nullptr;
    const moorage::costs *costs_ = nullptr;
    link_pace link_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.clairvoyant", "1.0.0", clairvoyant)
