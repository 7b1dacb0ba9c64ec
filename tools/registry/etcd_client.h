// etcd_client.h - requests to etcd's JSON gateway, and one watch, over HTTP or HTTPS.
//
//   auto etcd = open_etcd_client({"127.0.0.1:2379", "127.0.0.1:2381"});
//   auto answer = (*etcd)->post("/v3/kv/put", {{"key", base64(key)}, {"value", base64(value)}});
//   (*etcd)->watch(prefix, revision + 1);
//   for (const std::string &line : (*etcd)->lines(wait_ns)) ...
//
// It uses one endpoint as long as that answers within answer_ns. Otherwise it asks each of the
// others once. The watch has its own connection. The limits are answer_bytes_max for an answer,
// line_bytes_max for a line of the watch, and header_bytes_max for a header. The connection ends if
// one is exceeded.
//
// An endpoint with https:// uses TLS 1.2 or 1.3. `ca` must vouch for it, under the name or address
// by which it is called. The system's certificate authorities are ignored. Without https://, HTTP
// is not encrypted: etcd must then be on loopback or in a trusted network. Messages never show more
// of keys and certificates than their file names.
//
// The implementation is a separate library of the program, module/etcd_gateway.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"

namespace moorage::core {

// PEM files. `certificate` and `key` belong to this side: give both or neither.
struct etcd_tls {
    std::filesystem::path certificate, key, ca;
};

class etcd_client {
public:
    static constexpr uint64_t answer_ns = 1'000'000'000;
    static constexpr size_t answer_bytes_max = size_t{16} << 20, line_bytes_max = size_t{8} << 20,
                            header_bytes_max = 8192;

    virtual ~etcd_client() = default;
    // The answer: an object that is no error.
    virtual result<json> post(const std::string &path, const json &body) = 0;
    // Ends the previous watch and starts a new one. `elsewhere`: at the next endpoint.
    virtual status watch(const json &create, bool elsewhere) = 0;
    virtual bool watching() const = 0;
    // The complete lines of the watch that arrive within wait_ns; returns as soon as there is one.
    // An error means that the watch has ended.
    virtual result<std::vector<std::string>> lines(uint64_t wait_ns) = 0;
    virtual void stop_watch() = 0;
    virtual const std::string &endpoint() const = 0;
};

// The entry point of the library.
using etcd_client_maker = result<std::unique_ptr<etcd_client>> (*)(
    const std::vector<std::string> &endpoints, const etcd_tls &tls);

// endpoints: at least one, "host:port", optionally with http:// or https:// before it. Sends no
// request yet. Errors: the library cannot be opened, or an endpoint needs files of `tls` that
// cannot be read.
result<std::unique_ptr<etcd_client>> open_etcd_client(const std::vector<std::string> &endpoints,
                                                      const etcd_tls &tls = {});

}  // namespace moorage::core
