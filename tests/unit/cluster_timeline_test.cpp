// cluster_timeline_test.cpp - goal: a request is followed over nodes with unrelated clocks. Served
// work lies within its call. Method: offsets and ways between clocks by hand. Watchers of one
// process, of which one answers with another clock's times. Three nodes as processes, two of them
// in time namespaces hours apart. Texts that no node would answer.
#include "tools/node/cluster_timeline.h"

#include <doctest/doctest.h>

#include <sys/wait.h>

#include <fstream>

#include "core/base/log.h"
#include "core/base/random.h"
#include "tools/node/fingerprint.h"
#include "tools/node/watch.h"
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
    node_spans node;
    node.server = server;
    node.offsets = std::move(offsets);
    return node;
}

clock_sample known(int64_t offset_ns, uint64_t error_ns) { return {offset_ns, error_ns, 0}; }

json drawn(const std::vector<node_spans> &nodes, const cluster_timeline_choice &choice = {}) {
    const toy::folder folder;
    const std::string file = folder / "events.json";
    auto events = timeline::open(file);
    REQUIRE(events.ok());
    draw_cluster(**events, nodes, choice);
    REQUIRE((*events)->close().ok());
    std::ifstream input(file);
    return json::parse(input);
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

std::map<uint64_t, flow> flows_of(const json &document, std::vector<piece> *every = nullptr) {
    std::map<uint64_t, std::string> processes;
    std::map<uint64_t, flow> flows;
    piece last;
    for (const json &event : document["traceEvents"]) {
        const std::string kind = event["ph"];
        if (kind == "M" && event["name"] == "process_name")
            processes[event["pid"]] = event["args"]["name"];
        if (kind == "X") {
            const double begun_us = event["ts"];
            last = {event["name"], processes[event["pid"]], begun_us,
                    begun_us + event["dur"].get<double>(), event.value("args", json())};
            if (every) every->push_back(last);
        }
        if (kind == "s") flows[event["id"]].calls.push_back(last);
        if (kind == "f") flows[event["id"]].served.push_back(last);
    }
    return flows;
}

}  // namespace

TEST_CASE("an offset by hand, and the best of the latest") {
    // The other's clock is an hour ahead; 100 us there, 50 us held, 300 us back.
    const clock_sample sample =
        clock_sample_of(1000 * us, hour + 1100 * us, hour + 1150 * us, 1450 * us);
    CHECK(sample.offset_ns == static_cast<int64_t>(hour - 100 * us));
    CHECK(sample.error_ns / us == 200);
    // And behind.
    const clock_sample behind = clock_sample_of(hour, 10 * us, 10 * us, hour + 20 * us);
    CHECK(behind.offset_ns == -static_cast<int64_t>(hour));
    CHECK(behind.error_ns / us == 10);

    clock_offset clock;
    CHECK(clock.best(hour).error_ns == 0);
    clock.add({7, 40 * us, 10'000'000'000});
    CHECK(clock.best(10'100'000'000).offset_ns == 7);
    CHECK(clock.best(10'100'000'000).error_ns == 45 * us);
    clock.add({8, 80 * us, 11'000'000'000});
    CHECK(clock.best(11'000'000'000).offset_ns == 8);  // 40 us and a second's drift of 50 are more
    CHECK(clock.best(11'000'000'000).error_ns == 80 * us);
    clock.add({9, 60 * us, 11'000'000'000});
    CHECK(clock.best(11'000'000'000).offset_ns == 9);
    for (int i = 0; i < 64; ++i) clock.add({10, 500 * us, 12'000'000'000});
    CHECK(clock.best(12'000'000'000).offset_ns == 10);  // the others are too old
    clock.forget();
    CHECK(clock.best(hour).error_ns == 0);
}

TEST_CASE("the best way between clocks") {
    // One knows two, two knows three; three knows one badly; four is known by its answer alone.
    std::vector<node_spans> nodes = {
        saying("one", {{"two", known(100, 5)}}),
        saying("two", {{"three", known(-30, 4)}, {"nobody", known(1, 1)}}),
        saying("three", {{"one", known(-1000, 60)}}), saying("four", {})};
    std::vector<clock_sample> clocks = common_clock(nodes);
    REQUIRE(clocks.size() == 4);
    CHECK(clocks[0].offset_ns == 0);
    CHECK(clocks[1].offset_ns == 100);
    CHECK(clocks[2].offset_ns == 70);
    CHECK(clocks[2].error_ns == 9);
    CHECK(clocks[3].error_ns == 0);
    // Asked: one's clock is 5 us ahead of the asker's, four's 2 us behind it.
    nodes[0].asked_ns = 1000, nodes[0].answered_ns = 1200, nodes[0].now_ns = 6100;
    nodes[3].asked_ns = 9000, nodes[3].answered_ns = 9400, nodes[3].now_ns = 7200;
    clocks = common_clock(nodes);
    CHECK(clocks[3].offset_ns == -7000);
    CHECK(clocks[3].error_ns == 101 + 201);
    CHECK(clocks[2].offset_ns == 70);
}

TEST_CASE("drawn: clocks that are hours apart, each call with what was served of it") {
    random_stream draw(3, 1);
    std::vector<node_spans> nodes(3);
    const int64_t shift[] = {0, static_cast<int64_t>(5 * hour), -static_cast<int64_t>(hour)};
    uint64_t at_ns = 10 * hour;
    for (uint32_t i = 0; i < 3; ++i) {
        nodes[i].server = format("server{}", i);
        nodes[i].incarnation = 70 + i;
        nodes[i].servers = {"server0", "server1", "server2"};
        nodes[0].offsets.push_back({format("server{}", i), known(shift[i], 3 * us)});
    }
    const auto local_ns = [&](uint32_t server, uint64_t ns) {
        return static_cast<uint64_t>(static_cast<int64_t>(ns) + shift[server]);
    };
    for (uint64_t id = 1; id <= 200; ++id) {
        const auto target = static_cast<uint32_t>(1 + draw.below(2));
        const uint64_t sent = at_ns, came = sent + (1 + draw.below(90)) * us;
        const uint64_t begun = came + draw.below(40) * us, done = begun + draw.below(300) * us;
        const uint64_t back = done + (1 + draw.below(90)) * us;
        const uint64_t request = id <= 120 ? 1 : 2;
        nodes[0].spans.push_back(
            {span_kind::call, span_end::done, target, 3, 2, 4, request, 70, id, sent, sent, back});
        nodes[target].spans.push_back({span_kind::served, span_end::done, 0, 3, 2, 1, request, 70,
                                       id, local_ns(target, came), local_ns(target, begun),
                                       local_ns(target, done)});
        at_ns += draw.below(200) * us;  // some overlap
    }
    nodes[0].spans.push_back({span_kind::request, span_end::done, no_server, 0, 32, 16, 1, 0, 0,
                              10 * hour, 10 * hour + us, at_ns});
    // A span of another home, beside them.
    nodes[1].spans.push_back({span_kind::served, span_end::done, 2, 0, 1, 1, 1, 72, 1,
                              local_ns(1, 10 * hour), local_ns(1, 10 * hour),
                              local_ns(1, 10 * hour + us)});
    for (node_spans &node : nodes) {
        auto again = read_node_spans(to_json(node));
        REQUIRE(again.ok());
        CHECK(again->spans == node.spans);
        CHECK(again->server == node.server);
        node = std::move(*again);
    }
    const json whole = drawn(nodes);
    const auto flows = flows_of(whole);
    uint64_t calls = 0;
    for (const auto &[id, flow] : flows) {
        if (flow.calls.empty()) continue;
        ++calls;
        REQUIRE(flow.calls.size() == 1);
        REQUIRE(flow.served.size() == 1);
        CHECK(flow.served[0].begun_us >= flow.calls[0].begun_us);
        CHECK(flow.served[0].ended_us <= flow.calls[0].ended_us);
        CHECK(flow.served[0].args["request"] == flow.calls[0].args["request"]);
        CHECK(flow.served[0].args["for"] == "server0");
        CHECK(flow.served[0].process.starts_with(flow.calls[0].args["to"].get<std::string>()));
    }
    CHECK(calls == 200);
    CHECK(flows.size() == 201);
    std::vector<piece> every;
    const auto one_request = flows_of(drawn(nodes, {"server0", 1}), &every);
    CHECK(one_request.size() == 120);
    CHECK(every.size() == 120 + 2 * 120 + 1);  // each served twice, as a whole and as computed
    CHECK(std::ranges::count(every, "request 1", &piece::name) == 1);
    CHECK(flows_of(drawn(nodes, {"server2", 1})).empty());
}

TEST_CASE("what no node would say is refused, or cut off") {
    node_spans node = saying("one", {{"two", known(4, 5)}});
    node.spans.push_back({span_kind::call, span_end::done, 1, 0, 1, 1, 1, 7, 1, 5, 6, 7});
    const json sound = to_json(node);
    REQUIRE(read_node_spans(sound).ok());
    const auto refused = [&](const std::function<void(json &)> &change) {
        json wrong = sound;
        change(wrong);
        return !read_node_spans(wrong).ok();
    };
    CHECK(refused([](json &document) { document = 5; }));
    CHECK(refused([](json &document) { document.erase("columns"); }));
    CHECK(refused([](json &document) { document["spans"][0].push_back(1); }));
    CHECK(refused([](json &document) { document["spans"][0][0] = 3; }));
    CHECK(refused([](json &document) { document["spans"][0][1] = 6; }));
    CHECK(refused([](json &document) { document["spans"][0][9] = "5"; }));
    CHECK(refused([](json &document) { document["spans"][0][9] = 9; }));  // ends before it begins
    CHECK(refused([](json &document) { document["spans"][0][11] = uint64_t{1} << 62; }));
    CHECK(refused([](json &document) {
        for (size_t i = 0; i < span_log::spans_max; ++i)
            document["spans"].push_back(document["spans"][0]);
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
        node_span span;
        span.id = i;
        log.add(span);
    }
    const std::vector<node_span> spans = log.latest();
    REQUIRE(spans.size() == span_log::spans_max);
    for (size_t i = 0; i < spans.size(); ++i) CHECK(spans[i].id == i + 10);
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
        const auto shifted = [shift](sent_frame &message) {
            pong_view pong;
            if (message.header.kind == message_kind::pong &&
                read(message.body(), pong).reason == refusal_reason::none) {
                pong.received_ns += static_cast<uint64_t>(shift);
                pong.answered_ns += static_cast<uint64_t>(shift);
                message.bytes.resize(frame_header_bytes);
                write(message.bytes, pong);
            }
            return 1;
        };
        watch watcher(
            std::make_unique<loop_wire>(hub), plan, {0, 5, "test"}, [] {}, 5'000'000);
        watch two(
            std::make_unique<tampering_wire>(std::make_unique<loop_wire>(hub), shifted), plan,
            {1, 6, "test"}, [] {}, 5'000'000);
        REQUIRE(two.listen("beats:1").ok());
        two.begin();
        watcher.begin();
        while (watcher.clock_of(1).error_ns == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const clock_sample is = watcher.clock_of(1);
        CHECK(std::abs(is.offset_ns - shift) <= static_cast<int64_t>(is.error_ns));
        CHECK(watcher.clock_of(0).error_ns == 0);
    }
}

TEST_CASE("a request followed over processes whose clocks are hours apart") {
    const std::string unshare = "/usr/bin/unshare";
    if (::access(unshare.c_str(), X_OK) != 0 ||
        std::system((unshare + " -T --monotonic 60 --fork true 2>/dev/null").c_str()) != 0)
        return skip("there are no time namespaces here (root, unshare of util-linux)");
    local_cluster cluster;
    for (const auto &[server, seconds] : {std::pair{1, "20000"}, {2, "3600"}})
        cluster.launch_prefixes[static_cast<size_t>(server)] = {unshare, "-T",     "--monotonic",
                                                                seconds, "--fork", "--kill-child"};
    for (const size_t server : {0, 1, 2}) cluster.start(server);
    const std::string errors = cluster.runner.file("errors");
    const program_result load =
        run_line("load " + cluster.file + " --requests 2 --faster 50", errors);
    CAPTURE(load.errors);
    REQUIRE(load.code == 0);
    // Waits until each has heard of the others' clocks.
    for (int tries = 0; tries < 100; ++tries) {
        const auto text = http_get(cluster.status_address(0), "/spans", 5'000'000'000);
        REQUIRE(text.ok());
        if (json::parse(*text)["offsets"].size() == 2) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    const std::string file = cluster.runner.file("events.json");
    const program_result done =
        run_line("cluster timeline " + cluster.file + " --home one --out " + file, errors);
    CAPTURE(done.errors);
    REQUIRE(done.code == 0);
    CHECK(done.output.find("of 3 nodes") != std::string::npos);
    std::ifstream input(file);
    std::vector<piece> every;
    const auto flows = flows_of(json::parse(input), &every);
    uint64_t matched = 0, requests = 0;
    for (const auto &[id, flow] : flows) {
        if (flow.calls.size() != 1 || flow.served.size() != 1) continue;
        ++matched;
        // Clocks are known to less than a millisecond on one machine, and a call may be as short.
        CHECK(flow.served[0].begun_us >= flow.calls[0].begun_us - 5000);
        CHECK(flow.served[0].ended_us <= flow.calls[0].ended_us + 5000);
        CHECK(flow.served[0].args["request"] == flow.calls[0].args["request"]);
    }
    for (const piece &event : every) requests += event.name.starts_with("request ");
    CHECK(matched > 20);
    CHECK(requests == 2);
    const program_result one_of_them =
        run_line("cluster timeline " + cluster.file + " --home one --request 2 --out " +
                     cluster.runner.file("one.pftrace.gz"),
                 errors);
    CHECK(one_of_them.code == 0);
    CHECK(cluster.runner.read("one.pftrace.gz").size() > 100);
    CHECK(run_line("cluster timeline " + cluster.file + " --request 2 --out x.json", errors).code ==
          2);
    // A node that is away is left out.
    cluster.end(2, SIGKILL);
    const program_result two =
        run_line("cluster timeline " + cluster.file + " --out " + file, errors);
    CHECK(two.code == 1);
    CHECK(two.says("three is left out"));
}

}  // namespace cluster_timeline_test
