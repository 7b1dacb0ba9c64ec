// overlap.cpp - computes absent experts where they end first, and loads those of the CPU behind.
//
// Three devices work at one time: the GPU on resident experts, the link on loads, the CPU on its
// own experts. Absent experts are taken largest work first. Each goes to the side where it would
// end first, given the work that the side has already (list scheduling; Graham 1969). A load waits
// for earlier demand loads and for the GPU. The CPU waits for its earlier experts. Then resident
// experts move to the CPU, the last first, as long as the layer then ends earlier (`help`).
// Otherwise a fast CPU would be idle. Several engines do this with another order (Fiddler,
// HybriMoE, SMoE's balance).
//
// These engines leave open how the cache learns from experts that the CPU computed. They never
// cache them, or wait for a load. Here such experts are loaded behind (MOORAGE_AND_LOAD), as long
// as at most `behind` loads wait for the link. The cache's `admit` has the last word. With `behind`
// 0 nothing is loaded behind. While the cache has free slots, an absent expert is loaded at once
// (`fill`). Experts that this host's memory lacks go to the nearest server. If several devices
// share the experts, each item waits for the link and the queue of its own device. Cost per call:
// O(items^2) at worst.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <moorage/moorage.hpp>

#include "devices.hpp"
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
                    std::span<uint32_t> item_devices, std::span<uint32_t> order) {
        devices::times gpu_ns{}, link_ns{};
        uint32_t place = 0;
        absent_.clear();
        loads_.clear();
        for (uint32_t i = 0; i < items.count; ++i) {
            if (!remote::runs_here(items, i)) {
                item_devices[i] = remote::nearest_device(items, i);
                order[place++] = i;
                continue;
            }
            if (items.host_missing[i] != 0) {
                absent_.push_back(i);
                continue;
            }
            item_devices[i] = items.own(i);
            order[place++] = i;
            gpu_ns[devices::device_of(items, i)] += items.host_gpu_ns[i];
        }
        // The heaviest items are spread first; equal ones stay in order. A heap sort would be
        // faster for prefill, but there items differ little and are nearly in order.
        for (size_t n = 1; n < absent_.size(); ++n)
            for (size_t position = n; position > 0 && items.host_cpu_ns[absent_[position]] >
                                                          items.host_cpu_ns[absent_[position - 1]];
                 --position)
                std::swap(absent_[position], absent_[position - 1]);
        for (uint32_t device = 0; device < devices::count(items); ++device)
            link_ns[device] = devices::backlog_ns(items, device);
        uint64_t cpu_ns = 0;
        uint32_t free = fill_ ? moorage::free_slots(*view_, step.layer) : 0;
        const uint64_t load_ns = std::max<uint64_t>(costs_ ? costs_->load_ns : 1, 1);
        uint64_t waiting = items.behind_backlog_ns / load_ns;
        for (const uint32_t i : absent_) {
            order[place++] = i;
            const uint32_t device = devices::device_of(items, i);
            const uint64_t arrives_ns = link_ns[device] + items.host_load_ns[i];
            const uint64_t on_device_ns =
                std::max(gpu_ns[device], arrives_ns) + items.host_gpu_ns[i];
            const uint64_t on_cpu_ns = cpu_ns + items.host_cpu_ns[i];
            if (free > 0 || on_device_ns <= on_cpu_ns) {
                item_devices[i] = items.own(i);
                link_ns[device] = arrives_ns;
                gpu_ns[device] = on_device_ns;
                loads_.push_back({device, arrives_ns, items.host_gpu_ns[i]});
                free -= free > 0;
                continue;
            }
            item_devices[i] = items.cpu();
            cpu_ns = on_cpu_ns;
            if (waiting >= behind_) continue;
            item_devices[i] |= MOORAGE_AND_LOAD;
            ++waiting;
        }
        if (help_) share_residents(items, item_devices, gpu_ns, cpu_ns);
        return items.count;
    }

private:
    struct load {
        uint32_t device;
        uint64_t arrives_ns, gpu_ns;
    };

    // When a GPU ends if resident experts take it that long, with the loaded ones after them.
    uint64_t device_end_ns(uint32_t device, uint64_t residents_ns) const {
        for (const load &load : loads_)
            if (load.device == device)
                residents_ns = std::max(residents_ns, load.arrives_ns) + load.gpu_ns;
        return residents_ns;
    }

    void share_residents(const moorage::items &items, std::span<uint32_t> item_devices,
                         devices::times gpu_ns, uint64_t cpu_ns) const {
        devices::times residents_ns{};
        for (uint32_t i = 0; i < items.count; ++i)
            if (items.host_missing[i] == 0)
                residents_ns[devices::device_of(items, i)] += items.host_gpu_ns[i];
        for (uint32_t i = items.count; i-- > 0;) {
            if (items.host_missing[i] != 0) continue;
            const uint32_t device = devices::device_of(items, i);
            devices::times then_ns = gpu_ns;
            then_ns[device] = device_end_ns(device, residents_ns[device] - items.host_gpu_ns[i]);
            const uint64_t cpu_then_ns = cpu_ns + items.host_cpu_ns[i];
            if (std::max(devices::longest(then_ns), cpu_then_ns) >=
                std::max(devices::longest(gpu_ns), cpu_ns)) {
                // Another device may end last.
                if (devices::count(items) == 1) return;
                continue;
            }
            item_devices[i] = items.cpu();
            residents_ns[device] -= items.host_gpu_ns[i];
            gpu_ns = then_ns;
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
