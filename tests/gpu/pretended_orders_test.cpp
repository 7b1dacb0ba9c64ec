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

void check(const char *model, const pretended::settings &settings) {
    const opened_golden golden(model);
    CAPTURE(model);
    CAPTURE(static_cast<int>(settings.stream_order));
    CAPTURE(settings.seed);
    for (const golden_layout &layout : golden_layouts(*golden.source_model)) {
        CAPTURE(layout.name);
        pretended::begin(settings);
        REQUIRE(find_difference(golden, layout) == "");
        CHECK(pretended::alive().none());
    }
}

}  // namespace

TEST_CASE("golden models are right in every order") {
    for (const char *model : {"olmoe", "mixtral", "deepseek_v2_lite"})
        for (uint32_t seed = 1; seed <= 4; ++seed)
            for (const order stream_order : one_thread)
                if (stream_order != order::eager || seed == 1)
                    check(model, {.stream_order = stream_order, .seed = seed});
}

TEST_CASE("without waits between streams every kind of order goes wrong") {
    const opened_golden golden("olmoe");
    for (const order stream_order : {order::drawn, order::lazy}) {
        uint32_t caught = 0;
        for (uint32_t seed = 1; seed <= 6; ++seed) {
            pretended::begin({.stream_order = stream_order, .seed = seed, .ignores_events = true});
            caught += find_difference(golden, golden_layouts(*golden.source_model)[3]) != "";
        }
        CAPTURE(static_cast<int>(stream_order));
        CHECK(caught > 0);
    }
}

TEST_CASE("what each GPU can launch is enough for every golden model") {
    for (const char *gpu : {"sm_80", "sm_86", "sm_89", "sm_90"})
        for (const char *model : {"deepseek_v3", "gpt_oss", "qwen2_moe"}) {
            CAPTURE(gpu);
            check(model, {.stream_order = order::eager, .gpu = gpu});
        }
}

TEST_CASE("loads of the layer under way go before those of later layers") {
    const opened_golden golden("olmoe");
    const uint32_t experts = golden.source_model->config().experts;
    executor_drive drive(*golden.source_model, {.slots = 4});
    gpu_executor_options options;
    options.source_model = golden.source_model.get();
    options.places = &drive.places;
    options.limits = golden_limits(golden.data);
    options.transfers_max = 4;
    options.threads = 1;
    pretended::begin({.stream_order = order::eager});
    auto machine = make_golden_machine(options, false);
    REQUIRE(machine.ok());
    executor &device_executor = *machine->device_executor;
    const pass tokens = prompt_pass(std::span(golden.data.input_ids).first(1), 0, 0, true);
    device_executor.begin(tokens);
    device_executor.attention(0, tokens);
    CHECK(device_executor.wait().kind == event_kind::gate);
    // The executor's own copies go at the highest priority, too.
    const uint64_t old_copies = pretended::copies(-1);
    REQUIRE(pretended::copies(0) == 0);
    for (const uint32_t page : {1u, experts + 1}) {
        drive.places.take(page, MOORAGE_SEGMENT(0, 2), false);
        device_executor.send({link_h2d, page, MOORAGE_WHOLE, 0, 64});
        CHECK(device_executor.wait().kind == event_kind::piece);
        CHECK(pretended::copies(-1) == old_copies + 1);
        CHECK(pretended::copies(0) == (page == 1 ? 0 : 1));
    }
}

}  // namespace pretended_orders_test
