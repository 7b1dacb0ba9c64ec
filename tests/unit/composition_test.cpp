// Goal: parts that contradict each other are refused or warned of, by the declarations of the
// policies, in any language. Method: each contradiction of the list, and beside it the nearest
// composition that works, over the toy machine. Policies of the templates in C, C++ and Rust stand
// for those of third parties.
#include "core/base/json.h"
#include "core/pipeline/composition.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tools/cluster/cluster_run.h"
#include "core/pipeline/run.h"
#include "tools/comparison/comparison.h"
#include "core/source/synth.h"
#include "tests/unit/toy_run.h"

namespace composition_test {

using namespace moorage::core;
namespace test = moorage::test;

namespace {

const std::filesystem::path binaries = MOORAGE_BINARY_DIR;

// Three layers of eight experts, top-2, with scores and predictions.
struct bench : test::toy_run {
    explicit bench(const std::vector<std::filesystem::path> &libraries = {}) {
        REQUIRE(shared.scan(libraries).ok());
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
    bool warns(const std::string &part) {
        const run_report report = run_it();
        const auto has = [&](const std::string &warning) {
            return warning.find(part) != std::string::npos;
        };
        const auto found = std::ranges::find_if(report.warnings, has);
        if (found == report.warnings.end()) return false;
        CHECK(to_json(report)["warnings"].dump().find(part) != std::string::npos);
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
    bench fixture;
    for (const char *name : {"adapmoe", "moepic"}) {
        fixture.config.budget.plugin = name;
        fixture.config.per_layer = false;
        CHECK(has(fixture.refusal(), "sharing = \"per-layer\""));
        CHECK(has(fixture.refusal(), name));
        fixture.config.per_layer = true;
        CHECK(fixture.refusal() == "");
    }
    // As a prefetch policy, moepic needs no pools of its own.
    fixture.config.budget.plugin = "uniform";
    fixture.config.prefetch.plugin = "moepic";
    fixture.config.per_layer = false;
    CHECK(fixture.refusal() == "");
}

TEST_CASE("needs are declared in any language") {
    for (const std::string language : {"c", "cpp", "rust"}) {
        const std::filesystem::path library =
            binaries / "tests/abi/templates" / (language + "_budget.so");
        if (language == "rust" && !std::filesystem::exists(library)) continue;  // no rustc
        CAPTURE(language);
        bench fixture({library});
        fixture.config.budget.plugin = language + "_budget";
        CHECK(has(fixture.refusal(), "sharing = \"per-layer\""));
        fixture.config.per_layer = true;
        CHECK(fixture.refusal() == "");
    }
}

TEST_CASE("a prefetch and no buffer") {
    bench fixture;
    fixture.config.prefetch.plugin = "next_gate";
    fixture.config.buffer_experts = 0;
    CHECK(has(fixture.refusal(), "buffer_experts is 0"));
    fixture.config.buffer_experts = 1;
    CHECK(fixture.refusal() == "");
    fixture.config.buffer_experts = 0;
    fixture.config.prefetch.plugin = "none";
    CHECK(fixture.refusal() == "");
}

TEST_CASE("whole layers and a buffer of less") {
    bench fixture;
    fixture.config.prefetch.plugin = "deepspeed_stream";
    fixture.config.buffer_experts = 7;
    CHECK(has(fixture.refusal(), "buffer_experts = 7 is less than its 8"));
    fixture.config.buffer_experts = 8;
    CHECK(fixture.refusal() == "");
}

TEST_CASE("servers to call, and none") {
    bench fixture;
    for (const char *name : {"prism", "slim"}) {
        fixture.config.dispatch.plugin = name;
        CHECK(has(fixture.refusal(), "servers that it can call"));
    }
}

TEST_CASE("a placement and no cluster") {
    bench fixture;
    fixture.config.placement = {"prism", "run.toml:9", {}};
    CHECK(has(fixture.refusal(), "run.toml:9"));
    CHECK(has(fixture.refusal(), "[cluster]"));
}

TEST_CASE("a split that nothing makes use of") {
    bench fixture;
    fixture.config.per_layer = true;
    CHECK_FALSE(fixture.warns("split"));
    fixture.config.split = 0.512;
    CHECK(fixture.warns("split = 0.512"));
    CHECK(fixture.run_it().experts.hits == 0);
    fixture.config.prefetch.plugin = "moepic";
    CHECK_FALSE(fixture.warns("split"));
    fixture.config.prefetch.plugin = "none";
    fixture.config.budget.plugin = "moepic";
    CHECK_FALSE(fixture.warns("split"));
}

TEST_CASE("one parameter of a method, two values") {
    bench fixture;
    fixture.config.router.plugin = fixture.config.prefetch.plugin = "smoe";
    CHECK_FALSE(fixture.warns("alpha"));
    fixture.config.router.params = {{"alpha", 0.2, "test"}};
    CHECK(fixture.warns("router.alpha = 0.2 and prefetch.alpha = 0.3"));
    fixture.config.prefetch.params = {{"alpha", 0.2, "test"}};
    CHECK_FALSE(fixture.warns("alpha"));
}

TEST_CASE("an optimum that is none") {
    bench fixture;
    fixture.config.cache.plugin = "belady";
    CHECK_FALSE(fixture.warns("no bound"));
    CHECK(fixture.run_it().opt_misses == fixture.run_it().experts.misses);
    fixture.config.prefetch.plugin = "next_gate";
    CHECK(fixture.warns("prefetch next_gate"));
    const run_report ahead = fixture.run_it();
    CHECK(to_json(ahead)["opt_misses"].is_null());
    CHECK(has(ahead.opt_reason, "prefetch"));
    CHECK(has(to_text(ahead), "not compared"));
    fixture.config.prefetch.plugin = "none";
    fixture.config.router.plugin = "smoe";
    fixture.config.router.params = {{"alpha", 0.9, "test"}};
    CHECK(fixture.warns("router smoe"));
    const run_report lossy = fixture.run_it();
    REQUIRE(lossy.experts.substituted != 0);
    CHECK(to_json(lossy)["opt_misses"].is_null());
    CHECK(has(lossy.opt_reason, "router"));
}

TEST_CASE("the optimum stands beside what counts the same thing only") {
    bench fixture;
    CHECK(fixture.run_it().opt_misses != 0);
    CHECK(to_json(fixture.run_it())["opt_reason"].is_null());
    const auto reason = [&] {
        const run_report report = fixture.run_it();
        CHECK(report.opt_misses == 0);
        return report.opt_reason;
    };
    SUBCASE("computed elsewhere") {
        fixture.config.dispatch.plugin = "cpu_all";
        CHECK(has(reason(), "without a place"));
    }
    SUBCASE("not admitted") {
        fixture.config.cache = {"static", "test", {{"which", std::string("nothing"), "test"}}};
        CHECK(has(reason(), "without a place"));
    }
    SUBCASE("steps of several tokens") {
        fixture.config.batch = 2;
        CHECK(has(reason(), "several positions"));
    }
    SUBCASE("parts of experts") {
        fixture.config.split = 0.512;
        CHECK(has(reason(), "parts of experts"));
    }
}

TEST_CASE("what a newer host might know is refused, not ignored") {
    // The policy's own descriptor, with a bit that this host has no meaning for.
    bench fixture;
    const auto found = fixture.shared.policies().find("lru", "cache");
    REQUIRE(found.ok());
    auto &needs = const_cast<moorage_descriptor *>((*found)->descriptor)->needs;
    needs = 1u << 30;
    CHECK(has(fixture.refusal(), "does not know"));
    needs = 0;
    CHECK(fixture.refusal() == "");
}

}  // namespace composition_test
