// moepic_statistics.h - hit rates of every cache size, and the value of every predicted rank.
//
// H(C), P(y) and PH(y, C) of MoEpic, section 3.4.2, for each layer, as counts over its tokens. "The
// cache of size C" has two readings (MOE-3). `sim` is a cold lcp cache of C slots that has served
// all tokens so far. `rank` is the C experts of highest priority. Both are nested: the cache of
// size C is that of size C - 1 and one more expert. So each layer is one list of experts, and the
// first C are the cache of size C. This holds for `sim` for two reasons. Priorities do not depend
// on the cache. A token's own experts may not be evicted and come first in every cache, so a
// smaller cache keeps a subset. An expert at place p hits in all caches larger than p. So one count
// of places serves all sizes.
// Cost: O(experts) a token and layer at worst; no allocation after assign.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "../cache/lcp_priority.h"

namespace moepic {

class statistics {
public:
    statistics(uint64_t omega, double rho, bool by_rank)
        : priority_(omega, rho), by_rank_(by_rank) {}

    void assign(uint32_t layers, uint32_t experts, uint32_t top_k) {
        layers_ = layers;
        experts_ = experts;
        const size_t pages = size_t{layers} * experts;
        tokens_.resize(layers);
        depths_.resize(layers);
        uses_.resize(pages);
        keys_.resize(pages);
        order_.resize(pages);
        places_.resize(pages);
        hits_.resize(pages);
        activated_.resize(pages);
        present_.resize(pages * experts);
        marks_.resize(experts);
        head_.resize(std::max(top_k, 1u));
        pool_.resize(std::max(top_k, 1u) + 1);
        clear();
    }

    void clear() {
        std::fill(tokens_.begin(), tokens_.end(), 0);
        std::fill(uses_.begin(), uses_.end(), 0);
        std::fill(keys_.begin(), keys_.end(), lcp::never_activated);
        std::fill(hits_.begin(), hits_.end(), 0);
        std::fill(activated_.begin(), activated_.end(), 0);
        std::fill(present_.begin(), present_.end(), 0);
        std::fill(marks_.begin(), marks_.end(), 0);
        mark_ = 0;
        // By rank, all experts are listed from the start. Equal priority: the smallest id.
        std::fill(depths_.begin(), depths_.end(), by_rank_ ? experts_ : 0);
        for (size_t page = 0; page < order_.size(); ++page)
            order_[page] = places_[page] = by_rank_ ? static_cast<uint32_t>(page % experts_) : none;
    }

    // Counts one token at a layer: the experts that it chose, best first, and the predicted ones.
    // Requires: at most top_k chosen, all different.
    void count(uint32_t layer, std::span<const uint32_t> chosen,
               std::span<const uint32_t> predicted) {
        const size_t first = size_t{layer} * experts_;
        const uint32_t *places = places_.data() + first;
        ++mark_;
        for (const uint32_t expert : chosen) {
            marks_[expert] = mark_;
            if (places[expert] != none) ++hits_[first + places[expert]];
        }
        const size_t ranks = std::min<size_t>(predicted.size(), experts_);
        for (size_t rank = 0; rank < ranks; ++rank) {
            const uint32_t expert = predicted[rank];
            activated_[first + rank] += marks_[expert] == mark_ ? 1 : 0;
            if (places[expert] != none) ++present_[(first + rank) * experts_ + places[expert]];
        }
        const uint64_t now = ++tokens_[layer];
        for (const uint32_t expert : chosen)
            keys_[first + expert] = priority_.key(++uses_[first + expert], now);
        if (by_rank_)
            rise(layer, chosen);
        else
            serve(layer, chosen);
    }

    uint32_t layers() const { return layers_; }
    uint32_t experts() const { return experts_; }
    uint64_t tokens(uint32_t layer) const { return tokens_[layer]; }
    // Activations of the layer that found their expert at this place.
    uint32_t hits(uint32_t layer, uint32_t place) const {
        return hits_[size_t{layer} * experts_ + place];
    }
    // Tokens that activated the expert of this predicted rank.
    uint32_t activated(uint32_t layer, uint32_t rank) const {
        return activated_[size_t{layer} * experts_ + rank];
    }
    // Tokens whose expert of this predicted rank was at this place.
    uint32_t present(uint32_t layer, uint32_t rank, uint32_t place) const {
        return present_[(size_t{layer} * experts_ + rank) * experts_ + place];
    }

private:
    static constexpr uint32_t none = UINT32_MAX;

    // One token passes through the layer's caches of all sizes, which are one list of experts (see
    // the top). The new list overwrites the old one in place. The first `old` entries are saved in
    // head_ before that.
    void serve(uint32_t layer, std::span<const uint32_t> chosen) {
        const size_t first = size_t{layer} * experts_;
        uint32_t *list = order_.data() + first, *places = places_.data() + first;
        const lcp::wide *keys = keys_.data() + first;
        const auto width = static_cast<uint32_t>(chosen.size());
        const uint32_t depth = depths_[layer], old = std::min(width, depth);
        std::copy_n(list, old, head_.begin());

        // Caches of up to `width` slots end with the token's experts alone: the hits, then the
        // missed ones in the order of the list until the slots are used up.
        ++mark_;
        uint32_t missed = 0;
        for (uint32_t i = 0; i < width; ++i) {
            uint32_t expert = i < old ? head_[i] : none;
            if (expert == none || marks_[expert] != mark_ - 1) {  // not one of this token's, or
                                                                  // already there
                while (marks_[chosen[missed]] == mark_) ++missed;
                expert = chosen[missed];
            }
            marks_[expert] = mark_;
            list[i] = expert;
            places[expert] = i;
        }
        // Each larger cache keeps that one of its other experts that is evicted last: the expert
        // that the smaller cache had to give up, or the expert at this place. If none is left to
        // give up, all of the token's experts have been met, and the rest stays as it was.
        uint32_t pooled = 0;
        for (uint32_t i = 0; i < old; ++i)
            if (marks_[head_[i]] != mark_) pool(keys, pooled++, head_[i]);
        uint32_t place = width;
        for (; pooled > 0; ++place) {
            if (place < depth && marks_[list[place]] != mark_) pool(keys, pooled++, list[place]);
            const uint32_t expert = pool_[--pooled];
            list[place] = expert;
            places[expert] = place;
        }
        depths_[layer] = std::max(depth, place);
    }
    // Puts an expert among the `count` in the pool. Those that are evicted first are in front.
    void pool(const lcp::wide *keys, uint32_t count, uint32_t expert) {
        while (count > 0 &&
               lcp::goes_before(keys[expert], expert, keys[pool_[count - 1]], pool_[count - 1])) {
            pool_[count] = pool_[count - 1];
            --count;
        }
        pool_[count] = expert;
    }

    // The chosen experts, whose priority grew, move up in the list, the uppermost first.
    void rise(uint32_t layer, std::span<const uint32_t> chosen) {
        const size_t first = size_t{layer} * experts_;
        uint32_t *list = order_.data() + first, *places = places_.data() + first;
        const lcp::wide *keys = keys_.data() + first;
        std::copy(chosen.begin(), chosen.end(), head_.begin());
        const auto end = head_.begin() + static_cast<std::ptrdiff_t>(chosen.size());
        std::sort(head_.begin(), end,
                  [places](uint32_t a, uint32_t b) { return places[a] < places[b]; });
        for (auto next = head_.begin(); next != end; ++next) {
            uint32_t place = places[*next];
            for (; place > 0 &&
                   lcp::better(keys[*next], *next, keys[list[place - 1]], list[place - 1]);
                 --place) {
                list[place] = list[place - 1];
                places[list[place]] = place;
            }
            list[place] = *next;
            places[*next] = place;
        }
    }

    lcp::priority priority_;
    const bool by_rank_;
    uint32_t layers_ = 0, experts_ = 0;
    std::vector<uint64_t> tokens_;          // [layers]
    std::vector<uint32_t> depths_;          // [layers] experts in the list
    std::vector<uint64_t> uses_;            // [layers, experts] activations
    std::vector<lcp::wide> keys_;           // [layers, experts]
    std::vector<uint32_t> order_, places_;  // [layers, experts] the list; place of each expert
    std::vector<uint32_t> hits_;            // [layers, place]
    std::vector<uint32_t> activated_;       // [layers, rank]
    std::vector<uint32_t> present_;         // [layers, rank, place]
    std::vector<uint64_t> marks_;           // [experts] last token or list in which it was seen
    uint64_t mark_ = 0;
    std::vector<uint32_t> head_, pool_;  // for the running step
};

}  // namespace moepic
