// node_status_test.cpp - goal: a node reports its status in the forms that others read, and no
// client can prevent it. Method: snapshots made by hand, with every line checked by the rules of
// Prometheus' text format; requests right and wrong over real sockets.
#include "tools/node/node_status.h"

#include <doctest/doctest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <regex>
#include <set>
#include <string>

#include "core/base/json.h"
#include "core/base/text.h"

namespace node_status_test {

using namespace moorage::core;

namespace {

node_snapshot example_snapshot() {
    node_snapshot snapshot;
    snapshot.name = "one \"quoted\" \\ and\nbroken";
    snapshot.model = "demo";
    snapshot.since_ns = 1'000'000'000;
    snapshot.taken_ns = 4'500'000'000;
    snapshot.held = 7;
    snapshot.pages = 12;
    snapshot.layers = 3;
    snapshot.experts = 4;
    snapshot.home = true;
    snapshot.called.calls = 40;
    snapshot.called.late = 2;
    snapshot.called.activations = 90;
    snapshot.called.elsewhere = 30;
    snapshot.served.calls = 11;
    snapshot.served.computed_ns = 250'000'000;
    snapshot.connections.refused[static_cast<size_t>(refusal_reason::checksum)] = 3;
    peer_status peer;
    peer.name = "two";
    peer.stands = "ready";
    peer.calls = 6;
    peer.histogram[0] = 1;  // up to 32 us
    peer.histogram[2] = 4;  // up to 128 us
    peer.histogram[call_buckets - 1] = 1;
    peer.called_us = 2'000'500;
    snapshot.peers.push_back(peer);
    snapshot.layer_rows = {5, 0, 9};
    snapshot.open = {{0, 2, 5, 17, 4'250'000'000}};
    snapshot.tasks = {{"plan", 4'000'000'000}, {"registry", 6'000'000'000}};
    return snapshot;
}

int connect_to(const std::string &address) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in endpoint{};
    endpoint.sin_family = AF_INET;
    endpoint.sin_port =
        htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    endpoint.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket, reinterpret_cast<sockaddr *>(&endpoint), sizeof(endpoint)) == 0);
    return socket;
}

// One request as it is, and all that is answered.
std::string ask(const std::string &address, const std::string &request) {
    const int socket = connect_to(address);
    (void)::send(socket, request.data(), request.size(), MSG_NOSIGNAL);
    ::shutdown(socket, SHUT_WR);
    std::string answer;
    char buffer[1024];
    for (ssize_t count; (count = ::recv(socket, buffer, sizeof(buffer), 0)) > 0;)
        answer.append(buffer, static_cast<size_t>(count));
    ::close(socket);
    return answer;
}

}  // namespace

TEST_CASE("metrics are Prometheus' text") {
    const std::string text = to_metrics(example_snapshot(), 5'000'000'000);
    const std::string label = R"re([a-z]+="(?:[^"\\\n]|\\["\\n])*")re";
    const std::regex row("([a-z_]+)(\\{" + label + "(?:," + label +
                         ")*\\})? (\\+Inf|-?[0-9.e+-]+)");
    std::map<std::string, std::string> types, values;
    for (const std::string &line : split(text, '\n')) {
        CAPTURE(line);
        if (line.empty()) continue;
        if (line.starts_with("# TYPE ")) {
            const auto words = split(line, ' ');
            CHECK(types.emplace(words[2], words[3]).second);
            CHECK(words[2].ends_with("_total") == (words[3] == "counter"));
        } else if (!line.starts_with("# HELP ")) {
            std::smatch found;
            REQUIRE(std::regex_match(line, found, row));
            std::string family = found[1];
            for (const char *suffix : {"_bucket", "_sum", "_count"})
                if (const std::string base = family.substr(0, family.rfind('_'));
                    family.ends_with(suffix) && types.contains(base))
                    family = base;
            CHECK(types.contains(family));
            CHECK(values.emplace(std::string(found[1]) + std::string(found[2]), found[3]).second);
        }
    }
    CHECK(values["moorage_node_up_seconds"] == "4");
    CHECK(values["moorage_node_loop_age_seconds"] == "0.5");
    CHECK(values["moorage_node_task_age_seconds{task=\"plan\"}"] == "1");
    CHECK(values["moorage_node_task_age_seconds{task=\"registry\"}"] == "0");
    CHECK(values["moorage_node_served_seconds_total"] == "0.25");
    CHECK(values["moorage_node_refused_total{reason=\"checksum\"}"] == "3");
    CHECK(values["moorage_node_calls_elsewhere_total{cause=\"late\"}"] == "2");
    CHECK(values["moorage_node_activations_total"] == "90");
    CHECK(values["moorage_node_activations_elsewhere_total"] == "30");
    CHECK(values["moorage_node_served_layer_rows_total{layer=\"0\"}"] == "5");
    CHECK(values["moorage_node_served_layer_rows_total{layer=\"2\"}"] == "9");
    // Buckets count all below them.
    CHECK(values["moorage_node_call_seconds_bucket{peer=\"two\",le=\"3.2e-05\"}"] == "1");
    CHECK(values["moorage_node_call_seconds_bucket{peer=\"two\",le=\"6.4e-05\"}"] == "1");
    CHECK(values["moorage_node_call_seconds_bucket{peer=\"two\",le=\"0.000128\"}"] == "5");
    CHECK(values["moorage_node_call_seconds_bucket{peer=\"two\",le=\"+Inf\"}"] == "6");
    CHECK(values["moorage_node_call_seconds_count{peer=\"two\"}"] == "6");
    CHECK(values["moorage_node_call_seconds_sum{peer=\"two\"}"] == "2.0005");
}

TEST_CASE("times of calls fall into the buckets that hold them") {
    call_times times;
    for (const uint64_t us : {1, 32, 33, 64, 128, 129}) times.add(1, us * 1000);
    times.add(1, 60'000'000'000);
    const auto &counts = times.histogram();
    CHECK(counts[0] == 2);
    CHECK(counts[1] == 2);
    CHECK(counts[2] == 1);
    CHECK(counts[3] == 1);
    CHECK(counts[call_buckets - 1] == 1);
    CHECK(times.sum_us() == 60'000'000 + 387);
}

TEST_CASE("what is expected of calls, and when they are late") {
    call_times times;
    CHECK(times.deadline_ns(1) >= 2'000'000'000);
    // 100 us and 10 for each pair, exactly.
    for (int round = 0; round < 40; ++round)
        for (const uint32_t pairs : {1, 2, 4, 8}) times.add(pairs, 100'000 + 10'000 * pairs);
    for (const uint32_t pairs : {1u, 3u, 8u, 100u}) {
        CAPTURE(pairs);
        const double right = 100e3 + 10e3 * pairs;
        CHECK(static_cast<double>(times.expected_ns(pairs)) > 0.98 * right);
        CHECK(static_cast<double>(times.expected_ns(pairs)) < 1.02 * right);
    }
    CHECK(times.deadline_ns(1) == call_times::deadline_ns_min);
    CHECK(times.deadline_ns(10'000) > 4 * 100'000'000);
    // All of one size: more pairs are not expected to be free.
    call_times same;
    for (int round = 0; round < 20; ++round) same.add(2, 1'000'000);
    CHECK(same.expected_ns(2) == 1'000'000);
    CHECK(same.expected_ns(200) >= 50'000'000);
}

TEST_CASE("paths of requests") {
    CHECK(path_of_request("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") == "/metrics");
    CHECK(path_of_request("GET /status?full=1 HTTP/1.0\r\n\r\n") == "/status");
    for (const char *wrong : {"", "GET", "GET /metrics", "POST /metrics HTTP/1.1\r\n\r\n",
                              "GET metrics HTTP/1.1\r\n\r\n", "GET /metrics FTP/1.1\r\n\r\n",
                              "\r\nGET / HTTP/1.1", "get / HTTP/1.1\r\n\r\n"})
        CHECK(path_of_request(wrong).empty());
}

TEST_CASE("a server answers what is asked, and survives what is not") {
    auto server = http_server::listen("127.0.0.1:0", [](std::string_view path) {
        return path == "/there" ? http_answer{200, "text/plain", std::string(300'000, 'x')}
                                : http_answer{404, "text/plain", "no\n"};
    });
    REQUIRE(server.ok());
    const std::string address = (*server)->address();
    const auto page = http_get(address, "/there", 5'000'000'000);
    REQUIRE(page.ok());
    CHECK(*page == std::string(300'000, 'x'));
    const auto absent = http_get(address, "/absent", 5'000'000'000);
    CHECK_FALSE(absent.ok());
    CHECK(absent.failure().text.find("404") != std::string::npos);
    CHECK(ask(address, "POST /there HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400"));
    CHECK(ask(address, "GET /there HTTP/1.1\r\n").empty());  // never ends its request
    CHECK(ask(address, std::string(100'000, 'a')).find("200 OK") == std::string::npos);
    CHECK(ask(address, std::string(4, '\0')).empty());
    CHECK(http_get(address, "/there", 5'000'000'000).ok());
    // Many silent connections do not delay answers to others.
    std::vector<int> silent;
    for (int i = 0; i < 300; ++i) silent.push_back(connect_to(address));
    CHECK(http_get(address, "/there", 1'000'000'000).ok());
    for (const int client : silent) ::close(client);
    CHECK_FALSE(http_server::listen(address, {}).ok());
    CHECK_FALSE(http_server::listen("nowhere", {}).ok());
    CHECK_FALSE(http_server::listen(":80", {}).ok());
    (*server).reset();
    CHECK_FALSE(http_get(address, "/there", 1'000'000'000).ok());
}

TEST_CASE("status is JSON with what it serves and whom it calls") {
    const json status = to_json(example_snapshot(), 5'000'000'000);
    CHECK(status["experts_held"] == 7);
    CHECK(status["served"]["rows_of_layers"] == json::array({5, 0, 9}));
    CHECK(status["called"]["late"] == 2);
    CHECK(status["peers"][0]["server"] == "two");
    CHECK(status["refused"] == json({{"checksum", 3}}));
    const json &open = status["called"]["open"];
    REQUIRE(open.size() == 1);
    CHECK(open[0]["server"] == "two");
    CHECK(open[0]["layer"] == 2);
    CHECK(open[0]["request"] == 17);
    CHECK(open[0]["age_ms"] == 250);
    CHECK(status["task_ages_s"] == json({{"plan", 1.0}, {"registry", 0.0}}));
    node_snapshot holder = example_snapshot();
    holder.home = false;
    CHECK_FALSE(to_json(holder, 5'000'000'000).contains("called"));
}

TEST_CASE("a thread that stands still is no health, whatever the others do") {
    node_status status;
    status.show_task("plan", [] { return steady_ns(); });
    const auto stuck = [&] { return json::parse(status.answer("/health").body)["stuck"]; };
    CHECK(stuck() == json::array({"loop"}));  // nothing was noted yet
    status.show_task("registry", [] { return steady_ns() - 61'000'000'000; });
    CHECK(stuck() == json::array({"loop", "registry"}));
    CHECK(status.answer("/health").code == 503);
}

TEST_CASE("a node that all others refuse is no healthy one") {
    const auto asked = [](const node_snapshot &snapshot) {
        const http_answer said = health(snapshot, snapshot.taken_ns);
        return std::pair(said.code, json::parse(said.body)["state"].get<std::string>());
    };
    node_snapshot now = example_snapshot();
    now.tasks.clear();
    CHECK(asked(now) == std::pair(200, std::string("serving")));
    now.refused = "two says: cluster 1 is the caller's";
    CHECK(asked(now) == std::pair(503, std::string("refused")));
    now.draining = true;
    CHECK(asked(now) == std::pair(503, std::string("draining")));
}

}  // namespace node_status_test
