// random_disk_test.cpp - goal: the rules for all runs also hold when experts are read from disk.
// Method: drawn configurations (random_runs --disk draws more of them). Each is checked for sums,
// bounds and fates of bytes. They cover every policy, and host memories from one expert to all.
#include <doctest/doctest.h>

#include "core/pipeline/run.h"
#include "tests/random/invariants.h"
#include "tests/random/random_config.h"

using namespace moorage;

TEST_CASE("what holds for all runs") {
    core::run_resources shared;
    const std::vector<std::filesystem::path> plugins{std::filesystem::path(MOORAGE_BINARY_DIR) /
                                                     "plugins"};
    REQUIRE(shared.scan(plugins).ok());
    const random::config_maker maker(shared.policies(),
                                     std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo");
    core::run_options options;
    options.own_routing = false;
    uint64_t ran = 0, read = 0;
    for (uint64_t seed = 1; seed <= 80; ++seed) {
        CAPTURE(seed);
        const random::config_maker::drawn_config drawn = maker.draw_on_disk(seed);
        const auto config = core::parse_run_config(drawn.text, drawn.file, {});
        REQUIRE(config.ok());
        const auto done = core::run(*config, shared, options);
        if (!done && done.failure().usage) continue;  // a contradiction
        REQUIRE(done.ok());
        ++ran;
        read += done->host->disk_bytes != 0;
        const std::vector<std::string> broken = random::broken_invariants(*done, *config);
        CHECK_MESSAGE(broken.empty(), (broken.empty() ? "" : broken.front()), drawn.text);
    }
    CHECK(ran >= 60);
    CHECK(read >= 50);
}
