// disk_test.cpp - goal: a model whose experts do not fit in memory gives the same bits as one whose
// experts fit. Method: every golden model scores two texts, in passes of prefill and token by
// token, and the demo model writes one. Memory has room for a quarter of their experts. Compare
// with the run that holds them all: whole, split, through a buffer of prefetches, and with some
// experts on the CPU.
#include <doctest/doctest.h>

#include "core/pipeline/run.h"
#include "core/source/model_source.h"
#include "tests/golden/golden_fixture.h"

namespace disk_test {

namespace {

using namespace moorage::test;

struct bench {
    run_resources shared;
    run_config config;
    std::vector<model_request> requests;

    explicit bench(const std::filesystem::path &directory) {
        const std::vector<std::filesystem::path> plugins{std::filesystem::path(MOORAGE_BINARY_DIR) /
                                                         "plugins"};
        REQUIRE(shared.scan(plugins).ok());
        config.file = "disk_test";
        config.executor = "cpu";
        config.profile = "host";
        config.model = directory;
        config.threads = 1;
        config.cache.plugin = "lru";
        requests = {{{5, 3, 9, 2, 7, 1, 1, 4, 30, 6}, 0, 1}, {{8, 8, 4, 17, 11, 2, 9}, 0, 1}};
    }
    run_report run_it() {
        run_options options;
        if (config.prompts.empty()) options.requests = &requests;
        auto done = run(config, shared, options);
        if (!done) FAIL(done.failure().text);
        return std::move(*done);
    }
    void quarter() {
        const model &loaded_model = *(*shared.open_model(config.model))->loaded_model;
        const auto layers = static_cast<uint32_t>(loaded_model.config().moe_layers().size());
        config.host_experts = layers * loaded_model.config().experts / 4;
        config.disk = "nvme_gen4";  // as loading a file sets it
    }
};

}  // namespace

TEST_CASE("the same likelihoods with a quarter of the experts in memory") {
    for (const std::string &name : golden_names()) {
        CAPTURE(name);
        bench fixture(golden_path(name));
        if (name == "gpt_oss") {  // stores them the other way round
            fixture.quarter();
            run_options options;
            options.requests = &fixture.requests;
            const auto refused = run(fixture.config, fixture.shared, options);
            REQUIRE_FALSE(refused.ok());
            CHECK(refused.failure().text.find("turned round") != std::string::npos);
            continue;
        }
        for (const uint32_t prefill : {0u, 4u}) {
            CAPTURE(prefill);
            fixture.config.prefill = prefill;
            fixture.config.host_experts.reset();
            fixture.config.split = 1;
            fixture.config.dispatch.plugin = "load_all";
            fixture.config.prefetch.plugin = "none";
            const run_report whole = fixture.run_it();
            REQUIRE(whole.text.scored == 15);
            CHECK_FALSE(whole.host);
            fixture.quarter();
            struct way {
                double split;
                const char *dispatch, *prefetch;
            };
            for (const way &mode : {way{1, "load_all", "none"}, way{0.5, "load_all", "none"},
                                    way{1, "cpu_all", "none"}, way{1, "overlap", "next_gate"}}) {
                fixture.config.split = mode.split;
                fixture.config.dispatch.plugin = mode.dispatch;
                fixture.config.prefetch.plugin = mode.prefetch;
                CAPTURE(mode.split);
                CAPTURE(mode.dispatch);
                const run_report report = fixture.run_it();
                CHECK(report.text.nll == whole.text.nll);
                REQUIRE(report.host);
                CHECK(report.host->disk_bytes == report.bytes.h2d);
                CHECK(report.host->disk_bytes != 0);
                CHECK(report.experts.on_cpu == 0);
            }
        }
    }
}

TEST_CASE("quantised experts in slots, halves and from disk") {
    // Blocks of 32 that are cut in two. Beside the project there are also blocks of 256, whose
    // experts stay whole, and layers of different formats, so that some experts are smaller than
    // others.
    using std::filesystem::path;
    std::vector<path> models;
    for (const char *name : {"qwen3moe-tied-iq4_nl.gguf", "deepseek2-q4_0.gguf"})
        models.push_back(path(MOORAGE_SOURCE_DIR) / "tests/golden/quantised/models" / name);
    const path mixed = path(MOORAGE_SHARED_DATA) / "quant/models/mixtral-q4_k_m.gguf";
    if (std::filesystem::exists(mixed)) models.push_back(mixed);
    for (const path &name : models) {
        CAPTURE(name.string());
        bench fixture(name);
        fixture.config.prefill = 4;
        const run_report whole = fixture.run_it();
        REQUIRE(whole.text.scored == 15);
        for (const bool disk : {false, true})
            for (const char *cache : {"lru", "lfu", "score", "hybrimoe"})
                for (const double split : {1.0, 0.5})
                    for (const char *dispatch : {"load_all", "overlap", "cpu_all"}) {
                        CAPTURE(disk);
                        CAPTURE(std::string(cache));
                        CAPTURE(std::string(dispatch));
                        bench variant(name);
                        variant.config.prefill = 4;
                        variant.config.cache.plugin = cache;
                        variant.config.dispatch.plugin = dispatch;
                        variant.config.split = split;
                        if (disk)
                            variant.quarter();
                        else
                            variant.config.experts = 5;
                        const run_report report = variant.run_it();
                        CHECK(report.text.nll == whole.text.nll);
                    }
    }
}

TEST_CASE("the demo model writes the same text") {
    bench fixture(std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo");
    fixture.config.prompts = {"To be", "fn main() {"};
    fixture.config.max_tokens = 24;
    const run_report whole = fixture.run_it();
    fixture.quarter();
    for (const char *cache : {"lru", "lfu", "sieve"}) {
        fixture.config.cache.plugin = cache;
        const run_report report = fixture.run_it();
        CHECK(report.text.texts == whole.text.texts);
        CHECK(report.host->disk_bytes != 0);
    }
    // The same on an emulated GPU, with two memories.
    fixture.config.executor = "emulator";
    fixture.config.profile = "rtx_4090";
    fixture.config.disk = "nvme_gen4";
    fixture.config.experts = 20;
    const run_report emulated = fixture.run_it();
    CHECK(emulated.text.texts == whole.text.texts);
    CHECK(emulated.host->requested > emulated.host->hits);
}

}  // namespace disk_test
