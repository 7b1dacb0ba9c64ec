// Goal: tide orders into slots the experts that are wanted soonest among those for which a load can
// still be in time. It orders only in place of less wanted experts, and no earlier than the link
// needs. clairvoyant orders by the known future. Method: one instance through the C ABI over a
// clock of the test. The routing is planted and repeats, so the wanted experts of each layer are
// known. Schedules are worked out by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "order_bytes.h"
#include "policy_host.h"

namespace tide_test {

using namespace moorage::test;

namespace {

constexpr uint32_t layers = 4, experts = 12, top_k = 2, period = 30, slots = 12;
constexpr uint64_t step_ns = 50;

// The experts of token `token` at `layer`: random, and again after `period` tokens.
std::vector<uint32_t> routed(uint32_t token, uint32_t layer) {
    std::mt19937_64 generator(1 + token % period * 100 + layer);
    const auto first = static_cast<uint32_t>(generator() % experts);
    const auto second = static_cast<uint32_t>((first + 1 + generator() % (experts - 1)) % experts);
    return {first, second};
}

bool is_wanted(uint32_t page, uint32_t token, uint32_t layer) {
    const std::vector<uint32_t> requested = routed(token, layer);
    return page / experts == layer &&
           std::find(requested.begin(), requested.end(), page % experts) != requested.end();
}

struct driver {
    driver(const std::string &file, const std::map<std::string, std::string> &params,
           bool shared = true)
        : host(file, {layers, experts, top_k, slots, shared, 1}, params) {
        std::fill(host.slots.begin(), host.slots.end(), shared ? slots : slots / layers);
        host.costs.load_ns = 100;
    }
    // Tokens up to `token`, of which the last to and with layer `last`; a step takes step_ns.
    void play(uint32_t token, uint32_t last) {
        for (uint32_t index = 0; index <= token; ++index)
            for (uint32_t layer = 0; layer < (index < token ? layers : last + 1); ++layer) {
                host.now_ns += step_ns;
                observe(index, layer);
                if (index < token || layer < last) plan(10);
            }
    }
    void observe(uint32_t token, uint32_t layer) {
        static constexpr uint32_t stream = 0;
        static constexpr uint64_t request = 0;
        chosen = routed(token, layer);
        step = {};
        step.size = sizeof(step);
        step.index = step.visit = uint64_t{token} * layers + layer;
        step.token = token;
        step.layer = layer;
        step.phase = MOORAGE_DECODE;
        step.token_count = 1;
        step.top_k = step.distinct_count = top_k;
        step.experts = experts;
        step.host_streams = &stream;
        step.host_requests = &request;
        step.host_chosen = step.host_distinct = chosen.data();
        host.observer->observe(host.plugin, &step);
    }
    // `window_ns`: until the next layer is routed.
    std::vector<uint32_t> plan(uint64_t window_ns, uint64_t backlog_ns = 0) {
        const uint32_t next = (step.layer + 1) % layers, offsets[] = {0, 0};
        moorage_forecast forecast{};
        forecast.size = sizeof(forecast);
        forecast.target_count = 1;
        forecast.window_ns = window_ns;
        forecast.backlog_ns = backlog_ns;
        forecast.host_layers = &next;
        forecast.host_offsets = offsets;
        std::vector<uint32_t> pages(experts);
        places.assign(experts, MOORAGE_PLACE_BUFFER);
        std::vector<uint8_t> segments(experts, MOORAGE_WHOLE);
        moorage_orders orders{
            sizeof(orders), 0, experts, 0, pages.data(), segments.data(), places.data(),
            order_bytes()};
        pages.resize(host.prefetch->plan(host.plugin, &step, &forecast, &orders));
        places.resize(pages.size());
        return pages;
    }
    void set_in_flight(uint32_t page) {
        host.state[page] = MOORAGE_WHOLE << MOORAGE_STATE_IN_FLIGHT_SHIFT;
    }

    policy_host host;
    moorage_step step{};
    std::vector<uint8_t> places;
    std::vector<uint32_t> chosen;
};

constexpr uint32_t now = 3 * period;  // the song is known by then

}  // namespace

TEST_CASE("tide orders for the first layer that a load can be in time for") {
    // Steps are 50 ns apart and the next layer is routed 10 ns from now, those behind it at 60,
    // 110, 160. A load of 100 ns is in time for the third from layer 1: the next token's layer 0.
    // While it is under way the link is busy for longer than a step, so nothing else is ordered.
    driver fixture("cache/tide", {});
    fixture.play(now, 1);
    const std::vector<uint32_t> orders = fixture.plan(10);
    REQUIRE(orders.size() == 1);
    CHECK(is_wanted(orders[0], now + 1, 0));
    CHECK(fixture.places[0] == MOORAGE_PLACE_SLOT);
}

TEST_CASE("tide orders again when the link would fall idle before the next step") {
    // A load of 40 ns arrives at 40, in time for layer 3 at 60. The next begins at 40, before the
    // next step, arrives at 80 and is for the layer at 110. A third would be one too many to wait.
    driver fixture("cache/tide", {});
    fixture.host.costs.load_ns = 40;
    fixture.play(now, 1);
    const std::vector<uint32_t> orders = fixture.plan(10);
    REQUIRE(orders.size() == 2);
    CHECK(is_wanted(orders[0], now, 3));
    CHECK(is_wanted(orders[1], now + 1, 0));
    // Both on their way, 10 ns later: the link is busy for 70 ns, and two wait.
    for (const uint32_t page : orders) fixture.set_in_flight(page);
    fixture.host.now_ns += 10;
    CHECK(fixture.plan(10).empty());
    // The first has arrived 55 ns later, and the link is busy for 15: the next begins then, arrives
    // at 55 and is for the layer of 60.
    fixture.host.state[orders[0]] = MOORAGE_WHOLE;
    fixture.host.now_ns += 55;
    const std::vector<uint32_t> next_orders = fixture.plan(10);
    REQUIRE(next_orders.size() == 1);
    CHECK(is_wanted(next_orders[0], now, 3));
    CHECK(next_orders[0] != orders[0]);
}

TEST_CASE("tide counts demand that the link has to bring first") {
    // 30 ns of demand, then the load: it arrives at 130, for the layer at 160, the fourth: layer 1
    // of the next token.
    driver fixture("cache/tide", {});
    fixture.play(now, 1);
    const std::vector<uint32_t> orders = fixture.plan(10, 30);
    REQUIRE(orders.size() == 1);
    CHECK(is_wanted(orders[0], now + 1, 1));
}

TEST_CASE("tide exchanges only for what is wanted later by the margin") {
    for (const bool shared : {true, false}) {
        CAPTURE(shared);
        for (const char *margin : {"0", "1000"}) {
            CAPTURE(margin);
            driver fixture("cache/tide", {{"margin", margin}}, shared);
            fixture.play(now, 1);
            // Only three experts of each layer are resident, and the song does not want them soon.
            for (uint32_t layer = 0; layer < layers; ++layer)
                for (uint32_t expert = 0, found = 0; expert < experts && found < 3; ++expert) {
                    const uint32_t page = layer * experts + expert;
                    if (is_wanted(page, now, layer) || is_wanted(page, now + 1, layer)) continue;
                    fixture.host.state[page] = MOORAGE_WHOLE;
                    ++found;
                }
            for (uint32_t pool = 0; pool < fixture.host.used.size(); ++pool)
                fixture.host.used[pool] = fixture.host.slots[pool];
            const std::vector<uint32_t> orders = fixture.plan(10);
            if (std::string(margin) == "0") {
                REQUIRE(orders.size() == 1);
                CHECK(is_wanted(orders[0], now + 1, 0));
            } else {
                CHECK(orders.empty());
                // With a free slot, nothing must be evicted.
                --fixture.host.used[0];
                CHECK(fixture.plan(10).size() == 1);
            }
        }
    }
}

TEST_CASE("tide asks for no forecast where time is not modelled") {
    policy_host untimed("cache/tide", {layers, experts, top_k, slots, true, 1}, {},
                        /*timed=*/false);
    CHECK(untimed.prefetch->horizon(untimed.plugin) == 0);
}

TEST_CASE("clairvoyant orders what is asked for first of what can arrive") {
    driver fixture("prefetch/clairvoyant", {});
    // Absent pages and the steps that ask for them; step 1 is running.
    const std::map<uint32_t, uint64_t> asked = {{3, 2}, {17, 3}, {30, 4}, {40, 5}, {41, 5}};
    fixture.host.next_use = [&](uint32_t page, uint64_t) {
        const auto found = asked.find(page);
        return found == asked.end() ? MOORAGE_NEVER : found->second;
    };
    fixture.step.size = sizeof(fixture.step);
    fixture.step.experts = experts;
    for (uint32_t step = 0; step < 1000; ++step, fixture.host.now_ns += step_ns) fixture.plan(10);
    // Steps 2, 3, 4, 5 are routed at 10, 60, 110, 160. A load arrives at 100, in time for step 4,
    // and keeps the link until after the next step.
    fixture.step.index = 1;
    CHECK(fixture.plan(10) == std::vector<uint32_t>{30});
    // Loads of 45 ns arrive at 45, for step 3, and at 90, for step 4.
    fixture.host.costs.load_ns = 45;
    fixture.host.now_ns += step_ns;
    CHECK(fixture.plan(10) == std::vector<uint32_t>{17, 30});
    // Experts that are there or on their way are not ordered again.
    fixture.host.state[17] = MOORAGE_WHOLE;
    fixture.set_in_flight(30);
    fixture.host.now_ns += step_ns;
    CHECK(fixture.plan(10) == std::vector<uint32_t>{40});
    // The link is busy until 40, and then with it until 85: for longer than a step.
    fixture.set_in_flight(40);
    CHECK(fixture.plan(10).empty());
}

}  // namespace tide_test
