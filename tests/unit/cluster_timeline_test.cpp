// cluster_timeline_test.cpp - goal: a request is followed over nodes with unrelated clocks. Served
// work lies within its call. Method: offsets and ways between clocks by hand. Watchers of one
// process, of which one answers with another clock's times. Three nodes as processes, two of them
// in time namespaces hours apart. Texts that no node would answer.
#include "core/node/cluster_timeline.h"

#include <doctest/doctest.h>

#include <sys/wait.h>

#include <fstream>

#include "core/base/log.h"
#include "core/base/random.h"
#include "core/node/fingerprint.h"
#include "core/node/watch.h"
#include "tests/skip.h"
#include "tests/unit/local_cluster.h"
#include "tests/unit/loop_wire.h"
#include "tests/unit/tampering_wire.h"

namespace cluster_timeline_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

constexpr uint64_t us = 1000, hour = 3600'000'000'000;

node_spans saying(const std::string &server, std::vector<node_spans::offset> offsets) {
    node_spans made;
    made.server = server;
    made.offsets = std::move(offsets);
    return made;
}

clock_sample known(int64_t offset_ns, uint64_t error_ns) { return {offset_ns, error_ns, 0}; }

json drawn(const std::vector<node_spans> &all, const cluster_timeline_choice &of = {}) {
    const toy::folder at;
    const std::string file = at / "events.json";
    auto events = timeline::open(file);
    REQUIRE(events.ok());
    draw_cluster(**events, all, of);
    REQUIRE((*events)->close().ok());
    std::ifstream in(file);
    return json::parse(in);
}

struct piece {
    std::string name, process;
    double begun_us = 0, ended_us = 0;
    json args;
};

// Spans by the flow that begins or ends at them: a call, and its served work.
struct flow {
    std::vector<piece> calls, served;
};

std::map<uint64_t, flow> flows_of(const json &all, std::vector<piece> *every = nullptr) {
    std::map<uint64_t, std::string> processes;
    std::map<uint64_t, flow> made;
    piece last;
    for (const json &one : all["traceEvents"]) {
        const std::string kind = one["ph"];
        if (kind == "M" && one["name"] == "process_name")
            processes[one["pid"]] = one["args"]["name"];
        if (kind == "X") {
            const double begun_us = one["ts"];
            last = {one["name"], processes[one["pid"]], begun_us,
                    begun_us + one["dur"].get<double>(), one.value("args", json())};
            if (every) every->push_back(last);
        }
        if (kind == "s") made[one["id"]].calls.push_back(last);
        if (kind == "f") made[one["id"]].served.push_back(last);
    }
    return made;
}

}  // namespace

TEST_CASE("an offset by hand, and the best of the latest") {
    // The other's clock is an hour ahead; 100 us there, 50 us held, 300 us back.
    const clock_sample one =
        clock_sample_of(1000 * us, hour + 1100 * us, hour + 1150 * us, 1450 * us);
    CHECK(one.offset_ns == static_cast<int64_t>(hour - 100 * us));
    CHECK(one.error_ns / us == 200);
    // And behind.
    const clock_sample behind = clock_sample_of(hour, 10 * us, 10 * us, hour + 20 * us);
    CHECK(behind.offset_ns == -static_cast<int64_t>(hour));
    CHECK(behind.error_ns / us == 10);

    clock_offset of;
    CHECK(of.best(hour).error_ns == 0);
    of.add({7, 40 * us, 10'000'000'000});
    CHECK(of.best(10'100'000'000).offset_ns == 7);
    CHECK(of.best(10'100'000'000).error_ns == 45 * us);
    of.add({8, 80 * us, 11'000'000'000});
    CHECK(of.best(11'000'000'000).offset_ns == 8);  // 40 us and a second's drift of 50 are more
    CHECK(of.best(11'000'000'000).error_ns == 80 * us);
    of.add({9, 60 * us, 11'000'000'000});
    CHECK(of.best(11'000'000'000).offset_ns == 9);
    for (int i = 0; i < 64; ++i) of.add({10, 500 * us, 12'000'000'000});
    CHECK(of.best(12'000'000'000).offset_ns == 10);  // the others are too old
    of.forget();
    CHECK(of.best(hour).error_ns == 0);
}

TEST_CASE("the best way between clocks") {
    // One knows two, two knows three; three knows one badly; four is known by its answer alone.
    std::vector<node_spans> all = {
        saying("one", {{"two", known(100, 5)}}),
        saying("two", {{"three", known(-30, 4)}, {"nobody", known(1, 1)}}),
        saying("three", {{"one", known(-1000, 60)}}), saying("four", {})};
    std::vector<clock_sample> clocks = common_clock(all);
    REQUIRE(clocks.size() == 4);
    CHECK(clocks[0].offset_ns == 0);
    CHECK(clocks[1].offset_ns == 100);
    CHECK(clocks[2].offset_ns == 70);
    CHECK(clocks[2].error_ns == 9);
    CHECK(clocks[3].error_ns == 0);
    // Asked: one's clock is 5 us ahead of the asker's, four's 2 us behind it.
    all[0].asked_ns = 1000, all[0].answered_ns = 1200, all[0].now_ns = 6100;
    all[3].asked_ns = 9000, all[3].answered_ns = 9400, all[3].now_ns = 7200;
    clocks = common_clock(all);
    CHECK(clocks[3].offset_ns == -7000);
    CHECK(clocks[3].error_ns == 101 + 201);
    CHECK(clocks[2].offset_ns == 70);
}

TEST_CASE("drawn: clocks that are hours apart, each call with what was served of it") {
    random_stream draw(3, 1);
    std::vector<node_spans> all(3);
    const int64_t shift[] = {0, static_cast<int64_t>(5 * hour), -static_cast<int64_t>(hour)};
    uint64_t at_ns = 10 * hour;
    for (uint32_t i = 0; i < 3; ++i) {
        all[i].server = format("server{}", i);
        all[i].incarnation = 70 + i;
        all[i].servers = {"server0", "server1", "server2"};
        all[0].offsets.push_back({format("server{}", i), known(shift[i], 3 * us)});
    }
    const auto by = [&](uint32_t server, uint64_t ns) {
        return static_cast<uint64_t>(static_cast<int64_t>(ns) + shift[server]);
    };
    for (uint64_t id = 1; id <= 200; ++id) {
        const auto to = static_cast<uint32_t>(1 + draw.below(2));
        const uint64_t sent = at_ns, came = sent + (1 + draw.below(90)) * us;
        const uint64_t begun = came + draw.below(40) * us, done = begun + draw.below(300) * us;
        const uint64_t back = done + (1 + draw.below(90)) * us;
        const uint64_t request = id <= 120 ? 1 : 2;
        all[0].spans.push_back(
            {span_kind::call, span_end::done, to, 3, 2, 4, request, 70, id, sent, sent, back});
        all[to].spans.push_back({span_kind::served, span_end::done, 0, 3, 2, 1, request, 70, id,
                                 by(to, came), by(to, begun), by(to, done)});
        at_ns += draw.below(200) * us;  // some overlap
    }
    all[0].spans.push_back({span_kind::request, span_end::done, no_server, 0, 32, 16, 1, 0, 0,
                            10 * hour, 10 * hour + us, at_ns});
    // A span of another home, beside them.
    all[1].spans.push_back({span_kind::served, span_end::done, 2, 0, 1, 1, 1, 72, 1,
                            by(1, 10 * hour), by(1, 10 * hour), by(1, 10 * hour + us)});
    for (node_spans &one : all) {
        auto again = read_node_spans(to_json(one));
        REQUIRE(again.ok());
        CHECK(again->spans == one.spans);
        CHECK(again->server == one.server);
        one = std::move(*again);
    }
    const json whole = drawn(all);
    const auto flows = flows_of(whole);
    uint64_t calls = 0;
    for (const auto &[id, one] : flows) {
        if (one.calls.empty()) continue;
        ++calls;
        REQUIRE(one.calls.size() == 1);
        REQUIRE(one.served.size() == 1);
        CHECK(one.served[0].begun_us >= one.calls[0].begun_us);
        CHECK(one.served[0].ended_us <= one.calls[0].ended_us);
        CHECK(one.served[0].args["request"] == one.calls[0].args["request"]);
        CHECK(one.served[0].args["for"] == "server0");
        CHECK(one.served[0].process.starts_with(one.calls[0].args["to"].get<std::string>()));
    }
    CHECK(calls == 200);
    CHECK(flows.size() == 201);
    std::vector<piece> every;
    const auto one_request = flows_of(drawn(all, {"server0", 1}), &every);
    CHECK(one_request.size() == 120);
    CHECK(every.size() == 120 + 2 * 120 + 1);  // each served twice, as a whole and as computed
    CHECK(std::ranges::count(every, "request 1", &piece::name) == 1);
    CHECK(flows_of(drawn(all, {"server2", 1})).empty());
}

TEST_CASE("what no node would say is refused, or cut off") {
    node_spans one = saying("one", {{"two", known(4, 5)}});
    one.spans.push_back({span_kind::call, span_end::done, 1, 0, 1, 1, 1, 7, 1, 5, 6, 7});
    const json sound = to_json(one);
    REQUIRE(read_node_spans(sound).ok());
    const auto refused = [&](const std::function<void(json &)> &change) {
        json wrong = sound;
        change(wrong);
        return !read_node_spans(wrong).ok();
    };
    CHECK(refused([](json &of) { of = 5; }));
    CHECK(refused([](json &of) { of.erase("columns"); }));
    CHECK(refused([](json &of) { of["spans"][0].push_back(1); }));
    CHECK(refused([](json &of) { of["spans"][0][0] = 3; }));
    CHECK(refused([](json &of) { of["spans"][0][1] = 6; }));
    CHECK(refused([](json &of) { of["spans"][0][9] = "5"; }));
    CHECK(refused([](json &of) { of["spans"][0][9] = 9; }));  // ends before it begins
    CHECK(refused([](json &of) { of["spans"][0][11] = uint64_t{1} << 62; }));
    CHECK(refused([](json &of) {
        for (size_t i = 0; i < span_log::spans_max; ++i) of["spans"].push_back(of["spans"][0]);
    }));
    json odd = sound;
    odd["offsets"] = {5,
                      {{"server", 5}, {"offset_ns", 1.5}},
                      {{"server", "two"}, {"offset_ns", 1}},
                      {{"server", "two"}, {"offset_ns", INT64_MIN}, {"error_ns", 1}}};
    odd["servers"] = {5, "a\nb"};
    odd["now_ns"] = -1;
    odd["server"] = std::string(1000, 'x');
    const auto taken = read_node_spans(odd);
    REQUIRE(taken.ok());
    CHECK(taken->offsets.empty());
    REQUIRE(taken->servers.size() == 1);
    CHECK(taken->servers[0].find('\n') == std::string::npos);
    CHECK(taken->server.size() == 256);
}

TEST_CASE("the latest spans are kept, the oldest first") {
    span_log log;
    for (uint64_t i = 0; i < span_log::spans_max + 10; ++i) {
        node_span one;
        one.id = i;
        log.add(one);
    }
    const std::vector<node_span> all = log.latest();
    REQUIRE(all.size() == span_log::spans_max);
    for (size_t i = 0; i < all.size(); ++i) CHECK(all[i].id == i + 10);
}

TEST_CASE("a watcher finds how far another clock is ahead") {
    set_log_level(log_level::error);
    for (const int64_t shift : {static_cast<int64_t>(7 * hour), -static_cast<int64_t>(5'000'000)}) {
        CAPTURE(shift);
        loop_hub hub;
        node_plan plan;
        for (uint32_t i = 0; i < 2; ++i)
            plan.servers.push_back({format("server{}", i), {format("beats:{}", i)}});
        plan.cluster = cluster_fingerprint(plan.servers);
        plan.sizes = {1, 2, 4, 1};
        set_holders(plan, std::vector<std::vector<uint32_t>>{{0}, {0}});
        const auto shifted = [shift](said &what) {
            pong_view of;
            if (what.header.kind == message_kind::pong &&
                read(what.body(), of).why == refusal_reason::none) {
                of.received_ns += static_cast<uint64_t>(shift);
                of.answered_ns += static_cast<uint64_t>(shift);
                what.bytes.resize(frame_header_bytes);
                write(what.bytes, of);
            }
            return 1;
        };
        watch one(
            std::make_unique<loop_wire>(hub), plan, {0, 5, "test"}, [] {}, 5'000'000);
        watch two(
            std::make_unique<tampering_wire>(std::make_unique<loop_wire>(hub), shifted), plan,
            {1, 6, "test"}, [] {}, 5'000'000);
        REQUIRE(two.listen("beats:1").ok());
        two.begin();
        one.begin();
        while (one.clock_of(1).error_ns == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const clock_sample is = one.clock_of(1);
        CHECK(std::abs(is.offset_ns - shift) <= static_cast<int64_t>(is.error_ns));
        CHECK(one.clock_of(0).error_ns == 0);
    }
}

TEST_CASE("a request followed over processes whose clocks are hours apart") {
    const std::string unshare = "/usr/bin/unshare";
    if (::access(unshare.c_str(), X_OK) != 0 ||
        std::system((unshare + " -T --monotonic 60 --fork true 2>/dev/null").c_str()) != 0)
        return skip("there are no time namespaces here (root, unshare of util-linux)");
    local_cluster all;
    for (const auto &[server, seconds] : {std::pair{1, "20000"}, {2, "3600"}})
        all.by[static_cast<size_t>(server)] = {unshare, "-T",     "--monotonic",
                                               seconds, "--fork", "--kill-child"};
    for (const size_t server : {0, 1, 2}) all.start(server);
    const std::string errors = all.at.file("errors");
    const ended load = run_line("load " + all.file + " --requests 2 --faster 50", errors);
    CAPTURE(load.errors);
    REQUIRE(load.code == 0);
    // Waits until each has heard of the others' clocks.
    for (int tries = 0; tries < 100; ++tries) {
        const auto text = http_get(all.status_address(0), "/spans", 5'000'000'000);
        REQUIRE(text.ok());
        if (json::parse(*text)["offsets"].size() == 2) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    const std::string file = all.at.file("events.json");
    const ended done =
        run_line("cluster timeline " + all.file + " --home one --out " + file, errors);
    CAPTURE(done.errors);
    REQUIRE(done.code == 0);
    CHECK(done.out.find("of 3 nodes") != std::string::npos);
    std::ifstream in(file);
    std::vector<piece> every;
    const auto flows = flows_of(json::parse(in), &every);
    uint64_t both = 0, requests = 0;
    for (const auto &[id, one] : flows) {
        if (one.calls.size() != 1 || one.served.size() != 1) continue;
        ++both;
        // Clocks are known to less than a millisecond on one machine, and a call may be as short.
        CHECK(one.served[0].begun_us >= one.calls[0].begun_us - 5000);
        CHECK(one.served[0].ended_us <= one.calls[0].ended_us + 5000);
        CHECK(one.served[0].args["request"] == one.calls[0].args["request"]);
    }
    for (const piece &one : every) requests += one.name.starts_with("request ");
    CHECK(both > 20);
    CHECK(requests == 2);
    const ended one_of_them =
        run_line("cluster timeline " + all.file + " --home one --request 2 --out " +
                     all.at.file("one.pftrace.gz"),
                 errors);
    CHECK(one_of_them.code == 0);
    CHECK(all.at.read("one.pftrace.gz").size() > 100);
    CHECK(run_line("cluster timeline " + all.file + " --request 2 --out x.json", errors).code == 2);
    // A node that is away is left out.
    all.end(2, SIGKILL);
    const ended two = run_line("cluster timeline " + all.file + " --out " + file, errors);
    CHECK(two.code == 1);
    CHECK(two.says("three is left out"));
}

}  // namespace cluster_timeline_test
