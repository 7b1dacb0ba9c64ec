// open_registry.h - the registry that a configuration names.
#pragma once

#include <memory>

#include "core/config/run_config.h"
#include "core/registry/cluster_registry.h"

namespace moorage::core {

// A file registry without a directory where [registry] is not given. etcd is not asked yet.
result<std::unique_ptr<cluster_registry>> open_registry(const registry_config &config);

}  // namespace moorage::core
