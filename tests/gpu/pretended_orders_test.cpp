// pretended_orders_test.cpp - goal: the executor on the GPU is right in any order of its streams.
// Method: golden models over the pretended GPU. Its streams advance at random, all at once, or only
// when they are waited for. Then the waits between streams are left out, and results must be wrong;
// otherwise the orders show nothing.
#include "tests/gpu/pretended_fixture.h"

namespace pretended_orders_test {

using namespace moorage::test;
using pretended::order;

namespace {

constexpr order one_thread[] = {order::drawn, order::lazy, order::eager};

void check(const char *model, const pretended::settings &how) {
    const opened_golden golden(model);
    CAPTURE(model);
    CAPTURE(static_cast<int>(how.how));
    CAPTURE(how.seed);
    for (const golden_layout &layout : golden_layouts(*golden.of)) {
        CAPTURE(layout.name);
        pretended::begin(how);
        REQUIRE(what_is_off(golden, layout) == "");
        CHECK(pretended::alive().none());
    }
}

}  // namespace

TEST_CASE("golden models are right in every order") {
    for (const char *model : {"olmoe", "mixtral", "deepseek_v2_lite"})
        for (uint32_t seed = 1; seed <= 4; ++seed)
            for (const order how : one_thread)
                if (how != order::eager || seed == 1) check(model, {.how = how, .seed = seed});
}

TEST_CASE("without waits between streams every kind of order goes wrong") {
    const opened_golden golden("olmoe");
    for (const order how : {order::drawn, order::lazy}) {
        uint32_t caught = 0;
        for (uint32_t seed = 1; seed <= 6; ++seed) {
            pretended::begin({.how = how, .seed = seed, .deaf = true});
            caught += what_is_off(golden, golden_layouts(*golden.of)[3]) != "";
        }
        CAPTURE(static_cast<int>(how));
        CHECK(caught > 0);
    }
}

TEST_CASE("what each GPU can launch is enough for every golden model") {
    for (const char *gpu : {"sm_80", "sm_86", "sm_89", "sm_90"})
        for (const char *model : {"deepseek_v3", "gpt_oss", "qwen2_moe"}) {
            CAPTURE(gpu);
            check(model, {.how = order::eager, .gpu = gpu});
        }
}

TEST_CASE("loads of the layer under way go before those of later layers") {
    const opened_golden golden("olmoe");
    const uint32_t experts = golden.of->config().experts;
    executor_drive drive(*golden.of, {.slots = 4});
    gpu_executor_options options;
    options.of = golden.of.get();
    options.places = &drive.places;
    options.limits = golden_limits(golden.data);
    options.transfers_max = 4;
    options.threads = 1;
    pretended::begin({.how = order::eager});
    auto made = make_golden_machine(options, false);
    REQUIRE(made.ok());
    executor &where = *made->where;
    const pass tokens = prompt_pass(std::span(golden.data.input_ids).first(1), 0, 0, true);
    where.begin(tokens);
    where.attention(0, tokens);
    CHECK(where.wait().kind == event_kind::gate);
    // The executor's own copies go at the highest priority, too.
    const uint64_t before = pretended::copies(-1);
    REQUIRE(pretended::copies(0) == 0);
    for (const uint32_t page : {1u, experts + 1}) {
        drive.places.take(page, MOORAGE_SEGMENT(0, 2), false);
        where.send({link_h2d, page, MOORAGE_WHOLE, 0, 64});
        CHECK(where.wait().kind == event_kind::piece);
        CHECK(pretended::copies(-1) == before + 1);
        CHECK(pretended::copies(0) == (page == 1 ? 0 : 1));
    }
}

}  // namespace pretended_orders_test
