// pretended_hidden_test.cpp - goal: a policy that reads hidden states sees the same on the GPU as
// on the CPU. Method: a prefetch policy weighs each value by its layer, token and place. Golden
// models compute over the pretended GPU in several orders of its streams, with prefills, split, and
// with some experts on the CPU, which needs the same copy. Compare with the executor of the CPU.
#include "tests/gpu/pretended_run.h"

#include <cmath>

namespace pretended_hidden_test {

using namespace moorage::test;

namespace {

struct probe_values {
    double values, weighted, scale;
};

class bench : public pretended_run {
public:
    explicit bench(const char *model) : pretended_run(model) {
        const auto policies = std::filesystem::path(MOORAGE_BINARY_DIR) / "tests/policies";
        REQUIRE(shared.scan(std::vector{policies / "wider.so"}).ok());
        config.prefetch = {"placer", "test", {{"place", int64_t{MOORAGE_PLACE_BUFFER}, "test"}}};
        config.buffer_experts = 1;
    }
    probe_values run_on(const char *executor) {
        config.executor = executor;
        auto done = (*this)();
        REQUIRE_MESSAGE(done.ok(), (done ? "" : done.failure().text));
        const auto fact_of = [&](const char *name) {
            for (const fact &entry : done->facts.at("placer"))
                if (entry.name == name) return entry.value;
            FAIL("no fact " << name);
            return 0.0;
        };
        return {fact_of("hidden"), fact_of("weighted"), fact_of("scale")};
    }
};

}  // namespace

TEST_CASE("hidden states that policies see on the GPU are the CPU's") {
    for (const char *model : {"mixtral", "qwen2_moe", "deepseek_v2_lite", "gpt_oss"}) {
        CAPTURE(model);
        bench fixture(model);
        for (const uint32_t prefill : {0, 4, 12})
            for (const char *dispatch : {"load_all", "cpu_all"})
                for (const double split : {1.0, 0.5}) {
                    CAPTURE(prefill);
                    CAPTURE(dispatch);
                    CAPTURE(split);
                    fixture.config.prefill = prefill;
                    fixture.config.dispatch.plugin = dispatch;
                    fixture.config.split = split;
                    fixture.config.batch = prefill == 4 ? 2 : 1;
                    const probe_values expected = fixture.run_on("cpu");
                    CHECK(expected.values > 0);
                    for (const auto order : {pretended::order::eager, pretended::order::drawn,
                                             pretended::order::lazy}) {
                        pretended::begin({.stream_order = order});
                        const probe_values is = fixture.run_on("cuda");
                        CHECK(is.values == expected.values);
                        CHECK(std::abs(is.weighted - expected.weighted) < 1e-3 * expected.scale);
                        CHECK(is.scale == doctest::Approx(expected.scale).epsilon(1e-2));
                        CHECK(pretended::alive().none());
                    }
                }
    }
}

TEST_CASE("a GPU that fails while hidden states are waited for ends the run with its words") {
    for (uint64_t call = 1; call < 400; call += 13) {
        CAPTURE(call);
        bench fixture("olmoe");
        pretended::begin({.fail_call = "cudaMemcpyAsync", .fail_at = call, .fails_after = true});
        auto done = fixture();
        if (done) continue;
        CHECK(done.failure().text.find("cudaMemcpyAsync") != std::string::npos);
    }
}

}  // namespace pretended_hidden_test
