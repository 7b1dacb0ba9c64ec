// balance.cpp - loads the best-scored absent experts and computes the lowest on the CPU.
//
// Source: SMoE, Algorithm 2 and Equation 4, Section V-A. Absent experts are taken from both ends of
// a list sorted by score, so that both sides end at about the same time. The side that is behind
// gets the next expert: if T_load <= T_CPU, the best one left is loaded, else the CPU takes the
// lowest one left. T_load grows by C_load, T_CPU by C_CPU. As printed, equality loads. So a single
// absent expert is always loaded, however much faster the CPU is. `exact` replaces the rule by the
// optimum of Equation 4. Among all ways to load the n best-scored experts and compute the others,
// it takes the least max(n C_load, rest C_CPU). Ties go to the larger n, because loads also serve
// the cache.
//
// Neither rule looks at the cache. If the CPU ends before one load does, the optimum never loads
// anything, and an empty cache stays empty. With `fill`, at least as many of the best-scored
// experts are loaded as the layer's cache has free slots, as in `cost` and `hybrimoe`. The paper
// does not say how its cache becomes full.
//
// C_load and C_CPU are means over the last p measured transfers and the last p measured runs on the
// CPU (`window`). Before the first one, they are means over the prices of the step's absent
// experts. Sums are whole nanoseconds and means are compared as fractions, so nothing is rounded.
// Resident experts stay on the GPU. Experts that this host's memory lacks go to the nearest server,
// outside of the balance. Order: both of these, then loads by score, then the CPU's experts as it
// took them. Equal scores: the smaller expert first. Cost per call: O(n log n) of the absent
// experts.

#include <moorage/moorage.hpp>

#include <algorithm>
#include <vector>

#include "remote.hpp"

namespace {

__extension__ typedef unsigned __int128 wide;

// Mean of the last `window` durations, as a sum and a count.
class recent_durations {
public:
    void assign(uint32_t window) {
        ring_.resize(window);
        clear();
    }
    void clear() {
        sum_ = 0;
        count_ = next_ = 0;
    }
    void add(uint64_t ns) {
        ns = std::min(ns, longest_ns);
        if (count_ == ring_.size())
            sum_ -= ring_[next_];
        else
            ++count_;
        sum_ += ring_[next_] = ns;
        next_ = next_ + 1 == ring_.size() ? 0 : next_ + 1;
    }
    uint64_t sum() const { return sum_; }
    uint32_t count() const { return count_; }

    static constexpr uint64_t longest_ns = uint64_t{1} << 50;  // 13 days: sums stay in 64 bits

private:
    std::vector<uint64_t> ring_;
    uint64_t sum_ = 0;
    uint32_t count_ = 0, next_ = 0;
};

class balance {
public:
    static constexpr moorage::about about{
        .name = "balance",
        .summary =
            "loads the best-scored absent experts and computes the lowest on the CPU, evenly",
        .source = "SMoE, Algorithm 2, Section V-A, Equation 4",
        .needs = MOORAGE_NEEDS_WEIGHTS,
    };
    static constexpr moorage::param params[] = {
        moorage::integer(
            "window", 16, 1, 4096,
            "transfers, and runs on the CPU, whose mean times are used (the paper's p)"),
        moorage::flag("exact", false, "the optimum of Equation 4 instead of Algorithm 2"),
        moorage::flag("fill", false, "load absent experts while the cache has free slots"),
    };

    explicit balance(const moorage::setup &setup)
        : host_(setup.host),
          window_(static_cast<uint32_t>(setup.integer("window"))),
          exact_(setup.flag("exact")),
          fill_(setup.flag("fill")) {}

    void activate(const moorage::limits &limits) {
        view_ = host_.residency();
        absent_.reserve(limits.experts);
        loads_.assign(window_);
        runs_.assign(window_);
    }
    void reset() {
        loads_.clear();
        runs_.clear();
    }

    void outcome(const moorage::dispatched &done) {
        if (done.load_ns > 0 && done.device < cpu_device_) loads_.add(done.load_ns);
        if (done.run_ns > 0 && done.device == cpu_device_) runs_.add(done.run_ns);
    }

    uint32_t assign(const moorage::step &step, const moorage::items &items,
                    std::span<uint32_t> item_devices, std::span<uint32_t> order) {
        cpu_device_ = items.cpu();
        absent_.clear();
        uint32_t placed = 0;
        for (uint32_t i = 0; i < items.count; ++i) {
            const bool is_local = remote::runs_here(items, i);
            if (is_local && items.host_missing[i] != 0)
                absent_.push_back(i);
            else
                order[placed++] = i;
            item_devices[i] = is_local ? items.own(i) : remote::nearest_device(items, i);
        }
        if (absent_.empty()) return items.count;
        sort(items);
        const auto count = static_cast<uint32_t>(absent_.size());
        set_prices(items);
        const uint32_t free = fill_ ? moorage::free_slots(*view_, step.layer) : 0;
        const uint32_t loaded =
            std::max(exact_ ? best_split(count) : two_ends(count), std::min(free, count));
        for (uint32_t i = 0; i < loaded; ++i) order[placed++] = absent_[i];
        for (uint32_t i = count; i-- > loaded;) {
            order[placed++] = absent_[i];
            item_devices[absent_[i]] = items.cpu();
        }
        return items.count;
    }

private:
    void sort(const moorage::items &items) {
        if (!items.host_scores) return;  // no scores: the host already names the best first
        const auto score = [&](uint32_t i) {
            return items.host_scores[i] >= 0 ? items.host_scores[i] : 0.0f;  // not a number: 0
        };
        std::sort(absent_.begin(), absent_.end(), [&](uint32_t a, uint32_t b) {
            if (score(a) != score(b)) return score(a) > score(b);
            return items.host_experts[a] < items.host_experts[b];
        });
    }

    // Sets C_load and C_CPU, both times the product of their counts.
    void set_prices(const moorage::items &items) {
        uint64_t load_sum = loads_.sum(), cpu_sum = runs_.sum();
        uint32_t load_count = loads_.count(), cpu_count = runs_.count();
        if (load_count == 0) {
            for (const uint32_t i : absent_)
                load_sum += std::min(items.host_load_ns[i], recent_durations::longest_ns);
            load_count = static_cast<uint32_t>(absent_.size());
        }
        if (cpu_count == 0) {
            for (const uint32_t i : absent_)
                cpu_sum += std::min(items.host_cpu_ns[i], recent_durations::longest_ns);
            cpu_count = static_cast<uint32_t>(absent_.size());
        }
        load_ = wide{load_sum} * cpu_count;
        cpu_ = wide{cpu_sum} * load_count;
    }

    // Algorithm 2: returns how many experts are loaded.
    uint32_t two_ends(uint32_t count) const {
        uint32_t loaded = 0, computed = 0;
        while (loaded + computed < count) {
            if (loaded * load_ <= computed * cpu_)
                ++loaded;
            else
                ++computed;
        }
        return loaded;
    }

    uint32_t best_split(uint32_t count) const {
        uint32_t best = count;
        for (uint32_t loaded = count; loaded-- > 0;)
            if (takes(loaded, count) < takes(best, count)) best = loaded;
        return best;
    }
    wide takes(uint32_t loaded, uint32_t count) const {
        return std::max(loaded * load_, (count - loaded) * cpu_);
    }

    moorage::host host_;
    const uint32_t window_;
    const bool exact_, fill_;
    const moorage::residency *view_ = nullptr;
    uint32_t cpu_device_ = 0;
    recent_durations loads_, runs_;
    std::vector<uint32_t> absent_;  // items, best score first
    wide load_ = 0, cpu_ = 0;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.balance", "1.0.0", balance)
