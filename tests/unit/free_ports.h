// free_ports.h - free ports of loopback.
#pragma once

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

namespace moorage::test {

// Free ports. All are held until the last is known, so that they differ.
inline std::vector<uint16_t> free_ports(size_t count) {
    std::vector<int> held;
    std::vector<uint16_t> ports;
    for (size_t i = 0; i < count; ++i) {
        held.push_back(::socket(AF_INET, SOCK_STREAM, 0));
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof(address);
        REQUIRE(::bind(held.back(), reinterpret_cast<sockaddr *>(&address), bytes) == 0);
        REQUIRE(::getsockname(held.back(), reinterpret_cast<sockaddr *>(&address), &bytes) == 0);
        ports.push_back(ntohs(address.sin_port));
    }
    for (const int descriptor : held) ::close(descriptor);
    return ports;
}

// A socket that listens at this port.
inline int listen_at(uint16_t port) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int flag = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &flag, sizeof(flag));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof(address)) == 0);
    REQUIRE(::listen(listener, 16) == 0);
    return listener;
}

}  // namespace moorage::test
