// adapmoe.cpp - slots per layer for the fewest loads on demand, by dynamic programming.
//
// Source: AdapMoE (Zhong et al., ICCAD 2024, arXiv 2408.10284), dynamic cache allocation. The cost
// of a layer with C slots is the expected number of experts that a token loads on demand. These are
// the experts that are not cached, less those that the prefetch brought. The prefetch is right with
// the layer's own accuracy a. With m missing experts and p prefetched in time, this is E[m] - a
// E[min(m, p)]. The paper has p = 1, and shares of m under uniform routing. Here both expectations
// are measured, for every C at once. An LRU cache of C slots misses exactly the requests with a
// stack distance above C. The stack distance is the number of distinct experts of the layer
// requested since the expert's last request, itself included. As in the paper, a layer has at least
// one slot, and all slots are given.
//
// The accuracy is the share of the first p predicted experts that are then chosen. Without
// predictions it is 0. Before any step the slots are divided evenly. Sums are integers, because all
// layers have the same number of visits between two tokens. Cost per call: observe O(experts of the
// step x experts of a layer) at worst; plan O(layers x slots x experts).

#include <moorage/moorage.hpp>

#include <algorithm>
#include <limits>
#include <vector>

namespace {

class adapmoe {
public:
    static constexpr moorage::about about{
        .name = "adapmoe",
        .summary = "divides the slots so that the fewest loads on demand are expected",
        .source = "AdapMoE (arXiv 2408.10284), dynamic cache allocation",
        .needs = MOORAGE_NEEDS_PER_LAYER,
    };
    static constexpr moorage::param params[] = {
        moorage::integer("interval", 1000, 0, 1'000'000'000,
                         "tokens between two plans; 0: only before the run, which divides evenly"),
        moorage::integer("prefetched", 1, 0, 4096,
                         "predicted experts that are taken to arrive in time (paper: 1)"),
    };

    explicit adapmoe(const moorage::setup &setup)
        : host_(setup.host),
          interval_(static_cast<uint64_t>(setup.integer("interval"))),
          prefetched_(static_cast<uint32_t>(setup.integer("prefetched"))) {}

    void activate(const moorage::limits &limits) {
        layers_ = limits.layers;
        experts_ = limits.experts;
        recent_.resize(size_t{layers_} * experts_);
        known_.resize(layers_);
        missed_.resize(size_t{layers_} * (experts_ + 2));
        covered_.resize(missed_.size());
        correct_.resize(layers_);
        distances_.reserve(experts_);
        chosen_.resize(experts_);
        reset();
    }

    void reset() {
        std::fill(known_.begin(), known_.end(), 0);
        std::fill(missed_.begin(), missed_.end(), 0);
        std::fill(covered_.begin(), covered_.end(), 0);
        std::fill(correct_.begin(), correct_.end(), 0);
        std::fill(chosen_.begin(), chosen_.end(), 0);
        visits_ = 0;
    }

    uint64_t interval() { return interval_; }

    void observe(const moorage::step &step) {
        visits_ += step.layer == 0;
        for (const uint32_t expert : step.distinct()) chosen_[expert] = 1;
        count_correct(step);
        measure(step);
        for (const uint32_t expert : step.distinct()) chosen_[expert] = 0;
    }

    bool plan(const moorage::budget_request &request, moorage::budget_plan &plan) {
        const uint32_t slots =
            std::min(static_cast<uint32_t>(request.slots / double{request.host_split[0]} + 1e-4),
                     request.layers * request.experts);
        if (visits_ == 0)
            divide_evenly(slots, plan.host_slots);
        else
            choose(slots, plan.host_slots);
        int64_t gain = 0;
        bool changes = false;
        for (uint32_t layer = 0; layer < layers_; ++layer) {
            gain += cost(layer, std::min(request.host_slots[layer], experts_)) -
                    cost(layer, plan.host_slots[layer]);
            changes |= plan.host_slots[layer] != request.host_slots[layer];
        }
        const moorage_costs *costs = host_.costs();
        if (costs && visits_ > 0) {
            const auto visits = static_cast<double>(visits_);
            plan.gain_ns = static_cast<double>(gain) / (visits * visits * scale()) *
                           static_cast<double>(costs->load_ns);
        }
        return changes;
    }

private:
    int64_t scale() const { return std::max(prefetched_, 1u); }

    void count_correct(const moorage::step &step) {
        const std::span<const uint32_t> predicted = step.predicted();
        const size_t depth = std::min<size_t>(prefetched_, predicted.size());
        for (size_t i = 0; i < depth; ++i) correct_[step.layer] += chosen_[predicted[i]];
    }

    // Takes the stack distances of the step's experts, all against the state before the step. Then
    // they become the most recent; the first of the step is the oldest of them.
    void measure(const moorage::step &step) {
        uint32_t *recent = recent_.data() + size_t{step.layer} * experts_;
        uint32_t &known = known_[step.layer];
        const size_t row = size_t{step.layer} * (experts_ + 2);
        distances_.clear();
        uint32_t kept = 0;
        for (uint32_t i = 0; i < known; ++i) {
            if (chosen_[recent[i]])
                distances_.push_back(known - i);
            else
                recent[kept++] = recent[i];
        }
        const uint32_t cold = step.distinct_count - static_cast<uint32_t>(distances_.size());
        missed_[row + experts_ + 1] += cold;
        covered_[row + experts_ + 1] += std::min(cold, prefetched_);
        uint32_t left = prefetched_ - std::min(cold, prefetched_);
        for (const uint32_t distance : distances_) {  // the largest distance first
            ++missed_[row + distance];
            covered_[row + distance] += left > 0;
            left -= left > 0;
        }
        for (const uint32_t expert : step.distinct()) recent[kept++] = expert;
        known = kept;
    }

    // Loads on demand of all visits so far, times visits and scale().
    int64_t cost(uint32_t layer, uint32_t slots) const {
        const size_t row = size_t{layer} * (experts_ + 2);
        int64_t missed = 0, covered = 0;
        for (uint32_t distance = slots + 1; distance <= experts_ + 1; ++distance) {
            missed += missed_[row + distance];
            covered += covered_[row + distance];
        }
        return missed * visits_ * scale() - correct_[layer] * covered;
    }

    void divide_evenly(uint32_t slots, uint32_t *host_slots) const {
        for (uint32_t layer = 0; layer < layers_; ++layer)
            host_slots[layer] = slots / layers_ + (layer < slots % layers_ ? 1 : 0);
    }

    // best[c]: least cost of the layers so far with exactly c slots. Among equal plans it takes the
    // one that gives a later layer less.
    void choose(uint32_t slots, uint32_t *host_slots) const {
        constexpr int64_t never = std::numeric_limits<int64_t>::max();
        const uint32_t least = slots >= layers_ ? 1 : 0;
        const size_t width = size_t{slots} + 1;
        std::vector<int64_t> best(width, never), next(width), costs(experts_ + 1);
        std::vector<uint16_t> best_slots(layers_ * width, 0);
        best[0] = 0;
        for (uint32_t layer = 0; layer < layers_; ++layer) {
            for (uint32_t layer_slots = 0; layer_slots <= experts_; ++layer_slots)
                costs[layer_slots] = cost(layer, layer_slots);
            std::fill(next.begin(), next.end(), never);
            uint16_t *layer_best = best_slots.data() + layer * width;
            for (uint32_t layer_slots = least; layer_slots <= std::min(experts_, slots);
                 ++layer_slots)
                for (uint32_t rest = 0; rest + layer_slots <= slots; ++rest) {
                    if (best[rest] == never) continue;
                    const int64_t sum = best[rest] + costs[layer_slots];
                    if (sum >= next[rest + layer_slots]) continue;
                    next[rest + layer_slots] = sum;
                    layer_best[rest + layer_slots] = static_cast<uint16_t>(layer_slots);
                }
            best.swap(next);
        }
        for (uint32_t layer = layers_; layer-- > 0;) {
            host_slots[layer] = best_slots[layer * width + slots];
            slots -= host_slots[layer];
        }
    }

    moorage::host host_;
    const uint64_t interval_;
    const uint32_t prefetched_;
    uint32_t layers_ = 0, experts_ = 0;
    int64_t visits_ = 0;                     // of each layer
    std::vector<uint32_t> recent_;           // [layers, experts] requested ones, the oldest first
    std::vector<uint32_t> known_;            // [layers] number of these
    std::vector<int64_t> missed_, covered_;  // [layers, distance]; the last: never requested
    std::vector<int64_t> correct_;           // [layers] predicted and chosen
    std::vector<uint32_t> distances_;
    std::vector<uint8_t> chosen_;  // [experts] in the running step
};

}  // namespace

MOORAGE_POLICIES("org.moorage.adapmoe", "1.0.0", adapmoe)
