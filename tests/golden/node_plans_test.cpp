// node_plans_test.cpp - goal: a home writes the text of one process while the plan changes expert
// by expert, copies move and nodes die. No step leaves an expert without a holder. Method: the
// test's own leader acts by the rules of plan_record.h, at random. Nodes learn of plans early or
// late, over a wire within the process. Weights that cross belong to another copy of the model, so
// that a wrong byte shows.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "tests/golden/node_fixture.h"

namespace node_plans_test {

namespace {

using namespace moorage::test;

const std::vector<model_request> requests = {{{5, 3, 9, 2, 7, 1}, 30, 0}, {{8, 8, 4}, 30, 0}};

// Plans as a leader makes them: copies arrive, then they count, then others are dropped.
class random_leader {
public:
    random_leader(const node_plan &first, random_stream &draw)
        : plan_(record_of(first)),
          draw_(draw),
          boards(first.servers.size()),
          alive(first.servers.size(), true) {}

    // Makes a few random changes, then the changes that follow from the nodes' reports.
    void step() {
        take_arrivals();
        const size_t servers = boards.size();
        for (uint64_t n = draw_.below(4); n != 0; --n) {
            const auto page = static_cast<uint32_t>(draw_.below(plan_.holders.size()));
            const auto target = static_cast<uint32_t>(draw_.below(servers));
            std::vector<uint32_t> &holders = plan_.holders[page];
            const bool coming = std::ranges::any_of(
                plan_.coming, [&](const moving_copy &copy) { return copy.page == page; });
            if (std::ranges::find(holders, target) != holders.end()) {
                // Another live server holds it, too. Copies that are read stay.
                const auto others = std::ranges::count_if(
                    holders, [&](uint32_t holder) { return holder != target && alive[holder]; });
                if (coming || others == 0) continue;
                std::erase(holders, target);
                changed_ = true;
            } else if (!coming && alive[target]) {
                const uint32_t source =
                    draw_.below(4) == 0 ? no_server : holders[draw_.below(holders.size())];
                plan_.coming.push_back({page, source, target});
                changed_ = true;
            }
        }
        if (changed_) ++plan_.epoch, changed_ = false;
        // Some nodes learn of it now, some later; none forgets what it knows.
        for (size_t server = 0; server < servers; ++server)
            if (draw_.below(3) != 0) boards[server].post(plan_);
    }
    // Copies that were on their way to a dead node do not arrive.
    void died(uint32_t server) {
        alive[server] = false;
        std::erase_if(plan_.coming, [&](const moving_copy &copy) { return copy.target == server; });
        changed_ = true;
    }
    const plan_record &plan() const { return plan_; }
    uint64_t arrived() const { return arrived_; }

private:
    void take_arrivals() {
        for (uint32_t server = 0; server < boards.size(); ++server)
            for (const uint32_t page : boards[server].reported().arrived) {
                const auto entry = std::ranges::find_if(plan_.coming, [&](const moving_copy &copy) {
                    return copy.page == page && copy.target == server;
                });
                if (entry == plan_.coming.end() || !alive[server]) continue;
                plan_.coming.erase(entry);
                std::vector<uint32_t> &holders = plan_.holders[page];
                holders.insert(std::ranges::lower_bound(holders, server), server);
                changed_ = true;
                ++arrived_;
            }
    }

    plan_record plan_;
    random_stream &draw_;

public:
    std::deque<plan_board> boards;
    std::vector<bool> alive;

private:
    bool changed_ = false;
    uint64_t arrived_ = 0;
};

std::vector<std::vector<uint32_t>> two_each(uint32_t pages, uint32_t servers, random_stream &draw) {
    std::vector<std::vector<uint32_t>> holders(pages);
    for (auto &page_holders : holders) {
        page_holders.push_back(static_cast<uint32_t>(draw.below(servers)));
        page_holders.push_back(
            static_cast<uint32_t>((page_holders[0] + 1 + draw.below(servers - 1)) % servers));
    }
    return holders;
}

mover_options small_ranges() {
    mover_options options;
    options.range_bytes = 512;
    options.answer_ns = 500'000'000;
    return options;
}

}  // namespace

TEST_CASE("plans change under a text: not one expert is computed by nobody") {
    for (const char *name : {"mixtral", "qwen2_moe"}) {
        CAPTURE(name);
        node_bench bench(name), second_bench(name);  // its weights lie elsewhere
        const run_result texts = bench.alone(requests);
        for (uint64_t seed = 1; seed <= 3; ++seed) {
            CAPTURE(seed);
            random_stream draw(seed, 7);
            constexpr uint32_t servers = 4;
            const node_plan plan =
                plan_of(*bench.loaded_model, servers, two_each(bench.pages(), servers, draw));
            random_leader leader(plan, draw);
            loop_hub hub;
            std::deque<running_node> nodes;
            for (uint32_t server = 1; server < servers; ++server)
                nodes.emplace_back(hub, plan, *(server == 2 ? second_bench : bench).loaded_model,
                                   server, tampering(), 1000, "", &leader.boards[server],
                                   small_ranges());
            bench.board = &leader.boards[0];
            const run_result distributed =
                bench.at_home(hub, plan, 0, requests, /*own_disk=*/false, [&](const caller &) {
                    leader.step();
                    std::this_thread::sleep_for(std::chrono::milliseconds(3));
                });
            CHECK(distributed.error == "");
            CHECK(distributed == texts);
            CHECK(distributed.calls.replies != 0);
            CHECK(leader.plan().epoch > 5);
            CHECK(leader.arrived() != 0);
            for (running_node &node : nodes) node.stop();
        }
    }
}

TEST_CASE("plans change and nodes die at any step: the same text") {
    node_bench bench("mixtral");
    const run_result texts = bench.alone(requests);
    for (uint64_t seed = 1; seed <= 4; ++seed) {
        CAPTURE(seed);
        random_stream draw(seed, 9);
        constexpr uint32_t servers = 4;
        const node_plan plan =
            plan_of(*bench.loaded_model, servers, two_each(bench.pages(), servers, draw));
        random_leader leader(plan, draw);
        loop_hub hub;
        std::array<std::unique_ptr<running_node>, servers> nodes;
        uint64_t born = 1000;
        const auto start = [&](uint32_t server) {
            nodes[server] = std::make_unique<running_node>(hub, plan, *bench.loaded_model, server,
                                                           tampering(), born += 100, "",
                                                           &leader.boards[server], small_ranges());
            leader.alive[server] = true;
        };
        for (uint32_t server = 1; server < servers; ++server) start(server);
        bench.board = &leader.boards[0];
        int kills = 0;
        const run_result distributed =
            bench.at_home(hub, plan, 0, requests, /*own_disk=*/true, [&](const caller &) {
                leader.step();
                const auto server = static_cast<uint32_t>(1 + draw.below(servers - 1));
                if (draw.below(6) == 0) {
                    if (nodes[server]) {
                        nodes[server]->kill();
                        nodes[server].reset();
                        leader.died(server);
                        ++kills;
                    } else {
                        start(server);
                    }
                }
                std::this_thread::sleep_for(std::chrono::milliseconds(3));
            });
        CHECK(distributed.error == "");
        CHECK(distributed == texts);
        CHECK(kills != 0);
    }
}

TEST_CASE(
    "a copy comes over the wire, counts, and the old one goes when nobody calls by the old plan") {
    node_bench bench("olmoe");
    const node_plan plan =
        plan_of(*bench.loaded_model, 2, std::vector<std::vector<uint32_t>>(bench.pages(), {0}));
    std::deque<plan_board> boards(2);
    loop_hub hub;
    running_node source(hub, plan, *bench.loaded_model, 0, {}, 1000, "", &boards[0]),
        target(hub, plan, *bench.loaded_model, 1, {}, 1000, "", &boards[1], small_ranges());
    // A third server that keeps the old plan.
    loop_wire wire(hub);
    thread_pool pool(1);
    std::deque<plan_board> late(1);
    peer_node idle({&wire, &plan, {no_server, 5, "test"}, bench.loaded_model, &pool, &late[0]});
    idle.dial();
    while (!idle.connections().call_link(0)) idle.turn(1'000'000);

    const auto wait_for = [&](const auto &condition) {
        for (int tries = 0; tries < 20000 && !condition(); ++tries) {
            idle.turn(0);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return condition();
    };
    plan_record next = record_of(plan);
    next.epoch = 2;
    next.coming = {{3, 0, 1}};
    for (plan_board &board : boards) board.post(next);
    CHECK(wait_for([&] { return boards[1].reported().arrived == std::vector<uint32_t>{3}; }));
    next.epoch = 3;
    next.coming.clear();
    next.holders[3] = {1};
    for (plan_board &board : boards) board.post(next);
    CHECK(wait_for([&] { return boards[0].reported().leaving == 1; }));
    for (int i = 0; i < 20; ++i) idle.turn(5'000'000);
    CHECK(boards[0].reported().leaving == 1);
    late[0].post(next);
    CHECK(wait_for([&] { return boards[0].reported().leaving == 0; }));
    // A plan of an older epoch is not accepted.
    next.epoch = 2;
    CHECK_FALSE(boards[0].post(next));
    target.stop();
    source.stop();
    CHECK(target.node().plan().epoch == 3);
    CHECK(target.node().experts().held() == 1);
    CHECK(source.node().experts().held() == bench.pages() - 1);
    CHECK(target.node().moving().figures().bytes ==
          source.node().serving().figures().weights_bytes);
    CHECK(target.node().moving().figures().bytes == source.node().experts().image_bytes(3));
    CHECK(target.node().moving().figures().from_own_directory == 0);
}

TEST_CASE("a caller that says no newer epoch is named, waited for so long, and told why") {
    node_bench bench("olmoe");
    const node_plan plan =
        plan_of(*bench.loaded_model, 2, std::vector<std::vector<uint32_t>>(bench.pages(), {0}));
    plan_board board;
    loop_hub hub;
    loop_wire near(hub), far(hub);
    thread_pool pool(1);
    peer_node keeps({.message_wire = &near,
                     .plan = &plan,
                     .identity = {0, 1000, "test"},
                     .loaded_model = bench.loaded_model,
                     .pool = &pool,
                     .board = &board,
                     .behind_ns = 300'000'000});
    REQUIRE(keeps.listen(plan.servers[0].addresses.front()).ok());
    peer_node silent({.message_wire = &far,
                      .plan = &plan,
                      .identity = {no_server, 5, "test"},
                      .loaded_model = bench.loaded_model,
                      .pool = &pool});
    silent.dial();
    for (int tries = 0; tries < 20000 && !silent.connections().call_link(0); ++tries) {
        keeps.turn(0);
        silent.turn(1'000'000);
    }
    REQUIRE(silent.connections().call_link(0));
    CHECK(keeps.waited_for().empty());

    plan_record next = record_of(plan);
    next.epoch = 2;
    next.holders[3] = {1};
    REQUIRE(board.post(next));
    const uint64_t begun_ns = steady_ns();
    keeps.turn(0);
    CHECK(keeps.leaving() == 1);
    REQUIRE(keeps.waited_for().size() == 1);
    CHECK(keeps.waited_for().front().starts_with("a caller that is no server at "));
    while (keeps.leaving() != 0 && steady_ns() - begun_ns < 20'000'000'000) keeps.turn(1'000'000);
    CHECK(keeps.leaving() == 0);
    CHECK(steady_ns() - begun_ns >= 300'000'000);
    CHECK_FALSE(keeps.experts().has(3));
    CHECK(keeps.connections().figures().refused[static_cast<size_t>(refusal_reason::epoch)] == 1);
    // It is told the reason, may come again, and is no longer waited for.
    std::string reason;
    for (int tries = 0; tries < 20000 && reason.empty(); ++tries) {
        keeps.turn(0);
        silent.turn(100'000);
        reason = silent.connections().trouble(0);
    }
    CHECK(reason.find("epoch 1 is the latest that the caller said, 2 this node's") !=
          std::string::npos);
    for (int tries = 0; tries < 20000 && !silent.connections().call_link(0); ++tries) {
        keeps.turn(0);
        silent.turn(1'000'000);
    }
    CHECK(silent.connections().call_link(0));
    CHECK(keeps.waited_for().empty());
}

TEST_CASE("sources that are silent, lie or are gone: another one, then the own directory") {
    node_bench bench("mixtral");
    const auto swallow = [](sent_frame &message) {
        return message.header.kind == message_kind::weights ? 0 : 1;
    };
    const auto spoil = [](sent_frame &message) {
        if (message.header.kind == message_kind::weights) message.bytes.back() ^= std::byte{1};
        return 1;
    };
    const auto other_range = [](sent_frame &message) {
        if (message.header.kind == message_kind::weights)
            message.bytes[frame_header_bytes] ^= std::byte{1};
        return 1;
    };
    for (const tampering &change : {tampering(swallow), tampering(spoil), tampering(other_range)})
        for (const bool second : {false, true}) {
            const node_plan plan = plan_of(*bench.loaded_model, 3,
                                           std::vector<std::vector<uint32_t>>(
                                               bench.pages(), second ? std::vector<uint32_t>{0, 2}
                                                                     : std::vector<uint32_t>{0}));
            std::deque<plan_board> boards(3);
            loop_hub hub;
            mover_options quick = small_ranges();
            quick.answer_ns = 50'000'000;
            running_node liar(hub, plan, *bench.loaded_model, 0, change, 1000, "", &boards[0]),
                target(hub, plan, *bench.loaded_model, 1, {}, 1000, "", &boards[1], quick),
                sound(hub, plan, *bench.loaded_model, 2, {}, 1000, "", &boards[2]);
            plan_record next = record_of(plan);
            next.epoch = 2;
            next.coming = {{5, 0, 1}};
            boards[1].post(next);
            for (int tries = 0; tries < 20000 && boards[1].reported().arrived.empty(); ++tries)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            target.stop();
            CHECK(target.node().moving().figures().failed == 1);
            CHECK(target.node().moving().figures().from_own_directory == (second ? 0 : 1));
            CHECK(target.node().experts().has(5));
            std::vector<std::byte> theirs, ours;
            const uint64_t bytes = target.node().experts().image_bytes(5);
            target.node().experts().copy(5, 0, bytes, theirs);
            expert_store local_store(*bench.loaded_model);
            local_store.take_own(5);
            local_store.copy(5, 0, bytes, ours);
            CHECK(theirs == ours);
        }
}

TEST_CASE("a budget of bytes and of memory is kept") {
    node_bench bench("mixtral");
    const node_plan plan =
        plan_of(*bench.loaded_model, 2, std::vector<std::vector<uint32_t>>(bench.pages(), {0}));
    std::deque<plan_board> boards(2);
    loop_hub hub;
    expert_store sizes(*bench.loaded_model);
    const uint64_t one_bytes = sizes.image_bytes(0);
    mover_options paced = small_ranges();
    paced.bytes_per_s = 4 * one_bytes;  // a copy in a quarter of a second
    running_node source(hub, plan, *bench.loaded_model, 0, {}, 1000, "", &boards[0]),
        target(hub, plan, *bench.loaded_model, 1, {}, 1000, "", &boards[1], paced, 2 * one_bytes);
    plan_record next = record_of(plan);
    next.epoch = 2;
    next.coming = {{0, 0, 1}, {1, 0, 1}, {2, 0, 1}};
    const uint64_t begun_ns = steady_ns();
    boards[1].post(next);
    for (int tries = 0; tries < 20000 && boards[1].reported().arrived.size() < 2; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // Not sooner than the budget allows, except the last range. There is no upper limit, because it
    // depends on the machine.
    CHECK(steady_ns() - begun_ns >=
          uint64_t{500'000'000} - uint64_t{250'000'000} * 512 / one_bytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));  // a third would have come
    CHECK(boards[1].reported().arrived.size() == 2);              // there is no room for it
    // One is counted elsewhere after all, so it goes, and the third comes.
    next.epoch = 3;
    next.coming = {{1, 0, 1}, {2, 0, 1}};
    boards[1].post(next);
    for (int tries = 0;
         tries < 20000 && boards[1].reported().arrived != std::vector<uint32_t>{1, 2}; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(boards[1].reported().arrived == std::vector<uint32_t>{1, 2});
    target.stop();
    CHECK(target.node().experts().bytes() <= 2 * one_bytes);
}

TEST_CASE("what there is no room for is not begun") {
    node_bench bench("mixtral");
    const node_plan plan =
        plan_of(*bench.loaded_model, 2, std::vector<std::vector<uint32_t>>(bench.pages(), {0}));
    std::deque<plan_board> boards(2);
    loop_hub hub;
    const uint64_t one_bytes = expert_store(*bench.loaded_model).image_bytes(0);
    running_node source(hub, plan, *bench.loaded_model, 0, {}, 1000, "", &boards[0]),
        target(hub, plan, *bench.loaded_model, 1, {}, 1000, "", &boards[1], small_ranges(),
               2 * one_bytes);
    plan_record next = record_of(plan);
    next.epoch = 2;
    next.coming = {{0, 0, 1}, {1, 0, 1}, {2, 0, 1}};
    boards[1].post(next);
    for (int tries = 0; tries < 20000 && boards[1].reported().arrived.size() < 2; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // memory is taken first of all
    target.stop();
    CHECK(target.node().experts().bytes() == 2 * one_bytes);
}

TEST_CASE("experts that move delay calls no more than is allowed, whoever brings them") {
    node_bench bench("mixtral");
    const run_result texts = bench.alone(requests);
    constexpr uint64_t delay_ns = 4'000'000;
    // Either the home brings the other's experts, or the other brings those that the home has as
    // well.
    for (const bool to_home : {true, false}) {
        uint64_t ranges_free = 0;
        for (const double delay_max : {1e3, 0.05}) {
            CAPTURE(to_home);
            CAPTURE(delay_max);
            std::vector<std::vector<uint32_t>> holders(bench.pages(), {1});
            std::vector<moving_copy> coming;
            for (uint32_t page = 0; page < bench.pages(); ++page)
                if (to_home) {
                    coming.push_back({page, 1, 0});
                } else if (page % 2 == 0) {
                    holders[page] = {0};
                    coming.push_back({page, 0, 1});
                }
            const node_plan plan = plan_of(*bench.loaded_model, 2, holders);
            std::deque<plan_board> boards(2);
            // A range makes the next reply late.
            std::atomic<uint64_t> ranges = 0;
            bool late = false;
            const auto delayed = [&](sent_frame &message) {
                const bool range = message.header.kind ==
                                   (to_home ? message_kind::weights : message_kind::weights_wanted);
                if (range) ++ranges, late = true;
                if (message.header.kind == message_kind::reply && std::exchange(late, false))
                    std::this_thread::sleep_for(std::chrono::nanoseconds(delay_ns));
                return 1;
            };
            loop_hub hub;
            mover_options moving = small_ranges();
            moving.range_bytes = 64;  // so that none comes to an end
            moving.bytes_per_s = uint64_t{1} << 40;
            moving.delay_max = delay_max;
            running_node peer(hub, plan, *bench.loaded_model, 1, delayed, 1000, "", &boards[1],
                              moving);
            plan_record next = record_of(plan);
            next.epoch = 2;
            next.coming = coming;
            bench.moving = moving;
            bench.board = &boards[0];
            uint64_t begun_ns = 0, passes = 0;
            const run_result distributed =
                bench.at_home(hub, plan, 0, requests, /*own_disk=*/true, [&](const caller &) {
                    if (++passes != 4) return;  // the time of calls is known
                    begun_ns = steady_ns();
                    for (plan_board &board : boards) board.post(next);
                });
            const uint64_t took_ns = steady_ns() - begun_ns;
            CHECK(distributed.error == "");
            CHECK(distributed == texts);
            CHECK(ranges != 0);
            peer.stop();
            if (delay_max > 1) {
                ranges_free = ranges;
                continue;
            }
            // Each range must be paid for by twenty times its cost. The test allows half of that
            // for chance.
            CHECK(ranges <= took_ns / (10 * delay_ns) + 8);
            CHECK(ranges < ranges_free);
        }
    }
}

TEST_CASE("a call by an old plan is answered with what the caller can do") {
    node_bench bench("mixtral");
    const node_plan plan =
        plan_of(*bench.loaded_model, 3, std::vector<std::vector<uint32_t>>(bench.pages(), {1, 2}));
    std::deque<plan_board> boards(3);
    loop_hub hub;
    std::string text;
    const auto listen = [&](sent_frame &message) {
        refusal_view refusal;
        if (message.header.kind == message_kind::failed &&
            read(message.body(), refusal).reason == refusal_reason::none &&
            refusal.reason == refusal_reason::epoch)
            text = std::string(refusal.text);
        return 1;
    };
    plan_record next = record_of(plan);
    next.epoch = 4;
    for (auto &holders : next.holders) holders = {2};
    running_node first(hub, plan, *bench.loaded_model, 1, listen, 1000, "", &boards[1]),
        second(hub, plan, *bench.loaded_model, 2, {}, 1000, "", &boards[2]);
    boards[1].post(next);
    for (int tries = 0; tries < 20000 && boards[1].reported().epoch != 4; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const run_result distributed = bench.at_home(hub, plan, 0, requests, /*own_disk=*/false);
    CHECK(distributed.error == "");
    CHECK(distributed == bench.alone(requests));
    first.stop();
    if (distributed.calls.failed != 0)
        CHECK(text ==
              "epoch 1 is the caller's, 4 this node's, by which server2 hold the expert; take the "
              "newer plan, or ask one of them");
}

TEST_CASE("a copy that counts no more stays while a caller goes by the plan before") {
    node_bench bench("mixtral");
    const node_plan plan =
        plan_of(*bench.loaded_model, 2, std::vector<std::vector<uint32_t>>(bench.pages(), {1}));
    std::deque<plan_board> boards(2);
    loop_hub hub;
    running_node holder(hub, plan, *bench.loaded_model, 1, {}, 1000, "", &boards[1]);
    plan_record next = record_of(plan);
    next.epoch = 4;
    for (auto &holders : next.holders) holders = {0};
    int passes = 0;
    const run_result distributed =
        bench.at_home(hub, plan, 0, requests, /*own_disk=*/false, [&](const caller &) {
            if (++passes != 1) return;
            boards[1].post(next);
            for (int tries = 0; tries < 20000 && boards[1].reported().epoch != 4; ++tries)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
    CHECK(passes > 2);
    CHECK(distributed.error == "");
    CHECK(distributed == bench.alone(requests));
    CHECK(distributed.calls.failed == 0);
    holder.stop();
}

TEST_CASE(
    "slots that the plan leaves free stay so: a cache policy fills none that cannot be loaded") {
    node_bench bench("mixtral");
    bench.config.cache = {"static",
                          "test.toml:1",
                          {{"which", std::string("listed"), "test.toml:2"},
                           {"listed", std::string("0,1,2,3"), "test.toml:3"}}};
    const node_plan plan =
        plan_of(*bench.loaded_model, 2, std::vector<std::vector<uint32_t>>(bench.pages(), {1}));
    loop_hub hub;
    running_node holder(hub, plan, *bench.loaded_model, 1);
    const run_result without = bench.at_home(hub, plan, 0, requests, /*own_disk=*/false);
    bench.slots = 4;
    const run_result distributed = bench.at_home(hub, plan, 0, requests, /*own_disk=*/false);
    CHECK(distributed.error == "");
    CHECK(distributed == bench.alone(requests));
    CHECK(without.calls.elsewhere > 100);
    CHECK(distributed.calls.elsewhere == without.calls.elsewhere);
    holder.stop();
}

}  // namespace node_plans_test
