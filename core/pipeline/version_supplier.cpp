// version_supplier.cpp - compares the versions that are here with those that a step asks for.
#include "core/pipeline/version_supplier.h"

namespace moorage::core {

void version_supplier::before_look_up() {
    const ledger &combined = memories_.combined_ledger();
    const uint32_t base = step_.view().layer * combined.experts();
    for (uint32_t i = 0; i < step_.distinct_count(); ++i) {
        const uint32_t page = base + step_.distinct()[i];
        if (combined.version(page) > step_.version_wanted(i)) cache_.give_way(page);
    }
}

// An expert that is there in part is completed in its present version.
void version_supplier::looked_up(std::span<const uint32_t> places, std::span<step_item> items) {
    const ledger &combined = memories_.combined_ledger();
    for (uint32_t i = 0; i < items.size(); ++i) {
        step_item &item = items[places[i]];
        const bool absent = combined.known_segments(item.page) == 0;
        item.version = absent ? step_.version_wanted(i) : combined.version(item.page);
    }
}

// The CPU computes in the first version, which host memory has; other machines have no second.
void version_supplier::count(const step_item &item, layer_report &report) {
    const bool on_device = item.site == site_device;
    version_counts &counts = report.versions[on_device ? item.version : 0];
    counts.computed += item.tokens;
    for (const uint32_t id : item.transfers)
        if (on_device && id != MOORAGE_NONE) counts.loaded_bytes += transport_.record(id).bytes;
}

}  // namespace moorage::core
