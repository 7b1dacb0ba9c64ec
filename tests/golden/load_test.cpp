// load_test.cpp - goal: homes that are asked over a wire write the text of one process, whatever
// comes together. A dead node, a full node, a server that is no home and a request that is too
// large are told apart. Method: homes and holders in threads of one process, and a client. Compare
// with the run that has all to itself.
#include <doctest/doctest.h>

#include "tests/golden/home_fixture.h"

namespace load_test {

namespace {

using namespace moorage::test;

std::vector<load_request> drawn_requests(random_stream &draw, uint32_t vocabulary, uint32_t homes,
                                         size_t count) {
    std::vector<load_request> requests(count);
    uint64_t at_ns = 0;
    for (load_request &request : requests) {
        request.home = static_cast<uint32_t>(draw.below(homes));
        request.at_ns = at_ns += draw.below(2'000'000);
        request.request.ids.resize(1 + draw.below(12));
        for (int32_t &id : request.request.ids) id = static_cast<int32_t>(draw.below(vocabulary));
        request.request.new_tokens = static_cast<uint32_t>(1 + draw.below(8));
    }
    return requests;
}

std::vector<int32_t> alone(node_bench &bench, const model_request &request) {
    std::vector<int32_t> ids;
    for (const auto &[number, id] : bench.alone({request}).tokens) ids.push_back(id);
    return ids;
}

std::vector<std::vector<uint32_t>> all_pages_at(const node_bench &bench,
                                                std::vector<uint32_t> servers) {
    return std::vector<std::vector<uint32_t>>(bench.pages(), std::move(servers));
}

load_request request_to(uint32_t home, std::vector<int32_t> ids, uint32_t new_tokens) {
    return {home, 0, {std::move(ids), new_tokens, 0}};
}

}  // namespace

TEST_CASE("several homes at once write what one process does") {
    random_stream draw(31, 0);
    node_bench reference("mixtral");
    const node_plan plan =
        plan_of(*reference.loaded_model, 3, random_holders(reference.pages(), 3, draw));
    loop_hub hub;
    std::deque<node_bench> benches;
    std::deque<running_home> homes;
    for (uint32_t server = 0; server < 3; ++server) {
        benches.emplace_back("mixtral");
        benches.back().connect_ns = 60'000'000'000;
        benches.back().config.batch = 1 + server;
        benches.back().config.prefill = server == 0 ? 0 : 4;
        homes.emplace_back(benches.back(), hub, plan, server);
    }
    const auto requests = drawn_requests(draw, reference.loaded_model->config().vocabulary, 3, 150);
    std::vector<size_t> ended;
    load_options options;
    options.on_end = [&](size_t request, const load_outcome &) { ended.push_back(request); };
    const auto outcomes = load_over(hub, plan, requests, options);
    REQUIRE(outcomes.size() == requests.size());
    CHECK(ended.size() == requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(i);
        CHECK(std::string(name_of(outcomes[i].end)) == "answered");
        CHECK(outcomes[i].written == alone(reference, requests[i].request));
        CHECK(outcomes[i].sent_ns >= requests[i].at_ns);
        CHECK(outcomes[i].first_ns >= outcomes[i].sent_ns);
        CHECK(outcomes[i].ended_ns >= outcomes[i].first_ns);
        CHECK(outcomes[i].number != 0);
    }
    for (running_home &home : homes) {
        home.stop();
        CHECK(home.error() == "");
        CHECK(home.calls().from_own_disk == 0);
    }
}

TEST_CASE("what cannot be answered is told by its reason") {
    node_bench reference("olmoe"), bench("olmoe");
    const node_plan plan = plan_of(*reference.loaded_model, 3, all_pages_at(reference, {0}));
    loop_hub hub;
    running_home home(bench, hub, plan, 0, true, {}, /*context_max=*/20);
    running_node holder(hub, plan, *reference.loaded_model, 1);  // 2 is not there
    const auto outcomes =
        load_over(hub, plan,
                  {request_to(0, {1, 2, 3}, 17), request_to(0, {1, 2, 3}, 18),
                   request_to(0, {1, -1}, 4), request_to(0, {1, 1 << 30}, 4),
                   request_to(1, {1, 2}, 4), request_to(2, {1, 2}, 4), request_to(0, {7}, 1)},
                  {.connect_ns = 200'000'000});
    const auto says = [&](size_t request, load_end ending, const char *text) {
        CAPTURE(request);
        CAPTURE(outcomes[request].text);
        CHECK(outcomes[request].end == ending);
        CHECK(outcomes[request].text.find(text) != std::string::npos);
    };
    says(0, load_end::answered, "");
    says(1, load_end::refused, "size: 3 tokens of a prompt and 18 to write are more than the 20");
    says(2, load_end::refused, "shape: token -1");
    says(3, load_end::refused, "shape: token 1073741824");
    says(4, load_end::refused, "it is not a home");
    CHECK(outcomes[5].end == load_end::away);
    says(6, load_end::answered, "");
    CHECK(outcomes[0].written == alone(reference, {{1, 2, 3}, 17, 0}));
}

TEST_CASE("a home that dies loses its requests at once, not those of others") {
    node_bench reference("olmoe"), first("olmoe"), second("olmoe");
    const node_plan plan = plan_of(*reference.loaded_model, 2, all_pages_at(reference, {0, 1}));
    loop_hub hub;
    running_home stays(first, hub, plan, 0);
    std::atomic<int> answers = 0;
    // Falls silent after a few messages, but stays alive.
    running_home dies(second, hub, plan, 1, true, [&](sent_frame &message) {
        return message.header.kind != message_kind::tokens || ++answers < 4 ? 1 : 0;
    });
    std::vector<load_request> requests;
    for (uint32_t i = 0; i < 12; ++i) requests.push_back(request_to(i % 2, {1, 2, 3}, 12));
    std::atomic<uint64_t> killed_ns = 0;
    std::thread killer([&] {
        while (answers < 6) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        killed_ns = steady_ns();
        dies.kill();
    });
    uint64_t known_ns = 0;
    load_options options;
    options.on_end = [&](size_t, const load_outcome &outcome) {
        if (outcome.end == load_end::lost) known_ns = steady_ns();
    };
    const auto outcomes = load_over(hub, plan, requests, options);
    killer.join();
    // Far less than the 60 s that an answer may take.
    CHECK(known_ns - killed_ns < 1'000'000'000);
    const auto text = alone(reference, requests[0].request);
    size_t lost = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
        CAPTURE(i);
        if (requests[i].home == 0) CHECK(outcomes[i].end == load_end::answered);
        if (outcomes[i].end == load_end::answered) CHECK(outcomes[i].written == text);
        if (outcomes[i].end != load_end::lost) continue;
        ++lost;
        CHECK(outcomes[i].text ==
              format("the connection ended after {} of 12 tokens", outcomes[i].written.size()));
        CHECK(std::equal(outcomes[i].written.begin(), outcomes[i].written.end(), text.begin()));
    }
    CHECK(lost >= 5);
}

TEST_CASE("a home that says nothing is late, and hears that nobody waits") {
    node_bench reference("olmoe"), bench("olmoe");
    const node_plan plan = plan_of(*reference.loaded_model, 1, all_pages_at(reference, {0}));
    loop_hub hub;
    running_home mute(bench, hub, plan, 0, true, [](sent_frame &message) {
        return message.header.kind != message_kind::tokens;
    });
    const auto outcomes =
        load_over(hub, plan, {request_to(0, {1, 2, 3}, 60)}, {.patience_ns = 50'000'000});
    CHECK(outcomes[0].end == load_end::late);
    mute.stop();
    CHECK(mute.asked().taken == 1);
    CHECK(mute.asked().under_way == 0);
}

TEST_CASE("a home that answers no ping is told from one that has not come to a request yet") {
    node_bench reference("olmoe"), bench("olmoe");
    const node_plan plan = plan_of(*reference.loaded_model, 1, all_pages_at(reference, {0}));
    for (const bool stopped : {true, false}) {
        CAPTURE(stopped);
        loop_hub hub;
        running_home home(bench, hub, plan, 0, true, [&](sent_frame &message) {
            const bool pong = message.header.kind == message_kind::pong;
            return message.header.kind != message_kind::tokens && !(stopped && pong);
        });
        const auto outcomes =
            load_over(hub, plan, {request_to(0, {1, 2, 3}, 60)},
                      {.patience_ns = 3'000'000'000, .silence_ns = 1'500'000'000});
        CHECK(outcomes[0].end == load_end::late);
        CHECK(outcomes[0].text == (stopped ? "its home has not answered a ping for 1 s; it is "
                                             "stopped or hung"
                                           : "nothing came for 3 s"));
        home.stop();
        CHECK(home.asked().under_way == 0);
    }
}

TEST_CASE("a home takes only as many as may wait") {
    node_bench bench("olmoe");
    const node_plan plan = plan_of(*bench.loaded_model, 1, all_pages_at(bench, {0}));
    loop_hub hub;
    loop_wire wire(hub);
    thread_pool pool(1);
    peer_node node({&wire, &plan, {0, 1, "test"}, bench.loaded_model, &pool});
    REQUIRE(node.listen("loop:0").ok());
    request_desk desk(node.connections(), {bench.loaded_model->config().vocabulary, 64});
    node.set_desk(&desk);
    std::atomic<bool> stopped = false;
    std::thread serves([&] { node.serve([&] { return stopped.load(); }); });
    const std::vector<load_request> requests(request_desk::waiting_max + 6,
                                             request_to(0, {1, 2}, 3));
    size_t refused = 0;
    load_options options;
    options.stop = [&] { return refused == 6; };
    options.on_end = [&](size_t, const load_outcome &outcome) {
        refused +=
            outcome.end == load_end::refused && outcome.text.starts_with("busy: 1024 requests");
    };
    const auto outcomes = load_over(hub, plan, requests, options);
    stopped = true;
    wire.wake();
    serves.join();
    CHECK(refused == 6);
    CHECK(desk.figures().taken == request_desk::waiting_max);
    // The caller has gone, so nobody waits for any of them.
    model_request next;
    CHECK_FALSE(desk.next(next));
    CHECK(desk.figures().cancelled == request_desk::waiting_max);
}

TEST_CASE("an expert that nobody computes ends the requests under way, not the home") {
    node_bench reference("olmoe"), bench("olmoe");
    bench.connect_ns = 60'000'000'000;
    const node_plan plan = plan_of(*reference.loaded_model, 2, all_pages_at(reference, {1}));
    loop_hub hub;
    auto holder = std::make_unique<running_node>(hub, plan, *reference.loaded_model, 1);
    running_home home(bench, hub, plan, 0, /*own_disk=*/false);
    const std::vector<load_request> requests = {request_to(0, {1, 2, 3}, 5)};
    const auto text = alone(reference, requests[0].request);
    CHECK(load_over(hub, plan, requests)[0].written == text);
    holder->stop();
    const auto failed = load_over(hub, plan, requests);
    CHECK(failed[0].end == load_end::refused);
    CHECK(failed[0].text.find("is computed by nobody") != std::string::npos);
    holder =
        std::make_unique<running_node>(hub, plan, *reference.loaded_model, 1, tampering{}, 2000);
    // Repeats until the home has found it again.
    for (;;) {
        const auto again = load_over(hub, plan, requests);
        if (again[0].end != load_end::answered) continue;
        CHECK(again[0].written == text);
        break;
    }
    home.stop();
    CHECK(home.error() == "");
}

}  // namespace load_test
