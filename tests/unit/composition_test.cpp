// Goal: parts that contradict each other are refused or warned of, by the declarations of the
// policies, in any language. Method: each contradiction of the list, and beside it the nearest
// composition that works, over the toy machine. Policies of the templates in C, C++ and Rust stand
// for those of third parties.
#include "core/base/json.h"
#include "core/pipeline/composition.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "core/cluster/cluster_run.h"
#include "core/pipeline/run.h"
#include "core/report/comparison.h"
#include "core/source/synth.h"
#include "tests/unit/toy_run.h"

namespace composition_test {

using namespace moorage::core;
namespace test = moorage::test;

namespace {

const std::filesystem::path binaries = MOORAGE_BINARY_DIR;

// Three layers of eight experts, top-2, with scores and predictions.
struct bench : test::toy_run {
    explicit bench(const std::vector<std::filesystem::path> &more = {}) {
        REQUIRE(shared.scan(more).ok());
        const synth_options options{.layers = 3,
                                    .experts = 8,
                                    .top_k = 2,
                                    .tokens = 40,
                                    .reuse = 0.3,
                                    .gate_scores = true,
                                    .predictions = 4,
                                    .seed = 1};
        auto data = synthesize(options);
        REQUIRE(data.ok());
        data->metadata["model"] = "toy";
        write(*data);
        config.experts = 12;
        config.cache.plugin = "lru";
    }
    std::string refusal() {
        const auto done = run_either(config, shared, {});
        if (done) return "";
        CHECK(done.failure().usage);
        return done.failure().text;
    }
    run_report run_it() {
        auto done = run_either(config, shared, {});
        if (!done) FAIL(done.failure().text);
        return std::move(done).value();
    }
    // Whether a warning has the text; if so, it is in text, JSON and page.
    bool warns(const std::string &of) {
        const run_report report = run_it();
        const auto has = [&](const std::string &warning) {
            return warning.find(of) != std::string::npos;
        };
        const auto found = std::ranges::find_if(report.warnings, has);
        if (found == report.warnings.end()) return false;
        CHECK(to_json(report)["warnings"].dump().find(of) != std::string::npos);
        const std::string text = to_text(report);
        CHECK(text.find("warning: ") != std::string::npos);
        comparison_row row;
        row.report = report;
        comparison compared;
        compared.rows.push_back(row);
        const std::string page = to_html(compared, "moorage compare run.toml");
        CHECK(page.find(found->substr(0, 20)) != std::string::npos);
        return true;
    }
};

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a budget and one pool for all layers") {
    bench on;
    for (const char *name : {"adapmoe", "moepic"}) {
        on.config.budget.plugin = name;
        on.config.per_layer = false;
        CHECK(has(on.refusal(), "sharing = \"per-layer\""));
        CHECK(has(on.refusal(), name));
        on.config.per_layer = true;
        CHECK(on.refusal() == "");
    }
    // As a prefetch policy, moepic needs no pools of its own.
    on.config.budget.plugin = "uniform";
    on.config.prefetch.plugin = "moepic";
    on.config.per_layer = false;
    CHECK(on.refusal() == "");
}

TEST_CASE("needs are declared in any language") {
    for (const std::string language : {"c", "cpp", "rust"}) {
        const std::filesystem::path library =
            binaries / "tests/abi/templates" / (language + "_budget.so");
        if (language == "rust" && !std::filesystem::exists(library)) continue;  // no rustc
        CAPTURE(language);
        bench on({library});
        on.config.budget.plugin = language + "_budget";
        CHECK(has(on.refusal(), "sharing = \"per-layer\""));
        on.config.per_layer = true;
        CHECK(on.refusal() == "");
    }
}

TEST_CASE("a prefetch and no buffer") {
    bench on;
    on.config.prefetch.plugin = "next_gate";
    on.config.buffer_experts = 0;
    CHECK(has(on.refusal(), "buffer_experts is 0"));
    on.config.buffer_experts = 1;
    CHECK(on.refusal() == "");
    on.config.buffer_experts = 0;
    on.config.prefetch.plugin = "none";
    CHECK(on.refusal() == "");
}

TEST_CASE("whole layers and a buffer of less") {
    bench on;
    on.config.prefetch.plugin = "deepspeed_stream";
    on.config.buffer_experts = 7;
    CHECK(has(on.refusal(), "buffer_experts = 7 is less than its 8"));
    on.config.buffer_experts = 8;
    CHECK(on.refusal() == "");
}

TEST_CASE("servers to call, and none") {
    bench on;
    for (const char *name : {"prism", "slim"}) {
        on.config.dispatch.plugin = name;
        CHECK(has(on.refusal(), "servers that it can call"));
    }
}

TEST_CASE("a placement and no cluster") {
    bench on;
    on.config.placement = {"prism", "run.toml:9", {}};
    CHECK(has(on.refusal(), "run.toml:9"));
    CHECK(has(on.refusal(), "[cluster]"));
}

TEST_CASE("a split that nothing makes use of") {
    bench on;
    on.config.per_layer = true;
    CHECK_FALSE(on.warns("split"));
    on.config.split = 0.512;
    CHECK(on.warns("split = 0.512"));
    CHECK(on.run_it().experts.hits == 0);
    on.config.prefetch.plugin = "moepic";
    CHECK_FALSE(on.warns("split"));
    on.config.prefetch.plugin = "none";
    on.config.budget.plugin = "moepic";
    CHECK_FALSE(on.warns("split"));
}

TEST_CASE("one parameter of a method, two values") {
    bench on;
    on.config.router.plugin = on.config.prefetch.plugin = "smoe";
    CHECK_FALSE(on.warns("alpha"));
    on.config.router.params = {{"alpha", 0.2, "test"}};
    CHECK(on.warns("router.alpha = 0.2 and prefetch.alpha = 0.3"));
    on.config.prefetch.params = {{"alpha", 0.2, "test"}};
    CHECK_FALSE(on.warns("alpha"));
}

TEST_CASE("an optimum that is none") {
    bench on;
    on.config.cache.plugin = "belady";
    CHECK_FALSE(on.warns("no bound"));
    CHECK(on.run_it().opt_misses == on.run_it().experts.misses);
    on.config.prefetch.plugin = "next_gate";
    CHECK(on.warns("prefetch next_gate"));
    const run_report ahead = on.run_it();
    CHECK(to_json(ahead)["opt_misses"].is_null());
    CHECK(has(ahead.opt_reason, "prefetch"));
    CHECK(has(to_text(ahead), "not compared"));
    on.config.prefetch.plugin = "none";
    on.config.router.plugin = "smoe";
    on.config.router.params = {{"alpha", 0.9, "test"}};
    CHECK(on.warns("router smoe"));
    const run_report lossy = on.run_it();
    REQUIRE(lossy.experts.substituted != 0);
    CHECK(to_json(lossy)["opt_misses"].is_null());
    CHECK(has(lossy.opt_reason, "router"));
}

TEST_CASE("the optimum stands beside what counts the same thing only") {
    bench on;
    CHECK(on.run_it().opt_misses != 0);
    CHECK(to_json(on.run_it())["opt_reason"].is_null());
    const auto reason = [&] {
        const run_report report = on.run_it();
        CHECK(report.opt_misses == 0);
        return report.opt_reason;
    };
    SUBCASE("computed elsewhere") {
        on.config.dispatch.plugin = "cpu_all";
        CHECK(has(reason(), "without a place"));
    }
    SUBCASE("not admitted") {
        on.config.cache = {"static", "test", {{"which", std::string("nothing"), "test"}}};
        CHECK(has(reason(), "without a place"));
    }
    SUBCASE("steps of several tokens") {
        on.config.batch = 2;
        CHECK(has(reason(), "several positions"));
    }
    SUBCASE("parts of experts") {
        on.config.split = 0.512;
        CHECK(has(reason(), "parts of experts"));
    }
}

TEST_CASE("what a newer host might know is refused, not ignored") {
    // The policy's own descriptor, with a bit that this host has no meaning for.
    bench on;
    const auto found = on.shared.policies().find("lru", "cache");
    REQUIRE(found.ok());
    auto &needs = const_cast<moorage_descriptor *>((*found)->descriptor)->needs;
    needs = 1u << 30;
    CHECK(has(on.refusal(), "does not know"));
    needs = 0;
    CHECK(on.refusal() == "");
}

}  // namespace composition_test
