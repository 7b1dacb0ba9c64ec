// open_registry.cpp - one line per kind of registry.
#include "tools/registry/open_registry.h"

#include "tools/registry/etcd_registry.h"
#include "tools/registry/file_registry.h"

namespace moorage::core {

result<std::unique_ptr<cluster_registry>> open_registry(const registry_config &config, bool make) {
    if (!config.endpoints.empty()) {
        auto client =
            open_etcd_client(config.endpoints, {config.certificate, config.key, config.authority});
        if (!client) return client.failure();
        return std::unique_ptr<cluster_registry>(
            std::make_unique<etcd_registry>(std::move(*client), config.prefix));
    }
    return file_registry::open(config.directory, make);
}

}  // namespace moorage::core
