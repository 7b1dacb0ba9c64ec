// pretended_threads_test.cpp - goal: an event that was asked for separates all accesses of two
// streams, the host or the CPU's experts to the same memory. Method: a golden model over the
// pretended GPU with a thread for each stream, and nothing else that would synchronise them. The
// executor and the kernels are compiled with -fsanitize=thread, which reports accesses that nothing
// separates.
//
// PRETENDED_DEAF=1 leaves the waits between streams out: then the first test has to report (a ctest
// of its own).
#include <cstdlib>

#include "tests/gpu/pretended_run.h"

using namespace moorage::test;

TEST_CASE("a golden model is right, and without a race, with a thread for each stream") {
    const bool deaf = std::getenv("PRETENDED_DEAF") != nullptr;
    const opened_golden golden("olmoe");
    for (const golden_layout &layout : golden_layouts(*golden.source_model)) {
        CAPTURE(layout.name);
        pretended::begin({.stream_order = pretended::order::threads, .ignores_events = deaf});
        const std::string difference = find_difference(golden, layout);
        if (!deaf) CHECK(difference == "");
        CHECK(pretended::alive().none());
    }
}

TEST_CASE("two GPUs' streams, and the copies between them, are parted by events") {
    pretended_run run("olmoe");
    run.config.profile = "rtx_3090";
    run.config.dispatch.plugin = "load_all";
    run.config.prefill = 4;
    pretended::begin({.stream_order = pretended::order::threads});
    const auto whole = run();
    REQUIRE(whole.ok());
    run.config.devices.profiles = {"rtx_3090", "rtx_3090"};
    for (const bool peers : {true, false}) {
        CAPTURE(peers);
        pretended::begin({.stream_order = pretended::order::threads, .devices = 2, .peers = peers});
        const auto report = run();
        REQUIRE(report.ok());
        CHECK(report->text.nll == whole->text.nll);
    }
}

TEST_CASE("what is read from disk is parted from its copies and from the CPU's experts") {
    for (const char *dispatch : {"load_all", "cpu_all"}) {
        CAPTURE(dispatch);
        pretended_run run("olmoe");
        run.config.dispatch.plugin = dispatch;
        run.config.prefill = 4;
        pretended::begin({.stream_order = pretended::order::threads});
        const auto whole = run();
        REQUIRE(whole.ok());
        run.read_disk();
        pretended::begin({.stream_order = pretended::order::threads});
        const auto report = run();
        REQUIRE(report.ok());
        CHECK(report->text.nll == whole->text.nll);
        CHECK(report->host->disk_bytes != 0);
    }
}
