// Goal: a plan that joint's model calls faster is faster on the emulator. It is not behind the
// plans that it starts from. Method: clusters of configs/ for a few minutes of virtual time. Plans
// stay, so that nothing but the plan differs. Latencies are those of reports.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "tools/cluster/cluster_run.h"

namespace joint_emulated_test {

using namespace moorage::core;

namespace {

double latency_ms(const char *file, const char *policy, std::vector<override_value> changed) {
    static run_resources shared;
    static const bool scanned =
        shared.scan(std::vector{std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins"}).ok();
    REQUIRE(scanned);
    changed.push_back({"placement", "plugin", policy, "the test"});
    changed.push_back({"placement", "interval_s", "0", "the test"});
    const auto config =
        load_run_config(std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs" / file, changed);
    REQUIRE_MESSAGE(config.ok(), (config ? "" : config.failure().text));
    const auto done = run_either(*config, shared, {});
    REQUIRE_MESSAGE(done.ok(), (done ? "" : done.failure().text));
    return done->cluster->latency_ms.mean;
}

void check_joint_is_best(const char *file, const std::vector<override_value> &changed) {
    double least = 1e300;
    for (const char *policy : {"prism", "eplb", "lfu", "uniform", "slim_greedy"})
        least = std::min(least, latency_ms(file, policy, changed));
    const double joint = latency_ms(file, "joint", changed);
    MESSAGE(file << ": joint " << joint << " ms, the best of the others " << least << " ms");
    // Which requests come is chance: plans as good as each other differ by so much.
    CHECK(joint <= 1.02 * least);
}

}  // namespace

TEST_CASE("prompts with one token of output: few calls that nearly every prompt makes") {
    check_joint_is_best("clusters/prism.toml", {{"cluster", "duration_s", "600", "the test"}});
}

TEST_CASE("prompts with eight tokens of output, which pass one by one") {
    check_joint_is_best("papers/prism/qwen.toml", {{"cluster", "duration_s", "600", "the test"}});
}

}  // namespace joint_emulated_test
