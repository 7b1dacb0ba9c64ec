// cost.cpp - each absent expert goes where it alone is done first: GPU, CPU or a server.
//
// The choice per expert is Fiddler's: the time to load and compute it on the GPU against the time
// to compute it on the CPU. A remote server that has it is a third place; among several servers it
// is the nearest one. A tie loads, then computes on the CPU. The policy does not weigh the wait for
// earlier experts of the step. A load also fills the cache, which the comparison does not see. With
// `keep` at 1 a load must be faster by itself; above 1 it may take that many times as long. While
// the layer's cache has free slots, an absent expert is loaded whatever it costs (`fill`). Experts
// that this host's memory lacks go to the nearest server. Cost per call: O(items x servers that
// have it).

#include <moorage/moorage.hpp>

#include "remote.hpp"

namespace {

class cost {
public:
    static constexpr moorage::about about{
        .name = "cost",
        .summary = "loads, computes on the CPU or calls, what is fastest for the expert alone",
        .source = "Fiddler (arXiv 2402.07033), Section 3.2",
    };
    static constexpr moorage::param params[] = {
        moorage::real("keep", 1.0, 0.0, 1e6, "load up to this many times the time elsewhere"),
        moorage::flag("fill", true, "load absent experts while the cache has free slots"),
    };

    explicit cost(const moorage::setup &setup)
        : host_(setup.host), keep_(setup.real("keep")), fill_(setup.flag("fill")) {}
    void activate(const moorage::limits &) { view_ = host_.residency(); }
    void reset() {}

    uint32_t assign(const moorage::step &step, const moorage::items &items,
                    std::span<uint32_t> item_devices, std::span<uint32_t>) {
        uint32_t free = fill_ ? moorage::free_slots(*view_, step.layer) : 0;
        for (uint32_t i = 0; i < items.count; ++i) {
            if (items.host_missing[i] == 0) continue;  // resident: stays on the GPU
            if (!remote::runs_here(items, i)) {
                item_devices[i] = remote::nearest_device(items, i);
                continue;
            }
            const uint32_t entry = remote::nearest(items, i);
            const double gpu_ns = static_cast<double>(items.host_load_ns[i] + items.host_gpu_ns[i]);
            uint64_t other_ns = items.host_cpu_ns[i];
            uint32_t other_device = items.cpu();
            if (entry != moorage::none && items.host_remote_ns[entry] < other_ns) {
                other_ns = items.host_remote_ns[entry];
                other_device = items.host_remote_devices[entry];
            }
            const bool load = free > 0 || gpu_ns <= static_cast<double>(other_ns) * keep_;
            item_devices[i] = load ? items.own(i) : other_device;
            free -= free > 0;
        }
        return items.count;
    }

private:
    moorage::host host_;
    double keep_;
    bool fill_;
    const moorage::residency *view_ = nullptr;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.cost", "1.0.0", cost)
