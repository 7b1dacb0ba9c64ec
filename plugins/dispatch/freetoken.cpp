// freetoken.cpp - divides the absent experts between link and CPU so that both end together.
//
// Source: FreeToken (arXiv 2608.16157; its hybrid decode). Among m absent experts, q* m are loaded
// and the rest is computed on the CPU. q* = B_P / B_H, where B_P is the bandwidth of the link and
// B_H the bandwidth of the CPU's kernel when it is alone. Loads take their bytes from the same
// memory. So beside them the CPU has B_H - B_P, and the two ends meet at q*. The policy tries the
// integers next to q* m and takes the one with the shorter slower side; of two equal ones the
// smaller. The most recently requested experts are loaded first, because they are worth keeping.
// Ties: as they stand in the step.
//
// In times of one expert, q* = cpu_ns / load_ns, taken over the step's absent experts. `fraction`
// sets q* instead of this calibration. While the layer's cache has free slots, at least as many
// absent experts are loaded (`fill`). Otherwise the cache would stay empty if q* m rounds to
// nothing. FreeToken fills its own cache by the prompt. Experts that this host's memory lacks go to
// the nearest server and are not among the m. Cost per call: O(items log items).

#include <moorage/moorage.hpp>

#include <algorithm>
#include <vector>

#include "devices.hpp"
#include "remote.hpp"

namespace {

class freetoken {
public:
    static constexpr moorage::about about{
        .name = "freetoken",
        .summary = "loads the share of the absent experts that link and CPU end together with",
        .source = "FreeToken (arXiv 2608.16157), hybrid decode",
    };
    static constexpr moorage::param params[] = {
        moorage::real("fraction", 0, 0, 1,
                      "share of the absent experts that is loaded, q*; 0: from what things cost"),
        moorage::flag("fill", true, "load absent experts while the cache has free slots"),
    };

    explicit freetoken(const moorage::setup &setup)
        : host_(setup.host), fraction_(setup.real("fraction")), fill_(setup.flag("fill")) {}

    void activate(const moorage::limits &limits) {
        view_ = host_.residency();
        last_.resize(size_t{limits.layers} * limits.experts);
        previous_.resize(limits.experts);
        absent_.reserve(limits.experts);
        reset();
    }
    void reset() {
        std::fill(last_.begin(), last_.end(), 0);
        std::fill(previous_.begin(), previous_.end(), 0);
    }

    // Remembers the last request of the step's experts before this step.
    void observe(const moorage::step &step) {
        for (const uint32_t expert : step.distinct()) {
            uint64_t &last = last_[step.page(expert)];
            previous_[expert] = last;
            last = step.index + 1;
        }
    }

    uint32_t assign(const moorage::step &step, const moorage::items &items,
                    std::span<uint32_t> item_devices, std::span<uint32_t>) {
        absent_.clear();
        devices::times load_ns{};  // links of several devices load side by side
        uint64_t cpu_ns = 0;
        for (uint32_t i = 0; i < items.count; ++i) {
            if (items.host_missing[i] == 0) continue;  // resident: stays on the GPU
            if (!remote::runs_here(items, i)) {
                item_devices[i] = remote::nearest_device(items, i);
                continue;
            }
            absent_.push_back(i);
            load_ns[devices::device_of(items, i)] += items.host_load_ns[i];
            cpu_ns += items.host_cpu_ns[i];
        }
        const uint32_t free = fill_ ? moorage::free_slots(*view_, step.layer) : 0;
        const uint32_t loads = std::max(split(devices::longest(load_ns), cpu_ns), free);
        std::sort(absent_.begin(), absent_.end(), [&](uint32_t a, uint32_t b) {
            const uint64_t left = previous_[items.host_experts[a]];
            const uint64_t right = previous_[items.host_experts[b]];
            return left != right ? left > right : a < b;
        });
        for (uint32_t i = 0; i < absent_.size(); ++i)
            item_devices[absent_[i]] = i < loads ? items.own(absent_[i]) : items.cpu();
        return items.count;
    }

private:
    // Returns how many of the absent experts are loaded, given the cost of all of them.
    uint32_t split(uint64_t load_ns, uint64_t cpu_ns) const {
        const auto count = static_cast<double>(absent_.size());
        double share = fraction_;
        if (share == 0)
            share =
                cpu_ns >= load_ns ? 1 : static_cast<double>(cpu_ns) / static_cast<double>(load_ns);
        const auto slower = [&](double loads) {
            return std::max(loads * (1 - share), (count - loads) * share);
        };
        const auto fewer = static_cast<uint32_t>(share * count);
        const uint32_t loads = slower(fewer) <= slower(fewer + 1) ? fewer : fewer + 1;
        return std::min(loads, static_cast<uint32_t>(absent_.size()));
    }

    moorage::host host_;
    const double fraction_;
    const bool fill_;
    const moorage::residency *view_ = nullptr;
    std::vector<uint64_t> last_;      // [pages] step of the last request, from 1
    std::vector<uint64_t> previous_;  // [experts] step of the last request before the running step
    std::vector<uint32_t> absent_;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.freetoken", "1.0.0", freetoken)
