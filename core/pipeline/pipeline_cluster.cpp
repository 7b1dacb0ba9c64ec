// pipeline_cluster.cpp - one home among others: its calls to them, and its work for them.
#include <algorithm>

#include "core/pipeline/pipeline.h"

namespace moorage::core {

bool pipeline::serve(expert_work work) {
    const instance::stepping mark;
    if (!memories_.ledger_of_page(work.page).is_whole(work.page)) {
        work.transfer = transport_.submit(owner::serve, link_h2d, work.page, MOORAGE_WHOLE,
                                          costs_.expert_bytes(1));
        if (work.transfer == MOORAGE_NONE) return false;
    }
    behind_.asked(work.page);
    executor_.expert_on_device(work);
    return true;
}

void pipeline::make_resident(uint32_t page) {
    if (memories_.ledger_of_page(page).is_pinned(page)) work_.keep_cached(page);
    cache_.put(page);
    memories_.ledger_of_page(page).take_rows(page, MOORAGE_WHOLE, true);
}

bool pipeline::evict(uint32_t page) {
    if (memories_.ledger_of_page(page).state(page) != MOORAGE_WHOLE)
        return false;  // pinned, or something of it is coming
    behind_.release(page);
    cache_.take(page);
    return true;
}

}  // namespace moorage::core
