// suppliers.cpp - which suppliers a run needs.
#include "core/pipeline/suppliers.h"

#include "core/pipeline/device_supplier.h"
#include "core/pipeline/host_supplier.h"
#include "core/pipeline/remote_supplier.h"
#include "core/pipeline/version_supplier.h"

namespace moorage::core {

step_suppliers make_suppliers(const supplier_parts &parts) {
    const uint32_t items_max = parts.device_memories.combined_ledger().experts();
    step_suppliers suppliers;
    if (parts.versions > 1)
        suppliers.push_back(std::make_unique<version_supplier>(parts.step, parts.device_memories,
                                                               parts.cache, parts.transport));
    if (parts.host)
        suppliers.push_back(
            std::make_unique<host_supplier>(*parts.host, parts.run_executor, items_max));
    if (parts.device_memories.devices() > 1)
        suppliers.push_back(std::make_unique<device_supplier>(
            parts.device_memories, parts.run_executor, parts.step, parts.account));
    if (parts.cluster_peers)
        suppliers.push_back(
            std::make_unique<remote_supplier>(*parts.cluster_peers, parts.step, items_max));
    return suppliers;
}

}  // namespace moorage::core
