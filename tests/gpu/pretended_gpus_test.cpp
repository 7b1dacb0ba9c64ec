// pretended_gpus_test.cpp - goal: experts spread over two GPUs give the bits of one GPU that has
// them all, in any order of the streams of both. Method: golden models score two texts over one
// pretended GPU, then over two, with and without access to each other's memory. They run whole,
// split, with prefetches, budgets, the disk, and with layers or experts spread. Without the waits
// between streams results must be wrong. A call that fails on either GPU ends the run with its
// name.
#include <cmath>

#include "tests/gpu/pretended/device.h"
#include "tests/gpu/pretended_run.h"

namespace pretended_gpus_test {

using namespace moorage::test;
using pretended::order;

namespace {

struct run_variant {
    const char *model = "olmoe";
    double split = 1;
    const char *prefetch = "none";
    uint32_t prefill = 0;
    bool whole_layers = false, per_layer = false, disk = false;
    const char *cache = "lru";
};

void configure(pretended_run &run, const run_variant &variant, bool several) {
    run.config.profile = "rtx_3090";
    run.config.split = variant.split;
    run.config.dispatch.plugin = "load_all";
    run.config.prefetch.plugin = variant.prefetch;
    run.config.prefill = variant.prefill;
    run.config.per_layer = variant.per_layer;
    run.config.cache.plugin = variant.cache;
    if (variant.disk) run.read_disk();
    if (!several) return;
    run.config.devices.profiles = {"rtx_3090", "rtx_3090"};
    run.config.devices.whole_layers = variant.whole_layers;
    run.config.experts = run.pages() / 4;
}

run_report report_of(pretended_run &run, const pretended::settings &settings) {
    pretended::begin(settings);
    auto report = run();
    REQUIRE_MESSAGE(report.ok(), (report ? "" : report.failure().text));
    CHECK(pretended::alive().none());
    return std::move(*report);
}

double nll_on_one_gpu(const run_variant &variant) {
    pretended_run run(variant.model);
    configure(run, variant, false);
    const run_report whole = report_of(run, {.stream_order = pretended::order::eager});
    REQUIRE(whole.text.scored == 15);
    return whole.text.nll;
}

}  // namespace

TEST_CASE("the same likelihoods over two GPUs, to the bit") {
    for (const run_variant &variant :
         {run_variant{}, run_variant{"olmoe", 0.5, "none", 4},
          run_variant{"mixtral", 1, "next_gate", 4},
          run_variant{"deepseek_v2_lite", 0.5, "next_gate", 4},
          run_variant{"gpt_oss", 1, "none", 4}, run_variant{"olmoe", 1, "none", 4, true},
          run_variant{"olmoe", 1, "none", 4, false, true},
          run_variant{"olmoe", 1, "next_gate", 0, false, false, true},
          run_variant{"olmoe", 0.5, "next_gate", 4, true, false, false, "lfu"}}) {
        CAPTURE(variant.model);
        CAPTURE(variant.split);
        CAPTURE(variant.prefetch);
        CAPTURE(variant.prefill);
        CAPTURE(variant.whole_layers);
        CAPTURE(variant.per_layer);
        CAPTURE(variant.disk);
        const double expected = nll_on_one_gpu(variant);
        pretended_run run(variant.model);
        configure(run, variant, true);
        for (const bool peers : {true, false})
            for (const pretended::order stream_order :
                 {pretended::order::eager, pretended::order::drawn, pretended::order::lazy}) {
                CAPTURE(peers);
                CAPTURE(static_cast<int>(stream_order));
                const run_report report =
                    report_of(run, {.stream_order = stream_order, .devices = 2, .peers = peers});
                CHECK(report.text.nll == expected);
                REQUIRE(report.devices.size() == 2);
                for (const device_report &device : report.devices) CHECK(device.loaded != 0);
            }
    }
}

TEST_CASE("drawn orders of both GPUs' streams change nothing, and neither does the CPU's help") {
    const double expected = nll_on_one_gpu({"olmoe", 1, "none", 4});
    pretended_run run("olmoe");
    configure(run, {"olmoe", 1, "none", 4}, true);
    for (uint32_t seed = 1; seed <= 12; ++seed) {
        CAPTURE(seed);
        run.config.dispatch.plugin = seed % 3 == 0 ? "cpu_all" : "load_all";
        const run_report report = report_of(run, {.stream_order = pretended::order::drawn,
                                                  .seed = seed,
                                                  .devices = 2,
                                                  .peers = seed % 2 == 0});
        CHECK((report.experts.on_cpu != 0) == (seed % 3 == 0));
        // The CPU sums in another order.
        CHECK(std::abs(report.text.nll - expected) <= (seed % 3 == 0 ? 1e-3 : 0));
    }
}

TEST_CASE("without the waits between streams two GPUs go wrong") {
    const double expected = nll_on_one_gpu({"olmoe", 1, "none", 4});
    pretended_run run("olmoe");
    configure(run, {"olmoe", 1, "none", 4}, true);
    for (const bool peers : {true, false}) {
        CAPTURE(peers);
        uint32_t caught = 0;
        for (uint32_t seed = 1; seed <= 6; ++seed) {
            pretended::begin({.stream_order = pretended::order::drawn,
                              .seed = seed,
                              .ignores_events = true,
                              .devices = 2,
                              .peers = peers});
            const auto report = run();
            caught += !report || report->text.nll != expected;
        }
        CHECK(caught > 0);
    }
}

TEST_CASE("the failure of a call on either GPU is an error with its name, or does no harm") {
    const double expected = nll_on_one_gpu({"olmoe", 1, "none", 4});
    pretended_run run("olmoe");
    configure(run, {"olmoe", 1, "none", 4}, true);
    for (const char *call :
         {"cudaSetDevice", "cudaGetDeviceProperties", "cudaDeviceCanAccessPeer",
          "cudaDeviceEnablePeerAccess", "cudaMemGetInfo", "cudaMalloc", "cudaHostAlloc",
          "cudaStreamCreateWithPriority", "cudaStreamWaitEvent", "cudaEventCreate",
          "cudaEventRecord", "cudaMemcpyAsync", "cudaLaunchKernel", "cudaDeviceSynchronize"}) {
        CAPTURE(call);
        uint64_t ended = 0;
        (void)report_of(run, {.stream_order = pretended::order::eager, .devices = 2});
        const uint64_t call_count = pretended::calls(call);
        REQUIRE(call_count >= 2);
        for (uint64_t n = 1; n <= call_count; n += 1 + call_count / 9) {
            CAPTURE(n);
            pretended::begin({.stream_order = pretended::order::eager,
                              .fail_call = call,
                              .fail_at = n,
                              .devices = 2});
            const auto is = run();
            if (is) {
                CHECK(is->text.nll == expected);
            } else {
                ++ended;
                CHECK_MESSAGE(is.failure().text.find(call) != std::string::npos, is.failure().text);
            }
            CHECK(pretended::alive().none());
        }
        CHECK(ended > 0);
    }
}

TEST_CASE("the GPU that is asked for does the work, and no other") {
    const double expected = nll_on_one_gpu({});
    for (const uint32_t asked : {0u, 1u}) {
        CAPTURE(asked);
        pretended_run run("olmoe");
        configure(run, {}, false);
        run.config.device = asked;
        CHECK(report_of(run, {.devices = 2}).text.nll == expected);
        CHECK(pretended::now().allocation_count(asked) > 0);
        CHECK(pretended::now().allocation_count(1 - asked) == 0);
    }
}

TEST_CASE("what cannot be over two GPUs is refused with a remedy") {
    pretended_run run("olmoe");
    configure(run, {}, true);
    pretended::begin({});  // there is one
    const auto absent = run();
    REQUIRE_FALSE(absent.ok());
    CHECK_MESSAGE(absent.failure().text.find("there is no GPU 1") != std::string::npos,
                  absent.failure().text);
    run.config.experts.reset();
    pretended::begin({.devices = 2});
    const auto unsized = run();
    REQUIRE_FALSE(unsized.ok());
    CHECK_MESSAGE(unsized.failure().text.find("device_experts") != std::string::npos,
                  unsized.failure().text);
    CHECK(pretended::alive().none());
}

}  // namespace pretended_gpus_test
