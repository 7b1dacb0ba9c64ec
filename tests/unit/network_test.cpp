// Goal: messages leave and arrive at the times of the header, to the nanosecond; migration keeps
// its budgets; nothing is lost and equal runs are equal. Method: schedules worked out by hand on
// links of one byte a nanosecond; random traffic compared with a reference that goes nanosecond by
// nanosecond; properties of random traffic with budgets.
#include "tools/cluster/network.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <string>
#include <tuple>

#include "core/base/random.h"

namespace network_test {

using namespace moorage::core;

namespace {

constexpr traffic act = traffic::activation, mig = traffic::migration;

// Servers with one device each, every pair linked at 1 byte a nanosecond, 100 ns away.
cluster_arrays linked_servers(uint32_t servers) {
    cluster_arrays cluster;
    cluster.servers = servers;
    for (uint32_t s = 0; s < servers; ++s) cluster.device_server.push_back(s);
    cluster.link_bytes_per_s.assign(size_t{servers} * servers, 1e9);
    cluster.link_s.assign(size_t{servers} * servers, 100e-9);
    return cluster;
}

struct planned_message {
    uint64_t time_ns;
    uint32_t source, target;
    message content;
};

using landing = std::tuple<uint64_t, uint64_t>;  // time, tag

// Messages sent at a time are there before anything else happens at that time.
std::vector<landing> deliver_all(network &links, const std::vector<planned_message> &messages) {
    std::vector<landing> landed;
    for (size_t next = 0; next < messages.size() || links.due() != MOORAGE_NEVER;) {
        if (next < messages.size() && messages[next].time_ns <= links.due()) {
            links.send(links.channel(messages[next].source, messages[next].target),
                       messages[next].content, messages[next].time_ns);
            ++next;
        } else if (const auto arrival = links.take()) {
            landed.emplace_back(arrival->arrived_ns, arrival->content.tag);
        }
    }
    return landed;
}

// "tag@time " of all that arrives.
std::string arrivals(network &links, const std::vector<planned_message> &messages) {
    std::string text;
    for (const auto &[time, tag] : deliver_all(links, messages))
        text += std::to_string(tag) + "@" + std::to_string(time) + " ";
    return text;
}

}  // namespace

TEST_CASE("on a shared interface one message leaves at a time, and one comes in") {
    cluster_arrays cluster = linked_servers(3);
    cluster.flags = MOORAGE_LINKS_SHARED;
    network links(cluster, {});
    // 1 goes out of server 0 until 50, then 2 until 80; 3 comes in beside them until 40. 4 is for
    // server 2 as well, whose way in is free at 80.
    CHECK(arrivals(links, {{0, 0, 1, {act, 50, 1}},
                           {0, 0, 2, {act, 30, 2}},
                           {0, 1, 0, {act, 40, 3}},
                           {60, 1, 2, {act, 10, 4}}}) == "3@140 1@150 2@180 4@190 ");
    // Apart, each has a link of its own.
    network apart(linked_servers(3), {});
    CHECK(arrivals(apart, {{0, 0, 1, {act, 50, 1}},
                           {0, 0, 2, {act, 30, 2}},
                           {0, 1, 0, {act, 40, 3}},
                           {60, 1, 2, {act, 10, 4}}}) == "2@130 3@140 1@150 4@170 ");
}

TEST_CASE("channels of a shared interface take turns") {
    cluster_arrays cluster = linked_servers(3);
    cluster.flags = MOORAGE_LINKS_SHARED;
    network links(cluster, {});
    // Three for server 1 and two for server 2, all at once.
    CHECK(arrivals(links, {{0, 0, 1, {act, 10, 1}},
                           {0, 0, 1, {act, 10, 2}},
                           {0, 0, 1, {act, 10, 3}},
                           {0, 0, 2, {act, 10, 4}},
                           {0, 0, 2, {act, 10, 5}}}) == "1@110 2@120 4@130 3@140 5@150 ");
    network waits(cluster, {});
    const uint32_t to_one = waits.channel(0, 1), to_two = waits.channel(0, 2);
    waits.send(to_one, {act, 10, 1}, 0), waits.send(to_one, {act, 20, 2}, 0);
    CHECK(waits.activation_backlog_ns(to_two, 0) == 10 + 20);
    CHECK(waits.activation_backlog_ns(waits.channel(1, 0), 0) == 0);
}

TEST_CASE("a message takes its bytes over the rate and a latency that occupies nothing") {
    network links(linked_servers(2), {});
    const uint32_t forward = links.channel(0, 1), backward = links.channel(1, 0);
    CHECK(forward != backward);
    CHECK(forward == links.channel(0, 1));
    CHECK(links.alone_ns(forward, 1000) == 1100);
    // The second waits until 1050; the third has no bytes and keeps the order; the other direction
    // is free.
    CHECK(arrivals(links, {{50, 0, 1, {act, 1000, 1}},
                           {60, 0, 1, {act, 10, 2}},
                           {70, 0, 1, {act, 0, 3}},
                           {70, 1, 0, {act, 500, 4}}}) == "4@670 1@1150 2@1160 3@1160 ");
    const channel_figures seen = links.figures(forward);
    CHECK(seen.messages[0] == 3);
    CHECK(seen.bytes[0] == 1010);
    CHECK(seen.busy_ns[0] == 1010);
    CHECK(seen.queue_peak == 2);
    CHECK(links.network_bytes(act) == 1510);
    links.send(forward, {act, 100, 5}, 2000);
    links.send(forward, {act, 30, 6}, 2000);
    CHECK(links.activation_backlog_ns(forward, 2040) == 90);
    CHECK(links.activation_backlog_ns(backward, 2040) == 0);
}

TEST_CASE("times between nanoseconds are rounded up, whole ones are not") {
    cluster_arrays cluster = linked_servers(2);
    cluster.link_bytes_per_s = {0, 62.5e6, 3e9, 0};  // 500 Mbit/s: 16 ns a byte
    cluster.link_s.assign(4, 0);
    network links(cluster, {});
    CHECK(links.alone_ns(links.channel(0, 1), 4096) == 65536);
    CHECK(links.alone_ns(links.channel(1, 0), 1) == 1);
    CHECK(links.alone_ns(links.channel(1, 0), 3) == 1);
    CHECK(links.alone_ns(links.channel(1, 0), 4) == 2);
}

TEST_CASE("activations go before migration, which is cut into pieces") {
    network links(linked_servers(2), {.piece_bytes = 1000, .migration_delay_max = INFINITY});
    // Pieces 0-1000 and 1000-2000, activations 2000-2010 and 2010-2030, the last piece 2030-2530.
    CHECK(arrivals(links, {{0, 0, 1, {mig, 2500, 1}},
                           {0, 0, 1, {mig, 100, 2}},
                           {1300, 0, 1, {act, 10, 3}},
                           {1400, 0, 1, {act, 20, 4}}}) == "3@2110 4@2130 1@2630 2@2730 ");
    const channel_figures seen = links.figures(links.channel(0, 1));
    CHECK(seen.delayed_ns == 700);
    CHECK(seen.bytes[1] == 2600);
    CHECK(seen.messages[1] == 2);
}

TEST_CASE("a device gets no more migration than its budget, whatever links bring it") {
    // A byte takes 1 ns on the link and 10 ns of the budget.
    const network_options options{
        .piece_bytes = 1000, .migration_bytes_per_s = 1e8, .migration_delay_max = INFINITY};
    network links(linked_servers(3), options);
    // Device 2: pieces of the first at 0, 20000, 40000, of the second at 10000, 30000. The third is
    // for another device.
    CHECK(arrivals(links, {{0, 0, 2, {mig, 3000, 1, 2}},
                           {0, 1, 2, {mig, 2000, 2, 2}},
                           {5, 0, 1, {mig, 1000, 3, 1}}}) == "3@1105 2@31100 1@41100 ");
    // An activation does not wait for the budget, which lets the piece start at 50000.
    CHECK(arrivals(links, {{42000, 0, 2, {mig, 1000, 4, 2}}, {43000, 0, 2, {act, 7, 5}}}) ==
          "5@43107 4@51100 ");
}

TEST_CASE("migration that made activations wait too long is held back") {
    network links(linked_servers(2), {.piece_bytes = 1000, .migration_delay_max = 0.1});
    SUBCASE("until it would have been allowed, where no more activations come") {
        // 1000-1100, delayed by 500, 10 are allowed: pieces from 1100 + 490 / 0.1.
        CHECK(arrivals(links, {{0, 0, 1, {mig, 3000, 1}}, {500, 0, 1, {act, 100, 2}}}) ==
              "2@1200 1@8100 ");
    }
    SUBCASE("not where activations took long enough themselves") {
        CHECK(arrivals(links, {{0, 0, 1, {mig, 2000, 1}}, {500, 0, 1, {act, 5000, 2}}}) ==
              "2@6100 1@7100 ");
    }
    SUBCASE("until enough has been sent") {
        // Held until 6000 at 1100; at 7000 510 are allowed.
        CHECK(arrivals(links, {{0, 0, 1, {mig, 2000, 1}},
                               {500, 0, 1, {act, 100, 2}},
                               {2000, 0, 1, {act, 5000, 3}}}) == "2@1200 3@7100 1@8100 ");
    }
}

TEST_CASE("endpoints: the cloud, a user by radio, devices of one server, no link") {
    cluster_arrays cluster = linked_servers(2);
    cluster.homes = 2;
    cluster.home_server = {1, 0};
    cluster.home_up_bytes_per_s = {INFINITY, 1e8};
    cluster.home_down_bytes_per_s = {INFINITY, 5e8};
    cluster.cloud_up_bytes_per_s = {INFINITY, 2e9};
    cluster.cloud_down_bytes_per_s = {1e9, 1e9};
    cluster.cloud_s = {1e-3, 2e-3};
    cluster.link_bytes_per_s[1] = 0;  // 0 to 1
    network links(cluster, {.local_bytes_per_s = 1e10, .local_s = 2e-9});
    CHECK(links.home(0) == links.server(1));
    const uint32_t user = links.home(1);
    CHECK(user != links.cloud());
    CHECK(links.alone_ns(links.channel(user, 0), 100) == 1000);
    CHECK(links.alone_ns(links.channel(0, user), 100) == 200);
    CHECK(links.channel(user, 0) != links.channel(0, user));
    CHECK(links.channel(user, 1) == MOORAGE_NONE);
    CHECK(links.channel(user, links.cloud()) == MOORAGE_NONE);
    CHECK(links.channel(0, 1) == MOORAGE_NONE);
    CHECK(links.alone_ns(links.channel(0, links.cloud()), 1 << 20) == 1'000'000);
    CHECK(links.alone_ns(links.channel(1, links.cloud()), 10) == 2'000'005);
    CHECK(links.alone_ns(links.channel(links.cloud(), 1), 10) == 2'000'010);
    const uint32_t inside = links.channel(1, 1);
    CHECK(links.local(inside));
    CHECK(arrivals(links, {{0, 1, 1, {act, 100, 1}}}) == "1@12 ");
    CHECK(links.network_bytes(act) == 0);
    network none(linked_servers(2), {});
    CHECK(none.channel(0, none.cloud()) == MOORAGE_NONE);
}

TEST_CASE("figures over time") {
    network links(linked_servers(2), {.bucket_ns = 1000});
    arrivals(links, {{700, 0, 1, {act, 2500, 1}}, {700, 0, 1, {mig, 300, 2}}});
    CHECK(links.network_bytes_over_time(act)[0] == 2500);
    CHECK(links.network_bytes_over_time(mig)[3] == 300);
}

namespace {

std::vector<planned_message> random_traffic(uint64_t seed, uint32_t servers, bool migrating) {
    random_stream random(seed, 1);
    std::vector<planned_message> messages;
    uint64_t time_ns = 0;
    for (uint64_t tag = 0; tag < 200; ++tag) {
        time_ns += 1 + random.below(12);  // one at a time: the first to come is sent first
        const auto source = static_cast<uint32_t>(random.below(servers));
        const auto target =
            static_cast<uint32_t>((source + 1 + random.below(servers - 1)) % servers);
        const bool moves = random.below(4) == 0;
        const uint64_t bytes = moves ? random.below(60) : random.below(20);
        if (moves && !migrating) continue;
        messages.push_back({time_ns,
                            source,
                            target,
                            {moves ? mig : act, bytes, tag, moves ? target : MOORAGE_NONE}});
    }
    return messages;
}

// The same nanosecond by nanosecond. At the beginning of each, sent messages are queued; then a
// free line takes the first.
std::vector<landing> reference_run(const std::vector<planned_message> &messages,
                                   uint64_t piece_bytes, uint64_t latency_ns) {
    struct line {
        std::deque<message> waiting[2];
        uint64_t free = 0;
    };
    std::map<std::pair<uint32_t, uint32_t>, line> lines;
    std::vector<landing> landed;
    for (uint64_t now = 0; now < 20'000; ++now) {
        for (const planned_message &sent : messages)
            if (sent.time_ns == now)
                lines[{sent.source, sent.target}].waiting[sent.content.kind == mig].push_back(
                    sent.content);
        for (auto &[ends, line_state] : lines) {
            while (line_state.free <= now &&
                   (!line_state.waiting[0].empty() || !line_state.waiting[1].empty())) {
                std::deque<message> &queue = line_state.waiting[line_state.waiting[0].empty()];
                uint64_t bytes = queue.front().bytes;
                if (queue.front().kind == mig) bytes = std::min(bytes, piece_bytes);
                line_state.free = now + bytes;
                queue.front().bytes -= bytes;
                if (queue.front().bytes != 0) continue;
                landed.emplace_back(line_state.free + latency_ns, queue.front().tag);
                queue.pop_front();
            }
        }
    }
    std::ranges::sort(landed);
    return landed;
}

}  // namespace

TEST_CASE("random traffic arrives when a reference says that counts every nanosecond") {
    for (uint64_t seed = 0; seed < 30; ++seed) {
        CAPTURE(seed);
        const auto messages = random_traffic(seed, 3, true);
        network links(linked_servers(3), {.piece_bytes = 8, .migration_delay_max = INFINITY});
        std::vector<landing> landed = deliver_all(links, messages);
        CHECK(std::ranges::is_sorted(landed, {},
                                     [](const landing &arrival) { return std::get<0>(arrival); }));
        std::ranges::sort(landed);
        CHECK(landed == reference_run(messages, 8, 100));
    }
}

TEST_CASE("properties of random traffic with budgets") {
    const network_options options{.piece_bytes = 8,
                                  .migration_bytes_per_s = 5e7,  // 20 ns a byte
                                  .migration_delay_max = 0.05,
                                  .bucket_ns = 64};
    for (uint64_t seed = 0; seed < 60; ++seed) {
        CAPTURE(seed);
        const auto messages = random_traffic(seed, 3, true);
        network links(linked_servers(3), options), again(linked_servers(3), options),
            calm(linked_servers(3), options);
        const auto landed = deliver_all(links, messages);
        CHECK(landed ==
              deliver_all(again, messages));  // equal runs are equal, order at equal times included

        // Nothing is lost, nothing is made.
        uint64_t bytes[2] = {}, counted[2] = {}, busy = 0;
        for (const planned_message &sent : messages)
            bytes[sent.content.kind == mig] += sent.content.bytes;
        REQUIRE(landed.size() == messages.size());
        const uint64_t last_ns = std::get<0>(landed.back());
        for (uint32_t channel = 0; channel < links.channels(); ++channel) {
            const channel_figures seen = links.figures(channel);
            for (const int kind : {0, 1}) counted[kind] += seen.bytes[kind];
            busy += seen.busy_ns[0] + seen.busy_ns[1];
            CHECK(static_cast<double>(seen.delayed_ns) <= 0.05 * static_cast<double>(last_ns) + 8);
        }
        CHECK(counted[0] == bytes[0]);
        CHECK(counted[1] == bytes[1]);
        CHECK(busy == bytes[0] + bytes[1]);  // a byte a nanosecond
        for (const uint64_t bucket_bytes : links.network_bytes_over_time(mig))
            CHECK(bucket_bytes <=
                  3 * (64 / 20 + 8 + 1));  // three devices, each its budget and a piece

        // In order within a class and channel; an activation later by a piece at most.
        std::map<uint64_t, uint64_t> arrival_ns, alone_ns;
        for (const auto &[time, tag] : landed) arrival_ns[tag] = time;
        for (const auto &[time, tag] : deliver_all(calm, random_traffic(seed, 3, false)))
            alone_ns[tag] = time;
        std::map<std::tuple<uint32_t, uint32_t, traffic>, uint64_t> last_arrival_ns;
        for (const planned_message &sent : messages) {
            uint64_t &last = last_arrival_ns[{sent.source, sent.target, sent.content.kind}];
            CHECK(arrival_ns[sent.content.tag] >= last);
            last = arrival_ns[sent.content.tag];
            if (sent.content.kind == mig) continue;
            CHECK(arrival_ns[sent.content.tag] >= alone_ns[sent.content.tag]);
            CHECK(arrival_ns[sent.content.tag] <= alone_ns[sent.content.tag] + 8);
        }
    }
}

}  // namespace network_test
