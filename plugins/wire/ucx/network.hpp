// network.hpp - numeric addresses, and the networks that are trusted.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ucx_wire {

struct place {
    sockaddr_storage storage{};
    socklen_t bytes = 0;

    const sockaddr *address() const { return reinterpret_cast<const sockaddr *>(&storage); }
};

// "127.0.0.1:7301", "[::1]:7301". Throws std::invalid_argument.
inline place read_place(std::string_view text, bool port_may_be_0) {
    const auto wrong = [&](const char *problem) {
        return std::invalid_argument("address " + std::string(text) + ": " + problem);
    };
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) throw wrong("no port; give number:port");
    std::string host(text.substr(0, colon));
    const std::string digits(text.substr(colon + 1));
    if (digits.empty() || digits.size() > 5 ||
        digits.find_first_not_of("0123456789") != std::string::npos || std::stoul(digits) > 65535)
        throw wrong("a port is 0 to 65535");
    const auto port = static_cast<uint16_t>(std::stoul(digits));
    if (port == 0 && !port_may_be_0) throw wrong("port 0 is nobody's");
    place parsed;
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        auto *const address = reinterpret_cast<sockaddr_in6 *>(&parsed.storage);
        if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &address->sin6_addr) != 1)
            throw wrong("not a number; ucx takes numbers only, such as 10.0.0.1");
        address->sin6_family = AF_INET6, address->sin6_port = htons(port);
        parsed.bytes = sizeof(sockaddr_in6);
        return parsed;
    }
    if (host == "localhost") host = "127.0.0.1";
    auto *const address = reinterpret_cast<sockaddr_in *>(&parsed.storage);
    if (inet_pton(AF_INET, host.c_str(), &address->sin_addr) != 1)
        throw wrong("not a number; ucx takes numbers only, such as 10.0.0.1");
    address->sin_family = AF_INET, address->sin_port = htons(port);
    parsed.bytes = sizeof(sockaddr_in);
    return parsed;
}

inline std::string text_of(const sockaddr_storage &address) {
    char host[INET6_ADDRSTRLEN] = {};
    if (address.ss_family == AF_INET) {
        const auto *const ipv4 = reinterpret_cast<const sockaddr_in *>(&address);
        inet_ntop(AF_INET, &ipv4->sin_addr, host, sizeof(host));
        return std::string(host) + ":" + std::to_string(ntohs(ipv4->sin_port));
    }
    const auto *const ipv6 = reinterpret_cast<const sockaddr_in6 *>(&address);
    inet_ntop(AF_INET6, &ipv6->sin6_addr, host, sizeof(host));
    return "[" + std::string(host) + "]:" + std::to_string(ntohs(ipv6->sin6_port));
}

// A list of networks, such as "10.1.0.0/16, ::1/128".
class trusted_networks {
public:
    // Throws std::invalid_argument.
    explicit trusted_networks(std::string_view list) {
        while (!list.empty()) {
            const size_t comma = list.find(',');
            std::string name(list.substr(0, comma));
            list = comma == std::string_view::npos ? "" : list.substr(comma + 1);
            std::erase(name, ' ');
            if (!name.empty()) networks_.push_back(read(name));
        }
        if (networks_.empty())
            throw std::invalid_argument(
                "trusted names no network; give trusted = \"10.0.0.0/24\", one in which everybody "
                "may read and call");
    }
    bool contains(const sockaddr_storage &address) const {
        for (const network &network : networks_)
            if (network.family == address.ss_family &&
                same(network.bytes, bytes_of(address), network.bits))
                return true;
        return false;
    }

private:
    struct network {
        int family = AF_INET;
        unsigned bits = 0;
        unsigned char bytes[16] = {};
    };
    static const unsigned char *bytes_of(const sockaddr_storage &address) {
        if (address.ss_family == AF_INET)
            return reinterpret_cast<const unsigned char *>(
                &reinterpret_cast<const sockaddr_in *>(&address)->sin_addr);
        return reinterpret_cast<const unsigned char *>(
            &reinterpret_cast<const sockaddr_in6 *>(&address)->sin6_addr);
    }
    static bool same(const unsigned char *a, const unsigned char *b, unsigned bits) {
        for (unsigned bit = 0; bit < bits; ++bit)
            if (((a[bit / 8] ^ b[bit / 8]) >> (7 - bit % 8) & 1) != 0) return false;
        return true;
    }
    static network read(const std::string &text) {
        const auto wrong = [&] {
            return std::invalid_argument("trusted: " + text +
                                         " is no network; give one as 10.0.0.0/24");
        };
        const size_t slash = text.find('/');
        if (slash == std::string::npos) throw wrong();
        network parsed;
        const std::string host = text.substr(0, slash), digits = text.substr(slash + 1);
        if (inet_pton(AF_INET, host.c_str(), parsed.bytes) != 1) {
            parsed.family = AF_INET6;
            if (inet_pton(AF_INET6, host.c_str(), parsed.bytes) != 1) throw wrong();
        }
        if (digits.empty() || digits.size() > 3 ||
            digits.find_first_not_of("0123456789") != std::string::npos)
            throw wrong();
        parsed.bits = static_cast<unsigned>(std::stoul(digits));
        if (parsed.bits > (parsed.family == AF_INET ? 32u : 128u)) throw wrong();
        return parsed;
    }
    std::vector<network> networks_;
};

}  // namespace ucx_wire
