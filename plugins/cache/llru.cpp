// llru.cpp - layered LRU: evicts the page unused for most rounds; then the furthest layer.
//
// Source: Cache Management for MoE LLMs, Definition 2. At visit t, a page last requested at visit
// tau has the round index R = floor((t - tau) / L) and the distance D to the next visit of its
// layer. The largest R is evicted, then the largest D, then the older request. For a page of the
// layer being served, the formula (tau - t) mod L gives D = 0. "Until the layer comes up again"
// gives D = L. The paper's Figure 3 shows D = L, and it is the default here.
//
// tau is a visit of the page's own layer, so within a layer the order is LRU. Pages of layers up to
// the current one were served last in this round, those of later layers in the round before. With s
// = tau - layer (a multiple of L), the least s + (layer > current ? L : 0) is the largest R. Going
// down from the current layer, then from the last, goes down in D. Cost per call: O(experts of the
// step); a victim at most O(layers), plus the skipped pinned pages.

#include <moorage/order.hpp>
#include <moorage/moorage.hpp>

#include <limits>
#include <string_view>
#include <vector>

namespace {

class llru {
public:
    static constexpr moorage::about about{
        .name = "llru",
        .summary = "evicts the expert unused for most rounds, of those the one needed last",
        .source = "Cache Management for MoE LLMs, Definition 2",
    };
    static constexpr moorage::param params[] = {
        moorage::text(
            "distance", "layers", "layers|literal",
            "distance of an expert of the layer being served: all layers, or literally 0"),
    };

    explicit llru(const moorage::setup &setup)
        : host_(setup.host), literal_(setup.text("distance") == "literal") {}

    void activate(const moorage::limits &limits) {
        layers_ = limits.layers;
        experts_ = limits.experts;
        shared_ = limits.pools == 1;
        state_ = host_.residency()->host_state;
        lists_.assign(layers_ * experts_, layers_);
        starts_.resize(layers_ * experts_);
        oldest_.resize(layers_);
        reset();
    }

    void reset() {
        lists_.clear();
        for (uint32_t layer = 0; layer < layers_; ++layer) refresh(layer);
        starts_.assign(starts_.size(), 0);
        start_ = 0;
        layer_ = 0;
    }

    // Experts that are not resident are listed too, because their loads follow and keep this order.
    void observe(const moorage::step &step) {
        layer_ = step.layer;
        start_ = static_cast<int64_t>(step.visit) - layer_;
        for (const uint32_t expert : step.distinct()) {
            const uint32_t page = step.page(expert);
            starts_[page] = start_;
            lists_.append(page, layer_);
        }
        refresh(layer_);
    }

    // A prefetched page counts as used at the last visit of its layer.
    void on_load(uint32_t page, uint32_t, int32_t cause) {
        if (cause == MOORAGE_DEMAND && lists_.contains(page)) return;
        const uint32_t layer = page / experts_;
        starts_[page] = layer <= layer_ ? start_ : start_ - layers_;
        lists_.append(page, layer);
        refresh(layer);
    }

    void on_evict(uint32_t page, int32_t) {
        lists_.unlink(page);
        refresh(page / experts_);
    }

    // The oldest page of each layer is its candidate. If it was taken or cannot be evicted, the
    // next page of its layer stands in until the call ends.
    void victims(const moorage::room &room, moorage::pages &victims) {
        bool moved = false;
        for (;;) {
            const uint32_t layer = shared_ ? find_layer() : room.pool;
            const uint32_t page = oldest_[layer].page;
            if (page == lists_.end(layer)) break;
            if (moorage::evictable(state_[page])) victims.push(page);
            if (victims.full()) break;
            consider(layer, lists_.next(page));
            moved = true;
            if (moorage::departed(state_[page])) lists_.unlink(page);  // was never loaded
        }
        if (!moved) return;
        if (!shared_)
            refresh(room.pool);
        else
            for (uint32_t layer = 0; layer < layers_; ++layer) refresh(layer);
    }

private:
    static constexpr int64_t nowhere = std::numeric_limits<int64_t>::max() / 2;
    struct candidate {
        int64_t start;
        uint32_t page;
    };
    void refresh(uint32_t layer) { consider(layer, lists_.first(layer)); }
    void consider(uint32_t layer, uint32_t page) {
        const bool none = page == lists_.end(layer);
        oldest_[layer] = {none ? nowhere : starts_[page], page};
    }
    // The layer whose candidate is evicted first; any layer if there is no candidate.
    uint32_t find_layer() const {
        uint32_t best = layer_;
        int64_t least = literal_ ? nowhere : oldest_[layer_].start;
        for (uint32_t layer = layer_; layer-- > 0;)
            if (oldest_[layer].start < least) least = oldest_[best = layer].start;
        least -= layers_;
        for (uint32_t layer = layers_; --layer > layer_;)
            if (oldest_[layer].start < least) least = oldest_[best = layer].start;
        if (literal_ && oldest_[layer_].start < least + layers_) best = layer_;
        return best;
    }

    moorage::host host_;
    const bool literal_;
    const uint32_t *state_ = nullptr;
    uint32_t layers_ = 0, experts_ = 0, layer_ = 0;
    bool shared_ = true;
    int64_t start_ = 0;              // visit at which the running round began
    moorage::page_lists lists_;      // per layer, least recently used first
    std::vector<int64_t> starts_;    // [pages] visit at which the round of its last request began
    std::vector<candidate> oldest_;  // [layers]
};

}  // namespace

MOORAGE_POLICIES("org.moorage.llru", "1.0.0", llru)
