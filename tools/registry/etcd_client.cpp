// etcd_client.cpp - opens the library with the etcd client.
#include "tools/registry/etcd_client.h"

#include "core/base/json.h"
#include "core/host/program_part.h"

namespace moorage::core {

result<std::unique_ptr<etcd_client>> open_etcd_client(const std::vector<std::string> &endpoints,
                                                      const etcd_tls &tls) {
    const auto maker = find_program_part<etcd_client_maker>("registry/etcd.so");
    if (!maker) return maker.failure();
    return (*maker)(endpoints, tls);
}

}  // namespace moorage::core
