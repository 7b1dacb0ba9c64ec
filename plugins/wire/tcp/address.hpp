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
    const auto bad = [&](const char *why) {
        return std::invalid_argument("address \"" + std::string(text.substr(0, 128)) +
                                     "\": " + why + "; give host:port, or [address]:port for IPv6");
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

    void ask(asio::io_context &io, const address &of, answer told) {
        auto one = std::make_shared<shared>();
        one->io = &io;
        std::erase_if(asked_, [](const auto &old) { return old.expired(); });
        asked_.push_back(one);
        std::thread([one, of, told = std::move(told)]() mutable {
            try {
                std::string why_not;
                std::vector<tcp::endpoint> found = resolve(of, why_not);
                const std::lock_guard lock(one->guard);
                if (!one->io) return;
                asio::post(*one->io, [told = std::move(told), found = std::move(found),
                                      why_not = std::move(why_not)] { told(found, why_not); });
            } catch (const std::bad_alloc &) {  // the caller has a deadline
            }
        }).detach();
    }
    void forget() {
        for (const auto &weak : asked_)
            if (const auto one = weak.lock()) {
                const std::lock_guard lock(one->guard);
                one->io = nullptr;
            }
        asked_.clear();
    }

private:
    struct shared {
        std::mutex guard;
        asio::io_context *io;
    };
    static std::vector<tcp::endpoint> resolve(const address &of, std::string &why_not) {
        addrinfo wanted{}, *list = nullptr;
        wanted.ai_socktype = SOCK_STREAM;
        std::vector<tcp::endpoint> found;
        const int failed = ::getaddrinfo(of.host.c_str(), nullptr, &wanted, &list);
        const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> kept(list, ::freeaddrinfo);
        if (failed != 0) why_not = ::gai_strerror(failed);
        for (const addrinfo *at = list; at; at = at->ai_next) {
            tcp::endpoint one;
            if (at->ai_addrlen > one.capacity()) continue;
            std::memcpy(one.data(), at->ai_addr, at->ai_addrlen);
            one.resize(at->ai_addrlen);
            one.port(of.port);
            found.push_back(one);
        }
        return found;
    }

    std::vector<std::weak_ptr<shared>> asked_;
};

}  // namespace tcp_wire
