// etcd_fake.h - the part of etcd's JSON gateway that a registry uses, in this process. It lies
// where a test wants it to. Its answers have the forms of etcd 3.4.23: 64 bits as text, defaults
// left out, two forms of errors, watches in chunks that are cut anywhere.
#pragma once

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/json.h"
#include "core/base/steady_time.h"
#include "core/base/text.h"
#include "tools/registry/etcd_values.h"

namespace moorage::test {

using core::json;

class etcd_fake {
public:
    etcd_fake() {
        listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in socket_address{};
        socket_address.sin_family = AF_INET;
        socket_address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof(socket_address);
        REQUIRE(::bind(listener_, reinterpret_cast<sockaddr *>(&socket_address), bytes) == 0);
        REQUIRE(::listen(listener_, 64) == 0);
        REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr *>(&socket_address), &bytes) ==
                0);
        address = core::format("127.0.0.1:{}", ntohs(socket_address.sin_port));
        thread_ = std::thread([this] { run(); });
    }
    ~etcd_fake() {
        stopping_ = true;
        thread_.join();
        ::close(listener_);
    }

    std::string address;
    std::atomic<bool> silent = false;     // takes everything, answers nothing
    std::atomic<uint64_t> compacted = 0;  // watches from before it are told so
    std::atomic<uint64_t> asked = 0;
    // Replaces the whole HTTP answer to a path; empty: the usual answer.
    std::function<std::string(const std::string &path)> fake_answer;
    std::mutex guard;
    // Acts as after a restart with an empty directory.
    void forget() {
        const std::lock_guard lock(guard);
        pairs_.clear();
        leases_.clear();
        history_.clear();
        revision_ = 1;
        drop_ = true;
    }
    void drop_watches() { drop_ = true; }

private:
    struct pair {
        std::string value;
        uint64_t create = 0, mod = 0, lease = 0;
    };
    struct event {
        uint64_t revision;
        json content;
    };
    struct peer {
        int socket;
        std::string input, output;
        bool watches = false;
        std::string begin, end;
        uint64_t next = 0;
        bool closing = false;
    };

    void run() {
        while (!stopping_) {
            std::vector<pollfd> polled{{listener_, POLLIN, 0}};
            for (peer &connection : peers_)
                polled.push_back(
                    {connection.socket,
                     static_cast<short>(POLLIN | (connection.output.empty() ? 0 : POLLOUT)), 0});
            ::poll(polled.data(), polled.size(), 10);
            expire();
            size_t index = 1;
            for (auto connection = peers_.begin(); connection != peers_.end(); ++index) {
                bool goes_on = !(connection->watches && drop_);
                if (goes_on && index < polled.size() &&
                    (polled[index].revents & (POLLIN | POLLHUP)) != 0)
                    goes_on = read(*connection);
                if (goes_on && connection->watches && !silent) tell(*connection);
                if (goes_on && !connection->output.empty()) {
                    // Sends small pieces, so that lines and chunks are cut.
                    const size_t piece_bytes =
                        std::min<size_t>(connection->output.size(), connection->watches ? 7 : 4096);
                    const ssize_t sent = ::send(connection->socket, connection->output.data(),
                                                piece_bytes, MSG_NOSIGNAL);
                    if (sent > 0) connection->output.erase(0, static_cast<size_t>(sent));
                    goes_on = sent > 0 && !(connection->output.empty() && connection->closing);
                }
                if (!goes_on) ::close(connection->socket);
                connection = goes_on ? std::next(connection) : peers_.erase(connection);
            }
            drop_ = false;
            if ((polled[0].revents & POLLIN) != 0)
                peers_.push_back({::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC),
                                  {},
                                  {},
                                  false,
                                  {},
                                  {},
                                  0,
                                  false});
        }
        for (peer &connection : peers_) ::close(connection.socket);
    }

    bool read(peer &peer) {
        char buffer[65536];
        const ssize_t count = ::recv(peer.socket, buffer, sizeof(buffer), MSG_DONTWAIT);
        if (count <= 0) return false;
        peer.input.append(buffer, static_cast<size_t>(count));
        for (;;) {
            const size_t head = peer.input.find("\r\n\r\n");
            if (head == std::string::npos) return true;
            const size_t length = peer.input.find("Content-Length: ");
            const size_t bytes =
                length < head ? std::stoul(peer.input.substr(length + 16)) : size_t{0};
            if (peer.input.size() < head + 4 + bytes) return true;
            const std::string path = peer.input.substr(5, peer.input.find(' ', 5) - 5);
            const std::string body = peer.input.substr(head + 4, bytes);
            peer.input.erase(0, head + 4 + bytes);
            ++asked;
            if (!silent) answer(peer, path, json::parse(body));
        }
    }

    void answer(peer &peer, const std::string &path, const json &asked_for) {
        const std::lock_guard lock(guard);
        if (fake_answer)
            if (const std::string text = fake_answer(path); !text.empty()) {
                peer.output += text;
                peer.closing = true;
                return;
            }
        if (path == "/v3/watch") return watch(peer, asked_for["create_request"]);
        const json said = reply(path, asked_for);
        const std::string text = said.dump();
        peer.output += core::format(
            "HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
            said.contains("error") ? "400 Bad Request" : "200 OK", text.size(), text);
    }

    json header() const { return {{"cluster_id", "1"}, {"revision", std::to_string(revision_)}}; }

    static std::string bytes_of(const json &object, const char *key) {
        return object.contains(key) ? core::from_base64(object[key].get<std::string>()).value()
                                    : "";
    }
    static uint64_t number_of(const json &object, const char *key) {
        return core::etcd_number(object, key);
    }

    json json_of(const std::string &key, const pair &entry) const {
        json object = {{"key", core::base64(key)},
                       {"create_revision", std::to_string(entry.create)},
                       {"mod_revision", std::to_string(entry.mod)}};
        if (!entry.value.empty()) object["value"] = core::base64(entry.value);
        if (entry.lease != 0) object["lease"] = std::to_string(entry.lease);
        return object;
    }

    bool put(const json &asked_for) {
        const uint64_t lease = number_of(asked_for, "lease");
        if (lease != 0 && !leases_.contains(lease)) return false;
        const std::string key = bytes_of(asked_for, "key");
        pair &entry = pairs_[key];
        entry.value = bytes_of(asked_for, "value");
        entry.mod = ++revision_;
        if (entry.create == 0) entry.create = entry.mod;
        entry.lease = lease;
        history_.push_back({revision_, {{"kv", json_of(key, entry)}}});
        return true;
    }

    void remove(uint64_t lease) {
        leases_.erase(lease);
        for (auto entry = pairs_.begin(); entry != pairs_.end();) {
            if (entry->second.lease != lease) {
                ++entry;
                continue;
            }
            ++revision_;
            history_.push_back({revision_,
                                {{"type", "DELETE"},
                                 {"kv",
                                  {{"key", core::base64(entry->first)},
                                   {"mod_revision", std::to_string(revision_)}}}}});
            entry = pairs_.erase(entry);
        }
    }

    void expire() {
        const std::lock_guard lock(guard);
        const uint64_t now_ns = core::steady_ns();
        std::vector<uint64_t> expired;
        for (const auto &[id, until_ns] : leases_)
            if (until_ns < now_ns) expired.push_back(id);
        for (const uint64_t id : expired) remove(id);
    }

    bool holds(const json &compare) const {
        const auto found = pairs_.find(bytes_of(compare, "key"));
        const pair entry = found == pairs_.end() ? pair() : found->second;
        if (compare["target"] == "CREATE")
            return entry.create == number_of(compare, "create_revision");
        return entry.mod == number_of(compare, "mod_revision");
    }

    json reply(const std::string &path, const json &asked_for) {
        const json lease_gone = {{"error", "etcdserver: requested lease not found"}, {"code", 5}};
        if (path == "/v3/kv/put") return put(asked_for) ? json{{"header", header()}} : lease_gone;
        if (path == "/v3/kv/range") {
            json entries = json::array();
            const std::string begin = bytes_of(asked_for, "key"),
                              end = bytes_of(asked_for, "range_end");
            for (const auto &[key, entry] : pairs_)
                if (key >= begin && key < end) entries.push_back(json_of(key, entry));
            json said = {{"header", header()}};
            if (!entries.empty()) said["kvs"] = entries;
            return said;
        }
        if (path == "/v3/kv/deleterange") {
            const std::string key = bytes_of(asked_for, "key");
            if (pairs_.erase(key) == 0) return {{"header", header()}};
            history_.push_back(
                {++revision_,
                 {{"type", "DELETE"},
                  {"kv",
                   {{"key", core::base64(key)}, {"mod_revision", std::to_string(revision_)}}}}});
            return {{"header", header()}, {"deleted", "1"}};
        }
        if (path == "/v3/kv/txn") {
            bool conditions_hold = true;
            for (const json &condition : asked_for["compare"]) conditions_hold &= holds(condition);
            if (!conditions_hold) return {{"header", header()}};
            if (!put(asked_for["success"][0]["request_put"])) return lease_gone;
            return {{"header", header()}, {"succeeded", true}};
        }
        if (path == "/v3/lease/grant") {
            const uint64_t id = ++next_lease_;
            leases_[id] = core::steady_ns() + number_of(asked_for, "TTL") * 1'000'000'000;
            return {{"header", header()}, {"ID", std::to_string(id)}, {"TTL", asked_for["TTL"]}};
        }
        const uint64_t id = number_of(asked_for, "ID");
        if (path == "/v3/lease/revoke") return remove(id), json{{"header", header()}};
        if (path != "/v3/lease/keepalive") return {{"error", "Not Found"}, {"code", 5}};
        if (!leases_.contains(id)) return {{"result", {{"ID", std::to_string(id)}}}};
        leases_[id] = core::steady_ns() + 5'000'000'000;
        return {{"result", {{"ID", std::to_string(id)}, {"TTL", "5"}}}};
    }

    static std::string chunk(const json &document) {
        const std::string text = document.dump() + "\n";
        std::string chunks;
        for (size_t i = 0; i < text.size(); i += 50) {
            const std::string part = text.substr(i, 50);
            chunks += core::format("{:x}\r\n{}\r\n", part.size(), part);
        }
        return chunks;
    }

    void watch(peer &peer, const json &create) {
        peer.watches = true;
        peer.begin = bytes_of(create, "key");
        peer.end = bytes_of(create, "range_end");
        peer.next = number_of(create, "start_revision");
        peer.output += "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        peer.output += chunk({{"result", {{"header", header()}, {"created", true}}}});
        if (peer.next > compacted) return;
        peer.output += chunk({{"result",
                               {{"header", header()},
                                {"canceled", true},
                                {"compact_revision", std::to_string(compacted.load())}}}});
        peer.next = UINT64_MAX;
    }

    void tell(peer &peer) {
        const std::lock_guard lock(guard);
        json events = json::array();
        for (const event &event : history_)
            if (event.revision >= peer.next) events.push_back(event.content);
        if (events.empty() || peer.next == UINT64_MAX) return;
        peer.next = history_.back().revision + 1;
        peer.output += chunk({{"result", {{"header", header()}, {"events", events}}}});
    }

    int listener_ = -1;
    std::list<peer> peers_;
    std::map<std::string, pair> pairs_;
    std::map<uint64_t, uint64_t> leases_;  // until
    std::vector<event> history_;
    uint64_t revision_ = 1, next_lease_ = 100;
    std::atomic<bool> stopping_ = false, drop_ = false;
    std::thread thread_;
};

}  // namespace moorage::test
