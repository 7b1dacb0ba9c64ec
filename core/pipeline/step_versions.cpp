// step_versions.cpp - compares the versions that are here with those that a step asks for.
#include "core/pipeline/step_versions.h"

namespace moorage::core {

void give_way(const layer_step &step, const memories &truth, caches &cache) {
    const uint32_t base = step.view().layer * truth.all().experts();
    for (uint32_t i = 0; i < step.distinct_count(); ++i) {
        const uint32_t page = base + step.distinct()[i];
        if (truth.all().version(page) > step.version_wanted(i)) cache.give_way(page);
    }
}

// An expert that is there in part is completed in its present version.
void choose_versions(const layer_step &step, const memories &truth,
                     std::span<const uint32_t> places, std::span<step_item> items) {
    const ledger &all = truth.all();
    for (uint32_t i = 0; i < items.size(); ++i) {
        step_item &item = items[places[i]];
        const bool absent = all.known(item.page) == 0;
        item.version = absent ? step.version_wanted(i) : all.version(item.page);
    }
}

// The CPU computes in the first version, which host memory has; other machines have no second.
void count_versions(std::span<const step_item> items, const transport_stage &transport,
                    layer_report &account) {
    for (const step_item &item : items) {
        const bool here = item.site == site_gpu;
        version_counts &of = account.versions[here ? item.version : 0];
        of.computed += item.tokens;
        for (const uint32_t id : item.transfers)
            if (here && id != MOORAGE_NONE) of.loaded_bytes += transport.record(id).bytes;
    }
}

}  // namespace moorage::core
