// suppliers.h - the suppliers that a run needs (step_supplier.h), in the order in which a step asks
// them: versions, host memory, further devices, other servers.
#pragma once

#include <memory>
#include <vector>

#include "core/pipeline/step_supplier.h"

namespace moorage::core {

class caches;
class host_store;
class layer_step;
class memories;
class peers;
class run_account;
class transport_stage;

using step_suppliers = std::vector<std::unique_ptr<step_supplier>>;

// All borrowed.
struct supplier_parts {
    const memories &device_memories;
    executor &run_executor;
    caches &cache;
    transport_stage &transport;
    const layer_step &step;
    run_account &account;
    host_store *host;      // null: host memory holds everything
    peers *cluster_peers;  // null: there are none
    uint32_t versions;     // of an expert
};
step_suppliers make_suppliers(const supplier_parts &parts);

}  // namespace moorage::core
