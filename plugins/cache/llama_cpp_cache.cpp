// llama_cpp_cache.cpp - least recently used within classes of decayed frequency, over all layers.
//
// Source: the expert cache of llama.cpp (pull request 29887, --moe-cache-mib). As first merged, it
// is one LRU over all layers of a device (`classes` 1). Hits of a step are touched first, then its
// misses in the order of their number. Batches beyond 32 tokens read the cache and do not fill it.
// The later version evicts from the least of eight classes of frequency, and within a class the
// least recently used. The frequency halves every 128 tokens. The bounds of the classes are not
// documented. Here they are powers of two: class 0 is below one request, class c begins at 2^(c -
// 1), the last class has no upper bound. All counts are halved together, at each multiple of
// `half_life` tokens, so they stay integers (in 256ths). Cost per call: O(experts of the step); a
// victim amortised O(log slots); a halving O(pages).

#include <moorage/order.hpp>
#include <moorage/moorage.hpp>

#include <algorithm>
#include <bit>
#include <vector>

namespace {

class llama_cpp_cache {
public:
    static constexpr moorage::about about{
        .name = "llama_cpp_cache",
        .summary = "evicts the least recently used of the least frequent class",
        .source = "llama.cpp, pull request 29887",
    };
    static constexpr moorage::param params[] = {
        moorage::integer("classes", 8, 1, 32, "classes of frequency; 1: plain LRU"),
        moorage::integer("half_life", 128, 1, 1'000'000'000, "tokens in which a count halves"),
        moorage::integer("batch_max", 32, 1, 1'000'000'000,
                         "steps of more tokens do not change the cache"),
    };

    explicit llama_cpp_cache(const moorage::setup &setup)
        : host_(setup.host),
          classes_(static_cast<uint32_t>(setup.integer("classes"))),
          half_life_(static_cast<uint64_t>(setup.integer("half_life"))),
          batch_max_(static_cast<uint64_t>(setup.integer("batch_max"))) {}

    void activate(const moorage::limits &limits) {
        experts_ = limits.experts;
        pools_ = limits.pools;
        state_ = host_.residency()->host_state;
        const uint32_t pages = limits.layers * limits.experts;
        uses_.resize(pages);
        heaps_.assign(pages, pools_);
        set_aside_.reserve(pages);
        absent_.reserve(experts_);
        reset();
    }

    void reset() {
        std::fill(uses_.begin(), uses_.end(), use{0, 0});
        heaps_.clear();
        clock_ = 0;
        halvings_ = 0;
        reads_only_ = false;
    }

    void observe(const moorage::step &step) {
        reads_only_ = step.token_count > batch_max_;
        if (reads_only_) return;
        halve(step.token / half_life_);
        absent_.clear();
        for (const uint32_t expert : step.distinct())
            if (heaps_.contains(step.page(expert)))
                touch(step.page(expert));
            else
                absent_.push_back(step.page(expert));
        std::sort(absent_.begin(), absent_.end());
        for (const uint32_t page : absent_) touch(page);
    }

    bool admit(const moorage::admission &request) const {
        return !reads_only_ || request.cause != MOORAGE_DEMAND;
    }

    // A prefetched page keeps its count and counts as used now.
    void on_load(uint32_t page, uint32_t, int32_t cause) {
        if (heaps_.contains(page)) return;
        if (cause != MOORAGE_DEMAND) uses_[page].clock = ++clock_;
        heaps_.push(pool_of(page), {key_of(page), page});
    }

    void on_evict(uint32_t page, int32_t) {
        if (heaps_.contains(page)) heaps_.erase(pool_of(page), page);
    }

    // Keys in the heap may be old and so too low: later uses only raised them.
    void victims(const moorage::room &room, moorage::pages &victims) {
        set_aside_.clear();
        while (heaps_.size(room.pool) > 0) {
            const uint32_t page = heaps_.top(room.pool).page;
            const key now = key_of(page);
            if (heaps_.top(room.pool).key < now) {
                heaps_.raise(room.pool, {now, page});
                continue;
            }
            if (moorage::evictable(state_[page])) victims.push(page);
            if (victims.full()) break;
            heaps_.erase(room.pool, page);
            set_aside_.push_back(page);
        }
        for (const uint32_t page : set_aside_) heaps_.push(room.pool, {key_of(page), page});
    }

private:
    static constexpr uint32_t fraction_bits = 8;
    struct use {
        uint64_t count;  // in 256ths of a request
        uint64_t clock;  // order of the last request
    };
    struct key {
        uint32_t level;
        uint64_t clock;
        bool operator<(const key &right) const {
            return level != right.level ? level < right.level : clock < right.clock;
        }
    };

    key key_of(uint32_t page) const {
        const auto level =
            static_cast<uint32_t>(std::bit_width(uses_[page].count >> fraction_bits));
        return {std::min(level, classes_ - 1), uses_[page].clock};
    }
    void touch(uint32_t page) {
        uses_[page].count += uint64_t{1} << fraction_bits;
        uses_[page].clock = ++clock_;
    }
    void halve(uint64_t halvings) {
        if (halvings == halvings_) return;
        const uint64_t times = std::min<uint64_t>(halvings - halvings_, 63);
        for (use &use : uses_) use.count >>= times;
        halvings_ = halvings;
        heaps_.rebuild([this](uint32_t page) { return key_of(page); });
    }
    uint32_t pool_of(uint32_t page) const { return pools_ == 1 ? 0 : page / experts_; }

    moorage::host host_;
    const uint32_t classes_;
    const uint64_t half_life_, batch_max_;
    const uint32_t *state_ = nullptr;
    uint32_t experts_ = 0, pools_ = 1;
    bool reads_only_ = false;         // the running step is too large to fill the cache
    std::vector<use> uses_;           // [pages]
    moorage::page_heaps<key> heaps_;  // per pool, pages that hold a slot
    std::vector<uint32_t> set_aside_, absent_;
    uint64_t clock_ = 0, halvings_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.llama_cpp_cache", "1.0.0", llama_cpp_cache)
