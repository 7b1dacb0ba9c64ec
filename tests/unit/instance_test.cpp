// instance_test.cpp - goal: parameters are checked and passed, states kept, services answer, errors
// carry the policy's text. Method: tests/abi/probe returns its input as "victim".
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/host/instance.h"
#include "core/host/registry.h"
#include "core/host/services.h"

namespace instance_test {

namespace {

namespace core = moorage::core;
using core::setting;

const core::registry &policies() {
    static const core::registry registry = [] {
        core::registry scanned;
        core::set_log_level(core::log_level::off);
        const std::filesystem::path files[] = {std::filesystem::path(MOORAGE_BINARY_DIR) /
                                               "probe/probe.so"};
        REQUIRE(scanned.scan(files).ok());
        return scanned;
    }();
    return registry;
}
const core::policy &probe() { return policies().policies()[0]; }

moorage_limits small_limits() {
    moorage_limits limits{};
    limits.size = sizeof(limits);
    limits.layers = 5, limits.experts = 8, limits.top_k = 2, limits.tokens_max = 1,
    limits.requests_max = 1;
    limits.pools = 5, limits.slots = 10, limits.segments = 1;
    return limits;
}

bool contains(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

std::string refusal(const core::settings &settings) {
    const auto created = core::instance::create(probe(), settings, {});
    REQUIRE_FALSE(created.ok());
    CHECK(created.failure().usage);
    return created.failure().text;
}

// The probe's answer to a question: 0 random, 1 clock, 2 parameters, 3 layers, 4 thread.
uint32_t ask(core::instance &instance, uint32_t question) {
    const moorage_room room{sizeof(room), 0, question, 0, 1, MOORAGE_DEMAND};
    uint32_t answer = 0;
    REQUIRE(instance.cache->victims(instance.plugin(), &room, &answer) == 1);
    return answer;
}

std::unique_ptr<core::instance> make(const core::settings &settings,
                                     const core::environment &environment) {
    auto created = core::instance::create(probe(), settings, environment);
    REQUIRE(created.ok());
    return std::move(*created);
}

}  // namespace

TEST_CASE("parameters: defaults, settings, and an integer where a real is declared") {
    const auto plain = make({}, {});
    REQUIRE(plain->parameters().size() == 5);
    CHECK(plain->parameters()[0] ==
          std::pair<std::string, core::setting_value>("window_tokens", int64_t{8}));
    CHECK(plain->parameters()[2].second == core::setting_value(true));
    CHECK(ask(*plain, 2) == 8 + 0 + 1000 + 0);
    const auto set = make({{"half_life", int64_t{3}, "a.toml:1"},
                           {"forget", false, "a.toml:2"},
                           {"note", std::string("four"), "a.toml:3"},
                           {"window_tokens", int64_t{64}, "a.toml:4"},
                           {"window_tokens", int64_t{1}, "--set cache.window_tokens"}},
                          {});
    CHECK(ask(*set, 2) == 1 + 3 + 0 + 4);
    CHECK(set->parameters()[1].second == core::setting_value(3.0));
}

TEST_CASE("parameters: what is refused names place, value, limit and the nearest key") {
    CHECK(contains(refusal({{"window_token", int64_t{2}, "run.toml:12"}}),
                   "run.toml:12: cache plugin probe has no parameter window_token; did you mean "
                   "window_tokens"));
    CHECK(contains(
        refusal({{"window_tokens", int64_t{65}, "run.toml:3"}}),
        "run.toml:3: cache plugin probe: window_tokens = 65 is out of range; allowed: 1 .. 64"));
    CHECK(contains(refusal({{"window_tokens", int64_t{0}, "x"}}), "= 0 is out of range"));
    CHECK(contains(refusal({{"window_tokens", 2.0, "x"}}), "is of type real, expected integer"));
    CHECK(contains(refusal({{"half_life", std::nan(""), "x"}}), "out of range"));
    CHECK(contains(refusal({{"half_life", std::nextafter(10.0, 11.0), "x"}}),
                   "out of range; allowed: 0 .. 10"));
    CHECK(contains(refusal({{"half_life", std::string("1"), "x"}}),
                   "is of type text, expected real"));
    CHECK(contains(refusal({{"forget", int64_t{1}, "x"}}), "is of type integer, expected flag"));
    CHECK(contains(refusal({{"mode", std::string("clam"), "x"}}), "did you mean calm"));
    CHECK(contains(refusal({{"note", std::string("a\0b", 3), "x"}}), "zero byte"));
    CHECK((make({{"half_life", 10.0, "x"}}, {}) != nullptr));
}

TEST_CASE("errors of the policy carry its text") {
    auto refused =
        core::instance::create(probe(), {{"mode", std::string("refuse_create"), "x"}}, {});
    REQUIRE_FALSE(refused.ok());
    CHECK(
        refused.failure().text ==
        "cache plugin probe: create failed (invalid argument): mode = refuse_create was asked for");
    const auto picky = make({{"mode", std::string("refuse_activate"), "x"}}, {});
    CHECK(picky->activate(small_limits()).failure().text ==
          "cache plugin probe: activate failed (invalid argument): slots = 10 is too few");
    const auto wild = make({{"mode", std::string("throw_activate"), "x"}}, {});
    CHECK(contains(wild->activate(small_limits()).failure().text, "internal error"));
}

TEST_CASE("the states of an instance are kept") {
    moorage_residency view{};
    view.layers = 5;
    const auto instance = make({}, {.residency = &view});
    instance->deactivate();
    REQUIRE(instance->activate(small_limits()).ok());
    CHECK(instance->limits().slots == 10);
    CHECK(ask(*instance, 3) == 5);
    CHECK(contains(instance->activate(small_limits()).failure().text,
                   "activate on an active instance"));
    instance->deactivate();
    CHECK(instance->activate(small_limits()).ok());
    CHECK((instance->cache != nullptr));
    CHECK((instance->prefetch == nullptr));
    CHECK((instance->cache->on_load == nullptr));
}

TEST_CASE("random numbers follow from seed and name, and start again at activate and reset") {
    const auto draw = [](core::instance &instance) {
        std::vector<uint32_t> drawn;
        for (int i = 0; i < 8; ++i) drawn.push_back(ask(instance, 0));
        return drawn;
    };
    const auto instance = make({}, {.seed = 1}), same = make({}, {.seed = 1}),
               other_seed = make({}, {.seed = 2});
    for (auto *created : {&instance, &same, &other_seed})
        REQUIRE((*created)->activate(small_limits()).ok());
    const auto first = draw(*instance);
    CHECK(first == draw(*same));
    CHECK(first != draw(*other_seed));
    CHECK(first != draw(*instance));
    instance->reset();
    CHECK(first == draw(*instance));
    instance->deactivate();
    REQUIRE(instance->activate(small_limits()).ok());
    CHECK(first == draw(*instance));
    CHECK(core::policy_stream(1, "lru").next() != core::policy_stream(1, "lfu").next());
}

TEST_CASE("random numbers are spread evenly") {
    // 64 cells, 64,000 draws: chi-squared with 63 degrees of freedom is below 120 but once in 10^5.
    core::random_stream stream = core::policy_stream(3, "any");
    double cells[64] = {}, sum = 0;
    for (int i = 0; i < 64'000; ++i) ++cells[stream.next() >> 58];
    for (const double count : cells) sum += (count - 1000) * (count - 1000) / 1000;
    CHECK(sum < 120);
    CHECK(sum > 25);
}

TEST_CASE("clock and thread-check answer what is true at the time") {
    uint64_t now = 17;
    const auto instance = make({}, {.now_ns = &now});
    REQUIRE(instance->activate(small_limits()).ok());
    CHECK(ask(*instance, 1) == 17);
    now = 99;
    CHECK(ask(*instance, 1) == 99);
    CHECK(ask(*instance, 4) == 0);
    {
        const core::instance::stepping mark;
        CHECK(ask(*instance, 4) == 2);
    }
    CHECK(ask(*instance, 4) == 0);
    // A call of a table that is no step.
    const moorage_room room{sizeof(room), 0, 0, 0, 1, MOORAGE_BUDGET};
    uint32_t answer = 0;
    REQUIRE(instance->call(core::entry_point::cache_fill, instance->cache->fill, &room, &answer) ==
            1);
    CHECK(answer == 1);
    {
        const core::in_control mark = instance->marked();
        CHECK(ask(*instance, 4) == 1);
    }
    CHECK(ask(*instance, 4) == 0);
    const auto timeless = make({}, {});
    CHECK(ask(*timeless, 1) == 0);
}

TEST_CASE("a policy that needs the future gets it or is refused") {
    struct : core::future_view {
        int rewound = 0;
        uint64_t next_use(uint32_t page, uint64_t step, uint64_t *) override {
            return page + step + 3;
        }
        void rewind() override { ++rewound; }
    } future;
    const core::policy &oracle = policies().policies()[1];
    const auto blind = core::instance::create(oracle, {}, {});
    REQUIRE_FALSE(blind.ok());
    CHECK(contains(blind.failure().text,
                   "prefetch plugin probe_oracle needs the whole trace in advance"));
    auto created = core::instance::create(oracle, {}, {.future = &future});
    REQUIRE(created.ok());
    core::instance &seer = **created;
    REQUIRE(seer.activate(small_limits()).ok());
    seer.reset();
    CHECK(future.rewound == 2);
    moorage_step step{};
    step.index = 4;
    moorage_forecast forecast{};
    uint32_t page = 0;
    uint8_t segments = MOORAGE_WHOLE;
    uint8_t place = 0, version = 0;
    moorage_orders orders{sizeof(orders), 0, 1, 0, &page, &segments, &place, &version};
    REQUIRE(seer.prefetch->plan(seer.plugin(), &step, &forecast, &orders) == 1);
    CHECK(page == 7);
}

}  // namespace instance_test
