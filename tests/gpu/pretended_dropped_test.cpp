// pretended_dropped_test.cpp - goal: a router that uses fewer experts than the model, or gives some
// no weight, gets the CPU's results from the GPU. Method: golden models write and score over the
// pretended GPU in several orders of its streams, with few slots, split, with prefills and with
// some experts on the CPU. Compare with the executor of the CPU under the same router. Dropped
// experts are counted, and show in the likelihood.
#include "tests/gpu/pretended_run.h"

#include <cmath>
#include <map>

namespace pretended_dropped_test {

using namespace moorage::test;

namespace {

struct outcome {
    std::map<uint64_t, std::vector<int32_t>> texts;  // by request
    double nll = 0;
    uint64_t dropped = 0, reweighted = 0;
};

struct run_variant {
    double split;
    const char *dispatch;
    uint32_t prefill, batch;
};

class bench : public pretended_run {
public:
    bench(const std::string &model, const stage_config &router) : pretended_run(model) {
        const auto policies = std::filesystem::path(MOORAGE_BINARY_DIR) / "tests/policies";
        REQUIRE(shared.scan(std::vector{policies / "substitute.so", policies / "wider.so"}).ok());
        config.router = router;
    }
    // The text written after two prompts, and the likelihood of two texts.
    outcome run_on(const char *executor, const run_variant &variant) {
        config.executor = executor;
        config.split = variant.split;
        config.dispatch.plugin = variant.dispatch;
        config.prefill = variant.prefill;
        config.batch = variant.batch;
        outcome result;
        for (const uint32_t written : {12, 0}) {
            requests = {{{5, 3, 9, 2, 7, 1, 1, 4, 30, 6}, written, written == 0},
                        {{8, 8, 4, 17, 11, 2, 9}, written, written == 0}};
            run_options options;
            options.requests = &requests;
            options.on_token = [&](uint64_t request, int32_t id) {
                result.texts[request].push_back(id);
            };
            auto done = run(config, shared, options);
            REQUIRE_MESSAGE(done.ok(), (done ? "" : done.failure().text));
            if (written == 0) result.nll = done->text.nll;
            result.dropped += done->routing.dropped;
            result.reweighted += done->routing.reweighted;
        }
        return result;
    }
};

stage_config dropping(int64_t count, bool renormalise) {
    return {"dropper", "test", {{"count", count, "test"}, {"renormalise", renormalise, "test"}}};
}

}  // namespace

TEST_CASE("what a router drops is left out on the GPU as on the CPU") {
    const std::vector<stage_config> routers = {
        dropping(1, false), dropping(1, true), {"reweigh", "test", {{"factor", 0.0, "test"}}}};
    for (const char *model : {"mixtral", "qwen2_moe", "deepseek_v2_lite", "gpt_oss"})
        for (size_t which = 0; which < routers.size(); ++which) {
            CAPTURE(model);
            CAPTURE(which);
            const run_variant plain{1, "load_all", 4, 2};
            bench untouched(model, {"topk", "test", {}});
            const outcome whole = untouched.run_on("cpu", plain);
            bench fixture(model, routers[which]);
            const outcome expected = fixture.run_on("cpu", plain);
            CHECK(expected.dropped != 0);
            CHECK(expected.texts.at(0).size() == 12);
            CHECK(std::abs(expected.nll - whole.nll) > 1e-3);  // it does make a difference
            for (const run_variant &variant :
                 {plain, run_variant{1, "load_all", 0, 1}, run_variant{0.5, "load_all", 4, 2},
                  run_variant{1, "cpu_all", 4, 2}})
                for (const pretended::order order :
                     {pretended::order::eager, pretended::order::drawn, pretended::order::lazy}) {
                    CAPTURE(variant.split);
                    CAPTURE(variant.dispatch);
                    CAPTURE(variant.prefill);
                    pretended::begin({.stream_order = order});
                    const outcome is = fixture.run_on("cuda", variant);
                    CHECK(is.texts == expected.texts);
                    CHECK(is.nll == doctest::Approx(expected.nll).epsilon(1e-4));
                    CHECK(is.dropped == expected.dropped);
                    CHECK(pretended::alive().none());
                }
        }
}

TEST_CASE("all but one expert of every token, and any number of each") {
    for (const char *model : {"olmoe", "qwen3_moe"}) {
        CAPTURE(model);
        bench fixture(model, dropping(1, false));
        const int64_t top_k =
            (*fixture.shared.open_model(fixture.config.model))->loaded_model->config().top_k;
        const run_variant plain{1, "load_all", 4, 2};
        for (int64_t count = 1; count < top_k; ++count) {
            CAPTURE(count);
            fixture.config.router = dropping(count, true);
            const outcome expected = fixture.run_on("cpu", plain);
            CHECK(expected.dropped != 0);
            pretended::begin({.stream_order = pretended::order::drawn});
            const outcome is = fixture.run_on("cuda", plain);
            CHECK(is.texts == expected.texts);
            CHECK(is.nll == doctest::Approx(expected.nll).epsilon(1e-4));
            CHECK(is.dropped == expected.dropped);
        }
    }
}

}  // namespace pretended_dropped_test
