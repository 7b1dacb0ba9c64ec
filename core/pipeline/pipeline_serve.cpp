// pipeline_serve.cpp - what a device of a cluster does for others: their experts, a plan's copies.
#include <algorithm>

#include "core/pipeline/pipeline.h"

namespace moorage::core {

bool pipeline::serve(expert_work work) {
    const instance::stepping mark;
    if ((truth_.state(work.page) & MOORAGE_STATE_RESIDENT) != MOORAGE_WHOLE) {
        work.transfer = transport_.submit(link_h2d, MOORAGE_DEMAND, work.page, MOORAGE_WHOLE,
                                          costs_.expert_bytes(1), now_ns());
        if (work.transfer == MOORAGE_NONE) return false;
        served_.push_back(work.transfer);
    }
    executor_.expert_on_gpu(work);
    return true;
}

// Whether the transfer was for another home: nothing of it stays.
bool pipeline::end_served(uint32_t transfer) {
    const auto found = std::ranges::find(served_, transfer);
    if (found == served_.end()) return false;
    served_.erase(found);
    transport_.release(transfer);
    return true;
}

void pipeline::keep(uint32_t page) {
    // A step that has it computed elsewhere leaves it when it ends.
    if (truth_.state(page) & MOORAGE_STATE_PINNED)
        if (const auto item = std::ranges::find(items_, page, &step_item::page);
            item != items_.end())
            item->cached = true;
    cache_.put(page);
    places_.take(page, MOORAGE_WHOLE, true);
}

bool pipeline::forget(uint32_t page) {
    if (truth_.state(page) != MOORAGE_WHOLE) return false;  // pinned, or something of it is coming
    cache_.take(page);
    places_.release(page, MOORAGE_WHOLE);
    return true;
}

}  // namespace moorage::core
