// host_supplier.cpp - starts what waited for a page from disk.
#include "core/pipeline/host_supplier.h"

namespace moorage::core {

void host_supplier::page_read(uint32_t page, std::span<const step_item> items) {
    store_.landed(page);
    std::erase_if(awaiting_read_, [&](uint32_t index) {
        const step_item &item = items[index];
        if (item.page != page) return false;
        executor_.expert_on_cpu({page, item.tokens, 1, MOORAGE_NONE, index});
        return true;
    });
}

}  // namespace moorage::core
