// overlap.cpp - computes absent experts where they are done soonest, and loads behind what the CPU
// computes.
//
// Three devices work at one time: the GPU on what is resident, the link on what is loaded, the CPU
// on what is computed there. Absent experts are taken largest work first; each goes to the side
// where it would end sooner, given what that side has taken already: loading waits for demand loads
// before it and for the GPU, the CPU for its own queue (list scheduling; Graham 1969). Then
// resident experts move to the CPU, the last first, as long as the layer ends sooner for it
// (`help`): on a host with a fast CPU it is idle otherwise. So far it is what several engines do
// (Fiddler, HybriMoE, SMoE's balance) with another order.
//
// What they leave open is how the cache learns from experts that the CPU computed: either they are
// never cached, or a load is waited for. Here they are brought behind (MOORAGE_SITE_AND_LOAD), as
// long as the link has no more than `behind` loads waiting, and the cache's `admit` has the last
// word. With `behind` 0 nothing is; while the cache has free slots, an absent expert is loaded at
// once (`fill`). What this host's memory lacks goes to the nearest server. Cost per call:
// O(items^2) at worst.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <moorage/moorage.hpp>

#include "remote.hpp"

namespace {

class overlap {
public:
    static constexpr moorage::about about{
        .name = "overlap",
        .summary = "divides absent experts between link and CPU, loads behind the CPU",
        .source =
            "own; list scheduling after R. L. Graham, Bounds on multiprocessing timing "
            "anomalies, 1969",
    };
    static constexpr moorage::param params[] = {
        moorage::integer("behind", 4, 0, 16, "loads that may wait behind all demand"),
        moorage::flag("fill", true, "load absent experts while the cache has free slots"),
        moorage::flag("help", true, "the CPU takes resident experts, too, where that is sooner"),
    };

    explicit overlap(const moorage::setup &setup)
        : host_(setup.host),
          behind_(static_cast<uint64_t>(setup.integer("behind"))),
          fill_(setup.flag("fill")),
          help_(setup.flag("help")) {}
    void activate(const moorage::limits &limits) {
        view_ = host_.residency();
        costs_ = host_.costs();
        absent_.reserve(limits.experts);
        loads_.reserve(limits.experts);
    }
    void reset() {}

    uint32_t assign(const moorage::step &step, const moorage::items &items,
                    std::span<uint32_t> sites, std::span<uint32_t> order) {
        uint64_t gpu_ns = 0;
        uint32_t place = 0;
        absent_.clear();
        loads_.clear();
        for (uint32_t i = 0; i < items.count; ++i) {
            if (!remote::runs_here(items, i)) {
                sites[i] = remote::nearest_site(items, i);
                order[place++] = i;
                continue;
            }
            if (items.host_missing[i] != 0) {
                absent_.push_back(i);
                continue;
            }
            sites[i] = MOORAGE_SITE_GPU;
            order[place++] = i;
            gpu_ns += items.host_gpu_ns[i];
        }
        // What weighs most is spread first; equal ones stay in order. A heap sort would do for
        // prefill, but there items differ little and are nearly in order.
        for (size_t n = 1; n < absent_.size(); ++n)
            for (size_t at = n;
                 at > 0 && items.host_cpu_ns[absent_[at]] > items.host_cpu_ns[absent_[at - 1]];
                 --at)
                std::swap(absent_[at], absent_[at - 1]);
        uint64_t link_ns = items.load_backlog_ns, cpu_ns = items.cpu_backlog_ns;
        uint32_t free = fill_ ? moorage::free_slots(*view_, step.layer) : 0;
        const uint64_t load_ns = std::max<uint64_t>(costs_ ? costs_->load_ns : 1, 1);
        uint64_t waiting = items.behind_backlog_ns / load_ns;
        for (const uint32_t i : absent_) {
            order[place++] = i;
            const uint64_t arrives_ns = link_ns + items.host_load_ns[i];
            const uint64_t on_gpu_ns = std::max(gpu_ns, arrives_ns) + items.host_gpu_ns[i];
            const uint64_t on_cpu_ns = cpu_ns + items.host_cpu_ns[i];
            if (free > 0 || on_gpu_ns <= on_cpu_ns) {
                sites[i] = MOORAGE_SITE_GPU;
                link_ns = arrives_ns;
                gpu_ns = on_gpu_ns;
                loads_.push_back({arrives_ns, items.host_gpu_ns[i]});
                free -= free > 0;
                continue;
            }
            sites[i] = MOORAGE_SITE_CPU;
            cpu_ns = on_cpu_ns;
            if (waiting >= behind_) continue;
            sites[i] |= MOORAGE_SITE_AND_LOAD;
            ++waiting;
        }
        if (help_) share_residents(items, sites, gpu_ns, cpu_ns);
        return items.count;
    }

private:
    struct load {
        uint64_t arrives_ns, gpu_ns;
    };

    // The GPU's end when resident experts take it so long, loaded ones after them.
    uint64_t gpu_end_ns(uint64_t residents_ns) const {
        for (const load &one : loads_)
            residents_ns = std::max(residents_ns, one.arrives_ns) + one.gpu_ns;
        return residents_ns;
    }

    void share_residents(const moorage::items &items, std::span<uint32_t> sites, uint64_t gpu_ns,
                         uint64_t cpu_ns) const {
        uint64_t residents_ns = 0;
        for (uint32_t i = 0; i < items.count; ++i)
            if (items.host_missing[i] == 0) residents_ns += items.host_gpu_ns[i];
        for (uint32_t i = items.count; i-- > 0;) {
            if (items.host_missing[i] != 0) continue;
            const uint64_t gpu_then_ns = gpu_end_ns(residents_ns - items.host_gpu_ns[i]);
            const uint64_t cpu_then_ns = cpu_ns + items.host_cpu_ns[i];
            if (std::max(gpu_then_ns, cpu_then_ns) >= std::max(gpu_ns, cpu_ns)) return;
            sites[i] = MOORAGE_SITE_CPU;
            residents_ns -= items.host_gpu_ns[i];
            gpu_ns = gpu_then_ns;
            cpu_ns = cpu_then_ns;
        }
    }

    moorage::host host_;
    uint64_t behind_;
    bool fill_, help_;
    const moorage::residency *view_ = nullptr;
    const moorage::costs *costs_ = nullptr;
    std::vector<uint32_t> absent_;
    std::vector<load> loads_;  // of the step
};

}  // namespace

MOORAGE_POLICIES("org.moorage.overlap", "1.0.0", overlap)
