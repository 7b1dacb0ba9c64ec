// open_registry.h - the registry that a configuration names.
#pragma once

#include <memory>

#include "core/config/run_config.h"
#include "core/registry/cluster_registry.h"

namespace moorage::core {

// A file registry without a directory where [registry] is not given. etcd is not asked yet. A
// directory that is not there is made for nodes (`make`); for who only asks them it is an error.
result<std::unique_ptr<cluster_registry>> open_registry(const registry_config &config,
                                                        bool make = true);

}  // namespace moorage::core
