// hybrimoe.cpp - cache, prefetch and dispatch of HybriMoE, each usable alone.
//
// Source: HybriMoE (Zhong et al., DAC 2025, arXiv 2504.05897).
// - Cache, "minus recent score": a page has the priority S = alpha TopP(s) + (1 - alpha) S, renewed
//   whenever its layer is visited. TopP keeps the p largest scores of a token and counts the others
//   as 0. The least S is evicted (ties: smaller page). For several tokens the largest score counts.
//   If the scores of all experts are unknown, s is known from the weights of the chosen ones.
// - Dispatch, schedule within a layer: GPU, CPU and link work on one list of the step's experts.
//   The GPU takes cached experts from the heaviest load down. The link loads absent ones from the
//   heaviest down. The CPU computes absent ones from the lightest up. If no absent one is left, the
//   CPU takes cached ones, lightest first. The action that would end first is settled next, until
//   all are settled. While the cache has free slots, absent experts are loaded whatever the
//   schedule says (`fill`), because the authors begin with a cache that a warm-up has filled.
//   Experts that this host's memory lacks go to the nearest server, outside of the schedule.
// - Prefetch, driven by impact: the coming layers are scheduled like this in advance, with their
//   predicted experts at one token each. The first choice is the absent expert whose presence
//   shortens its layer most (ties: nearer layer, better prediction). This repeats until nothing
//   gains. The source predicts the next layer's experts. For layers further ahead, the pages of
//   highest priority S are taken.
// Cost per call: observe O(experts of a layer x tokens); a victim O(pages); assign O(items
// squared); a plan O(layers x k^3).

#include <moorage/moorage.hpp>

#include <algorithm>
#include <vector>

#include "../dispatch/remote.hpp"

namespace {

// The use that one expert of a layer makes of the three resources.
struct job {
    uint32_t item;
    uint32_t load;  // tokens
    bool absent;
    uint64_t load_ns, gpu_ns, cpu_ns;
};

// The greedy schedule within a layer.
class schedule {
public:
    void reserve(size_t jobs) {
        cached_.reserve(jobs);
        absent_.reserve(jobs);
    }
    void clear() {
        cached_.clear();
        absent_.clear();
    }
    void add(const job &job) { (job.absent ? absent_ : cached_).push_back(job); }

    // Calls settle(item, whether the CPU takes it) in the order of settling. Returns when all work
    // ends.
    template <class Settle>
    uint64_t run(uint64_t link_ns, Settle &&settle) {
        const auto heavier = [](const job &a, const job &b) {
            return a.load != b.load ? a.load > b.load : a.item < b.item;
        };
        std::sort(cached_.begin(), cached_.end(), heavier);
        std::sort(absent_.begin(), absent_.end(), heavier);
        size_t cached = 0, cached_end = cached_.size(), absent = 0, absent_end = absent_.size();
        uint64_t gpu_ns = 0, cpu_ns = 0, end_ns = 0;
        while (cached < cached_end || absent < absent_end) {
            const bool resident = cached < cached_end, missing = absent < absent_end;
            const job &light = missing ? absent_[absent_end - 1] : cached_[cached_end - 1];
            const uint64_t cpu_done_ns = cpu_ns + light.cpu_ns;
            const uint64_t device_done_ns =
                resident ? gpu_ns + cached_[cached].gpu_ns : MOORAGE_NEVER;
            const uint64_t arrival_ns = missing ? link_ns + absent_[absent].load_ns : 0;
            const uint64_t load_done_ns =
                missing ? std::max(gpu_ns, arrival_ns) + absent_[absent].gpu_ns : MOORAGE_NEVER;
            if (device_done_ns <= load_done_ns && device_done_ns <= cpu_done_ns) {
                settle(cached_[cached++].item, false);
                gpu_ns = device_done_ns;
            } else if (load_done_ns <= cpu_done_ns) {
                settle(absent_[absent++].item, false);
                link_ns = arrival_ns;
                gpu_ns = load_done_ns;
            } else {
                settle(light.item, true);
                cpu_ns = cpu_done_ns;
                end_ns = std::max(end_ns, cpu_ns);
                missing ? --absent_end : --cached_end;
            }
        }
        return std::max(end_ns, gpu_ns);
    }

private:
    std::vector<job> cached_, absent_;
};

class hybrimoe {
public:
    static constexpr moorage::about about{
        .name = "hybrimoe",
        .summary = "recent scores cache, simulated gain fetches, one schedule for GPU and CPU",
        .source = "HybriMoE (arXiv 2504.05897)",
        .needs = MOORAGE_NEEDS_WEIGHTS,
    };
    static constexpr moorage::param params[] = {
        moorage::real("alpha", 0.5, 0, 1, "share of the newest scores in a page's priority"),
        moorage::integer("top_p", 0, 0, 4096,
                         "largest scores of a token that count; 0: twice the model's top-k"),
        moorage::integer("layers", 3, 1, 64, "coming layers that are scheduled for the prefetch"),
        moorage::flag("fill", true, "load absent experts while the cache has free slots"),
    };

    explicit hybrimoe(const moorage::setup &setup)
        : host_(setup.host),
          alpha_(setup.real("alpha")),
          top_p_(static_cast<uint32_t>(setup.integer("top_p"))),
          fill_(setup.flag("fill")),
          layers_ahead_(static_cast<uint32_t>(setup.integer("layers"))) {}

    void activate(const moorage::limits &limits) {
        layers_ = limits.layers;
        experts_ = limits.experts;
        top_k_ = limits.top_k;
        pools_ = limits.pools;
        layers_ahead_ = std::min(layers_ahead_, layers_);
        depth_ = std::min(top_p_ ? top_p_ : 2 * top_k_, experts_);
        view_ = host_.residency();
        state_ = view_->host_state;
        priority_.resize(size_t{layers_} * experts_);
        newest_.resize(experts_);
        order_.resize(experts_);
        evictable_.reserve(priority_.size());
        layer_.reserve(experts_);
        targets_.resize(layers_ahead_);
        for (target &target : targets_)
            target.experts.reserve(top_k_), target.present.reserve(top_k_);
        reset();
    }
    void reset() { std::fill(priority_.begin(), priority_.end(), 0.0); }

    void observe(const moorage::step &step) {
        std::fill(newest_.begin(), newest_.end(), 0.0);
        for (uint32_t token = 0; token < step.token_count; ++token) {
            if (step.host_gate_scores)
                take_scores(step.gate_scores(token));
            else
                take_weights(step, token);
        }
        double *layer_priorities = priority_.data() + size_t{step.layer} * experts_;
        for (uint32_t expert = 0; expert < experts_; ++expert)
            layer_priorities[expert] =
                alpha_ * newest_[expert] + (1 - alpha_) * layer_priorities[expert];
    }

    void victims(const moorage::room &room, moorage::pages &victims) {
        const uint32_t first = pools_ == 1 ? 0 : room.pool * experts_;
        const uint32_t last = pools_ == 1 ? layers_ * experts_ : first + experts_;
        evictable_.clear();
        for (uint32_t page = first; page < last; ++page)
            if (moorage::evictable(state_[page])) evictable_.push_back(page);
        const size_t count = std::min<size_t>(room.count, evictable_.size());
        std::partial_sort(evictable_.begin(), evictable_.begin() + static_cast<ptrdiff_t>(count),
                          evictable_.end(), [this](uint32_t a, uint32_t b) {
                              return priority_[a] != priority_[b] ? priority_[a] < priority_[b]
                                                                  : a < b;
                          });
        for (size_t i = 0; i < count; ++i) victims.push(evictable_[i]);
    }

    uint32_t assign(const moorage::step &step, const moorage::items &items,
                    std::span<uint32_t> devices, std::span<uint32_t> order) {
        layer_.clear();
        uint32_t next = 0;
        for (uint32_t i = 0; i < items.count; ++i) {
            if (!remote::runs_here(items, i)) {
                devices[i] = remote::nearest_device(items, i);
                order[next++] = i;
                continue;
            }
            layer_.add({i, items.host_tokens[i], items.host_missing[i] != 0, items.host_load_ns[i],
                        items.host_gpu_ns[i], items.host_cpu_ns[i]});
        }
        layer_.run(items.load_backlog_ns, [&](uint32_t item, bool by_cpu) {
            devices[item] = by_cpu ? items.cpu() : items.own(item);
            order[next++] = item;
        });
        uint32_t free = fill_ ? moorage::free_slots(*view_, step.layer) : 0;
        for (uint32_t i = 0; i < items.count && free > 0; ++i) {
            if (items.host_missing[i] == 0 || !remote::runs_here(items, i)) continue;
            devices[i] = items.own(i);
            --free;
        }
        return items.count;
    }

    uint32_t horizon() { return layers_ahead_; }

    // Leaves the next layer's prediction to the source.
    uint32_t predict(const moorage::step &, uint32_t layer, uint32_t distance,
                     std::span<uint32_t> experts, std::span<float> scores) {
        if (distance == 1) return 0;
        const double *layer_priorities = priority_.data() + size_t{layer} * experts_;
        for (uint32_t expert = 0; expert < experts_; ++expert) order_[expert] = expert;
        const auto count = std::min(top_k_, static_cast<uint32_t>(experts.size()));
        std::partial_sort(order_.begin(), order_.begin() + count, order_.end(),
                          [&](uint32_t a, uint32_t b) {
                              return layer_priorities[a] != layer_priorities[b]
                                         ? layer_priorities[a] > layer_priorities[b]
                                         : a < b;
                          });
        uint32_t written = 0;
        for (; written < count && layer_priorities[order_[written]] > 0; ++written) {
            experts[written] = order_[written];
            scores[written] = static_cast<float>(layer_priorities[order_[written]]);
        }
        return written;
    }

    void plan(const moorage::step &, const moorage::forecast &forecast, moorage::orders &orders) {
        const moorage_costs *costs = host_.costs();
        if (!costs) return;
        const uint32_t count = std::min(forecast.target_count, layers_ahead_);
        for (uint32_t i = 0; i < count; ++i) prepare(targets_[i], forecast, i, *costs);
        for (uint32_t room = forecast.buffer_free; room > 0 && !orders.full(); --room) {
            target *best = nullptr;
            for (uint32_t i = 0; i < count; ++i)
                if (!best || targets_[i].gain_ns > best->gain_ns) best = &targets_[i];
            if (!best || best->gain_ns == 0) return;
            orders.push(best->layer * experts_ + best->experts[best->candidate]);
            best->present[best->candidate] = 1;
            weigh(*best, *costs);
        }
    }

private:
    // A coming layer: its expected requests, and the prefetch that would gain most.
    struct target {
        uint32_t layer = 0, candidate = 0;
        uint64_t gain_ns = 0;
        std::vector<uint32_t> experts;
        std::vector<uint8_t> present;
    };

    void take_scores(std::span<const float> scores) {
        for (uint32_t expert = 0; expert < experts_; ++expert) order_[expert] = expert;
        std::partial_sort(order_.begin(), order_.begin() + depth_, order_.end(),
                          [&](uint32_t a, uint32_t b) {
                              return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
                          });
        for (uint32_t i = 0; i < depth_; ++i) raise(order_[i], double{scores[order_[i]]});
    }
    void take_weights(const moorage::step &step, uint32_t token) {
        const std::span<const uint32_t> chosen = step.chosen(token);
        const uint32_t count = std::min(depth_, step.top_k);
        for (uint32_t i = 0; i < count; ++i) {
            const size_t entry = size_t{token} * step.top_k + i;
            raise(chosen[i],
                  step.host_weights ? double{step.host_weights[entry]} : 1.0 / step.top_k);
        }
    }
    void raise(uint32_t expert, double score) {
        newest_[expert] = std::max(newest_[expert], score);
    }

    void prepare(target &target, const moorage::forecast &forecast, uint32_t index,
                 const moorage_costs &costs) {
        target.layer = forecast.host_layers[index];
        target.experts.clear();
        target.present.clear();
        for (const uint32_t expert : forecast.experts(index)) {
            if (target.experts.size() == top_k_) break;
            const uint32_t state = state_[target.layer * experts_ + expert];
            const uint32_t slot_bits = MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT;
            target.experts.push_back(expert);
            target.present.push_back((state & slot_bits) != 0);
        }
        weigh(target, costs);
    }

    void weigh(target &target, const moorage_costs &costs) {
        target.gain_ns = 0;
        const uint64_t absent_ns = makespan_ns(target, costs);
        for (uint32_t i = 0; i < target.experts.size(); ++i) {
            if (target.present[i]) continue;
            target.present[i] = 1;
            const uint64_t present_ns = makespan_ns(target, costs);
            target.present[i] = 0;
            if (present_ns >= absent_ns || absent_ns - present_ns <= target.gain_ns) continue;
            target.gain_ns = absent_ns - present_ns;
            target.candidate = i;
        }
    }

    uint64_t makespan_ns(const target &target, const moorage_costs &costs) {
        layer_.clear();
        for (uint32_t i = 0; i < target.experts.size(); ++i)
            layer_.add({i, 1, !target.present[i], costs.load_ns, costs.gpu_expert_ns,
                        costs.cpu_expert_ns});
        return layer_.run(0, [](uint32_t, bool) {});
    }

    moorage::host host_;
    const double alpha_;
    const uint32_t top_p_;
    const bool fill_;
    uint32_t layers_ahead_, depth_ = 0;
    uint32_t layers_ = 0, experts_ = 0, top_k_ = 0, pools_ = 1;
    const moorage::residency *view_ = nullptr;
    const uint32_t *state_ = nullptr;
    std::vector<double> priority_;  // [pages] S
    std::vector<double> newest_;    // [experts] TopP in the running step
    std::vector<uint32_t> order_, evictable_;
    schedule layer_;
    std::vector<target> targets_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.hybrimoe", "1.0.0", hybrimoe)
