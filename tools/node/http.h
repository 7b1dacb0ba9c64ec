// http.h - the part of HTTP/1.1 that a node needs to report its state: GET, one answer a
// connection.
//
// The server has a thread of its own, which computes nothing. Bounds: connections_max at one time,
// request_bytes_max of a request, answer_ns from accepting until the answer is taken. Connections
// beyond the bounds are closed. If there are too many, the one that has been silent for longest is
// closed. The server reads the first line of a request, no more.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "core/base/result.h"

namespace moorage::core {

struct http_answer {
    int code = 200;
    std::string type = "text/plain; charset=utf-8", body;
};

class http_server {
public:
    static constexpr size_t connections_max = 32, request_bytes_max = 8192;
    static constexpr uint64_t answer_ns = 2'000'000'000;
    using handler = std::function<http_answer(std::string_view path)>;

    // "host:port". Port 0: any free port. `answer` is called on the server's thread.
    static result<std::unique_ptr<http_server>> listen(const std::string &address, handler answer);
    ~http_server();
    const std::string &address() const { return address_; }

private:
    http_server() = default;
    void run();

    int listener_ = -1, waker_ = -1;
    std::string address_;
    handler answer_;
    std::thread thread_;
};

// The body of the answer, if its status is 200 and it comes in time.
result<std::string> http_get(const std::string &address, const std::string &path,
                             uint64_t within_ns);

// The path of a request's first line. Empty: the request is not answered.
std::string_view path_of_request(std::string_view request);

}  // namespace moorage::core
