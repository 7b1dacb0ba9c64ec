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

struct way {
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
    outcome on(const char *executor, const way &how) {
        config.executor = executor;
        config.split = how.split;
        config.dispatch.plugin = how.dispatch;
        config.prefill = how.prefill;
        config.batch = how.batch;
        outcome made;
        for (const uint32_t written : {12, 0}) {
            requests = {{{5, 3, 9, 2, 7, 1, 1, 4, 30, 6}, written, written == 0},
                        {{8, 8, 4, 17, 11, 2, 9}, written, written == 0}};
            run_options options;
            options.requests = &requests;
            options.on_token = [&](uint64_t request, int32_t id) {
                made.texts[request].push_back(id);
            };
            auto done = run(config, shared, options);
            REQUIRE_MESSAGE(done.ok(), (done ? "" : done.failure().text));
            if (written == 0) made.nll = done->text.nll;
            made.dropped += done->routing.dropped;
            made.reweighted += done->routing.reweighted;
        }
        return made;
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
            const way plain{1, "load_all", 4, 2};
            bench untouched(model, {"topk", "test", {}});
            const outcome whole = untouched.on("cpu", plain);
            bench on(model, routers[which]);
            const outcome expected = on.on("cpu", plain);
            CHECK(expected.dropped != 0);
            CHECK(expected.texts.at(0).size() == 12);
            CHECK(std::abs(expected.nll - whole.nll) > 1e-3);  // it does make a difference
            for (const way &how : {plain, way{1, "load_all", 0, 1}, way{0.5, "load_all", 4, 2},
                                   way{1, "cpu_all", 4, 2}})
                for (const pretended::order order :
                     {pretended::order::eager, pretended::order::drawn, pretended::order::lazy}) {
                    CAPTURE(how.split);
                    CAPTURE(how.dispatch);
                    CAPTURE(how.prefill);
                    pretended::begin({.how = order});
                    const outcome is = on.on("cuda", how);
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
        bench on(model, dropping(1, false));
        const int64_t top_k = (*on.shared.open_model(on.config.model))->of->config().top_k;
        const way plain{1, "load_all", 4, 2};
        for (int64_t count = 1; count < top_k; ++count) {
            CAPTURE(count);
            on.config.router = dropping(count, true);
            const outcome expected = on.on("cpu", plain);
            CHECK(expected.dropped != 0);
            pretended::begin({.how = pretended::order::drawn});
            const outcome is = on.on("cuda", plain);
            CHECK(is.texts == expected.texts);
            CHECK(is.nll == doctest::Approx(expected.nll).epsilon(1e-4));
            CHECK(is.dropped == expected.dropped);
        }
    }
}

}  // namespace pretended_dropped_test
