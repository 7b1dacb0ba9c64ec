// lfu.cpp - least frequently used, with counts that may halve over time.
//
// Source: textbook baseline, which is half_life = 0 (the papers' LFU). A half-life of 16 to 32
// tokens is a strong and cheap choice for experts, and 16 is the default. A request at token t adds
// 2^(t / half_life) to the page's weight. This orders pages as if all counts were halved every
// half_life tokens, without touching them. half_life 0 adds 1. Ties: least recently used. Counts
// outlive eviction. With forget_on_evict they begin again at the request that loads. A step counts
// once per expert, however many of its tokens chose it.
//
// Weights only grow, so the heap of pages may keep an old weight, a lower bound, until it comes to
// the top. Cost per call: O(experts of the step); a victim amortised O(log slots).

#include <moorage/order.hpp>
#include <moorage/moorage.hpp>

#include <array>
#include <cmath>
#include <vector>

namespace {

class lfu {
public:
    static constexpr moorage::about about{
        .name = "lfu",
        .summary = "evicts the expert used least of late, or in all",
        .source = "textbook baseline; half-life: exponentially decayed counts",
    };
    static constexpr moorage::param params[] = {
        moorage::real("half_life", 16, 0, 1e9, "tokens in which a count halves; 0: counts stay"),
        moorage::flag("forget_on_evict", false, "an evicted expert loses its count"),
    };

    explicit lfu(const moorage::setup &setup)
        : host_(setup.host),
          half_life_(setup.real("half_life")),
          forget_(setup.flag("forget_on_evict")) {
        // Square roots round alike on every machine; exp2 may not.
        double root = 2;
        for (double &power : powers_) power = root = std::sqrt(root);
    }

    void activate(const moorage::limits &limits) {
        experts_ = limits.experts;
        state_ = host_.residency()->host_state;
        const uint32_t pages = limits.layers * limits.experts;
        uses_.resize(pages);
        heaps_.assign(pages, limits.pools);
        pools_ = limits.pools;
        set_aside_.reserve(pages);
        reset();
    }

    void reset() {
        uses_.assign(uses_.size(), {0, 0});
        heaps_.clear();
        clock_ = 0;
        token_ = 0;
        scale_ = 0;
        request_weight_ = 1;
    }

    void observe(const moorage::step &step) {
        if (half_life_ > 0 && step.token != token_) advance(step.token);
        for (const uint32_t expert : step.distinct()) {
            const uint32_t page = step.page(expert);
            use &use = uses_[page];
            const double old_weight = forget_ && !heaps_.contains(page) ? 0 : use.weight;
            use = {old_weight + request_weight_, ++clock_};
        }
    }

    // A prefetched page keeps its count and counts as used now.
    void on_load(uint32_t page, uint32_t, int32_t cause) {
        if (heaps_.contains(page)) return;
        if (cause != MOORAGE_DEMAND) uses_[page].clock = ++clock_;
        heaps_.push(pool_of(page), {uses_[page], page});
    }

    void on_evict(uint32_t page, int32_t) {
        if (heaps_.contains(page)) heaps_.erase(pool_of(page), page);
        if (forget_) uses_[page].weight = 0;
    }

    void victims(const moorage::room &room, moorage::pages &victims) {
        set_aside_.clear();
        while (heaps_.size(room.pool) > 0) {
            const uint32_t page = heaps_.top(room.pool).page;
            if (heaps_.top(room.pool).key < uses_[page]) {
                heaps_.raise(room.pool, {uses_[page], page});
                continue;
            }
            if (moorage::evictable(state_[page])) victims.push(page);
            if (victims.full()) break;
            heaps_.erase(room.pool, page);
            set_aside_.push_back(page);
        }
        for (const uint32_t page : set_aside_) heaps_.push(room.pool, {uses_[page], page});
    }

private:
    struct use {
        double weight;   // count, or decayed count times 2^(token / half_life - scale)
        uint64_t clock;  // order of the last request
        bool operator<(const use &right) const {
            return weight != right.weight ? weight < right.weight : clock < right.clock;
        }
    };
    uint32_t pool_of(uint32_t page) const { return pools_ == 1 ? 0 : page / experts_; }

    // The weight of a request of this token. Whole half-lives become the exponent. It stays small,
    // because all weights are scaled down together. The rest is a product of powers 2^(1/2),
    // 2^(1/4), ...
    void advance(uint64_t token) {
        token_ = token;
        const double now = static_cast<double>(token), rest = std::fmod(now, half_life_);
        const double whole = std::round((now - rest) / half_life_);
        double fraction = rest / half_life_, factor = 1;
        for (const double power : powers_) {
            fraction *= 2;
            if (fraction < 1) continue;
            fraction -= 1;
            factor *= power;
        }
        if (whole - scale_ > exponent_max) rescale(whole);
        request_weight_ = std::ldexp(factor, static_cast<int>(whole - scale_));
    }

    // A weight below the range of a double has been unused for a thousand half-lives.
    void rescale(double scale) {
        const int shift = static_cast<int>(std::fmin(scale - scale_, 4096));
        for (use &use : uses_) use.weight = std::ldexp(use.weight, -shift);
        heaps_.rebuild([this](uint32_t page) { return uses_[page]; });
        scale_ = scale;
    }

    static constexpr double exponent_max = 500;

    moorage::host host_;
    const double half_life_;
    const bool forget_;
    const uint32_t *state_ = nullptr;
    uint32_t experts_ = 0, pools_ = 1;
    std::array<double, 52> powers_;    // 2^(1/2), 2^(1/4), ...
    std::vector<use> uses_;            // [pages]
    moorage::page_heaps<use> heaps_;   // per pool, pages that hold a slot
    std::vector<uint32_t> set_aside_;  // pages taken off the heap during a call
    uint64_t clock_ = 0, token_ = 0;
    double scale_ = 0;  // whole half-lives taken out of all weights
    double request_weight_ = 1;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.lfu", "1.0.0", lfu)
