// Goal: every file of configs/systems runs, and shows the known behaviour of its system. Method:
// 200 tokens of each (more if a system learns from whole requests). Check facts that hold for any
// trace: moved bytes, where experts are computed, in which layers hits are possible.
#include <doctest/doctest.h>

#include <filesystem>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/pipeline/run.h"

namespace systems_test {

using namespace moorage::core;

namespace {

const std::filesystem::path systems = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/systems";

run_report run_system(const std::string &name, std::vector<std::string> settings = {}) {
    static run_resources shared;
    static const bool scanned = [] {
        const std::vector folders{std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins"};
        return shared.scan(folders).ok();
    }();
    REQUIRE(scanned);
    settings.insert(settings.begin(), "run.tokens=200");
    std::vector<override_value> overrides;
    for (const std::string &text : settings) {
        auto parsed = parse_override(text);
        REQUIRE(parsed.ok());
        overrides.push_back(std::move(parsed).value());
    }
    auto config = load_run_config(systems / (name + ".toml"), overrides);
    if (!config) FAIL(config.failure().text);
    auto done = run(*config, shared, {});
    if (!done) FAIL(done.failure().text);
    run_report report = std::move(done).value();
    CAPTURE(name);
    CHECK(report.faults.empty());
    // A batch asks for each expert of a layer once.
    CHECK(report.experts.requested <= report.tokens * 24 * 4);
    if (config->batch == 1)
        CHECK(report.experts.requested + report.routing.dropped == report.tokens * 24 * 4);
    CHECK(report.experts.hits + report.experts.partial_hits + report.experts.misses ==
          report.experts.requested);
    CHECK(report.lossy == (config->router.plugin != "topk"));
    return report;
}

uint64_t expert_bytes(const run_report &report) {
    const auto &memory = report.config["memory"];
    return memory["bytes"].get<uint64_t>() / memory["experts"].get<uint64_t>();
}

}  // namespace

TEST_CASE("every file is known here") {
    const std::vector<std::string> known{"adapmoe",
                                         "deepspeed_stream",
                                         "fiddler",
                                         "freetoken",
                                         "hobbit",
                                         "hybrimoe",
                                         "llama_cpp_cache",
                                         "llama_cpp_static",
                                         "mixtral_offloading",
                                         "moe_infinity",
                                         "moepic",
                                         "pregated",
                                         "smoe"};
    size_t files = 0;
    for (const auto &entry : std::filesystem::directory_iterator(systems)) {
        if (entry.path().extension() != ".toml") continue;
        ++files;
        CHECK(std::count(known.begin(), known.end(), entry.path().stem().string()) == 1);
    }
    CHECK(files == known.size());
}

TEST_CASE("pregated: nothing is kept, so that every expert asked for crosses the link") {
    const run_report report = run_system("pregated");
    const uint64_t bytes = expert_bytes(report);
    CHECK(report.bytes.h2d - report.bytes.prefetch_wasted == report.experts.requested * bytes);
    CHECK(report.experts.hits * bytes <= report.bytes.prefetch_used);
    CHECK(report.bytes.prefetch_used > report.bytes.prefetch_wasted);
    CHECK(report.experts.on_cpu == 0);
    // More memory changes nothing.
    const run_report larger = run_system("pregated", {"memory.experts=480"});
    CHECK(larger.total_ms == report.total_ms);
}

TEST_CASE("deepspeed_stream: all experts of every layer are moved, and are there when it begins") {
    const run_report report = run_system("deepspeed_stream");
    const uint64_t bytes = expert_bytes(report);
    const uint64_t visits = report.tokens * 24;
    CHECK(report.bytes.h2d >= ((visits - 1) * 60 + 4) * bytes);
    CHECK(report.bytes.h2d <= (visits * 60 + 4) * bytes);
    CHECK(report.experts.misses == 4);  // the first layer of all, which nothing could stream
    CHECK(report.experts.hits == report.experts.requested - 4);
}

TEST_CASE("llama_cpp_static: the first layers are there from the start, the rest is the CPU's") {
    const run_report report = run_system("llama_cpp_static");
    for (size_t layer = 0; layer < 24; ++layer) {
        CAPTURE(layer);
        const expert_counts &counts = report.layers[layer].experts;
        CHECK(counts.hits == (layer < 4 ? counts.requested : 0));
        CHECK(counts.on_cpu == counts.requested - counts.hits);
    }
    CHECK(report.experts.loaded == 0);
    CHECK(report.bytes.prefetched == 0);
    CHECK(report.arrangement.first_bytes == 240 * expert_bytes(report));
}

TEST_CASE("llama_cpp_cache: what is absent is loaded, nothing comes early or goes to the CPU") {
    const run_report report = run_system("llama_cpp_cache");
    CHECK(report.experts.loaded == report.experts.misses);
    CHECK(report.experts.on_cpu == 0);
    CHECK(report.bytes.prefetched == 0);
    // Its first merged version is LRU. Only the order of a step's misses differs from ours.
    const run_report plain = run_system("llama_cpp_cache", {"cache.classes=1"});
    const run_report lru = run_system("llama_cpp_cache", {"cache.plugin=lru"});
    CHECK(static_cast<double>(plain.experts.misses) ==
          doctest::Approx(static_cast<double>(lru.experts.misses)).epsilon(0.02));
}

TEST_CASE("fiddler: popular experts stay, absent ones take the cheaper way") {
    const run_report report = run_system("fiddler");
    CHECK(report.experts.hits > 0);
    CHECK(report.experts.on_cpu > 0);
    CHECK(report.experts.on_cpu + report.experts.loaded == report.experts.misses);
    CHECK(report.bytes.prefetched == 0);
    // With a link that costs nothing beside the CPU's time, everything is loaded.
    const run_report loads = run_system("fiddler", {"dispatch.keep=1000000"});
    CHECK(loads.experts.on_cpu == 0);
}

TEST_CASE("freetoken: the absent experts are divided; with many of them link and CPU both work") {
    const run_report report = run_system("freetoken");
    CHECK(report.experts.on_cpu + report.experts.loaded == report.experts.misses);
    CHECK(report.experts.loaded >= 240);  // the cache is filled
    const run_report batch = run_system("freetoken", {"run.batch=8", "run.tokens=1600"});
    CHECK(batch.experts.loaded > 480);
    CHECK(batch.experts.on_cpu > 0);
}

TEST_CASE("hybrimoe: GPU, CPU and link share each layer, and prefetches come") {
    const run_report report = run_system("hybrimoe");
    CHECK(report.experts.on_cpu > 0);
    CHECK(report.bytes.prefetch_used > 0);
    CHECK(report.experts.loaded >= 240);
}

TEST_CASE("mixtral_offloading: all layers alike, prefetches are mostly right") {
    const run_report report = run_system("mixtral_offloading");
    for (const layer_report &layer : report.layers) CHECK(layer.slots == 10);
    CHECK(report.experts.on_cpu == 0);
    CHECK(report.bytes.prefetch_used > report.bytes.prefetch_wasted);
}

TEST_CASE("adapmoe: the budget moves slots between layers and keeps their sum") {
    const run_report report = run_system("adapmoe", {"budget.interval=100"});
    uint32_t sum = 0, least = 60, most = 0;
    for (const layer_report &layer : report.layers) {
        sum += layer.slots;
        least = std::min(least, layer.slots);
        most = std::max(most, layer.slots);
    }
    CHECK(sum == 240);
    CHECK(least >= 1);
    CHECK(most > least);
    CHECK(report.experts.on_cpu == 0);
}

TEST_CASE("moe_infinity: a first request has nothing to go by, later ones are predicted") {
    const run_report first = run_system("moe_infinity");
    CHECK(first.requests == 1);
    CHECK(first.bytes.prefetched == 0);
    const run_report later = run_system("moe_infinity", {"run.tokens=800"});
    CHECK(later.requests == 4);
    CHECK(later.bytes.prefetch_used > 0);
    CHECK(later.experts.on_cpu == 0);
}

TEST_CASE("moepic: splits follow what was measured once a request is over") {
    const run_report report = run_system("moepic", {"run.tokens=600", "budget.tau=200"});
    CHECK(report.arrangement.changes > 0);
    CHECK(report.bytes.prefetch_used > 0);
    CHECK(report.experts.on_cpu == 0);
}

TEST_CASE("hobbit: what weighs little comes small or not at all, with thresholds of 1 whole") {
    const run_report report = run_system("hobbit");
    CHECK(report.routing.small > 0);
    CHECK(report.routing.dropped > 0);
    CHECK(report.experts.substituted == report.routing.small + report.routing.dropped);
    CHECK(report.versions[1].computed > 0);
    CHECK(report.versions[0].computed > report.versions[1].computed);
    const run_report exact = run_system("hobbit", {"router.t1=1", "router.t2=1"});
    CHECK(exact.experts.substituted == 0);
    CHECK(exact.bytes.h2d > report.bytes.h2d);
    const run_report plain = run_system("hobbit", {"router.plugin=topk"});
    CHECK(exact.total_ms == plain.total_ms);
}

TEST_CASE("smoe: low-score experts are substituted, at alpha 0 none") {
    const run_report report = run_system("smoe");
    CHECK(report.experts.substituted > 0);
    const run_report exact = run_system("smoe", {"router.alpha=0", "prefetch.alpha=0"});
    CHECK(exact.experts.substituted == 0);
}

}  // namespace systems_test
