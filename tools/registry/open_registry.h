// open_registry.h - opens the registry that a configuration names.
#pragma once

#include <memory>

#include "core/config/run_config.h"
#include "tools/registry/cluster_registry.h"

namespace moorage::core {

// Without [registry]: a file registry without a directory. Sends no request to etcd yet. `make`:
// creates a missing directory, for nodes. For programs that only read, a missing directory is an
// error.
result<std::unique_ptr<cluster_registry>> open_registry(const registry_config &config,
                                                        bool make = true);

}  // namespace moorage::core
