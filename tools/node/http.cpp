// http.cpp - listens, answers, asks.
#include "tools/node/http.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <utility>
#include <vector>

#include "core/base/text.h"
#include "tools/node/links.h"

namespace moorage::core {

namespace {

class file_handle {
public:
    explicit file_handle(int descriptor = -1) : descriptor_(descriptor) {}
    file_handle(file_handle &&source) noexcept
        : descriptor_(std::exchange(source.descriptor_, -1)) {}
    file_handle &operator=(file_handle &&source) noexcept {
        std::swap(descriptor_, source.descriptor_);
        return *this;
    }
    ~file_handle() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    int get() const { return descriptor_; }
    int release() { return std::exchange(descriptor_, -1); }

private:
    int descriptor_;
};

struct address_list {
    addrinfo *first = nullptr;
    ~address_list() {
        if (first) freeaddrinfo(first);
    }
};

status resolve(const std::string &address, bool to_listen, address_list &addresses) {
    const size_t colon = address.rfind(':');
    if (colon == std::string::npos || colon == 0)
        return error{
            format("{} is no address; write host:port, for example 127.0.0.1:9301", address), true};
    std::string host = address.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = (to_listen ? AI_PASSIVE : 0) | AI_NUMERICSERV;
    const int failed =
        getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &addresses.first);
    if (failed != 0) return error{format("{}: {}", address, gai_strerror(failed))};
    return success();
}

error failed(const std::string &address, const char *problem) {
    return error{format("{}: {}: {}", address, problem, std::strerror(errno))};
}

std::string bound_address(int socket) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof(address);
    if (getsockname(socket, reinterpret_cast<sockaddr *>(&address), &bytes) != 0) return "";
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (getnameinfo(reinterpret_cast<sockaddr *>(&address), bytes, host, sizeof(host), port,
                    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return "";
    return std::string(address.ss_family == AF_INET6 ? format("[{}]", host) : host) + ":" + port;
}

std::string format_response(const http_answer &answer) {
    const char *const reason = answer.code == 200   ? "OK"
                               : answer.code == 404 ? "Not Found"
                               : answer.code == 503 ? "Service Unavailable"
                                                    : "Bad Request";
    return format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: "
        "no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{}",
        answer.code, reason, answer.type, answer.body.size(), answer.body);
}

// One that has connected: it asks, then it is answered.
struct http_client {
    file_handle socket;
    uint64_t until_ns = 0;
    std::string request, answer;
    size_t sent = 0;

    // Whether it goes on.
    bool read(const http_server::handler &handler) {
        char chunk[2048];
        const ssize_t count = ::recv(socket.get(), chunk, sizeof(chunk), 0);
        if (count < 0) return errno == EAGAIN || errno == EINTR;
        if (count == 0) return false;
        request.append(chunk, static_cast<size_t>(count));
        if (request.find("\r\n\r\n") == std::string::npos)
            return request.size() <= http_server::request_bytes_max;
        const std::string_view path = path_of_request(request);
        answer = format_response(path.empty() ? http_answer{400, "text/plain", "GET and a path\n"}
                                              : handler(path));
        return write();
    }
    bool write() {
        const ssize_t count =
            ::send(socket.get(), answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (count < 0) return errno == EAGAIN || errno == EINTR;
        sent += static_cast<size_t>(count);
        return sent < answer.size();
    }
};

bool wait_for(int socket, short events, uint64_t until_ns) {
    const uint64_t now_ns = steady_ns();
    if (now_ns >= until_ns) return false;
    pollfd polled{socket, events, 0};
    return ::poll(&polled, 1, static_cast<int>((until_ns - now_ns) / 1'000'000 + 1)) > 0;
}

}  // namespace

std::string_view path_of_request(std::string_view request) {
    constexpr std::string_view verb = "GET ";
    const std::string_view line = request.substr(0, request.find("\r\n"));
    if (!line.starts_with(verb)) return {};
    const std::string_view rest = line.substr(verb.size());
    const size_t end = rest.find(' ');
    if (end == std::string_view::npos || !rest.substr(end + 1).starts_with("HTTP/1.")) return {};
    const std::string_view path = rest.substr(0, std::min(end, rest.find('?')));
    return path.starts_with('/') ? path : std::string_view();
}

result<std::unique_ptr<http_server>> http_server::listen(const std::string &address,
                                                         handler answer) {
    address_list addresses;
    if (const status known = resolve(address, true, addresses); !known) return known.failure();
    file_handle listener(
        ::socket(addresses.first->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (listener.get() < 0) return failed(address, "socket");
    const int yes = 1;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (::bind(listener.get(), addresses.first->ai_addr, addresses.first->ai_addrlen) != 0)
        return failed(address, "cannot be listened at");
    if (::listen(listener.get(), 64) != 0) return failed(address, "cannot be listened at");
    file_handle waker(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (waker.get() < 0) return failed(address, "eventfd");
    std::unique_ptr<http_server> new_server(new http_server());
    new_server->address_ = bound_address(listener.get());
    new_server->listener_ = listener.release();
    new_server->waker_ = waker.release();
    new_server->answer_ = std::move(answer);
    new_server->thread_ = std::thread([server = new_server.get()] { server->run(); });
    return new_server;
}

http_server::~http_server() {
    const uint64_t wake_count = 1;
    [[maybe_unused]] const ssize_t written_bytes = ::write(waker_, &wake_count, sizeof(wake_count));
    if (thread_.joinable()) thread_.join();
    ::close(listener_);
    ::close(waker_);
}

void http_server::run() {
    std::list<http_client> clients;
    std::vector<pollfd> watched;
    for (;;) {
        watched.assign({{waker_, POLLIN, 0}, {listener_, POLLIN, 0}});
        for (const http_client &client : clients)
            watched.push_back({client.socket.get(),
                               static_cast<short>(client.answer.empty() ? POLLIN : POLLOUT), 0});
        constexpr int look_ms = 500;
        if (::poll(watched.data(), watched.size(), clients.empty() ? -1 : look_ms) < 0 &&
            errno != EINTR)
            return;
        if (watched[0].revents != 0) return;
        size_t index = 2;
        for (auto client = clients.begin(); client != clients.end(); ++index) {
            bool goes_on = steady_ns() < client->until_ns;
            if (goes_on && watched[index].revents != 0)
                goes_on = client->answer.empty() ? client->read(answer_) : client->write();
            client = goes_on ? std::next(client) : clients.erase(client);
        }
        if ((watched[1].revents & POLLIN) == 0) continue;
        // Accepts all that have come. If there is no room, a new connection takes the place of the
        // one that has been silent for longest.
        for (size_t i = 0; i < connections_max; ++i) {
            file_handle accepted(
                ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
            if (accepted.get() < 0) break;
            if (clients.size() == connections_max) {
                const auto silent = std::ranges::find_if(
                    clients, [](const http_client &client) { return client.answer.empty(); });
                clients.erase(silent == clients.end() ? clients.begin() : silent);
            }
            clients.push_back({std::move(accepted), steady_ns() + answer_ns, {}, {}, 0});
        }
    }
}

result<std::string> http_get(const std::string &address, const std::string &path,
                             uint64_t within_ns) {
    constexpr size_t answer_bytes_max = 1 << 24;
    const uint64_t until_ns = steady_ns() + within_ns;
    address_list addresses;
    if (const status known = resolve(address, false, addresses); !known) return known.failure();
    const file_handle socket(
        ::socket(addresses.first->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (socket.get() < 0) return failed(address, "socket");
    if (::connect(socket.get(), addresses.first->ai_addr, addresses.first->ai_addrlen) != 0 &&
        errno != EINPROGRESS)
        return failed(address, "cannot be reached");
    const error silent{format("{}: no answer within {} ms", address, within_ns / 1'000'000)};
    if (!wait_for(socket.get(), POLLOUT, until_ns)) return silent;
    int socket_error = 0;
    socklen_t bytes = sizeof(socket_error);
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &socket_error, &bytes);
    errno = socket_error;
    if (socket_error != 0) return failed(address, "cannot be reached");
    const std::string request =
        format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", path, address);
    if (::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size()))
        return failed(address, "takes no request");
    std::string answer;
    for (char chunk[4096]; wait_for(socket.get(), POLLIN, until_ns);) {
        const ssize_t count = ::recv(socket.get(), chunk, sizeof(chunk), 0);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (count < 0) return failed(address, "breaks off");
        answer.append(chunk, static_cast<size_t>(count));
        if (answer.size() > answer_bytes_max) return error{address + ": an answer without end"};
        if (count != 0) continue;
        const size_t body = answer.find("\r\n\r\n");
        if (body == std::string::npos) return error{address + ": it does not speak HTTP"};
        if (!answer.starts_with("HTTP/1.1 200") && !answer.starts_with("HTTP/1.0 200"))
            return error{format("{}: {}", address, answer.substr(0, answer.find("\r\n")))};
        return answer.substr(body + 4);
    }
    return silent;
}

}  // namespace moorage::core
