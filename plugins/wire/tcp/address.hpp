// address.hpp - "host:port" and "[v6]:port", and names that are looked up on another thread.
#pragma once

#include <netdb.h>

#include <charconv>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>

#include <boost/asio/post.hpp>

#include "desk.hpp"

namespace tcp_wire {

struct address {
    std::string host;
    uint16_t port = 0;
    std::optional<asio::ip::address> numeric;  // none: the host is a name

    std::string text() const { return host + ":" + std::to_string(port); }
    std::vector<tcp::endpoint> endpoints() const {
        if (!numeric) return {};
        return {tcp::endpoint(*numeric, port)};
    }
};

// Throws std::invalid_argument with the mistake.
inline address read_address(std::string_view text, bool port_may_be_0) {
    const auto bad = [&](const char *reason) {
        return std::invalid_argument("address \"" + std::string(text.substr(0, 128)) + "\": " +
                                     reason + "; give host:port, or [address]:port for IPv6");
    };
    if (text.size() >= MOORAGE_WIRE_ADDRESS_MAX) throw bad("too long");
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) throw bad("no port");
    address read;
    const std::string_view port = text.substr(colon + 1);
    const auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), read.port);
    if (failed != std::errc{} || end != port.data() + port.size())
        throw bad("the port is no number up to 65535");
    if (read.port == 0 && !port_may_be_0) throw bad("port 0 cannot be connected to");
    std::string_view host = text.substr(0, colon);
    const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (brackets) host = host.substr(1, host.size() - 2);
    if (host.empty()) throw bad("no host");
    if (!brackets && host.find(':') != std::string_view::npos) throw bad("IPv6 without brackets");
    read.host = host;
    failure no_number;
    const auto numeric = asio::ip::make_address(read.host, no_number);
    if (!no_number) read.numeric = numeric;
    if (no_number && brackets) throw bad("no IPv6 address between the brackets");
    return read;
}

// Looks a name up without delaying any other work. The system's resolver waits for servers, so it
// runs on a thread that nobody joins. The caller may be gone when it answers.
class lookups {
public:
    using answer = std::function<void(std::vector<tcp::endpoint>, std::string why_not)>;

    void ask(asio::io_context &io, const address &address, answer callback) {
        auto request = std::make_shared<shared>();
        request->io = &io;
        std::erase_if(asked_, [](const auto &old) { return old.expired(); });
        asked_.push_back(request);
        std::thread([request, address, answer_callback = std::move(callback)]() mutable {
            try {
                std::string error;
                std::vector<tcp::endpoint> found = resolve(address, error);
                const std::lock_guard lock(request->guard);
                if (!request->io) return;
                asio::post(*request->io,
                           [deliver = std::move(answer_callback), found = std::move(found),
                            reason = std::move(error)] { deliver(found, reason); });
            } catch (const std::bad_alloc &) {  // the caller has a deadline
            }
        }).detach();
    }
    void forget() {
        for (const auto &weak : asked_)
            if (const auto request = weak.lock()) {
                const std::lock_guard lock(request->guard);
                request->io = nullptr;
            }
        asked_.clear();
    }

private:
    struct shared {
        std::mutex guard;
        asio::io_context *io;
    };
    static std::vector<tcp::endpoint> resolve(const address &address, std::string &error) {
        addrinfo wanted{}, *list = nullptr;
        wanted.ai_socktype = SOCK_STREAM;
        std::vector<tcp::endpoint> found;
        const int failed = ::getaddrinfo(address.host.c_str(), nullptr, &wanted, &list);
        const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> kept(list, ::freeaddrinfo);
        if (failed != 0) error = ::gai_strerror(failed);
        for (const addrinfo *entry = list; entry; entry = entry->ai_next) {
            tcp::endpoint endpoint;
            if (entry->ai_addrlen > endpoint.capacity()) continue;
            std::memcpy(endpoint.data(), entry->ai_addr, entry->ai_addrlen);
            endpoint.resize(entry->ai_addrlen);
            endpoint.port(address.port);
            found.push_back(endpoint);
        }
        return found;
    }

    std::vector<std::weak_ptr<shared>> asked_;
};

}  // namespace tcp_wire
