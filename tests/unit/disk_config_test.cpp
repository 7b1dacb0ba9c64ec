// disk_config_test.cpp - goal: keys for experts on disk are read as documented, and every mistake
// in them is named. Method: as run_config_test.
#include <doctest/doctest.h>

#include <string>
#include <variant>

#include "tests/unit/config_texts.h"

namespace disk_config_test {

using namespace moorage::test;

TEST_CASE("experts beyond host memory: how many, on which disk, by whose order") {
    const std::string disk =
        "[hardware]\nprofile = \"rtx_4090\"\ndisk = \"nvme_gen4\"\n[source]\n"
        "trace = \"routing.safetensors\"\n[memory]\nexperts = 96\n";
    const run_config config =
        accepted(disk + "host_experts = 500\n[cache.host]\nplugin = \"sieve\"\n");
    CHECK(config.host_experts == 500u);
    CHECK(config.disk == "nvme_gen4");
    CHECK(config.host_cache.plugin == "sieve");
    CHECK(config.cache.plugin == "lfu");  // its own
    CHECK(config.reads_disk());
    CHECK_FALSE(accepted(disk).reads_disk());
    const std::string tables =
        disk +
        "host_bytes = 1_000\n[cache.host]\nplugin = \"lfu\"\n[cache.host.lfu]\n"
        "half_life = 3\n[cache.lfu]\nhalf_life = 9\n";
    const run_config merged = accepted(tables, {"cache.plugin=lfu"});
    CHECK(merged.host_bytes == 1000u);
    REQUIRE(merged.host_cache.params.size() == 1);
    CHECK(std::get<int64_t>(merged.host_cache.params[0].value) == 3);
    REQUIRE(merged.cache.params.size() == 1);
    CHECK(std::get<int64_t>(merged.cache.params[0].value) == 9);
    // By --set and --sweep, too.
    const run_config set = accepted(
        disk, {"memory.host_experts=7", "cache.host.plugin=llru", "cache.host.distance=literal"});
    CHECK(set.host_cache.plugin == "llru");
    REQUIRE(set.host_cache.params.size() == 1);
    CHECK(set.host_cache.params[0].key == "distance");

    CHECK(holds(refused(disk + "host_experts = 5\nhost_bytes = 5\n"),
                "conf/run.toml:8: [memory] has both host_experts and host_bytes"));
    CHECK(
        holds(refused(disk + "host_experts = 0\n"), "conf/run.toml:8: [memory] host_experts is 0"));
    CHECK(holds(refused(least + "host_experts = 5\n"), "[hardware] disk = \"nvme_gen4\""));
    CHECK(holds(refused(disk + "[cache.host]\nplugin = \"lru\"\n"),
                "give [memory] host_experts or host_bytes"));
    CHECK(holds(refused(disk + "host_experts = 5\n[cache.host]\nplugni = \"lru\"\n"), "plugin"));
}

}  // namespace disk_config_test
