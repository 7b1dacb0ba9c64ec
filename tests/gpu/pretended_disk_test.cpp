// pretended_disk_test.cpp - goal: a model whose experts do not fit in host memory gives the same
// bits on the GPU as one whose experts fit. Method: golden models score two texts over the
// pretended GPU, with host memory for a quarter of their experts. Compare with the run that holds
// them all: whole, split, with prefetches, with some experts on the CPU, and in several orders of
// the streams.
#include "tests/gpu/pretended_run.h"

namespace pretended_disk_test {

using namespace moorage::test;

namespace {

run_report report_of(pretended_run &run, const pretended::settings &how) {
    pretended::begin(how);
    auto made = run();
    REQUIRE_MESSAGE(made.ok(), (made ? "" : made.failure().text));
    CHECK(pretended::alive().none());
    return std::move(*made);
}

}  // namespace

TEST_CASE("the same likelihoods with a quarter of the experts in host memory") {
    struct way {
        double split;
        const char *dispatch, *prefetch;
        uint32_t prefill;
    };
    for (const char *model : {"olmoe", "mixtral", "deepseek_v2_lite"}) {
        CAPTURE(model);
        for (const way &one : {way{1, "load_all", "none", 0}, way{1, "load_all", "none", 4},
                               way{0.5, "load_all", "none", 4}, way{1, "cpu_all", "none", 0},
                               way{1, "load_all", "next_gate", 4}}) {
            CAPTURE(one.split);
            CAPTURE(one.dispatch);
            CAPTURE(one.prefetch);
            pretended_run run(model);
            run.config.split = one.split;
            run.config.dispatch.plugin = one.dispatch;
            run.config.prefetch.plugin = one.prefetch;
            run.config.prefill = one.prefill;
            const run_report whole = report_of(run, {.how = pretended::order::eager});
            REQUIRE(whole.text.scored == 15);
            CHECK_FALSE(whole.host);
            run.read_disk();
            for (const pretended::order how :
                 {pretended::order::eager, pretended::order::drawn, pretended::order::lazy}) {
                const run_report made = report_of(run, {.how = how});
                CHECK(made.text.nll == whole.text.nll);
                REQUIRE(made.host);
                CHECK(made.host->disk_bytes != 0);
                CHECK(made.host->requested > made.host->hits);
                CHECK((made.experts.on_cpu != 0) == (one.dispatch == std::string("cpu_all")));
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
    const run_report made = report_of(run, {.how = pretended::order::eager});
    CHECK(std::ranges::any_of(made.warnings, [](const std::string &one) {
        return one.find("splits no experts") != std::string::npos;
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
        options.of = opened->get();
        options.places = &drive.places;
        options.host_places = &host;
        options.transfers_max = 4;
        options.threads = 1;
        pretended::begin({});
        const auto made = make_cuda_executor(options);
        REQUIRE(made.ok());
        executor &where = *made->where;
        const uint32_t page = config.experts - 1;
        host.take(page, MOORAGE_WHOLE, false);
        where.send({link_disk, page, MOORAGE_WHOLE, 0, 64});
        CHECK(where.wait().tag == link_disk);
        CHECK_FALSE(where.failed());
        // By now the GPU has read all that it needs from the file.
        std::filesystem::resize_file(folder / "model.safetensors", 40'000);
        where.send({link_disk, page, MOORAGE_WHOLE, 0, 64});
        (void)where.wait();
        CHECK(where.failed());
        CHECK_MESSAGE(where.failure().find("model.safetensors: cannot read") != std::string::npos,
                      where.failure());
    }
    CHECK(pretended::alive().none());
    std::filesystem::remove_all(folder);
}

}  // namespace pretended_disk_test
