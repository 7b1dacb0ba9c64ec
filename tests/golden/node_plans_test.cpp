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
            const auto to = static_cast<uint32_t>(draw_.below(servers));
            std::vector<uint32_t> &holders = plan_.holders[page];
            const bool coming = std::ranges::any_of(
                plan_.coming, [&](const moving_copy &one) { return one.page == page; });
            if (std::ranges::find(holders, to) != holders.end()) {
                // Another live server holds it, too. Copies that are read stay.
                const auto others = std::ranges::count_if(
                    holders, [&](uint32_t one) { return one != to && alive[one]; });
                if (coming || others == 0) continue;
                std::erase(holders, to);
                changed_ = true;
            } else if (!coming && alive[to]) {
                const uint32_t from =
                    draw_.below(4) == 0 ? no_server : holders[draw_.below(holders.size())];
                plan_.coming.push_back({page, from, to});
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
        std::erase_if(plan_.coming, [&](const moving_copy &one) { return one.to == server; });
        changed_ = true;
    }
    const plan_record &plan() const { return plan_; }
    uint64_t arrived() const { return arrived_; }

private:
    void take_arrivals() {
        for (uint32_t server = 0; server < boards.size(); ++server)
            for (const uint32_t page : boards[server].said().arrived) {
                const auto at = std::ranges::find_if(plan_.coming, [&](const moving_copy &one) {
                    return one.page == page && one.to == server;
                });
                if (at == plan_.coming.end() || !alive[server]) continue;
                plan_.coming.erase(at);
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
    std::vector<std::vector<uint32_t>> made(pages);
    for (auto &of : made) {
        of.push_back(static_cast<uint32_t>(draw.below(servers)));
        of.push_back(static_cast<uint32_t>((of[0] + 1 + draw.below(servers - 1)) % servers));
    }
    return made;
}

mover_options small_ranges() {
    mover_options made;
    made.range_bytes = 512;
    made.answer_ns = 500'000'000;
    return made;
}

}  // namespace

TEST_CASE("plans change under a text: not one expert is computed by nobody") {
    for (const char *name : {"mixtral", "qwen2_moe"}) {
        CAPTURE(name);
        node_bench on(name), other(name);  // its weights lie elsewhere
        const run_result texts = on.alone(requests);
        for (uint64_t seed = 1; seed <= 3; ++seed) {
            CAPTURE(seed);
            random_stream draw(seed, 7);
            constexpr uint32_t servers = 4;
            const node_plan plan = plan_of(*on.of, servers, two_each(on.pages(), servers, draw));
            random_leader leader(plan, draw);
            loop_hub hub;
            std::deque<running_node> nodes;
            for (uint32_t server = 1; server < servers; ++server)
                nodes.emplace_back(hub, plan, *(server == 2 ? other : on).of, server, tampering(),
                                   1000, "", &leader.boards[server], small_ranges());
            on.board = &leader.boards[0];
            const run_result there =
                on.at_home(hub, plan, 0, requests, /*own_disk=*/false, [&](const caller &) {
                    leader.step();
                    std::this_thread::sleep_for(std::chrono::milliseconds(3));
                });
            CHECK(there.error == "");
            CHECK(there == texts);
            CHECK(there.calls.replies != 0);
            CHECK(leader.plan().epoch > 5);
            CHECK(leader.arrived() != 0);
            for (running_node &one : nodes) one.stop();
        }
    }
}

TEST_CASE("plans change and nodes die at any step: the same text") {
    node_bench on("mixtral");
    const run_result texts = on.alone(requests);
    for (uint64_t seed = 1; seed <= 4; ++seed) {
        CAPTURE(seed);
        random_stream draw(seed, 9);
        constexpr uint32_t servers = 4;
        const node_plan plan = plan_of(*on.of, servers, two_each(on.pages(), servers, draw));
        random_leader leader(plan, draw);
        loop_hub hub;
        std::array<std::unique_ptr<running_node>, servers> nodes;
        uint64_t born = 1000;
        const auto start = [&](uint32_t server) {
            nodes[server] =
                std::make_unique<running_node>(hub, plan, *on.of, server, tampering(), born += 100,
                                               "", &leader.boards[server], small_ranges());
            leader.alive[server] = true;
        };
        for (uint32_t server = 1; server < servers; ++server) start(server);
        on.board = &leader.boards[0];
        int kills = 0;
        const run_result there =
            on.at_home(hub, plan, 0, requests, /*own_disk=*/true, [&](const caller &) {
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
        CHECK(there.error == "");
        CHECK(there == texts);
        CHECK(kills != 0);
    }
}

TEST_CASE(
    "a copy comes over the wire, counts, and the old one goes when nobody calls by the old plan") {
    node_bench on("olmoe");
    const node_plan plan = plan_of(*on.of, 2, std::vector<std::vector<uint32_t>>(on.pages(), {0}));
    std::deque<plan_board> boards(2);
    loop_hub hub;
    running_node from(hub, plan, *on.of, 0, {}, 1000, "", &boards[0]),
        to(hub, plan, *on.of, 1, {}, 1000, "", &boards[1], small_ranges());
    // A third server that keeps the old plan.
    loop_wire wire(hub);
    thread_pool pool(1);
    std::deque<plan_board> late(1);
    peer_node idle({&wire, &plan, {no_server, 5, "test"}, on.of, &pool, &late[0]});
    idle.dial();
    while (!idle.connections().to(0)) idle.turn(1'000'000);

    const auto waits_for = [&](const auto &so) {
        for (int tries = 0; tries < 20000 && !so(); ++tries) {
            idle.turn(0);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return so();
    };
    plan_record next = record_of(plan);
    next.epoch = 2;
    next.coming = {{3, 0, 1}};
    for (plan_board &one : boards) one.post(next);
    CHECK(waits_for([&] { return boards[1].said().arrived == std::vector<uint32_t>{3}; }));
    next.epoch = 3;
    next.coming.clear();
    next.holders[3] = {1};
    for (plan_board &one : boards) one.post(next);
    CHECK(waits_for([&] { return boards[0].said().leaving == 1; }));
    for (int i = 0; i < 20; ++i) idle.turn(5'000'000);
    CHECK(boards[0].said().leaving == 1);
    late[0].post(next);
    CHECK(waits_for([&] { return boards[0].said().leaving == 0; }));
    // A plan of an older epoch is not accepted.
    next.epoch = 2;
    CHECK_FALSE(boards[0].post(next));
    to.stop();
    from.stop();
    CHECK(to.node().plan().epoch == 3);
    CHECK(to.node().experts().held() == 1);
    CHECK(from.node().experts().held() == on.pages() - 1);
    CHECK(to.node().moving().figures().bytes == from.node().serving().figures().weights_bytes);
    CHECK(to.node().moving().figures().bytes == from.node().experts().image_bytes(3));
    CHECK(to.node().moving().figures().own == 0);
}

TEST_CASE("a caller that says no newer epoch is named, waited for so long, and told why") {
    node_bench on("olmoe");
    const node_plan plan = plan_of(*on.of, 2, std::vector<std::vector<uint32_t>>(on.pages(), {0}));
    plan_board board;
    loop_hub hub;
    loop_wire near(hub), far(hub);
    thread_pool pool(1);
    peer_node keeps({.over = &near,
                     .plan = &plan,
                     .own = {0, 1000, "test"},
                     .of = on.of,
                     .pool = &pool,
                     .board = &board,
                     .behind_ns = 300'000'000});
    REQUIRE(keeps.listen(plan.servers[0].addresses.front()).ok());
    peer_node silent(
        {.over = &far, .plan = &plan, .own = {no_server, 5, "test"}, .of = on.of, .pool = &pool});
    silent.dial();
    for (int tries = 0; tries < 20000 && !silent.connections().to(0); ++tries) {
        keeps.turn(0);
        silent.turn(1'000'000);
    }
    REQUIRE(silent.connections().to(0));
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
    std::string why;
    for (int tries = 0; tries < 20000 && why.empty(); ++tries) {
        keeps.turn(0);
        silent.turn(100'000);
        why = silent.connections().trouble(0);
    }
    CHECK(why.find("epoch 1 is the latest that the caller said, 2 this node's") !=
          std::string::npos);
    for (int tries = 0; tries < 20000 && !silent.connections().to(0); ++tries) {
        keeps.turn(0);
        silent.turn(1'000'000);
    }
    CHECK(silent.connections().to(0));
    CHECK(keeps.waited_for().empty());
}

TEST_CASE("sources that are silent, lie or are gone: another one, then the own directory") {
    node_bench on("mixtral");
    const auto swallow = [](said &what) {
        return what.header.kind == message_kind::weights ? 0 : 1;
    };
    const auto spoil = [](said &what) {
        if (what.header.kind == message_kind::weights) what.bytes.back() ^= std::byte{1};
        return 1;
    };
    const auto other_range = [](said &what) {
        if (what.header.kind == message_kind::weights)
            what.bytes[frame_header_bytes] ^= std::byte{1};
        return 1;
    };
    for (const tampering &change : {tampering(swallow), tampering(spoil), tampering(other_range)})
        for (const bool second : {false, true}) {
            const node_plan plan = plan_of(
                *on.of, 3,
                std::vector<std::vector<uint32_t>>(
                    on.pages(), second ? std::vector<uint32_t>{0, 2} : std::vector<uint32_t>{0}));
            std::deque<plan_board> boards(3);
            loop_hub hub;
            mover_options quick = small_ranges();
            quick.answer_ns = 50'000'000;
            running_node liar(hub, plan, *on.of, 0, change, 1000, "", &boards[0]),
                to(hub, plan, *on.of, 1, {}, 1000, "", &boards[1], quick),
                sound(hub, plan, *on.of, 2, {}, 1000, "", &boards[2]);
            plan_record next = record_of(plan);
            next.epoch = 2;
            next.coming = {{5, 0, 1}};
            boards[1].post(next);
            for (int tries = 0; tries < 20000 && boards[1].said().arrived.empty(); ++tries)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            to.stop();
            CHECK(to.node().moving().figures().failed == 1);
            CHECK(to.node().moving().figures().own == (second ? 0 : 1));
            CHECK(to.node().experts().has(5));
            std::vector<std::byte> theirs, ours;
            const uint64_t bytes = to.node().experts().image_bytes(5);
            to.node().experts().copy(5, 0, bytes, theirs);
            expert_store own(*on.of);
            own.take_own(5);
            own.copy(5, 0, bytes, ours);
            CHECK(theirs == ours);
        }
}

TEST_CASE("a budget of bytes and of memory is kept") {
    node_bench on("mixtral");
    const node_plan plan = plan_of(*on.of, 2, std::vector<std::vector<uint32_t>>(on.pages(), {0}));
    std::deque<plan_board> boards(2);
    loop_hub hub;
    expert_store sizes(*on.of);
    const uint64_t one_bytes = sizes.image_bytes(0);
    mover_options paced = small_ranges();
    paced.bytes_per_s = 4 * one_bytes;  // a copy in a quarter of a second
    running_node from(hub, plan, *on.of, 0, {}, 1000, "", &boards[0]),
        to(hub, plan, *on.of, 1, {}, 1000, "", &boards[1], paced, 2 * one_bytes);
    plan_record next = record_of(plan);
    next.epoch = 2;
    next.coming = {{0, 0, 1}, {1, 0, 1}, {2, 0, 1}};
    const uint64_t begun_ns = steady_ns();
    boards[1].post(next);
    for (int tries = 0; tries < 20000 && boards[1].said().arrived.size() < 2; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // Not sooner than the budget allows, except the last range. There is no upper limit, because it
    // depends on the machine.
    CHECK(steady_ns() - begun_ns >=
          uint64_t{500'000'000} - uint64_t{250'000'000} * 512 / one_bytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));  // a third would have come
    CHECK(boards[1].said().arrived.size() == 2);                  // there is no room for it
    // One is counted elsewhere after all, so it goes, and the third comes.
    next.epoch = 3;
    next.coming = {{1, 0, 1}, {2, 0, 1}};
    boards[1].post(next);
    for (int tries = 0; tries < 20000 && boards[1].said().arrived != std::vector<uint32_t>{1, 2};
         ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(boards[1].said().arrived == std::vector<uint32_t>{1, 2});
    to.stop();
    CHECK(to.node().experts().bytes() <= 2 * one_bytes);
}

TEST_CASE("what there is no room for is not begun") {
    node_bench on("mixtral");
    const node_plan plan = plan_of(*on.of, 2, std::vector<std::vector<uint32_t>>(on.pages(), {0}));
    std::deque<plan_board> boards(2);
    loop_hub hub;
    const uint64_t one_bytes = expert_store(*on.of).image_bytes(0);
    running_node from(hub, plan, *on.of, 0, {}, 1000, "", &boards[0]),
        to(hub, plan, *on.of, 1, {}, 1000, "", &boards[1], small_ranges(), 2 * one_bytes);
    plan_record next = record_of(plan);
    next.epoch = 2;
    next.coming = {{0, 0, 1}, {1, 0, 1}, {2, 0, 1}};
    boards[1].post(next);
    for (int tries = 0; tries < 20000 && boards[1].said().arrived.size() < 2; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // memory is taken first of all
    to.stop();
    CHECK(to.node().experts().bytes() == 2 * one_bytes);
}

TEST_CASE("experts that move delay calls no more than is allowed, whoever brings them") {
    node_bench on("mixtral");
    const run_result texts = on.alone(requests);
    constexpr uint64_t delay_ns = 4'000'000;
    // Either the home brings the other's experts, or the other brings those that the home has as
    // well.
    for (const bool to_home : {true, false}) {
        uint64_t ranges_free = 0;
        for (const double delay_max : {1e3, 0.05}) {
            CAPTURE(to_home);
            CAPTURE(delay_max);
            std::vector<std::vector<uint32_t>> holders(on.pages(), {1});
            std::vector<moving_copy> coming;
            for (uint32_t page = 0; page < on.pages(); ++page)
                if (to_home) {
                    coming.push_back({page, 1, 0});
                } else if (page % 2 == 0) {
                    holders[page] = {0};
                    coming.push_back({page, 0, 1});
                }
            const node_plan plan = plan_of(*on.of, 2, holders);
            std::deque<plan_board> boards(2);
            // A range makes the next reply late.
            std::atomic<uint64_t> ranges = 0;
            bool late = false;
            const auto delayed = [&](said &what) {
                const bool range = what.header.kind ==
                                   (to_home ? message_kind::weights : message_kind::weights_wanted);
                if (range) ++ranges, late = true;
                if (what.header.kind == message_kind::reply && std::exchange(late, false))
                    std::this_thread::sleep_for(std::chrono::nanoseconds(delay_ns));
                return 1;
            };
            loop_hub hub;
            mover_options moving = small_ranges();
            moving.range_bytes = 64;  // so that none comes to an end
            moving.bytes_per_s = uint64_t{1} << 40;
            moving.delay_max = delay_max;
            running_node other(hub, plan, *on.of, 1, delayed, 1000, "", &boards[1], moving);
            plan_record next = record_of(plan);
            next.epoch = 2;
            next.coming = coming;
            on.moving = moving;
            on.board = &boards[0];
            uint64_t begun_ns = 0, passes = 0;
            const run_result there =
                on.at_home(hub, plan, 0, requests, /*own_disk=*/true, [&](const caller &) {
                    if (++passes != 4) return;  // the time of calls is known
                    begun_ns = steady_ns();
                    for (plan_board &one : boards) one.post(next);
                });
            const uint64_t took_ns = steady_ns() - begun_ns;
            CHECK(there.error == "");
            CHECK(there == texts);
            CHECK(ranges != 0);
            other.stop();
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
    node_bench on("mixtral");
    const node_plan plan =
        plan_of(*on.of, 3, std::vector<std::vector<uint32_t>>(on.pages(), {1, 2}));
    std::deque<plan_board> boards(3);
    loop_hub hub;
    std::string text;
    const auto listen = [&](said &what) {
        refusal_view why;
        if (what.header.kind == message_kind::failed &&
            read(what.body(), why).why == refusal_reason::none && why.why == refusal_reason::epoch)
            text = std::string(why.text);
        return 1;
    };
    plan_record next = record_of(plan);
    next.epoch = 4;
    for (auto &holders : next.holders) holders = {2};
    running_node first(hub, plan, *on.of, 1, listen, 1000, "", &boards[1]),
        second(hub, plan, *on.of, 2, {}, 1000, "", &boards[2]);
    boards[1].post(next);
    for (int tries = 0; tries < 20000 && boards[1].said().epoch != 4; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const run_result there = on.at_home(hub, plan, 0, requests, /*own_disk=*/false);
    CHECK(there.error == "");
    CHECK(there == on.alone(requests));
    first.stop();
    if (there.calls.failed != 0)
        CHECK(text ==
              "epoch 1 is the caller's, 4 this node's, by which server2 hold the expert; take the "
              "newer plan, or ask one of them");
}

TEST_CASE("a copy that counts no more stays while a caller goes by the plan before") {
    node_bench on("mixtral");
    const node_plan plan = plan_of(*on.of, 2, std::vector<std::vector<uint32_t>>(on.pages(), {1}));
    std::deque<plan_board> boards(2);
    loop_hub hub;
    running_node holder(hub, plan, *on.of, 1, {}, 1000, "", &boards[1]);
    plan_record next = record_of(plan);
    next.epoch = 4;
    for (auto &holders : next.holders) holders = {0};
    int passes = 0;
    const run_result there =
        on.at_home(hub, plan, 0, requests, /*own_disk=*/false, [&](const caller &) {
            if (++passes != 1) return;
            boards[1].post(next);
            for (int tries = 0; tries < 20000 && boards[1].said().epoch != 4; ++tries)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
    CHECK(passes > 2);
    CHECK(there.error == "");
    CHECK(there == on.alone(requests));
    CHECK(there.calls.failed == 0);
    holder.stop();
}

TEST_CASE(
    "slots that the plan leaves free stay so: a cache policy fills none that cannot be loaded") {
    node_bench on("mixtral");
    on.config.cache = {"static",
                       "test.toml:1",
                       {{"which", std::string("listed"), "test.toml:2"},
                        {"listed", std::string("0,1,2,3"), "test.toml:3"}}};
    const node_plan plan = plan_of(*on.of, 2, std::vector<std::vector<uint32_t>>(on.pages(), {1}));
    loop_hub hub;
    running_node holder(hub, plan, *on.of, 1);
    const run_result without = on.at_home(hub, plan, 0, requests, /*own_disk=*/false);
    on.slots = 4;
    const run_result there = on.at_home(hub, plan, 0, requests, /*own_disk=*/false);
    CHECK(there.error == "");
    CHECK(there == on.alone(requests));
    CHECK(without.calls.elsewhere > 100);
    CHECK(there.calls.elsewhere == without.calls.elsewhere);
    holder.stop();
}

TEST_CASE("plans and members as texts: there and back, and nothing believed") {
    node_bench on("mixtral");
    random_stream draw(3, 3);
    const node_plan plan = plan_of(*on.of, 3, random_holders(on.pages(), 3, draw));
    plan_record made = record_of(plan);
    made.epoch = 7;
    made.coming = {{1, 0, 2}, {2, no_server, 1}};
    const std::string text = to_text(made, plan);
    const auto back = read_plan_record(7, text, plan);
    REQUIRE(back.ok());
    CHECK(*back == made);
    const auto refuses = [&](const std::string &what, const std::string &by, const char *says) {
        std::string changed = text;
        const size_t at = changed.find(what);
        REQUIRE(at != std::string::npos);
        changed.replace(at, what.size(), by);
        const auto read = read_plan_record(7, changed, plan);
        REQUIRE_FALSE(read.ok());
        CAPTURE(read.failure().text);
        CHECK(read.failure().text.find(says) != std::string::npos);
    };
    refuses("moorage.plan/1", "moorage.plan/2", "format");
    refuses("\"cluster\":\"", "\"cluster\":\"x", "is of cluster x");
    refuses("\"model\":\"", "\"model\":\"x", "is of model x");
    refuses("\"holders\":[[", "\"holders\":[[0],[", "experts, and there are");
    refuses("\"holders\":[[", "\"holders\":[[9,", "expert 0 of layer 0");
    refuses("\"holders\":[[", "\"holders\":[[-1,", "expert 0 of layer 0");
    refuses("\"coming\":[[1,0,2]", "\"coming\":[[1,0,3]", "what is not there");
    refuses("\"coming\":[[1,0,2]", "\"coming\":[[99999999,0,2]", "what is not there");
    refuses("\"coming\":[[1,0,2]", "\"coming\":[[1,2]", "a copy that is none");
    for (const std::string &bad : {std::string(), std::string("{"), std::string("null"),
                                   std::string(1 << 16, '['), text.substr(0, text.size() / 2)})
        CHECK_FALSE(read_plan_record(7, bad, plan).ok());

    const member_record member{5, 7, {1, 4}, 2, 12345, {0, 7, 8}, 1 << 20};
    const auto said = read_member_record(to_text(member), plan);
    REQUIRE(said.ok());
    CHECK(*said == member);
    const auto odd = read_member_record(
        "{\"format\":\"moorage.member/1\",\"epoch\":-4,\"arrived\":[1,\"x\",99999999,null],"
        "\"round_trip_ns\":[1,2,3,4,5,6]}",
        plan);
    REQUIRE(odd.ok());
    CHECK(odd->arrived == std::vector<uint32_t>{1});
    CHECK(odd->round_trip_ns.size() == 3);
    CHECK_FALSE(read_member_record("[]", plan).ok());
}

}  // namespace node_plans_test
