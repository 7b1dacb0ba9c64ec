// node_faults_test.cpp - goal: whatever one node does or fails to do, the home writes the text of
// one process, or names the expert that nobody computes. Every fault is counted as its kind.
// Method: a cluster of a home, a faulty holder and, in some cases, a sound one. The faulty one's
// messages are changed on their way, or a peer sends faulty ones of every kind.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/golden/home_fixture.h"
#include "tests/golden/lying_peer.h"

namespace node_faults_test {

namespace {

using namespace moorage::test;

const std::vector<model_request> requests = {{{5, 3, 9, 2, 7, 1}, 12, 0}, {{8, 8, 4}, 12, 0}};

// Sound replies before the fault, so that a deadline is known and short.
constexpr int sound_replies = 12;

// How a reply is changed, and which count shows it.
struct fault {
    const char *name;
    int (*change)(sent_frame &);
    uint64_t caller_figures::*counted;
};

template <class Value>
void put(sent_frame &message, size_t offset, Value value) {
    std::memcpy(message.body().data() + offset, &value, sizeof(value));
}

const fault faults[] = {
    {"hangs", [](sent_frame &) { return 0; }, &caller_figures::late},
    {"not a number",
     [](sent_frame &message) {
         return put(message, 24, std::numeric_limits<float>::quiet_NaN()), 1;
     },
     &caller_figures::wrong},
    {"infinite",
     [](sent_frame &message) {
         return put(message, 28, std::numeric_limits<float>::infinity()), 1;
     },
     &caller_figures::wrong},
    {"too little",
     [](sent_frame &message) {
         uint32_t pairs = 0;
         std::memcpy(&pairs, message.body().data() + 16, 4);
         const size_t row = (message.body().size() - 24) / pairs;
         message.bytes.resize(message.bytes.size() - row);
         put(message, 16, pairs - 1);
         return 1;
     },
     &caller_figures::wrong},
    {"another layer",
     [](sent_frame &message) {
         uint32_t layer = 0;
         std::memcpy(&layer, message.body().data(), 4);
         put(message, 0, layer == 0 ? 1u : 0u);
         return 1;
     },
     &caller_figures::wrong},
    {"a layer that is not there", [](sent_frame &message) { return put(message, 0, 99u), 1; },
     &caller_figures::wrong},
    {"other sizes", [](sent_frame &message) { return put(message, 4, 7u), 1; },
     &caller_figures::wrong},
    {"a stale epoch", [](sent_frame &message) { return message.header.epoch = 0, 1; },
     &caller_figures::wrong},
    {"to another call", [](sent_frame &message) { return message.header.id += 1'000'000, 1; },
     &caller_figures::late},
    {"another incarnation", [](sent_frame &message) { return ++message.header.incarnation, 1; },
     &caller_figures::lost},
    {"as another server", [](sent_frame &message) { return message.header.sender = 0, 1; },
     &caller_figures::lost},
    {"a kind that is not its to send",
     [](sent_frame &message) { return message.header.kind = message_kind::call, 1; },
     &caller_figures::lost},
    {"no message at all",
     [](sent_frame &message) {
         // Changed after the checksums: the header is not made anew.
         message.bytes.resize(frame_header_bytes);
         message.header.version = 7;
         return 1;
     },
     &caller_figures::lost},
    {"lacks it",
     [](sent_frame &message) {
         begin_frame(message.bytes);
         write(message.bytes,
               refusal_view{
                   .reason = refusal_reason::lacks, .layer = 0, .expert = 0, .text = "it is gone"});
         message.header.kind = message_kind::failed;
         return 1;
     },
     &caller_figures::failed},
    {"is busy",
     [](sent_frame &message) {
         begin_frame(message.bytes);
         write(message.bytes,
               refusal_view{
                   .reason = refusal_reason::busy, .layer = 0, .expert = 0, .text = "come again"});
         message.header.kind = message_kind::failed;
         return 1;
     },
     &caller_figures::failed}};

tampering after_sound_replies(const fault &fault) {
    return [&fault, replies = 0](sent_frame &message) mutable {
        if (message.header.kind != message_kind::reply || ++replies <= sound_replies) return 1;
        return fault.change(message);
    };
}

// Makes calls go to server 1 as long as it answers, at any speed of the machine.
std::vector<planned_price> one_before_two() {
    std::vector<planned_price> prices(3);
    prices[2].call_ns = 1e9;
    return prices;
}

std::vector<std::vector<uint32_t>> all_pages_at(const node_bench &bench,
                                                std::vector<uint32_t> servers) {
    return std::vector<std::vector<uint32_t>>(bench.pages(), std::move(servers));
}

}  // namespace

TEST_CASE("a faulty holder beside a sound one") {
    node_bench bench("mixtral");
    bench.config.prefill = 4;
    const run_result texts = bench.alone(requests);
    const node_plan plan = plan_of(*bench.loaded_model, 3, all_pages_at(bench, {1, 2}));
    bench.prices = one_before_two();
    for (const fault &fault : faults) {
        CAPTURE(fault.name);
        loop_hub hub;
        running_node faulty(hub, plan, *bench.loaded_model, 1, after_sound_replies(fault));
        running_node sound(hub, plan, *bench.loaded_model, 2);
        const run_result distributed = bench.at_home(hub, plan, 0, requests);
        CHECK(distributed.error == "");
        CHECK(distributed == texts);
        CHECK(distributed.calls.*fault.counted != 0);
    }
}

TEST_CASE("a faulty holder alone: own disk") {
    node_bench bench("olmoe");
    const run_result texts = bench.alone(requests);
    const node_plan plan = plan_of(*bench.loaded_model, 2, all_pages_at(bench, {1}));
    for (const fault &fault : faults) {
        CAPTURE(fault.name);
        loop_hub hub;
        running_node faulty(hub, plan, *bench.loaded_model, 1, after_sound_replies(fault));
        const run_result distributed = bench.at_home(hub, plan, 0, requests);
        CHECK(distributed.error == "");
        CHECK(distributed == texts);
        CHECK(distributed.calls.*fault.counted != 0);
        CHECK(distributed.calls.from_own_disk != 0);
    }
}

TEST_CASE("a faulty holder alone, and nothing may be read from disk: an error names the expert") {
    node_bench bench("olmoe");
    const node_plan plan = plan_of(*bench.loaded_model, 2, all_pages_at(bench, {1}));
    for (const fault &fault : faults) {
        CAPTURE(fault.name);
        loop_hub hub;
        running_node faulty(hub, plan, *bench.loaded_model, 1, after_sound_replies(fault));
        const run_result distributed = bench.at_home(hub, plan, 0, requests, /*own_disk=*/false);
        CHECK(distributed.error.find("expert ") == 0);
        CHECK(distributed.error.find("is computed by nobody") != std::string::npos);
        CHECK(distributed.error.find("server1") != std::string::npos);
    }
}

TEST_CASE("a late reply is dropped, one that comes twice counts once") {
    node_bench bench("mixtral");
    const run_result texts = bench.alone(requests);
    const node_plan plan = plan_of(*bench.loaded_model, 2, all_pages_at(bench, {1}));
    loop_hub hub;
    running_node twice(hub, plan, *bench.loaded_model, 1, [](sent_frame &message) {
        return message.header.kind == message_kind::reply ? 2 : 1;
    });
    run_result distributed = bench.at_home(hub, plan, 0, requests);
    CHECK(distributed == texts);
    CHECK(distributed.calls.replies == distributed.calls.calls);
    CHECK(distributed.calls.dropped + 2 >= distributed.calls.replies);
    twice.stop();

    running_node late(
        hub, plan, *bench.loaded_model, 1, [replies = 0](sent_frame &message) mutable {
            if (message.header.kind == message_kind::reply && ++replies == sound_replies + 1)
                std::this_thread::sleep_for(std::chrono::milliseconds(120));
            return 1;
        });
    distributed = bench.at_home(hub, plan, 0, requests);
    CHECK(distributed == texts);
    CHECK(distributed.calls.late != 0);
    CHECK(distributed.calls.from_own_disk != 0);
}

TEST_CASE("holders that die, drain and come back") {
    node_bench bench("qwen2_moe");
    const std::vector<model_request> long_ones = {{{5, 3, 9, 2, 7, 1}, 40, 0}};
    const run_result texts = bench.alone(long_ones);
    const node_plan plan = plan_of(*bench.loaded_model, 3, all_pages_at(bench, {1, 2}));
    for (const bool kill : {true, false}) {
        CAPTURE(kill);
        loop_hub hub;
        auto first = std::make_unique<running_node>(hub, plan, *bench.loaded_model, 1);
        auto second = std::make_unique<running_node>(hub, plan, *bench.loaded_model, 2);
        int passes = 0;
        const run_result distributed =
            bench.at_home(hub, plan, 0, long_ones, true, [&](const caller &) {
                ++passes;
                const auto end = [&](std::unique_ptr<running_node> &node) {
                    if (kill) node->kill();
                    node->stop();
                };
                if (passes == 8) end(first);
                if (passes == 16)
                    first = std::make_unique<running_node>(hub, plan, *bench.loaded_model, 1,
                                                           tampering(), 5000);
                if (passes == 20) {
                    end(second);
                    // Long enough to find a node that came back.
                    std::this_thread::sleep_for(std::chrono::milliseconds(200));
                }
            });
        CHECK(distributed.error == "");
        CHECK(distributed == texts);
        CHECK(distributed.calls.late == 0);
        first->stop();
        CHECK(first->node().serving().figures().calls != 0);
    }
}

TEST_CASE("nobody is there at all") {
    node_bench bench("mixtral");
    const node_plan plan = plan_of(*bench.loaded_model, 3, all_pages_at(bench, {1, 2}));
    loop_hub hub;
    const run_result distributed = bench.at_home(hub, plan, 0, requests);
    CHECK(distributed == bench.alone(requests));
    CHECK(distributed.calls.calls == 0);
    CHECK(distributed.calls.from_own_disk != 0);
    const run_result none = bench.at_home(hub, plan, 0, requests, /*own_disk=*/false);
    CHECK(none.error.find("no holder is there") != std::string::npos);
}

TEST_CASE("who greets with something else is refused, and both values are said") {
    node_bench bench("mixtral");
    const auto holders = all_pages_at(bench, {1});
    const node_plan plan = plan_of(*bench.loaded_model, 2, holders);
    struct difference {
        void (*change)(node_plan &);
        refusal_reason counted;
    };
    for (const auto &[change, counted] :
         {difference{[](node_plan &changed) { ++changed.model; }, refusal_reason::model},
          difference{
              [](node_plan &changed) { changed.model_name = "other", ++changed.sizes.experts; },
              refusal_reason::model},
          difference{[](node_plan &changed) { ++changed.cluster; }, refusal_reason::cluster},
          difference{[](node_plan &changed) { ++changed.plan; }, refusal_reason::epoch}}) {
        const refusal_reason reason = counted;  // clang 14 captures no bindings
        CAPTURE(name_of(reason));
        loop_hub hub;
        node_plan other_plan = plan;
        change(other_plan);
        if (other_plan.sizes.experts != plan.sizes.experts) other_plan = plan, ++other_plan.model;
        running_node stranger(hub, other_plan, *bench.loaded_model, 1);
        // There is no other holder, and a refusal must not fall back to the home's own disk.
        const run_result distributed = bench.at_home(hub, plan, 0, requests);
        CHECK(distributed.error.starts_with(
            "every node of the cluster refuses this one; server1 says: "));
        CHECK(distributed.tokens.empty());
        stranger.stop();
        CHECK(stranger.node().connections().figures().refused[static_cast<size_t>(counted)] != 0);
    }
}

TEST_CASE("whoever proves to be another server than it says is refused, on either side") {
    node_bench bench("mixtral");
    const node_plan plan = plan_of(*bench.loaded_model, 2, all_pages_at(bench, {1}));
    struct names {
        const char *home, *holder;
        bool right;
    };
    for (const names &identities : {names{"server0", "server1", true},
                                    {"server0", "server0", false},
                                    {"server1", "server1", false},
                                    {"", "server1", true}}) {
        CAPTURE(identities.home);
        CAPTURE(identities.holder);
        loop_hub hub;
        running_node holder(hub, plan, *bench.loaded_model, 1, {}, 1000, identities.holder);
        const run_result distributed =
            bench.at_home(hub, plan, 0, requests, true, {}, identities.home);
        if (identities.right) {
            CHECK(distributed == bench.alone(requests));
            CHECK(distributed.calls.calls != 0);
        } else {
            CHECK(distributed.error.find("server1 says: its certificate is ") != std::string::npos);
        }
    }
}

TEST_CASE("a slow call is asked for twice, whoever answers first is taken") {
    node_bench bench("mixtral");
    const std::vector<model_request> longer = {{{5, 3, 9, 2, 7, 1}, 60, 0}, {{8, 8, 4}, 60, 0}};
    const run_result texts = bench.alone(longer);
    const node_plan plan = plan_of(*bench.loaded_model, 3, all_pages_at(bench, {1, 2}));
    bench.prices = one_before_two();
    bench.hedge = true;
    // It depends on the machine whether it comes before the deadline, so repeat until it has.
    caller_figures sum;
    for (int tries = 0; tries < 50 && (sum.hedged == 0 || sum.hedges_won == 0); ++tries) {
        loop_hub hub;
        // Answers 120 calls and keeps every answer from then on.
        int replies = 0;
        running_node stops(hub, plan, *bench.loaded_model, 1, [&](sent_frame &message) {
            return message.header.kind != message_kind::reply || ++replies <= 120 ? 1 : 0;
        });
        running_node sound(hub, plan, *bench.loaded_model, 2);
        const run_result distributed = bench.at_home(hub, plan, 0, longer);
        CHECK(distributed.error == "");
        CHECK(distributed == texts);
        sum.hedged += distributed.calls.hedged;
        sum.hedges_won += distributed.calls.hedges_won;
    }
    CHECK(sum.hedged != 0);
    CHECK(sum.hedges_won != 0);
}

namespace {

// Calls it for each kind of message, spoilt in every possible way.
void for_each_lie(const node_plan &plan,
                  const std::function<void(message_kind, lie, const message_bytes &)> &tell) {
    for (const body_place &places : body_places)
        for (const lie fault : {lie::cut, lie::count, lie::value}) {
            message_bytes says = sound_message(places.kind, plan);
            if (!spoil(says, places, fault)) continue;
            CAPTURE(static_cast<int>(places.kind));
            CAPTURE(std::string(lie_names[static_cast<size_t>(fault)]));
            tell(places.kind, fault, says);
        }
}

// A later version may have further reasons, so an unknown one is no error.
bool is_tolerated(message_kind kind, lie fault) {
    return kind == message_kind::goodbye && fault == lie::value;
}

// Server 1 greets correctly and answers every `asked` with the given bytes. The refusals that it
// received can be read once it has stopped.
class lying_server {
public:
    lying_server(loop_hub &hub, const node_plan &plan, message_kind asked, message_kind kind,
                 const message_bytes &says)
        : peer_(hub, plan, 1) {
        REQUIRE(peer_.listen("loop:1"));
        thread_ = std::thread([this, asked, kind, says] {
            // It still reads messages that were sent before it was stopped.
            for (int left = 3; left != 0; left -= stopped_ ? 1 : 0) {
                const peer_answer now = peer_.hear(20'000'000, [&](const frame &received) {
                    if (received.header.kind == message_kind::hello)
                        peer_.greet(message_kind::welcome);
                    if (received.header.kind == asked)
                        peer_.say(message_bytes(says), kind, received.header.id);
                    return false;
                });
                if (now.reason != refusal_reason::none) back_ = now;
            }
        });
    }
    ~lying_server() { stop(); }
    peer_answer stop() {
        stopped_ = true;
        if (thread_.joinable()) thread_.join();
        return back_;
    }

private:
    lying_peer peer_;
    peer_answer back_;
    std::atomic<bool> stopped_ = false;
    std::thread thread_;
};

// The answer of server 0 to a peer that connects, optionally greets, and sends `says`.
peer_answer answer_to_liar(loop_hub &hub, const node_plan &plan, bool greets, message_kind kind,
                           const message_bytes &says) {
    lying_peer liar(hub, plan, no_server);
    liar.connect("loop:0");
    if (greets) {
        liar.greet(message_kind::hello);
        const peer_answer met = liar.hear(5'000'000'000, [](const frame &received) {
            return received.header.kind == message_kind::welcome;
        });
        REQUIRE_FALSE(met.closed);
    }
    liar.say(message_bytes(says), kind, 1);
    return liar.hear(5'000'000'000, [](const frame &) { return false; });
}

}  // namespace

TEST_CASE("who connects and lies, in whatever message, is refused in words; others are served") {
    node_bench reference("olmoe"), bench("olmoe");
    const node_plan plan = plan_of(*reference.loaded_model, 1, all_pages_at(reference, {0}));
    loop_hub hub;
    running_home home(bench, hub, plan, 0);
    const std::vector<load_request> asks = {{0, 0, {{1, 2, 3}, 5, 0}}};
    const auto text = load_over(hub, plan, asks)[0].written;
    REQUIRE(text.size() == 5);
    for_each_lie(plan, [&](message_kind kind, lie fault, const message_bytes &says) {
        for (const bool greets : {false, true}) {
            CAPTURE(greets);
            if (greets && is_tolerated(kind, fault)) continue;
            peer_answer back = answer_to_liar(hub, plan, greets, kind, says);
            // A refusal is not sent if the wire is full when the connection ends. This happens now
            // and then, but not twice in a row.
            if (back.text.empty()) back = answer_to_liar(hub, plan, greets, kind, says);
            CHECK(back.closed);
            // A refusal gets no answer.
            CHECK(back.text.empty() == (greets && kind == message_kind::refusal));
        }
        CHECK(load_over(hub, plan, asks)[0].written == text);
    });
}

TEST_CASE("whoever connects and does not greet is dropped, and others are served meanwhile") {
    node_bench reference("olmoe"), bench("olmoe");
    const node_plan plan = plan_of(*reference.loaded_model, 1, all_pages_at(reference, {0}));
    loop_hub hub;
    running_home home(bench, hub, plan, 0);
    const uint64_t begin_ns = steady_ns();
    lying_peer mute(hub, plan, no_server);
    mute.connect("loop:0");
    const auto outcomes = load_over(hub, plan, {{0, 0, {{1, 2, 3}, 5, 0}}});
    CHECK(outcomes[0].end == load_end::answered);
    const peer_answer back = mute.hear(10'000'000'000, [](const frame &) { return false; });
    const uint64_t took_ns = steady_ns() - begin_ns;
    CHECK(back.closed);
    CHECK(took_ns >= links::greeting_ns);
    CHECK(took_ns < 2 * links::greeting_ns);
}

TEST_CASE("a holder that lies, in whatever message, is refused in words; the text is the same") {
    node_bench bench("olmoe");
    const run_result texts = bench.alone(requests);
    const node_plan plan = plan_of(*bench.loaded_model, 2, all_pages_at(bench, {1}));
    for_each_lie(plan, [&](message_kind kind, lie fault, const message_bytes &says) {
        loop_hub hub;
        lying_server liar(hub, plan, message_kind::call, kind, says);
        const run_result distributed = bench.at_home(hub, plan, 0, requests);
        const peer_answer back = liar.stop();
        CHECK(distributed.error == "");
        CHECK(distributed == texts);
        CHECK(distributed.calls.replies == 0);
        CHECK(distributed.calls.from_own_disk != 0);
        // These two belong to one call and leave the connection alone.
        const bool of_call = kind == message_kind::reply || kind == message_kind::failed;
        CHECK((distributed.calls.wrong != 0) == (kind == message_kind::reply));
        CHECK((distributed.calls.failed != 0) == (kind == message_kind::failed));
        CHECK((distributed.calls.lost != 0) == !of_call);
        if (!of_call && kind != message_kind::refusal && !is_tolerated(kind, fault))
            CHECK_FALSE(back.text.empty());
    });
}

TEST_CASE("a home that lies to who asks it, in whatever message, is refused in words") {
    node_bench reference("olmoe"), bench("olmoe");
    const node_plan plan = plan_of(*reference.loaded_model, 2, all_pages_at(reference, {0, 1}));
    loop_hub hub;
    running_home sound(bench, hub, plan, 0);
    const std::vector<load_request> asks = {{0, 0, {{1, 2, 3}, 5, 0}}, {1, 0, {{1, 2, 3}, 5, 0}}};
    for_each_lie(plan, [&](message_kind kind, lie fault, const message_bytes &says) {
        peer_answer back;
        const auto outcomes_of = [&](const std::vector<load_request> &asked) {
            lying_server liar(hub, plan, message_kind::ask, kind, says);
            const auto outcomes = load_over(hub, plan, asked, {.patience_ns = 2'000'000'000});
            back = liar.stop();
            return outcomes;
        };
        const auto outcomes = outcomes_of(asks);
        // The wire is full now and then, and then the refusal is not sent. If only the liar is
        // asked, fewer messages are sent.
        if (back.text.empty()) outcomes_of({asks[1]});
        CHECK(outcomes[0].end == load_end::answered);
        CHECK(outcomes[0].written.size() == 5);
        CHECK(outcomes[1].end != load_end::answered);
        CHECK_FALSE(outcomes[1].text.empty());
        CHECK(outcomes[1].written.empty());
        if (kind != message_kind::failed && kind != message_kind::refusal &&
            !is_tolerated(kind, fault))
            CHECK_FALSE(back.text.empty());
    });
}

}  // namespace node_faults_test
