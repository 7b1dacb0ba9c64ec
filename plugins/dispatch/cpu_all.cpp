// cpu_all.cpp - computes absent experts on the CPU; the cache fills once and then stays as it is.
//
// While the layer's cache has free slots, an absent expert is loaded into one (`fill`). After that,
// nothing is loaded on demand, as with a static split between GPU and CPU. Experts that this host's
// memory lacks go to the nearest server. Cost per call: O(items).

#include <moorage/moorage.hpp>

#include "remote.hpp"

namespace {

class cpu_all {
public:
    static constexpr moorage::about about{
        .name = "cpu_all",
        .summary = "computes absent experts on the CPU, once the cache is full",
    };
    static constexpr moorage::param params[] = {
        moorage::flag("fill", true, "load absent experts while the cache has free slots"),
    };

    explicit cpu_all(const moorage::setup &setup) : host_(setup.host), fill_(setup.flag("fill")) {}
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
            item_devices[i] = free > 0 ? items.own(i) : items.cpu();
            free -= free > 0;
        }
        return items.count;
    }

private:
    moorage::host host_;
    bool fill_;
    const moorage::residency *view_ = nullptr;
};

}  // namespace

MOORAGE_POLICIES("org.moorage.cpu_all", "1.0.0", cpu_all)
