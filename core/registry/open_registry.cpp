// open_registry.cpp - one line a kind.
#include "core/registry/open_registry.h"

#include "core/registry/etcd_registry.h"
#include "core/registry/file_registry.h"

namespace moorage::core {

result<std::unique_ptr<cluster_registry>> open_registry(const registry_config &config, bool make) {
    if (!config.endpoints.empty()) {
        auto made = std::make_unique<etcd_registry>(
            config.endpoints, config.prefix,
            etcd_tls{config.certificate, config.key, config.authority});
        if (!made->ready()) return made->ready().failure();
        return std::unique_ptr<cluster_registry>(std::move(made));
    }
    return file_registry::open(config.directory, make);
}

}  // namespace moorage::core
