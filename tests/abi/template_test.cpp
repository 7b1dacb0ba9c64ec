// template_test.cpp - goal: the output of `plugins new` works in every language. Method: build each
// template as its first lines say (sdk.cmake), load it in the host, and give it one case by hand
// per kind. All languages must answer alike. Without rustc the Rust templates are left out, with a
// message.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/host/call_list.h"
#include "core/host/instance.h"
#include "core/host/registry.h"
#include "tests/skip.h"

namespace template_test {

namespace {

namespace core = moorage::core;
const std::filesystem::path folder =
    std::filesystem::path(MOORAGE_BINARY_DIR) / "tests/abi/templates";

std::vector<std::string> languages() {
    if (std::filesystem::exists(folder / "rust_cache.so")) return {"cpp", "c", "rust"};
    moorage::test::skip("no rustc when this was built: C++ and C were tested alone");
    return {"cpp", "c"};
}

// 2 layers of 4 experts, one shared pool of 3 slots or one pool per layer.
struct world {
    explicit world(uint32_t pools = 1) {
        slots.assign(pools, 3);
        used.assign(pools, 0);
        view = {sizeof(view), 0,       2,      4, pools, 0, state.data(), slots.data(), used.data(),
                split.data(), nullptr, nullptr};
        limits.size = sizeof(limits);
        limits.layers = 2, limits.experts = 4, limits.top_k = 2, limits.tokens_max = 1;
        limits.requests_max = 1, limits.pools = pools, limits.slots = 3 * pools;
        limits.buffer_slots = 2, limits.segments = 2, limits.predictions_max = 4;
        limits.links = 2, limits.transfers_max = 4, limits.expert_bytes = 100;
        environment.residency = &view;
        step.size = sizeof(step);
        step.phase = MOORAGE_DECODE;
        step.token_count = 1, step.top_k = 2, step.experts = 4;
        step.host_streams = &stream, step.host_requests = &request;
    }
    // The instance of the template `kind` in `language`, activated; with one parameter set, if any.
    core::instance &open(const std::string &language, const std::string &kind,
                         core::settings settings = {}) {
        const std::string name = language + "_" + kind;
        const std::vector<std::filesystem::path> paths = {folder / (name + ".so")};
        const core::status scanned = registry.scan(paths);
        REQUIRE_MESSAGE(scanned.ok(), (scanned.ok() ? std::string() : scanned.failure().text));
        auto found = registry.find(name, kind);
        REQUIRE_MESSAGE(found.ok(), (found.ok() ? std::string() : found.failure().text));
        auto created = core::instance::create(**found, settings, environment);
        REQUIRE_MESSAGE(created.ok(), (created.ok() ? std::string() : created.failure().text));
        policy = std::move(*created);
        const core::status active = policy->activate(limits);
        REQUIRE_MESSAGE(active.ok(), (active.ok() ? std::string() : active.failure().text));
        return *policy;
    }

    std::array<uint32_t, 8> state{};
    std::vector<uint32_t> slots, used;
    std::array<float, 2> split{1, 1};
    moorage_residency view{};
    moorage_limits limits{};
    core::environment environment;
    moorage_step step{};
    uint32_t stream = 0;
    uint64_t request = 0;
    core::registry registry;
    std::unique_ptr<core::instance> policy;
};

std::vector<uint32_t> victims(core::instance &policy, uint32_t pool, uint32_t count) {
    const moorage_room room{sizeof(room), 0, pool, pool, count, MOORAGE_DEMAND};
    std::vector<uint32_t> pages(count, 99);
    const uint32_t named = policy.cache->victims(policy.plugin(), &room, pages.data());
    REQUIRE(named <= count);
    pages.resize(named);
    return pages;
}

void load(world &w, core::instance &policy, uint32_t page) {
    w.state[page] = MOORAGE_WHOLE;
    policy.cache->on_load(policy.plugin(), page, MOORAGE_WHOLE, MOORAGE_DEMAND);
}

using pages = std::vector<uint32_t>;

}  // namespace

TEST_CASE("every library exports its door and nothing else") {
    for (const std::string &language : languages())
        for (const std::string_view kind : core::kinds) {
            const std::string file =
                (folder / (language + "_" + std::string(kind) + ".so")).string();
            FILE *names = popen(("nm -D --defined-only " + file).c_str(), "r");
            REQUIRE(names != nullptr);
            std::string text;
            for (int c; (c = std::fgetc(names)) != EOF;) text += static_cast<char>(c);
            CHECK(pclose(names) == 0);
            CHECK_MESSAGE(text.find(" T moorage_module_v2\n") == text.find(' '), file, ": ", text);
            CHECK_MESSAGE(text.find('\n') == text.size() - 1, file, ": ", text);
        }
}

TEST_CASE("cache: the oldest load goes first; pinned, buffered and absent ones stay") {
    for (const std::string &language : languages()) {
        CAPTURE(language);
        world w;
        core::instance &policy = w.open(language, "cache");
        for (const uint32_t page : {5u, 2u, 7u}) load(w, policy, page);
        CHECK(victims(policy, 0, 2) == pages{5, 2});
        CHECK(victims(policy, 0, 4) == pages{5, 2, 7});
        w.state[5] |= MOORAGE_STATE_PINNED;
        CHECK(victims(policy, 0, 1) == pages{2});
        w.state[2] |= MOORAGE_STATE_BUFFERED;
        w.state[7] = 0;
        CHECK(victims(policy, 0, 1).empty());
        w.state.fill(0);
        policy.reset();
        for (const uint32_t page : {7u, 2u}) load(w, policy, page);
        CHECK(victims(policy, 0, 1) == pages{7});
    }
}

TEST_CASE("cache: a pool per layer names its own layer's pages only") {
    for (const std::string &language : languages()) {
        CAPTURE(language);
        world w(2);
        core::instance &policy = w.open(language, "cache");
        for (const uint32_t page : {6u, 1u, 4u, 0u}) load(w, policy, page);
        CHECK(victims(policy, 0, 3) == pages{1, 0});
        CHECK(victims(policy, 1, 3) == pages{6, 4});
    }
}

TEST_CASE("cache: the parameter of each template changes the order") {
    for (const std::string &language : languages()) {
        CAPTURE(language);
        const bool c = language == "c";
        world w;
        core::instance &policy =
            w.open(language, "cache", {{c ? "newest_first" : "use_counts", true, "a test"}});
        for (const uint32_t page : {5u, 2u, 7u}) load(w, policy, page);
        const uint32_t expert = 1;  // page 5
        w.step.layer = 1, w.step.distinct_count = 1;
        w.step.host_chosen = w.step.host_distinct = &expert;
        if (policy.observer) policy.observer->observe(policy.plugin(), &w.step);
        CHECK(victims(policy, 0, 3) == (c ? pages{7, 2, 5} : pages{2, 7, 5}));
        if (c) continue;
        // The next step misses page 4 and hits page 5. In the order of the step, 4 is older,
        // although it is loaded after both were seen.
        const uint32_t step_experts[] = {0, 1};
        w.step.distinct_count = 2;
        w.step.host_chosen = w.step.host_distinct = step_experts;
        policy.observer->observe(policy.plugin(), &w.step);
        w.state[2] = 0;
        policy.cache->on_evict(policy.plugin(), 2, MOORAGE_DEMAND);
        load(w, policy, 4);
        CHECK(victims(policy, 0, 3) == pages{7, 4, 5});
    }
}

// The list of a policy's calls leaves out calls that the wrapper adds and calls that the host does.
TEST_CASE("the calls found are those that the source has, in every language") {
    for (const std::string &language : languages()) {
        CAPTURE(language);
        const auto calls = [&](const std::string &kind) {
            world w;
            return core::text_of(core::list_calls(w.open(language, kind)));
        };
        CHECK(calls("cache") ==
              std::string("cache: victims, on_load, on_evict (not admit, fill, hold, give_up)") +
                  (language == "c" ? "" : "; observer: observe"));
        CHECK(calls("placement") == "placement: plan, adopt");
        CHECK(calls("wire") ==
              "wire: open, listen, connect, send, poll, wake, release, close "
              "(not pace, remember, forget)");
        CHECK(calls("prefetch") == "prefetch: horizon, plan (not predict, outcome, prediction)");
        CHECK(calls("dispatch") == "dispatch: assign (not outcome)");
        CHECK(calls("transport") == "transport: submit, cancel, promote, next");
        CHECK(calls("budget").starts_with(language == "cpp" ? "budget: plan, interval"
                                                            : "budget: plan (not interval)"));
    }
}

TEST_CASE("router: an absent expert gives way to a resident one that is near enough") {
    for (const std::string &language : languages())
        for (const double closeness : {0.9, 0.95}) {
            CAPTURE(language);
            CAPTURE(closeness);
            world w;
            core::instance &policy =
                w.open(language, "router", {{"closeness", closeness, "a test"}});
            const uint32_t chosen[] = {0, 1};  // both absent; the best one stays all the same
            const float scores[] = {0.40f, 0.30f, 0.28f, 0.02f};
            w.state[2] = w.state[3] = MOORAGE_WHOLE;
            w.step.host_chosen = chosen, w.step.host_gate_scores = scores;
            uint32_t experts[] = {9, 9};
            float weights[] = {NAN, NAN};
            uint8_t classes[] = {MOORAGE_CLASS_TOP, MOORAGE_CLASS_TOP};
            moorage_route route{sizeof(route), 0, experts, weights, classes};
            CHECK(policy.router->select(policy.plugin(), &w.step, &route) == 1);
            const bool substituted = closeness == 0.9;  // 0.28 / 0.30 = 0.933
            CHECK(experts[0] == 0);
            CHECK(experts[1] == (substituted ? 2 : 1));
            CHECK(classes[1] == (substituted ? MOORAGE_CLASS_SUBSTITUTE : MOORAGE_CLASS_TOP));
            CHECK(std::isnan(weights[0]));
            w.step.host_gate_scores = nullptr;
            CHECK(policy.router->select(policy.plugin(), &w.step, &route) == 0);
        }
}

TEST_CASE("budget: the first plan hands out every slot, none beyond a layer's experts") {
    for (const std::string &language : languages()) {
        CAPTURE(language);
        world w(2);
        core::instance &policy = w.open(language, "budget");
        for (const uint32_t total : {7u, 8u, 12u, 2u}) {
            uint32_t slots[] = {0, 0};
            float split[] = {1, 1};
            const uint32_t now[] = {0, 0};
            moorage_budget_plan plan{sizeof(plan), 0, slots, split, 0};
            const moorage_budget_request request{sizeof(request), 0, 2, 4, total, 1, 0, now,
                                                 split,           1, 0};
            CHECK(policy.budget->plan(policy.plugin(), &request, &plan) == 1);
            CHECK(slots[0] + slots[1] == std::min(total, 8u));
            CHECK(std::max(slots[0], slots[1]) <= 4);
            CHECK(std::max(slots[0], slots[1]) - std::min(slots[0], slots[1]) <= 1);
            CHECK((split[0] == 1 && split[1] == 1));
        }
    }
}

TEST_CASE("budget: the C++ template moves one slot to the layer that missed more") {
    world w(2);
    core::instance &policy = w.open("cpp", "budget");
    const uint32_t experts[] = {0, 1, 2};
    w.step.layer = 1, w.step.distinct_count = 3, w.step.host_distinct = experts;
    policy.observer->observe(policy.plugin(), &w.step);  // 3 misses in layer 1
    uint32_t slots[] = {3, 3};
    float split[] = {1, 1};
    moorage_budget_plan plan{sizeof(plan), 0, slots, split, 0};
    const uint32_t now[] = {3, 3};
    const moorage_budget_request request{sizeof(request), 0, 2, 4, 6, 1, 256, now, split, 1, 0};
    CHECK(policy.budget->plan(policy.plugin(), &request, &plan) == 1);
    CHECK((slots[0] == 2 && slots[1] == 4));
    CHECK(policy.budget->plan(policy.plugin(), &request, &plan) == 0);  // counts start again
}

TEST_CASE("prefetch: the missing segments of the best predictions, within the capacity") {
    for (const std::string &language : languages()) {
        CAPTURE(language);
        world w;
        core::instance &policy = w.open(language, "prefetch");
        CHECK(policy.prefetch->horizon(policy.plugin()) == 1);
        const uint32_t layers[] = {1}, offsets[] = {0, 3}, experts[] = {3, 1, 0};
        moorage_forecast forecast{};
        forecast.size = sizeof(forecast);
        forecast.target_count = 1, forecast.buffer_free = 2;
        forecast.host_layers = layers, forecast.host_offsets = offsets,
        forecast.host_experts = experts;
        std::array<uint32_t, 2> ordered{99, 99};
        std::array<uint8_t, 2> segments{MOORAGE_WHOLE, MOORAGE_WHOLE};
        std::array<uint8_t, 2> places{};
        moorage_orders orders{
            sizeof(orders), 0, 2, 0, ordered.data(), segments.data(), places.data(), places.data()};
        const auto plan = [&] {
            return policy.prefetch->plan(policy.plugin(), &w.step, &forecast, &orders);
        };
        CHECK(plan() == 2);  // k = 2: experts 3 and 1 of layer 1
        CHECK((ordered[0] == 7 && ordered[1] == 5));
        CHECK((segments[0] == MOORAGE_WHOLE && segments[1] == MOORAGE_WHOLE));
        w.state[7] = MOORAGE_SEGMENT(0, 2);
        w.state[5] = MOORAGE_SEGMENT(0, 2) | MOORAGE_SEGMENT(1, 2) << MOORAGE_STATE_IN_FLIGHT_SHIFT;
        CHECK(plan() == 1);  // of page 7 the bottom; page 5 is here or coming
        CHECK((ordered[0] == 7 && segments[0] == MOORAGE_SEGMENT(1, 2)));
        orders.capacity = 0;
        CHECK(plan() == 0);
    }
}

TEST_CASE("dispatch: who would finish first, with what is queued already") {
    for (const std::string &language : languages()) {
        CAPTURE(language);
        world w;
        core::instance &policy = w.open(language, "dispatch");
        const uint32_t experts[] = {0, 1, 2, 3}, tokens[] = {1, 1, 1, 1};
        const uint8_t missing[] = {0, MOORAGE_WHOLE, MOORAGE_WHOLE, MOORAGE_WHOLE};
        const uint64_t load_ns[] = {0, 10, 10, 10}, gpu_ns[] = {1, 1, 1, 1},
                       cpu_ns[] = {5, 5, 5, 6};
        moorage_items items{};
        items.size = sizeof(items);
        items.count = 4;
        items.host_experts = experts, items.host_tokens = tokens, items.host_missing = missing;
        items.host_load_ns = load_ns, items.host_gpu_ns = gpu_ns, items.host_cpu_ns = cpu_ns;
        const uint32_t home_devices[] = {0, 0, 0, 0};
        items.devices = 2, items.gpus = 1, items.host_device = home_devices;
        constexpr uint32_t gpu = 0, cpu = 1;
        std::array<uint32_t, 4> devices{9, 9, 9, 9}, order{0, 1, 2, 3};
        CHECK(policy.dispatch->assign(policy.plugin(), &w.step, &items, devices.data(),
                                      order.data()) == 4);
        // Resident: GPU. 5 < 11 and 10 < 11: CPU twice. 16 >= 11: load.
        CHECK(devices == std::array<uint32_t, 4>{gpu, cpu, cpu, gpu});
        items.load_backlog_ns = 7;  // 5 < 18, 10 < 18, 16 < 18: CPU for all
        policy.dispatch->assign(policy.plugin(), &w.step, &items, devices.data(), order.data());
        CHECK(devices == std::array<uint32_t, 4>{gpu, cpu, cpu, cpu});
        // Item 2 is only in other servers' memory. It goes to the first of them, whatever the
        // queues.
        const uint64_t far_ns[] = {0, 10, MOORAGE_NEVER, 10}, remote_ns[] = {90, 80, 70};
        const uint32_t first[] = {0, 0, 1, 3, 3}, servers[] = {2, 3, 6};
        items.devices = 7, items.load_backlog_ns = 0;
        items.host_load_ns = far_ns, items.host_remote_ns = remote_ns;
        items.host_remote_first = first, items.host_remote_devices = servers;
        policy.dispatch->assign(policy.plugin(), &w.step, &items, devices.data(), order.data());
        CHECK(devices == std::array<uint32_t, 4>{gpu, cpu, 3, gpu});
    }
}

TEST_CASE("transport: demand first, pieces, promotion, cancellation, links apart") {
    for (const std::string &language : languages()) {
        CAPTURE(language);
        world w;
        core::instance &policy =
            w.open(language, "transport", {{"piece_bytes", int64_t{4}, "a test"}});
        const auto submit = [&](uint32_t id, uint32_t link, int32_t cause, uint64_t bytes) {
            const moorage_transfer transfer{sizeof(transfer), 0,    id, link, cause,
                                            MOORAGE_NONE,     bytes};
            policy.transport->submit(policy.plugin(), &transfer);
        };
        using handed = std::pair<uint32_t, uint64_t>;
        const auto next = [&](uint32_t link) {
            moorage_piece piece{sizeof(piece), MOORAGE_NONE, 0};
            const uint32_t has_piece = policy.transport->next(policy.plugin(), link, &piece);
            return has_piece ? handed{piece.id, piece.bytes} : handed{MOORAGE_NONE, 0};
        };
        submit(0, 0, MOORAGE_PREFETCH, 10);
        CHECK(next(1) == handed{MOORAGE_NONE, 0});
        CHECK(next(0) == handed{0, 4});
        submit(1, 0, MOORAGE_DEMAND, 5);  // overtakes between two pieces
        submit(2, 0, MOORAGE_PREFETCH, 3);
        submit(3, 1, MOORAGE_DEMAND, 2);
        CHECK(next(0) == handed{1, 4});
        CHECK(next(0) == handed{1, 1});
        CHECK(next(1) == handed{3, 2});
        CHECK(next(0) == handed{0, 4});  // arrival order among prefetches
        policy.transport->promote(policy.plugin(), 2, MOORAGE_DEMAND);
        CHECK(next(0) == handed{2, 3});
        policy.transport->cancel(policy.plugin(), 0);
        CHECK(next(0) == handed{MOORAGE_NONE, 0});
    }
}

// Two servers with a device of two experts each, three experts of 10 bytes; home i is server i.
struct small_cluster {
    small_cluster() {
        cluster.size = sizeof(cluster);
        cluster.servers = cluster.devices = cluster.homes = 2, cluster.models = 1;
        cluster.host_device_server = cluster.host_home_server = server.data();
        cluster.host_device_bytes = room.data();
        demand.size = sizeof(demand);
        demand.models = 1, demand.homes = 2;
        demand.host_model_first = first.data(), demand.host_expert_bytes = bytes.data();
        demand.host_home_tokens_per_s = tokens_per_s.data();
        demand.host_frequency = frequency.data();
    }
    std::array<uint32_t, 2> server{0, 1}, first{0, 3};
    std::array<uint64_t, 2> room{20, 20};
    std::array<uint64_t, 1> bytes{10};
    std::array<double, 2> tokens_per_s{1, 10};
    std::array<double, 6> frequency{0.9, 0.5, 0.6, 0.05, 0, 0.95};  // [home, expert]
    moorage_cluster cluster{};
    moorage_demand demand{};
};

TEST_CASE("placement: coverage first, then what a server's own tokens use most") {
    using copies = std::vector<std::pair<uint32_t, uint32_t>>;
    for (const std::string &language : languages()) {
        CAPTURE(language);
        world w;
        core::instance &policy = w.open(language, "placement");
        small_cluster fixture;
        int32_t status = -1;
        const auto plan = [&] {
            std::array<moorage_copy, 6> room{};
            uint64_t count = 99;
            status = policy.placement->plan(policy.plugin(), &fixture.cluster, &fixture.demand,
                                            nullptr, 0, room.data(), &count);
            copies planned;
            for (uint64_t i = 0; i < count; ++i)
                planned.push_back({room[i].expert, room[i].device});
            return planned;
        };
        // Calls per second: server 0 wants 0.9, 0.5, 0.6; server 1 wants 0.5, 0, 9.5. One copy of
        // each where it is wanted more fills server 0 (0, 1); server 1 (2) has room for one more.
        CHECK(plan() == copies{{0, 0}, {1, 0}, {2, 1}, {0, 1}});
        CHECK(status == MOORAGE_OK);
        fixture.room = {20, 0};
        CHECK(plan().empty());
        CHECK(status == MOORAGE_INVALID_ARGUMENT);
        // With a cloud nothing must be covered: server 0 keeps 0 and 2, not 1.
        const std::array<double, 2> cloud_s{0.1, 0.1};
        fixture.cluster.host_cloud_s = cloud_s.data();
        CHECK(plan() == copies{{0, 0}, {2, 0}});
        CHECK(status == MOORAGE_OK);
        moorage_move move{};
        move.size = sizeof(move);
        move.remote_per_s_current = 3, move.remote_per_s_candidate = 1, move.remote_call_s = 0.5;
        move.interval_s = 10, move.added_s = 6, move.removed_s = 3;  // saves (3 - 1) * 0.5 * 10
        CHECK(policy.placement->adopt(policy.plugin(), &move) == 1);
        move.removed_s = 4;  // not more than it costs
        CHECK(policy.placement->adopt(policy.plugin(), &move) == 0);
    }
}

namespace {

moorage_wire_limits small_wire_limits() {
    moorage_wire_limits limits{};
    limits.size = sizeof(limits);
    limits.connections_max = limits.handshakes_max = limits.handshakes_per_s = 4;
    limits.queue_messages_max = 4;
    limits.message_bytes_max[0] = limits.message_bytes_max[1] = 64;
    limits.queue_bytes_max = limits.receive_bytes_max = 64;
    limits.connect_ns = limits.close_ns = 1'000'000'000;
    return limits;
}

// The kinds of all present events.
std::vector<int32_t> heard(core::instance &wire, moorage_wire_event *last = nullptr) {
    std::vector<int32_t> kinds;
    moorage_wire_event event;
    while (wire.wire->poll(wire.plugin(), &event, 1, 0) == 1) {
        kinds.push_back(event.kind);
        if (last) *last = event;
    }
    return kinds;
}

}  // namespace

// A listens; B of the same network reaches it, C of another does not. A may hold 64 bytes, so one
// of two messages of 40 bytes fits. The other fits once the first is released.
TEST_CASE("wire: one network, one message at a time") {
    for (const std::string &language : languages()) {
        CAPTURE(language);
        world world_a, world_b, world_c;
        core::instance &a = world_a.open(language, "wire"), &b = world_b.open(language, "wire"),
                       &c = world_c.open(language, "wire",
                                         {{"network", std::string("other"), "a test"}});
        const moorage_wire_limits limits = small_wire_limits();
        for (core::instance *node : {&a, &b, &c})
            REQUIRE(node->wire->open(node->plugin(), &limits) == MOORAGE_OK);
        char bound[MOORAGE_WIRE_ADDRESS_MAX];
        uint64_t listener = 0, connection = 0, lost = 0;
        REQUIRE(a.wire->listen(a.plugin(), "here", bound, &listener) == MOORAGE_OK);
        CHECK(std::string(bound) == "here");
        const char *address = "here";
        const moorage_wire_target target{sizeof(target), MOORAGE_WIRE_CALLS, &address, 1, 0,
                                         nullptr};
        REQUIRE(c.wire->connect(c.plugin(), &target, &lost) == MOORAGE_OK);
        moorage_wire_event event;
        CHECK(heard(c, &event) == std::vector<int32_t>{MOORAGE_WIRE_CLOSED});
        CHECK(event.reason == MOORAGE_WIRE_UNREACHABLE);
        REQUIRE(b.wire->connect(b.plugin(), &target, &connection) == MOORAGE_OK);
        CHECK(heard(b) == std::vector<int32_t>{MOORAGE_WIRE_CONNECTED});
        CHECK(heard(a) == std::vector<int32_t>{MOORAGE_WIRE_ACCEPTED});
        const std::string text(40, 'x');
        const moorage_wire_part part{text.data(), text.size(), 0};
        const auto send = [&] { return b.wire->send(b.plugin(), connection, &part, 1, 7); };
        CHECK(send() == MOORAGE_WIRE_DONE);
        CHECK(send() == MOORAGE_WIRE_FULL);
        REQUIRE(heard(a, &event) == std::vector<int32_t>{MOORAGE_WIRE_MESSAGE});
        CHECK(std::string(static_cast<const char *>(event.plugin_data), event.bytes) == text);
        a.wire->release(a.plugin(), event.message);
        CHECK(heard(b) == std::vector<int32_t>{MOORAGE_WIRE_WRITABLE});
        CHECK(send() == MOORAGE_WIRE_DONE);
        b.wire->close(b.plugin(), connection, 0);
        CHECK(heard(a) == std::vector<int32_t>{MOORAGE_WIRE_MESSAGE, MOORAGE_WIRE_CLOSED});
    }
}

}  // namespace template_test
