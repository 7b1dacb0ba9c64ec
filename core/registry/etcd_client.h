// etcd_client.h - requests to etcd's JSON gateway, and one watch, over HTTP or HTTPS.
//
//   auto etcd = open_etcd_client({"127.0.0.1:2379", "127.0.0.1:2381"});
//   auto answer = (*etcd)->post("/v3/kv/put", {{"key", base64(key)}, {"value", base64(value)}});
//   (*etcd)->watch(prefix, revision + 1);
//   for (const std::string &line : (*etcd)->lines(wait_ns)) ...
//
// One endpoint is spoken to as long as it answers within answer_ns; else the next is asked, each
// once. The watch has a connection of its own. Bounds: answer_bytes_max of an answer,
// line_bytes_max of a line of the watch, header_bytes_max of a header; beyond them the connection
// ends. An endpoint with https:// before it is spoken to over TLS 1.2 or 1.3: it has to be vouched
// for by `ca`, under the name or address by which it is called; the authorities of the system count
// for nothing. Without it HTTP is plain: etcd stands on loopback or in a network that is trusted.
// Of keys and certificates nothing but the files' names goes into a text.
//
// The implementation is a part of the program in a library of its own, module/etcd_gateway.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"

namespace moorage::core {

// PEM files; `certificate` and `key` are this side's, both or neither.
struct etcd_tls {
    std::filesystem::path certificate, key, ca;
};

class etcd_client {
public:
    static constexpr uint64_t answer_ns = 1'000'000'000;
    static constexpr size_t answer_bytes_max = size_t{16} << 20, line_bytes_max = size_t{8} << 20,
                            header_bytes_max = 8192;

    virtual ~etcd_client() = default;
    // The answer, an object without an error.
    virtual result<json> post(const std::string &path, const json &body) = 0;
    // Ends the watch that there was. Lines come from the endpoint after that one, where
    // `elsewhere`.
    virtual status watch(const json &create, bool elsewhere) = 0;
    virtual bool watching() const = 0;
    // Whole lines of the watch, of what comes within wait_ns: at once when there is one. An error:
    // the watch has ended.
    virtual result<std::vector<std::string>> lines(uint64_t wait_ns) = 0;
    virtual void stop_watch() = 0;
    virtual const std::string &endpoint() const = 0;
};

// The entry point of the library.
using etcd_client_maker = result<std::unique_ptr<etcd_client>> (*)(
    const std::vector<std::string> &endpoints, const etcd_tls &tls);

// endpoints: one at least, "host:port", or with http:// or https:// before it. Nothing is asked
// yet. Errors: the library cannot be opened, or the files of `tls` cannot be read where an endpoint
// needs them.
result<std::unique_ptr<etcd_client>> open_etcd_client(const std::vector<std::string> &endpoints,
                                                      const etcd_tls &tls = {});

}  // namespace moorage::core
