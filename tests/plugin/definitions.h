// definitions.h - the cache policies by their definitions, over vectors: slow and plain.
//
// Nothing here is shared with the plugins. Every victim is found by a look at all candidates.
#pragma once

#include <cstdint>
#include <numeric>
#include <set>

#include "harness.h"

namespace moorage::test {

// The first `count` candidates in an order that stays fixed during a call.
template <class GoesFirst>
std::vector<uint32_t> first_of(std::vector<uint32_t> candidates, uint32_t count,
                               GoesFirst goes_first) {
    std::stable_sort(candidates.begin(), candidates.end(), goes_first);
    candidates.resize(std::min<size_t>(count, candidates.size()));
    return candidates;
}

// Order of last use; a load that no request asked for counts as a use.
class use_order {
public:
    explicit use_order(const cache_shape &shape) : experts(shape.experts), last(shape.pages(), 0) {}
    void request(const request_step &step, bool best_last = false) {
        auto stamped = step.experts;
        if (best_last) std::reverse(stamped.begin(), stamped.end());
        for (const uint32_t expert : stamped) last[step.layer * experts + expert] = ++now;
    }
    void load(uint32_t page, int32_t cause) {
        if (cause != MOORAGE_DEMAND) last[page] = ++now;
    }
    uint32_t experts;
    std::vector<uint64_t> last;
    uint64_t now = 0;
};

class lru_definition final : public policy_model {
public:
    explicit lru_definition(const cache_shape &shape, bool best_last = false)
        : uses_(shape), best_last_(best_last) {}
    void observe(const request_step &step) override { uses_.request(step, best_last_); }
    void load(uint32_t page, int32_t cause) override { uses_.load(page, cause); }
    std::vector<uint32_t> victims(const moorage_room &room,
                                  const std::vector<uint32_t> &candidates) override {
        return first_of(candidates, room.count,
                        [&](uint32_t a, uint32_t b) { return uses_.last[a] < uses_.last[b]; });
    }

private:
    use_order uses_;
    const bool best_last_;
};

class fifo_definition final : public policy_model {
public:
    explicit fifo_definition(const cache_shape &shape) : loaded_(shape.pages()) {}
    void load(uint32_t page, int32_t) override { loaded_[page] = ++now_; }
    std::vector<uint32_t> victims(const moorage_room &room,
                                  const std::vector<uint32_t> &candidates) override {
        return first_of(candidates, room.count,
                        [&](uint32_t a, uint32_t b) { return loaded_[a] < loaded_[b]; });
    }

private:
    std::vector<uint64_t> loaded_;
    uint64_t now_ = 0;
};

// Counts are lists of tokens, weighed anew at every victim. Sums that should tie come from equal
// lists.
class lfu_definition final : public policy_model {
public:
    lfu_definition(const cache_model &model, double half_life, bool forget)
        : model_(model),
          uses_(model.shape),
          half_life_(half_life),
          forget_(forget),
          tokens_(model.shape.pages()) {}
    void observe(const request_step &step) override {
        token_ = step.token;
        uses_.request(step);
        for (const uint32_t expert : step.experts) {
            const uint32_t page = step.layer * uses_.experts + expert;
            if (forget_ && (model_.state[page] & MOORAGE_WHOLE) == 0) tokens_[page].clear();
            tokens_[page].push_back(step.token);
        }
    }
    void load(uint32_t page, int32_t cause) override { uses_.load(page, cause); }
    void evict(uint32_t page, int32_t) override {
        if (forget_) tokens_[page].clear();
    }
    std::vector<uint32_t> victims(const moorage_room &room,
                                  const std::vector<uint32_t> &candidates) override {
        return first_of(candidates, room.count, [&](uint32_t a, uint32_t b) {
            const long double left = weight(a), right = weight(b);
            return left != right ? left < right : uses_.last[a] < uses_.last[b];
        });
    }

private:
    long double weight(uint32_t page) const {
        if (half_life_ == 0) return static_cast<long double>(tokens_[page].size());
        long double sum = 0;
        for (const uint64_t token : tokens_[page])
            sum += std::exp2(-static_cast<long double>(token_ - token) / half_life_);
        return sum;
    }
    const cache_model &model_;
    use_order uses_;
    const double half_life_;
    const bool forget_;
    uint64_t token_ = 0;
    std::vector<std::vector<uint64_t>> tokens_;
};

// Definition 2 of the paper. L is the distance of the layer that is served now.
class llru_definition final : public policy_model {
public:
    llru_definition(const cache_shape &shape, bool literal)
        : layers_(shape.layers), uses_(shape), literal_(literal), visits_(shape.pages()) {}
    void observe(const request_step &step) override {
        now_ = static_cast<int64_t>(step.visit);
        uses_.request(step);
        for (const uint32_t expert : step.experts)
            visits_[step.layer * uses_.experts + expert] = now_;
    }
    // A load that was not requested counts as one at the last visit of its layer.
    void load(uint32_t page, int32_t cause) override {
        uses_.load(page, cause);
        if (cause == MOORAGE_DEMAND) return;
        int64_t visit = now_;
        while ((visit + layers_) % layers_ != page / uses_.experts) --visit;
        visits_[page] = visit;
    }
    std::vector<uint32_t> victims(const moorage_room &room,
                                  const std::vector<uint32_t> &candidates) override {
        return first_of(candidates, room.count, [&](uint32_t a, uint32_t b) {
            if (round_index(a) != round_index(b)) return round_index(a) > round_index(b);
            if (distance(a) != distance(b)) return distance(a) > distance(b);
            return uses_.last[a] < uses_.last[b];
        });
    }

private:
    int64_t round_index(uint32_t page) const { return (now_ - visits_[page]) / layers_; }
    int64_t distance(uint32_t page) const {
        const int64_t rest = layers_ - (now_ - visits_[page]) % layers_;  // 1 .. layers
        return literal_ && rest == layers_ ? 0 : rest;
    }
    const int64_t layers_;
    use_order uses_;
    const bool literal_;
    std::vector<int64_t> visits_;
    int64_t now_ = 0;
};

// A hand over an order of pages, for sieve and clock. It takes the first page without a bit, and
// clears bits.
class hand_definition : public policy_model {
public:
    explicit hand_definition(const cache_model &model)
        : model_(model), pools_(model.shape.pools()), bits_(model.shape.pages()) {}
    void observe(const request_step &step) override {
        for (const uint32_t expert : step.experts) {
            const uint32_t page = step.layer * model_.shape.experts + expert;
            if (model_.state[page] & MOORAGE_WHOLE) bits_[page] = true;
        }
    }
    std::vector<uint32_t> victims(const moorage_room &room,
                                  const std::vector<uint32_t> &candidates) override {
        pool &ring = pools_[room.pool];
        std::set<uint32_t> left(candidates.begin(), candidates.end());
        std::vector<uint32_t> going;
        while (going.size() < std::min<size_t>(room.count, candidates.size())) {
            if (ring.hand == ring.order.size()) ring.hand = 0;
            const uint32_t page = ring.order[ring.hand++];
            if (!left.contains(page)) continue;  // pinned, or taken by this call already
            if (!bits_[page]) {
                left.erase(page);
                going.push_back(page);
            }
            bits_[page] = false;
        }
        return going;
    }

protected:
    struct pool {
        std::vector<uint32_t> order;
        size_t hand = 0;  // index of the page it looks at next
    };
    pool &pool_of(uint32_t page) { return pools_[model_.pool_of(page / model_.shape.experts)]; }
    const cache_model &model_;
    std::vector<pool> pools_;
    std::vector<bool> bits_;
};

// New pages go to the young end. After the youngest the hand begins again at the old end.
class sieve_definition final : public hand_definition {
public:
    using hand_definition::hand_definition;
    void load(uint32_t page, int32_t) override {
        pool &ring = pool_of(page);
        if (ring.hand == ring.order.size()) ring.hand = 0;
        ring.order.push_back(page);
        bits_[page] = false;
    }
    void evict(uint32_t page, int32_t) override {
        pool &ring = pool_of(page);
        const auto entry = std::find(ring.order.begin(), ring.order.end(), page);
        if (entry - ring.order.begin() < static_cast<std::ptrdiff_t>(ring.hand)) --ring.hand;
        ring.order.erase(entry);
    }
};

// Frames: a new page takes the place of the evicted one.
class clock_definition final : public hand_definition {
public:
    using hand_definition::hand_definition;
    void load(uint32_t page, int32_t) override {
        pool &ring = pool_of(page);
        const auto hole = std::find(ring.order.begin(), ring.order.end(), MOORAGE_NONE);
        if (ring.hand == ring.order.size()) ring.hand = 0;
        if (hole != ring.order.end())
            *hole = page;
        else
            ring.order.push_back(page);
        bits_[page] = false;
    }
    void evict(uint32_t page, int32_t) override {
        pool &ring = pool_of(page);
        *std::find(ring.order.begin(), ring.order.end(), page) = MOORAGE_NONE;
    }
};

// Searches the coming steps.
class belady_definition final : public policy_model {
public:
    belady_definition(const cache_shape &shape, const std::vector<request_step> &steps,
                      uint64_t lookahead)
        : uses_(shape), steps_(steps), lookahead_(lookahead) {}
    void observe(const request_step &step) override {
        now_ = step.index;
        uses_.request(step);
    }
    void load(uint32_t page, int32_t cause) override { uses_.load(page, cause); }
    std::vector<uint32_t> victims(const moorage_room &room,
                                  const std::vector<uint32_t> &candidates) override {
        std::map<uint32_t, uint64_t> next;
        for (const uint32_t page : candidates) next[page] = next_request(page);
        return first_of(candidates, room.count, [&](uint32_t a, uint32_t b) {
            if (next[a] != next[b]) return next[a] > next[b];
            return next[a] == unknown && uses_.last[a] < uses_.last[b];
        });
    }

private:
    static constexpr uint64_t unknown = UINT64_MAX;
    uint64_t next_request(uint32_t page) const {
        for (uint64_t i = now_ + 1; i < steps_.size(); ++i) {
            if (lookahead_ && steps_[i].token > steps_[now_].token + lookahead_) return unknown;
            for (const uint32_t expert : steps_[i].experts)
                if (steps_[i].layer * uses_.experts + expert == page) return i;
        }
        return lookahead_ ? unknown : never;
    }
    static constexpr uint64_t never = UINT64_MAX - 1;  // ties by page, not by use
    use_order uses_;
    const std::vector<request_step> &steps_;
    const uint64_t lookahead_;
    uint64_t now_ = 0;
};

}  // namespace moorage::test
