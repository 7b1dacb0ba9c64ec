// pretended_disk_test.cpp - goal: a model whose experts do not fit in host memory gives the same
// bits on the GPU as one whose experts fit. Method: golden models score two texts over the
// pretended GPU, with host memory for a quarter of their experts. Compare with the run that holds
// them all: whole, split, with prefetches, with some experts on the CPU, and in several orders of
// the streams.
#include "tests/gpu/pretended_run.h"

namespace pretended_disk_test {

using namespace moorage::test;

namespace {

run_report report_of(pretended_run &run, const pretended::settings &settings) {
    pretended::begin(settings);
    auto report = run();
    REQUIRE_MESSAGE(report.ok(), (report ? "" : report.failure().text));
    CHECK(pretended::alive().none());
    return std::move(*report);
}

}  // namespace

TEST_CASE("the same likelihoods with a quarter of the experts in host memory") {
    struct run_variant {
        double split;
        const char *dispatch, *prefetch;
        uint32_t prefill;
    };
    for (const char *model : {"olmoe", "mixtral", "deepseek_v2_lite"}) {
        CAPTURE(model);
        for (const run_variant &variant :
             {run_variant{1, "load_all", "none", 0}, run_variant{1, "load_all", "none", 4},
              run_variant{0.5, "load_all", "none", 4}, run_variant{1, "cpu_all", "none", 0},
              run_variant{1, "load_all", "next_gate", 4}}) {
            CAPTURE(variant.split);
            CAPTURE(variant.dispatch);
            CAPTURE(variant.prefetch);
            pretended_run run(model);
            run.config.split = variant.split;
            run.config.dispatch.plugin = variant.dispatch;
            run.config.prefetch.plugin = variant.prefetch;
            run.config.prefill = variant.prefill;
            const run_report whole = report_of(run, {.stream_order = pretended::order::eager});
            REQUIRE(whole.text.scored == 15);
            CHECK_FALSE(whole.host);
            run.read_disk();
            for (const pretended::order stream_order :
                 {pretended::order::eager, pretended::order::drawn, pretended::order::lazy}) {
                const run_report report = report_of(run, {.stream_order = stream_order});
                CHECK(report.text.nll == whole.text.nll);
                REQUIRE(report.host);
                CHECK(report.host->disk_bytes != 0);
                CHECK(report.host->requested > report.host->hits);
                CHECK((report.experts.on_cpu != 0) == (variant.dispatch == std::string("cpu_all")));
            }
        }
    }
}

TEST_CASE("experts that lie in no file are refused with a remedy") {
    pretended_run run("gpt_oss");  // stores them the other way round
    run.read_disk();
    pretended::begin({});
    const auto refused = run();
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.failure().text.find("turned round") != std::string::npos);
    CHECK(pretended::alive().none());
}

TEST_CASE("what is divided by a budget stays as it was at first, and is said so") {
    pretended_run run("olmoe");
    run.read_disk();
    run.config.per_layer = true;
    const run_report report = report_of(run, {.stream_order = pretended::order::eager});
    CHECK(std::ranges::any_of(report.warnings, [](const std::string &warning) {
        return warning.find("splits no experts") != std::string::npos;
    }));
}

TEST_CASE("a read that fails ends the run with the file's name") {
    const auto folder = std::filesystem::temp_directory_path() / "moorage-pretended-disk";
    std::filesystem::remove_all(folder);
    std::filesystem::copy(std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/golden/olmoe", folder);
    {
        const auto opened = open_model(folder);
        REQUIRE(opened.ok());
        const model_config &config = (*opened)->config();
        executor_drive drive(**opened, {.slots = 4});
        arena host(static_cast<uint32_t>(config.moe_layers().size()), config.experts,
                   config.moe_intermediate, 4, 2);
        gpu_executor_options options;
        options.source_model = opened->get();
        options.places = &drive.places;
        options.host_places = &host;
        options.transfers_max = 4;
        options.threads = 1;
        pretended::begin({});
        const auto machine = make_cuda_executor(options);
        REQUIRE(machine.ok());
        executor &device_executor = *machine->device_executor;
        const uint32_t page = config.experts - 1;
        host.take(page, MOORAGE_WHOLE, false);
        device_executor.send({link_disk, page, MOORAGE_WHOLE, 0, 64});
        CHECK(device_executor.wait().tag == link_disk);
        CHECK_FALSE(device_executor.failed());
        // By now the GPU has read all that it needs from the file.
        std::filesystem::resize_file(folder / "model.safetensors", 40'000);
        device_executor.send({link_disk, page, MOORAGE_WHOLE, 0, 64});
        (void)device_executor.wait();
        CHECK(device_executor.failed());
        CHECK_MESSAGE(
            device_executor.failure().find("model.safetensors: cannot read") != std::string::npos,
            device_executor.failure());
    }
    CHECK(pretended::alive().none());
    std::filesystem::remove_all(folder);
}

}  // namespace pretended_disk_test
