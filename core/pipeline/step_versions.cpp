// step_versions.cpp - compares the versions that are here with those that a step asks for.
#include "core/pipeline/step_versions.h"

namespace moorage::core {

void give_way(const layer_step &step, const memories &memories, caches &cache) {
    const uint32_t base = step.view().layer * memories.combined_ledger().experts();
    for (uint32_t i = 0; i < step.distinct_count(); ++i) {
        const uint32_t page = base + step.distinct()[i];
        if (memories.combined_ledger().version(page) > step.version_wanted(i)) cache.give_way(page);
    }
}

// An expert that is there in part is completed in its present version.
void choose_versions(const layer_step &step, const memories &memories,
                     std::span<const uint32_t> places, std::span<step_item> items) {
    const ledger &combined = memories.combined_ledger();
    for (uint32_t i = 0; i < items.size(); ++i) {
        step_item &item = items[places[i]];
        const bool absent = combined.known_segments(item.page) == 0;
        item.version = absent ? step.version_wanted(i) : combined.version(item.page);
    }
}

// The CPU computes in the first version, which host memory has; other machines have no second.
void count_versions(std::span<const step_item> items, const transport_stage &transport,
                    layer_report &report) {
    for (const step_item &item : items) {
        const bool on_device = item.site == site_gpu;
        version_counts &counts = report.versions[on_device ? item.version : 0];
        counts.computed += item.tokens;
        for (const uint32_t id : item.transfers)
            if (on_device && id != MOORAGE_NONE) counts.loaded_bytes += transport.record(id).bytes;
    }
}

}  // namespace moorage::core
