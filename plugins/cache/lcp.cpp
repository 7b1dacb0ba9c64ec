// lcp.cpp - least cache priority: evicts the smallest activation count, decayed by the interval.
//
// Source: MoEpic, section 3.3, Eq. (4): priority mu * rho^(nu / omega). mu is the number of
// activations of the expert since the start. nu is the number of tokens of its layer since the last
// activation. Hits are judged on the content before the token. Then mu and nu change, then victims
// are evicted: lowest priority first, ties by smallest page. A batch counts as its tokens one after
// the other. Requests that are handed out one by one belong to their token: its later ones find nu
// = 0.
//
// A layer's priorities decay alike, so only activations change their order (lcp_priority.h). A heap
// per layer holds it. Keys only grow, so the heap may keep an old key, a lower bound, until it
// comes to the top. In a shared cache the layers' tops are compared: a layer that was served has
// decayed by one token more. Ties are found exactly, without floating point. Cost per call:
// O(experts of the step); a victim amortised O(log experts), plus O(layers) if the cache is shared.

#include <moorage/moorage.hpp>
#include <moorage/order.hpp>

#include <algorithm>
#include <string_view>
#include <vector>

#include "lcp_priority.h"

namespace {

class lcp_cache {
public:
    static constexpr moorage::about about{
        .name = "lcp",
        .summary = "evicts the expert of least activation count, decayed since its last use",
        .source = "MoEpic, section 3.3, Eq. (4)",
        .flags = MOORAGE_POLICY_RANDOMISED,
    };
    static constexpr moorage::param params[] = {
        moorage::integer("omega", 128, 1, 1 << 30,
                         "observation window in tokens (Eq. 4): the priority falls to rho of what "
                         "it was"),
        moorage::real("rho", 0.25, 0.0001, 0.999999,
                      "decay of the priority over omega tokens without activation (Eq. 4)"),
        moorage::text("fill", "priority", "priority|random|none",
                      "first content and content after a new budget: highest priority first, "
                      "random as long as nothing was activated (section 3.4); always random; none"),
    };

    explicit lcp_cache(const moorage::setup &setup)
        : host_(setup.host),
          priority_(static_cast<uint64_t>(setup.integer("omega")), setup.real("rho")),
          fills_(setup.text("fill") != "none"),
          fills_by_priority_(setup.text("fill") == "priority") {}

    void activate(const moorage::limits &limits) {
        layers_ = limits.layers;
        experts_ = limits.experts;
        top_k_ = limits.top_k;
        shared_ = limits.pools == 1;
        state_ = host_.residency()->host_state;
        const uint32_t pages = layers_ * experts_;
        uses_.resize(pages);
        keys_.resize(pages);
        clocks_.resize(layers_);
        heaps_.assign(pages, layers_);
        set_aside_.reserve(pages);
        reset();
    }

    void reset() {
        uses_.assign(uses_.size(), {0, 0});
        keys_.assign(keys_.size(), lcp::never_activated);
        clocks_.assign(clocks_.size(), {0, moorage::never, 0});
        heaps_.clear();
    }

    void observe(const moorage::step &step) {
        clock &layer_clock = clocks_[step.layer];
        for (uint32_t i = 0; i < step.token_count; ++i) {
            if (step.top_k >= top_k_ || layer_clock.token != step.token + i) ++layer_clock.tokens;
            layer_clock.token = step.token + i;
            for (const uint32_t expert : step.chosen(i)) {
                use &use = uses_[step.page(expert)];
                use = {use.count + 1, layer_clock.tokens};
            }
        }
        layer_clock.decay = priority_.decay(layer_clock.tokens);
        for (const uint32_t expert : step.distinct()) {
            const uint32_t page = step.page(expert);
            keys_[page] = priority_.key(uses_[page].count, uses_[page].last);
        }
    }

    // A prefetched page keeps its priority.
    void on_load(uint32_t page, uint32_t, int32_t) {
        if (!heaps_.contains(page)) heaps_.push(page / experts_, {{keys_[page], page}, page});
    }
    void on_evict(uint32_t page, int32_t) {
        if (heaps_.contains(page)) heaps_.erase(page / experts_, page);
    }

    void victims(const moorage::room &room, moorage::pages &victims) {
        set_aside_.clear();
        for (;;) {
            const uint32_t page = shared_ ? lowest_page() : top(room.pool);
            if (page == moorage::none) break;
            if (moorage::evictable(state_[page])) victims.push(page);
            if (victims.full()) break;
            heaps_.erase(page / experts_, page);
            set_aside_.push_back(page);
        }
        for (const uint32_t page : set_aside_)
            heaps_.push(page / experts_, {{keys_[page], page}, page});
    }

    void fill(const moorage::room &room, moorage::pages &pages) {
        if (!fills_) return;
        const uint32_t first = shared_ ? 0 : room.pool * experts_;
        const uint32_t end = shared_ ? layers_ * experts_ : first + experts_;
        std::vector<uint32_t> absent;
        bool activated = false;
        for (uint32_t page = first; page < end; ++page) {
            activated = activated || uses_[page].count > 0;
            if (state_[page] == 0) absent.push_back(page);
        }
        if (fills_by_priority_ && activated)
            std::sort(absent.begin(), absent.end(), [this](uint32_t a, uint32_t b) {
                return lcp::better(priority_of(a), a, priority_of(b), b);
            });
        else
            for (uint32_t i = 0; i + 1 < absent.size(); ++i)
                std::swap(absent[i],
                          absent[i + host_.random_below(static_cast<uint32_t>(absent.size()) - i)]);
        for (size_t i = 0; i < absent.size() && !pages.full(); ++i) pages.push(absent[i]);
    }

private:
    struct use {
        uint64_t count;  // mu
        uint64_t last;   // clock of its layer at the last activation
    };
    struct clock {
        uint64_t tokens;  // of this layer so far
        uint64_t token;   // the last of them
        lcp::wide decay;  // what priorities have lost since the start
    };
    struct order {
        lcp::wide key;
        uint32_t page;
        bool operator<(const order &right) const {
            return lcp::goes_before(key, page, right.key, right.page);
        }
    };

    // Logarithm of the current priority.
    lcp::wide priority_of(uint32_t page) const {
        const lcp::wide key = keys_[page];
        return key == lcp::never_activated ? key : key - clocks_[page / experts_].decay;
    }
    // The layer's cached page of lowest priority, pinned or not.
    uint32_t top(uint32_t layer) {
        if (heaps_.size(layer) == 0) return moorage::none;
        for (;;) {
            const auto &first = heaps_.top(layer);
            if (first.key.key == keys_[first.page]) return first.page;
            heaps_.raise(layer, {{keys_[first.page], first.page}, first.page});
        }
    }
    uint32_t lowest_page() {
        uint32_t best = moorage::none;
        lcp::wide least = 0;
        for (uint32_t layer = 0; layer < layers_; ++layer) {
            const uint32_t page = top(layer);
            if (page == moorage::none) continue;
            const lcp::wide priority = priority_of(page);
            if (best != moorage::none && !lcp::goes_before(priority, page, least, best)) continue;
            best = page;
            least = priority;
        }
        return best;
    }

    moorage::host host_;
    lcp::priority priority_;
    const bool fills_, fills_by_priority_;
    const uint32_t *state_ = nullptr;
    uint32_t layers_ = 0, experts_ = 0, top_k_ = 1;
    bool shared_ = true;
    std::vector<use> uses_;             // [pages]
    std::vector<lcp::wide> keys_;       // [pages]
    std::vector<clock> clocks_;         // [layers]
    moorage::page_heaps<order> heaps_;  // per layer, pages that hold a slot
    std::vector<uint32_t> set_aside_;   // pages taken off the heaps during a call
};

}  // namespace

MOORAGE_POLICIES("org.moorage.lcp", "1.0.0", lcp_cache)
