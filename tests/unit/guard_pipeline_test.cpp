// Goal: a guarded run is never much worse than the better of the runs with and without. Method: toy
// machines on which cache, prefetch or substitution loses or gains by construction. Schedules are
// worked by hand to the nanosecond where possible; otherwise they are compared with the runs with
// and without. Texts of the demo model under the guard equal the plain run's. Equal runs give equal
// bytes.
#include <doctest/doctest.h>

#include "core/base/json.h"
#include "core/base/log.h"
#include "tools/comparison/comparison.h"
#include "tests/unit/toy_run.h"

namespace guard_pipeline_test {

using namespace moorage::core;

namespace {

const std::filesystem::path binaries = MOORAGE_BINARY_DIR;

struct bench : moorage::test::toy_run {
    bench() : toy_run({"plugins", "tests/policies/substitute.so"}) {
        set_log_level(log_level::error);  // a warning says what is switched off
        config.cache.plugin = "lru";
        config.guard = true;
        config.guard_window = 8;
    }
    run_report unguarded() {
        run_config kept = config;
        config.guard = false;
        run_report report = run_it();
        config = kept;
        CHECK(report.guard.empty());
        return report;
    }
};

// Expert `chosen(token)` in both of two layers of 8 experts; requests of 8 tokens, whose KV cache
// takes no time to read.
template <class Chosen>
trace_data decode(uint16_t tokens, Chosen chosen) {
    std::vector<std::vector<std::vector<uint16_t>>> rows;
    std::vector<uint64_t> requests;
    for (uint16_t t = 0; t < tokens; ++t) {
        if (t % 8 == 0) requests.push_back(t);
        rows.push_back({{chosen(t)}, {chosen(t)}});
    }
    requests.push_back(tokens);
    return toy::routing(rows, 8, requests, true);
}
uint16_t in_turn(uint16_t token) { return token % 8; }
uint16_t slowly(uint16_t token) { return token / 10 % 8; }

const guard_arm &arm(const run_report &report, std::string_view name, std::string_view phase) {
    for (const guard_arm &entry : report.guard)
        if (entry.name == name && entry.phase == phase) return entry;
    FAIL("no such arm");
    return report.guard.front();
}

}  // namespace

TEST_CASE("a cache that never hits over a slow link is switched off, to the nanosecond") {
    bench fixture;
    fixture.write(decode(400, in_turn));
    fixture.config.experts = 2;  // the last token's, and the turn is 8
    const run_report report = fixture.run_it();
    // With it: 2 x (170 + 11,000 + 100) + 10 = 22,550. Without: 2 x (170 + 2500) + 10 = 5350, and
    // 550 when the turn comes to the token whose experts stayed.
    // Tokens 0 to 15: before any trial. 16 to 23 with it. 24 to 39 without; the cache holds 23's,
    // 7, so that 31 and 39 hit. Then with it until the window is hopeless: the last one without
    // took (5 x 5350 + 550) / 6 = 4550 a token, three times a window of 8 is 109,200, and five
    // tokens with it are 112,750. From 45 on without, with 44's experts, 4: of 355 tokens 44 hit.
    const guard_arm &cache = arm(report, "cache", "decode");
    CHECK_FALSE(cache.enabled);
    CHECK(cache.since_token == 45);
    CHECK(cache.off_tokens == 16 + 355);
    CHECK(cache.on_ns == 22'550);
    const double total_ns = 29 * 22'550 + (14 + 311) * 5350 + (2 + 44) * 550;
    CHECK(report.total_ms == doctest::Approx(total_ns / 1e6).epsilon(1e-9));
    CHECK(report.experts.loaded == 2 * 29);
    CHECK(report.tpot_ms.p50 == doctest::Approx(0.005350));

    // The better of the two, plus the guard's trial and the tokens before it.
    CHECK(fixture.unguarded().total_ms == doctest::Approx(400 * 0.022550));
    fixture.config.dispatch.plugin = "cpu_all";
    const double better_ms = fixture.unguarded().total_ms;
    CHECK(report.total_ms < better_ms + 29 * (0.022550 - 0.000550));
}

TEST_CASE("what is switched off is said with figures and the setting that keeps it off") {
    bench fixture;
    fixture.write(decode(400, in_turn));
    fixture.config.experts = 2;
    const run_report report = fixture.run_it();
    const auto said = [](const std::string &text, const char *part) {
        return text.find(part) != std::string::npos;
    };
    REQUIRE_FALSE(report.warnings.empty());
    const std::string &warning = report.warnings.back();
    for (const char *part : {"guard: cache is switched off in decode since token 45", "22.6 us",
                             "[dispatch] plugin = \"cpu_all\""}) {
        CAPTURE(part);
        CHECK(said(warning, part));
    }
    CHECK(said(to_text(report), "cache in decode: off since token 45"));
    const json document = to_json(report);
    REQUIRE(document["guard"].size() == 1);
    CHECK(document["guard"][0]["name"] == "cache");
    CHECK(document["guard"][0]["on"] == false);
    CHECK(document["guard"][0]["on_ms"] == 0.02255);
    CHECK(document["config"]["run"]["guard"] == true);
    CHECK_FALSE(to_json(fixture.unguarded()).contains("guard"));
    comparison compared;
    compared.rows.push_back({report});
    const std::string page = to_html(compared, "");
    CHECK(said(page, "\"off_tokens\":"));
}

TEST_CASE("a cache that gains stays on, and its trial costs little") {
    bench fixture;
    fixture.write(decode(2000, slowly));
    fixture.config.experts = 2;
    fixture.config.guard_window = 32;
    const run_report report = fixture.run_it(), plain = fixture.unguarded();
    const guard_arm &cache = arm(report, "cache", "decode");
    CHECK(cache.enabled);
    CHECK(cache.changes == 0);
    CHECK(cache.trials >= 1);
    // At most four windows a trial of 640 tokens and more, at 5350 a token instead of 2750.
    CHECK(report.total_ms <= plain.total_ms * 1.05);
    CHECK(cache.off_ns > cache.on_ns);

    // Windows shorter than the benefit of the cached experts mislead the guard, but not for long.
    fixture.config.guard_window = 8;
    const run_report misled = fixture.run_it();
    CHECK(arm(misled, "cache", "decode").enabled);
    CHECK(misled.total_ms <= plain.total_ms * 1.15);
}

TEST_CASE("a prefetch that is always wrong is switched off") {
    bench fixture;
    trace_data data = decode(600, in_turn);
    for (uint16_t &expert : data.predicted) expert = static_cast<uint16_t>((expert + 3) % 8);
    fixture.write(data);
    fixture.change("node.toml", "cpu_bytes_per_s = 50e9", "cpu_bytes_per_s = 3e9");  // loads gain
    fixture.config.experts = 2;
    fixture.config.prefetch.plugin = "next_gate";
    const run_report report = fixture.run_it(), with_prefetch = fixture.unguarded();
    CHECK_FALSE(arm(report, "prefetch", "decode").enabled);
    CHECK(arm(report, "cache", "decode").enabled);
    CHECK(report.tpot_ms.p50 == doctest::Approx(0.022550));
    fixture.config.prefetch.plugin = "none";
    const run_report without = fixture.unguarded();
    CHECK(with_prefetch.total_ms > 1.5 * without.total_ms);  // a wrong load is waited for
    // Tokens with it that had no trial's good: those before, and the trials' own.
    const guard_arm &prefetch = arm(report, "prefetch", "decode");
    CHECK(prefetch.off_tokens > 450);
    CHECK(report.total_ms < 1.25 * without.total_ms);
}

TEST_CASE("a prefetch that hides its loads stays on") {
    bench fixture;
    fixture.write(decode(600, in_turn));
    fixture.change("node.toml", "cpu_bytes_per_s = 50e9", "cpu_bytes_per_s = 3e9");
    fixture.change("device.toml", "layer_ns = 50", "layer_ns = 20000");
    fixture.config.experts = 2;
    fixture.config.prefetch.plugin = "next_gate";
    const run_report report = fixture.run_it(), with_prefetch = fixture.unguarded();
    CHECK(arm(report, "prefetch", "decode").enabled);
    CHECK(arm(report, "prefetch", "decode").on_ns < arm(report, "prefetch", "decode").off_ns);
    fixture.config.prefetch.plugin = "none";
    CHECK(with_prefetch.total_ms < 0.9 * fixture.unguarded().total_ms);
    CHECK(report.total_ms < 1.1 * with_prefetch.total_ms);
}

TEST_CASE("substitution that gains nothing gives way to the model's own choice") {
    bench fixture;
    fixture.write(decode(300, in_turn));
    fixture.config.experts = 16;  // all of them
    fixture.config.router.plugin = "substitute";
    fixture.config.router.params = {{"every", int64_t{3}, "test"}};
    const run_report report = fixture.run_it();
    const guard_arm &substitution = arm(report, "substitution", "decode");
    CHECK_FALSE(substitution.enabled);
    CHECK(report.experts.substituted == (2 * (300 - substitution.off_tokens) + 2) / 3);
    CHECK(report.routing.choices == 600);
    CHECK(report.routing.rows_unchanged == 600 - report.experts.substituted);
    // No page was displaced, so there was no question about the cache.
    CHECK(arm(report, "cache", "decode").trials == 0);
}

TEST_CASE("unified memory: there is nothing to prefetch, and the guard says so") {
    bench fixture;
    fixture.write(decode(100, in_turn));
    fixture.change("device.toml", "unified_memory = false", "unified_memory = true");
    fixture.config.experts = 2;
    fixture.config.prefetch.plugin = "next_gate";
    const run_report report = fixture.run_it();
    CHECK_FALSE(arm(report, "prefetch", "decode").enabled);
    CHECK(arm(report, "cache", "decode").enabled);
    CHECK(report.bytes.prefetched == 0);
    CHECK(report.warnings.back().find("[prefetch] plugin = \"none\"") != std::string::npos);
}

TEST_CASE("prefill that displaces nothing leaves decoding its experts") {
    bench fixture;
    // Three requests of one layer, two tokens of prompt each; the cache has one slot.
    fixture.write(toy::routing({{{0}}, {{0}}, {{0}}, {{1}}, {{2}}, {{0}}, {{3}}, {{3}}, {{0}}}, 4,
                               {0, 3, 6, 9}, false));
    fixture.config.guard = false;
    fixture.config.experts = 1;
    fixture.config.prefill = 8;
    const run_report displaces = fixture.run_it();
    CHECK(displaces.experts.misses == 1 + 2 + 1 + 1 + 1);
    fixture.config.prefill_displaces = false;
    const run_report spares = fixture.run_it();
    CHECK(spares.experts.misses == 1 + 2 + 1);
    CHECK(spares.tpot_ms.p99 == doctest::Approx(0.000280));  // every decoded token hits
    CHECK(spares.ttft_ms.mean == doctest::Approx(displaces.ttft_ms.mean));
    CHECK(to_json(spares)["config"]["memory"]["prefill_displaces"] == false);
}

TEST_CASE("prefill that costs decoding its experts is found out") {
    bench fixture;
    // Forty requests: a prompt of the experts 4 to 7, then 20 tokens of the experts 0 and 1.
    std::vector<std::vector<std::vector<uint16_t>>> rows;
    std::vector<uint64_t> requests = {0};
    for (int request = 0; request < 40; ++request) {
        for (uint16_t t = 0; t < 4; ++t) rows.push_back({{static_cast<uint16_t>(4 + t)}});
        for (uint16_t t = 0; t < 20; ++t) rows.push_back({{static_cast<uint16_t>(t % 2)}});
        requests.push_back(rows.size());
    }
    fixture.write(toy::routing(rows, 8, requests, false));
    fixture.config.experts = 2;
    fixture.config.prefill = 4;
    fixture.config.guard_window = 1 << 20;  // no trial in decoding
    const run_report report = fixture.run_it();
    const guard_arm &cache = arm(report, "cache", "prefill");
    CHECK_FALSE(cache.enabled);
    CHECK(cache.changes == 1);
    CHECK(arm(report, "cache", "decode").trials == 0);
    CHECK(report.warnings.back().find("prefill_displaces = false") != std::string::npos);
    fixture.config.prefill_displaces = false;
    const double spared_ms = fixture.unguarded().total_ms;
    fixture.config.prefill_displaces = true;
    CHECK(fixture.unguarded().total_ms > 1.2 * spared_ms);
    CHECK(report.total_ms < 1.1 * spared_ms);
}

TEST_CASE("texts are the same under the guard, and equal runs decide alike") {
    bench fixture;
    fixture.config.trace.clear();
    fixture.config.shape.clear();
    fixture.config.link.clear();
    fixture.config.node.clear();
    fixture.config.model = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo";
    fixture.config.profile = "rtx_4060_ti_16gb";
    fixture.config.prompts = {"The president said that", "def main(", "Il y avait"};
    fixture.config.max_tokens = 48;
    fixture.config.prefill = 8;
    fixture.config.guard_window = 4;
    fixture.config.prefetch.plugin = "next_gate";
    for (const uint32_t experts : {10u, 48u}) {
        for (const double split : {1.0, 0.5}) {
            fixture.config.experts = experts;
            fixture.config.split = split;
            const run_report report = fixture.run_it();
            CHECK(report.text.texts == fixture.unguarded().text.texts);
            CHECK(arm(report, "cache", "decode").trials > 0);
            CHECK(arm(report, "prefetch", "decode").trials > 0);
            CHECK(report.experts.requested ==
                  report.experts.hits + report.experts.partial_hits + report.experts.misses);
            CHECK(report.bytes.prefetched ==
                  report.bytes.prefetch_used + report.bytes.prefetch_wasted);
            CHECK(to_json(report).dump() == to_json(fixture.run_it()).dump());
        }
    }
}

}  // namespace guard_pipeline_test
