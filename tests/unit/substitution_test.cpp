// Goal: changes by a lossy router are counted, limited by the run's limits and priced. Method:
// routers that substitute to order over traces small enough to count by hand. On random traces the
// cap is compared with a count made here, request by request. With the demo model, exact requests
// must have the text of the plain run to the byte, and its likelihood.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "core/base/json.h"
#include "core/base/random.h"
#include "core/pipeline/run.h"
#include "core/source/synth.h"
#include "tests/unit/config_texts.h"
#include "tests/unit/toy_run.h"

namespace substitution_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

const std::filesystem::path binaries = MOORAGE_BINARY_DIR;

struct bench : moorage::test::toy_run {
    bench() : toy_run({"plugins", "tests/policies/substitute.so"}) {
        config.experts = 4;
        route_by(1, 1);
    }
    void route_by(int64_t every, int64_t count, bool weights = false) {
        config.router.plugin = "substitute";
        config.router.params = {
            {"every", every, "test"}, {"count", count, "test"}, {"weights", weights, "test"}};
    }
    void use_demo() {
        config.trace.clear();
        config.shape.clear();
        config.link.clear();
        config.node.clear();
        config.model = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo";
        config.profile = "rtx_4060_ti_16gb";
        config.experts = 48;
        config.prefill = 512;
    }
    run_report run_it(step_watcher *watcher = nullptr) {
        run_options options;
        options.watcher = watcher;
        auto done = run(config, shared, options);
        if (!done) FAIL(done.failure().text);
        return std::move(done).value();
    }
};

// Two layers of four experts, top-2, two requests of two tokens and one of one.
trace_data five_tokens() {
    return toy::routing(
        {{{0, 1}, {2, 3}}, {{1, 2}, {3, 0}}, {{2, 3}, {0, 1}}, {{3, 0}, {1, 2}}, {{0, 2}, {1, 3}}},
        4, {0, 2, 4, 5}, false);
}

// Keeps the route of every step.
struct recorder final : step_watcher {
    struct row {
        uint64_t request;
        std::vector<uint32_t> experts;
        std::vector<uint8_t> classes;
    };
    std::vector<row> rows;
    void step(const moorage_step &view, const pass &, source &) override {
        for (uint32_t token = 0; token < view.token_count; ++token) {
            const size_t first_choice = size_t{token} * view.top_k;
            row step_row{view.host_requests[token], {}, {}};
            step_row.experts.assign(view.host_chosen + first_choice,
                                    view.host_chosen + first_choice + view.top_k);
            step_row.classes.assign(view.host_classes + first_choice,
                                    view.host_classes + first_choice + view.top_k);
            rows.push_back(step_row);
        }
    }
};

}  // namespace

TEST_CASE("substitutions by hand: every third row, one of its two experts") {
    bench fixture;
    fixture.write(five_tokens());
    fixture.route_by(3, 1);
    const run_report report = fixture.run_it();
    // Ten rows in the order token 0 layer 0, token 0 layer 1, ...: rows 0, 3, 6, 9 change, which
    // are layer 0, layer 1, layer 0, layer 1.
    CHECK(report.lossy);
    CHECK(report.routing.choices == 20);
    CHECK(report.routing.rows == 10);
    CHECK(report.routing.rows_unchanged == 6);
    CHECK(report.experts.substituted == 4);
    REQUIRE(report.layers.size() == 2);
    for (const layer_report &layer : report.layers) {
        CHECK(layer.routing.choices == 10);
        CHECK(layer.routing.rows == 5);
        CHECK(layer.routing.rows_unchanged == 3);
        CHECK(layer.experts.substituted == 2);
    }
    const json report_json = to_json(report);
    CHECK(report_json["routing"]["substituted_share"] == 0.2);
    CHECK(report_json["routing"]["agreement"] == 0.8);
    CHECK(report_json["routing"]["rows_agreement"] == 0.6);
    CHECK(report_json["layers"][1]["routing"]["substituted_share"] == 0.2);
    const std::string text = to_text(report);
    CHECK(text.find("lossy: 4 of the model's 20 choices substituted (20.00 %)") !=
          std::string::npos);
    CHECK(text.find("60.00 % of 10") != std::string::npos);
}

TEST_CASE("the model's own routing is no news") {
    bench fixture;
    fixture.write(five_tokens());
    fixture.config.router = {"topk", "test", {}};
    const run_report report = fixture.run_it();
    CHECK_FALSE(report.lossy);
    CHECK(report.routing.rows_unchanged == 10);
    CHECK(report.experts.substituted == 0);
    CHECK_FALSE(to_json(report).contains("routing"));
    CHECK(to_text(report).find("lossy") == std::string::npos);
}

TEST_CASE("weights of the router's own are substitutions, experts alike or not") {
    bench fixture;
    fixture.write(five_tokens());
    fixture.route_by(1, 0, /*weights=*/true);
    // The trace has no weights, so none of a router's can be the model's: all 20 choices change.
    const run_report report = fixture.run_it();
    CHECK(report.experts.substituted == 20);
    CHECK(report.routing.reweighted == 20);
    CHECK(report.routing.rows_unchanged == 0);
    fixture.config.exact_requests = {1};
    CHECK(fixture.run_it().routing.rows_unchanged == 4);
    fixture.config.exact_requests = {};
    fixture.config.substitution_max = 0;
    const run_report held = fixture.run_it();
    CHECK(held.experts.substituted == 0);
    CHECK(held.routing.held_cap == 20);
    CHECK(held.routing.rows_unchanged == 10);
}

TEST_CASE("a weight that is not the rule's counts, a dropped one by itself, within the cap") {
    bench fixture;
    trace_data data = five_tokens();
    for (size_t row = 0; row < 10; ++row)  // both stored exactly
        data.weights.values.insert(data.weights.values.end(), {0.75f, 0.25f});
    fixture.write(data);
    fixture.config.router = {"reweigh", "test", {}};
    const auto run_with_factor = [&](double factor) {
        fixture.config.router.params = {{"factor", factor, "test"}};
        return fixture.run_it();
    };
    // The rule's own choice again, also after rounding: nothing has changed.
    for (const double factor : {1.0, 1.00001}) {
        CHECK(run_with_factor(factor).experts.substituted == 0);
        CHECK(run_with_factor(factor).routing.rows_unchanged == 10);
    }
    const run_report scaled = run_with_factor(1.01);
    CHECK(scaled.experts.substituted == 10);
    CHECK(scaled.routing.reweighted == 10);
    CHECK(scaled.routing.dropped == 0);
    const run_report dropped = run_with_factor(0);
    CHECK(dropped.experts.substituted == 10);
    CHECK(dropped.routing.dropped == 10);
    CHECK(dropped.routing.rows_unchanged == 0);
    CHECK(to_json(dropped)["routing"]["dropped"] == 10);
    CHECK(to_text(dropped).find("10 with none") != std::string::npos);
    // One of a row's two choices changes. Requests of 4, 4 and 2 rows have 8, 8 and 4 choices in
    // the end; a quarter of those so far: every second row changes.
    fixture.config.substitution_max = 0.25;
    const run_report capped = run_with_factor(0);
    CHECK(capped.experts.substituted == 5);
    CHECK(capped.routing.held_cap == 5);
    // A row that is held has its own weights back.
    fixture.config.substitution_max = 0;
    struct : step_watcher {
        void step(const moorage_step &view, const pass &, source &) override {
            for (uint32_t i = 0; i < view.token_count * view.top_k; ++i)
                CHECK(view.host_weights[i] == (i % 2 == 0 ? 0.75f : 0.25f));
            ++steps;
        }
        uint64_t steps = 0;
    } seen;
    fixture.config.router.params = {{"factor", 0.0, "test"}};
    CHECK(fixture.run_it(&seen).routing.held_cap == 10);
    CHECK(seen.steps == 10);
    // A router that claims to be lossless is checked.
    fixture.config.substitution_max = 1;
    fixture.config.router.plugin = "restate";
    CHECK(run_with_factor(1).experts.substituted == 0);
    const auto refused = [&] {
        fixture.config.router.params = {{"factor", 0.0, "test"}};
        return run(fixture.config, fixture.shared, {});
    }();
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.failure().text.find("weights of token 0") != std::string::npos);
}

TEST_CASE("a router that does not declare what it does is at fault") {
    bench fixture;
    fixture.write(five_tokens());
    fixture.config.router.plugin = "undeclared";
    const auto ended = run(fixture.config, fixture.shared, {});
    REQUIRE_FALSE(ended.ok());
    CHECK(ended.failure().text.find("MOORAGE_POLICY_LOSSY") != std::string::npos);
    fixture.config.fault_action = on_fault::replace;
    const run_report report = fixture.run_it();
    CHECK(report.faults.at("undeclared") == 10);
    CHECK(report.experts.substituted == 0);
    fixture.config.router = {"topk", "test", {}};
    CHECK(report.tpot_ms.mean == fixture.run_it().tpot_ms.mean);
}

TEST_CASE("exact requests keep the model's choice, class and all") {
    bench fixture;
    fixture.write(five_tokens());
    fixture.config.exact_requests = {0, 2};
    recorder seen;
    const run_report report = fixture.run_it(&seen);
    // Requests 0 and 2 have 2 x 2 + 1 x 2 rows, request 1 the other 4.
    CHECK(report.experts.substituted == 4);
    CHECK(report.routing.rows_unchanged == 6);
    CHECK(report.routing.held_exact == 6);
    CHECK(report.routing.held_cap == 0);
    REQUIRE(seen.rows.size() == 10);
    for (const recorder::row &row : seen.rows) {
        CAPTURE(row.request);
        CHECK(row.classes[0] == MOORAGE_CLASS_TOP);
        CHECK(row.classes[1] == (row.request == 1 ? MOORAGE_CLASS_SUBSTITUTE : MOORAGE_CLASS_TOP));
    }
    CHECK(seen.rows[0].experts == std::vector<uint32_t>{0, 1});
    CHECK(seen.rows[9].experts == std::vector<uint32_t>{1, 3});
    CHECK(seen.rows[4].experts == std::vector<uint32_t>{2, 0});  // token 2, layer 0: 2 3 -> 2 0
    CHECK(to_text(report).find("substitutions in exact requests 6") != std::string::npos);
    CHECK(report.config["router"]["exact_requests"] == json({0, 2}));
}

TEST_CASE("the cap by hand") {
    bench fixture;
    fixture.write(five_tokens());
    fixture.config.substitution_max = 0.25;
    const run_report report = fixture.run_it();
    // Every row wants one of its two. After row n of a request 2n choices are made. So one may be
    // substituted from row 2 on, two from row 4 on: a request of 4 rows has two, one of 2 rows one.
    CHECK(report.experts.substituted == 5);
    CHECK(report.routing.held_cap == 5);
    fixture.config.substitution_max = 0.24;  // one from row 3 on, two from row 5 on
    CHECK(fixture.run_it().experts.substituted == 2);
    fixture.config.substitution_max = 0;
    CHECK(fixture.run_it().experts.substituted == 0);
    CHECK(fixture.run_it().routing.held_cap == 10);
    fixture.config.substitution_max = 0.5;
    CHECK(fixture.run_it().routing.held_cap == 0);
}

TEST_CASE("the cap is kept at every row and used as far as it goes") {
    random_stream random(4, 11);
    for (uint32_t round = 0; round < 20; ++round) {
        bench fixture;
        trace_data data;
        data.layers = 3, data.experts = 8, data.top_k = 4, data.tokens = 40;
        data.metadata["model"] = "toy";
        data.request_offsets = {0, 1 + random.below(10), 15 + random.below(10), 40};
        for (uint64_t row = 0; row < data.tokens * data.layers; ++row) {
            const auto first = static_cast<uint16_t>(random.below(8));
            for (uint16_t rank = 0; rank < 4; ++rank)
                data.chosen.push_back(static_cast<uint16_t>((first + 2 * rank) % 8));
        }
        fixture.write(data);
        fixture.config.batch = 1 + static_cast<uint32_t>(random.below(3));
        fixture.config.prefill = random.below(2) ? 4 : 0;
        const auto hundredths = 1 + random.below(60);
        fixture.config.substitution_max = double(hundredths) / 100;
        const int64_t every = 1 + static_cast<int64_t>(random.below(3));
        const int64_t count = 1 + static_cast<int64_t>(random.below(3));
        fixture.route_by(every, count);
        recorder seen;
        const run_report report = fixture.run_it(&seen);
        CAPTURE(round);
        struct sums {
            uint64_t choices = 0, substituted = 0;
        };
        std::map<uint64_t, sums> by_request;
        uint64_t rows = 0, total = 0;
        for (const recorder::row &row : seen.rows) {
            sums &request_sums = by_request[row.request];
            request_sums.choices += 4;
            uint64_t changed = 0;
            for (const uint8_t weight_class : row.classes)
                changed += weight_class == MOORAGE_CLASS_SUBSTITUTE;
            const bool wanted = rows++ % static_cast<uint64_t>(every) == 0;
            const auto want = static_cast<uint64_t>(count);
            const bool fits =
                (request_sums.substituted + want) * 100 <= request_sums.choices * hundredths;
            CHECK(changed == (wanted && fits ? want : 0));
            request_sums.substituted += changed;
            total += changed;
            CHECK(request_sums.substituted * 100 <= request_sums.choices * hundredths);
        }
        CHECK(report.experts.substituted == total);
        CHECK(report.routing.choices == seen.rows.size() * 4);
    }
}

TEST_CASE("exact requests of a model have the text of the plain run") {
    bench fixture;
    fixture.use_demo();
    fixture.config.prompts = {"The president said that", "def main(", "Il y avait"};
    fixture.config.max_tokens = 16;
    for (const uint32_t batch : {1u, 3u}) {
        CAPTURE(batch);
        fixture.config.batch = batch;
        fixture.config.exact_requests.clear();
        fixture.config.router = {"topk", "test", {}};
        const text_report plain = fixture.run_it().text;
        fixture.route_by(1, 2);
        const text_report changed = fixture.run_it().text;
        CHECK(changed.texts[0] != plain.texts[0]);
        CHECK(changed.texts[2] != plain.texts[2]);
        fixture.config.exact_requests = {0, 2};
        const run_report mixed = fixture.run_it();
        CHECK(mixed.text.texts[0] == plain.texts[0]);
        CHECK(mixed.text.texts[1] != plain.texts[1]);
        CHECK(mixed.text.texts[2] == plain.texts[2]);
        CHECK(mixed.routing.held_exact > 0);
    }
}

TEST_CASE("the quality of a scored text is set against the model's own routing") {
    bench fixture;
    fixture.use_demo();
    fixture.config.text = std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/README.md";
    fixture.config.window = 64;
    fixture.config.tokens = 200;
    fixture.config.router = {"topk", "test", {}};
    const text_report plain = fixture.run_it().text;
    CHECK_FALSE(plain.own_nll.has_value());
    fixture.route_by(2, 1);
    const run_report report = fixture.run_it();
    REQUIRE(report.text.own_nll.has_value());
    CHECK(*report.text.own_nll == plain.nll);
    CHECK(report.text.nll != plain.nll);
    CHECK(report.text.nll_change() == doctest::Approx(report.text.nll - plain.nll));
    const json text = to_json(report)["text"];
    CHECK(text["nll_change"].get<double>() ==
          doctest::Approx(report.text.nll - plain.nll).epsilon(1e-4));
    CHECK(to_text(report).find("quality     nll ") != std::string::npos);
    // Nothing is changed where nothing may be: no cost.
    fixture.config.substitution_max = 0;
    CHECK(fixture.run_it().text.nll_change() == 0);
}

TEST_CASE("what a lossy run wrote is scored by the model's own routing") {
    bench fixture;
    fixture.use_demo();
    fixture.config.prompts = {"The president said that", "def main("};
    fixture.config.max_tokens = 12;
    fixture.config.prefill = 0;
    fixture.route_by(1, 1);
    fixture.config.substitution_max = 0;  // so the plain model wrote it, and has to agree
    const run_report same = fixture.run_it();
    REQUIRE(same.text.own_nll.has_value());
    CHECK(same.text.scored == 24);
    CHECK(same.text.nll_change() == doctest::Approx(0).epsilon(1e-9));
    fixture.config.substitution_max = 1;
    const run_report rerouted = fixture.run_it();
    REQUIRE(rerouted.text.own_nll.has_value());
    CHECK(rerouted.text.nll_change() != 0);
    CHECK(rerouted.warnings.empty());
}

TEST_CASE("the host's keys of [router] hold a router back, whichever it is") {
    const run_config plain = accepted(least);
    CHECK(plain.exact_requests.empty());
    CHECK(plain.substitution_max == 1);
    const std::string text = least +
                             "[router]\nplugin = \"smoe\"\nalpha = 0.3\n"
                             "exact_requests = [3, 0, 3]\nsubstitution_max = 0.25\n";
    const run_config config = accepted(text);
    CHECK(config.exact_requests == std::vector<uint64_t>{0, 3});
    CHECK(config.substitution_max == 0.25);
    CHECK(config.router.plugin == "smoe");
    REQUIRE(config.router.params.size() == 1);  // they are none of the policy's own
    CHECK(config.router.params[0].key == "alpha");
    // Another policy by --set: its parameters go, the host's keys stay.
    const run_config other_policy = accepted(text, {"router.plugin=topk"});
    CHECK(other_policy.router.params.empty());
    CHECK(other_policy.exact_requests.size() == 2);
    const run_config set =
        accepted(text, {"router.exact_requests=[7]", "router.substitution_max=0"});
    CHECK(set.exact_requests == std::vector<uint64_t>{7});
    CHECK(set.substitution_max == 0);
    CHECK(accepted(text, {"router.exact_requests=5"}).exact_requests == std::vector<uint64_t>{5});
    CHECK(accepted(text, {"router.exact_requests=[]"}).exact_requests.empty());
    for (const char *wrong : {"exact_requests = [1, -1]", "exact_requests = [1.5]",
                              "exact_requests = \"all\"", "exact_requests = [[1]]"}) {
        CAPTURE(wrong);
        CHECK(holds(refused(least + "[router]\n" + wrong + "\n"), "whole numbers from 0"));
    }
    for (const char *wrong : {"substitution_max = 1.01", "substitution_max = -0.1",
                              "substitution_max = nan", "substitution_max = \"half\""}) {
        CAPTURE(wrong);
        CHECK(holds(refused(least + "[router]\n" + wrong + "\n"), "run.toml:8"));
    }
    // A key that is nearly one of them, or in the wrong place, is not taken for the policy's.
    CHECK(holds(refused(least + "[router]\nexact_request = [1]\n"), "did you mean exact_requests"));
    CHECK(holds(refused(least + "[router]\nsubstition_max = 1\n"),
                "run.toml:8: unknown key substition_max in [router]; did you mean "
                "substitution_max"));
    CHECK(holds(refused(least + "[router.smoe]\nexact_requests = [1]\n"), "put it in [router]"));
    // A cache policy may have such a parameter of its own.
    CHECK(accepted(least + "[cache]\nsubstitution_max = 2\n").cache.params.size() == 1);
}

}  // namespace substitution_test
