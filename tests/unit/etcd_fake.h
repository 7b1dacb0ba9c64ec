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
#include "core/registry/etcd_values.h"

namespace moorage::test {

using core::json;

class etcd_fake {
public:
    etcd_fake() {
        listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof(at);
        REQUIRE(::bind(listener_, reinterpret_cast<sockaddr *>(&at), bytes) == 0);
        REQUIRE(::listen(listener_, 64) == 0);
        REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr *>(&at), &bytes) == 0);
        address = core::format("127.0.0.1:{}", ntohs(at.sin_port));
        thread_ = std::thread([this] { run(); });
    }
    ~etcd_fake() {
        over_ = true;
        thread_.join();
        ::close(listener_);
    }

    std::string address;
    std::atomic<bool> silent = false;     // takes everything, answers nothing
    std::atomic<uint64_t> compacted = 0;  // watches from before it are told so
    std::atomic<uint64_t> asked = 0;
    // Replaces the whole HTTP answer to a path; empty: the usual answer.
    std::function<std::string(const std::string &path)> lie;
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
        json what;
    };
    struct peer {
        int socket;
        std::string in, out;
        bool watches = false;
        std::string begin, end;
        uint64_t next = 0;
        bool closing = false;
    };

    void run() {
        while (!over_) {
            std::vector<pollfd> all{{listener_, POLLIN, 0}};
            for (peer &one : peers_)
                all.push_back(
                    {one.socket, static_cast<short>(POLLIN | (one.out.empty() ? 0 : POLLOUT)), 0});
            ::poll(all.data(), all.size(), 10);
            expire();
            size_t at = 1;
            for (auto one = peers_.begin(); one != peers_.end(); ++at) {
                bool goes_on = !(one->watches && drop_);
                if (goes_on && at < all.size() && (all[at].revents & (POLLIN | POLLHUP)) != 0)
                    goes_on = read(*one);
                if (goes_on && one->watches && !silent) tell(*one);
                if (goes_on && !one->out.empty()) {
                    // Sends small pieces, so that lines and chunks are cut.
                    const size_t some = std::min<size_t>(one->out.size(), one->watches ? 7 : 4096);
                    const ssize_t sent = ::send(one->socket, one->out.data(), some, MSG_NOSIGNAL);
                    if (sent > 0) one->out.erase(0, static_cast<size_t>(sent));
                    goes_on = sent > 0 && !(one->out.empty() && one->closing);
                }
                if (!goes_on) ::close(one->socket);
                one = goes_on ? std::next(one) : peers_.erase(one);
            }
            drop_ = false;
            if ((all[0].revents & POLLIN) != 0)
                peers_.push_back({::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC),
                                  {},
                                  {},
                                  false,
                                  {},
                                  {},
                                  0,
                                  false});
        }
        for (peer &one : peers_) ::close(one.socket);
    }

    bool read(peer &from) {
        char some[65536];
        const ssize_t count = ::recv(from.socket, some, sizeof(some), MSG_DONTWAIT);
        if (count <= 0) return false;
        from.in.append(some, static_cast<size_t>(count));
        for (;;) {
            const size_t head = from.in.find("\r\n\r\n");
            if (head == std::string::npos) return true;
            const size_t length = from.in.find("Content-Length: ");
            const size_t bytes =
                length < head ? std::stoul(from.in.substr(length + 16)) : size_t{0};
            if (from.in.size() < head + 4 + bytes) return true;
            const std::string path = from.in.substr(5, from.in.find(' ', 5) - 5);
            const std::string body = from.in.substr(head + 4, bytes);
            from.in.erase(0, head + 4 + bytes);
            ++asked;
            if (!silent) answer(from, path, json::parse(body));
        }
    }

    void answer(peer &to, const std::string &path, const json &asked_for) {
        const std::lock_guard lock(guard);
        if (lie)
            if (const std::string text = lie(path); !text.empty()) {
                to.out += text;
                to.closing = true;
                return;
            }
        if (path == "/v3/watch") return watch(to, asked_for["create_request"]);
        const json said = reply(path, asked_for);
        const std::string text = said.dump();
        to.out += core::format(
            "HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
            said.contains("error") ? "400 Bad Request" : "200 OK", text.size(), text);
    }

    json header() const { return {{"cluster_id", "1"}, {"revision", std::to_string(revision_)}}; }

    static std::string bytes_of(const json &of, const char *key) {
        return of.contains(key) ? core::from_base64(of[key].get<std::string>()).value() : "";
    }
    static uint64_t number_of(const json &of, const char *key) {
        return core::etcd_number(of, key);
    }

    json json_of(const std::string &key, const pair &of) const {
        json made = {{"key", core::base64(key)},
                     {"create_revision", std::to_string(of.create)},
                     {"mod_revision", std::to_string(of.mod)}};
        if (!of.value.empty()) made["value"] = core::base64(of.value);
        if (of.lease != 0) made["lease"] = std::to_string(of.lease);
        return made;
    }

    bool put(const json &asked_for) {
        const uint64_t lease = number_of(asked_for, "lease");
        if (lease != 0 && !leases_.contains(lease)) return false;
        const std::string key = bytes_of(asked_for, "key");
        pair &of = pairs_[key];
        of.value = bytes_of(asked_for, "value");
        of.mod = ++revision_;
        if (of.create == 0) of.create = of.mod;
        of.lease = lease;
        history_.push_back({revision_, {{"kv", json_of(key, of)}}});
        return true;
    }

    void remove(uint64_t lease) {
        leases_.erase(lease);
        for (auto one = pairs_.begin(); one != pairs_.end();) {
            if (one->second.lease != lease) {
                ++one;
                continue;
            }
            ++revision_;
            history_.push_back({revision_,
                                {{"type", "DELETE"},
                                 {"kv",
                                  {{"key", core::base64(one->first)},
                                   {"mod_revision", std::to_string(revision_)}}}}});
            one = pairs_.erase(one);
        }
    }

    void expire() {
        const std::lock_guard lock(guard);
        const uint64_t now_ns = core::steady_ns();
        std::vector<uint64_t> over;
        for (const auto &[id, until_ns] : leases_)
            if (until_ns < now_ns) over.push_back(id);
        for (const uint64_t id : over) remove(id);
    }

    bool holds(const json &compare) const {
        const auto at = pairs_.find(bytes_of(compare, "key"));
        const pair of = at == pairs_.end() ? pair() : at->second;
        if (compare["target"] == "CREATE")
            return of.create == number_of(compare, "create_revision");
        return of.mod == number_of(compare, "mod_revision");
    }

    json reply(const std::string &path, const json &asked_for) {
        const json lease_gone = {{"error", "etcdserver: requested lease not found"}, {"code", 5}};
        if (path == "/v3/kv/put") return put(asked_for) ? json{{"header", header()}} : lease_gone;
        if (path == "/v3/kv/range") {
            json all = json::array();
            const std::string begin = bytes_of(asked_for, "key"),
                              end = bytes_of(asked_for, "range_end");
            for (const auto &[key, of] : pairs_)
                if (key >= begin && key < end) all.push_back(json_of(key, of));
            json said = {{"header", header()}};
            if (!all.empty()) said["kvs"] = all;
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
            bool all = true;
            for (const json &one : asked_for["compare"]) all &= holds(one);
            if (!all) return {{"header", header()}};
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

    static std::string chunk(const json &of) {
        const std::string text = of.dump() + "\n";
        std::string made;
        for (size_t i = 0; i < text.size(); i += 50) {
            const std::string part = text.substr(i, 50);
            made += core::format("{:x}\r\n{}\r\n", part.size(), part);
        }
        return made;
    }

    void watch(peer &to, const json &create) {
        to.watches = true;
        to.begin = bytes_of(create, "key");
        to.end = bytes_of(create, "range_end");
        to.next = number_of(create, "start_revision");
        to.out += "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        to.out += chunk({{"result", {{"header", header()}, {"created", true}}}});
        if (to.next > compacted) return;
        to.out += chunk({{"result",
                          {{"header", header()},
                           {"canceled", true},
                           {"compact_revision", std::to_string(compacted.load())}}}});
        to.next = UINT64_MAX;
    }

    void tell(peer &to) {
        const std::lock_guard lock(guard);
        json events = json::array();
        for (const event &one : history_)
            if (one.revision >= to.next) events.push_back(one.what);
        if (events.empty() || to.next == UINT64_MAX) return;
        to.next = history_.back().revision + 1;
        to.out += chunk({{"result", {{"header", header()}, {"events", events}}}});
    }

    int listener_ = -1;
    std::list<peer> peers_;
    std::map<std::string, pair> pairs_;
    std::map<uint64_t, uint64_t> leases_;  // until
    std::vector<event> history_;
    uint64_t revision_ = 1, next_lease_ = 100;
    std::atomic<bool> over_ = false, drop_ = false;
    std::thread thread_;
};

}  // namespace moorage::test
