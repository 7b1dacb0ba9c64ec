// zones_test.cpp - goal: a cluster in zones is its zones and nothing else. Method: zones of equal
// servers compared with one cluster of a zone's size, the joined plan cut apart again and compared
// with the planned ones, and the refusals.
#include "tools/placement/zones.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/config/run_config.h"

namespace zones_test {

using namespace moorage::core;

namespace {

const std::filesystem::path clusters =
    std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/clusters";

// `pairs` times a small and a large server in turn, all asked alike; `extra_text` for the end.
run_config config_of_pairs(uint32_t pairs, const std::string &extra_text = "") {
    std::string text = "[cluster]\n[[cluster.models]]\nname = \"switch_base_8\"\n";
    for (uint32_t i = 0; i < pairs; ++i)
        for (const bool large : {false, true})
            text += "[[cluster.servers]]\nname = \"" + std::string(large ? "large" : "small") +
                    std::to_string(i) +
                    "\"\nflops = 1e12\nexpert_memory_bytes = " + (large ? "3e9" : "1e9") +
                    "\nworkload = \"drawn\"\n";
    text +=
        "[[cluster.links]]\nfrom = \"*\"\nto = \"*\"\nbits_per_s = 1e9\nlatency_s = 1e-3\n"
        "[[cluster.workloads]]\nname = \"drawn\"\nzipf = 1.0\ndraw_seed = 3\n" +
        extra_text;
    auto read = parse_run_config(text, clusters / "text.toml", {});
    REQUIRE_MESSAGE(read.ok(), (read ? "" : read.failure().text));
    return std::move(*read);
}

// Every expert once, the next one on the next device with room.
result<plan> plan_in_turn(const scene &scene) {
    plan result;
    result.policy = "in turn", result.seconds = 1;
    std::vector<uint64_t> left = scene.cluster.device_bytes;
    uint32_t device = 0;
    for (uint32_t x = 0; x < scene.demand.experts(); ++x) {
        for (uint32_t tries = 0; tries < left.size(); ++tries) {
            device = (device + 1) % scene.cluster.devices();
            if (left[device] < scene.demand.expert_bytes[0]) continue;
            left[device] -= scene.demand.expert_bytes[0];
            result.copies.push_back({x, device});
            break;
        }
    }
    const status sound = check_plan(scene, result);
    if (!sound) return sound.failure();
    return result;
}

// Every leading zone planned by `planner`, joined.
template <class F>
zoned_plan plan_zones(const run_config &config, const scene &whole, zone_plans mode, F &&planner) {
    const std::vector<uint32_t> leading = leading_zones(*config.cluster, mode);
    CHECK(leading.size() == zones_of(*config.cluster));
    std::vector<zoned_plan> zones(leading.size());
    for (uint32_t zone = 0; zone < leading.size(); ++zone) {
        if (leading[zone] != zone) continue;
        const auto part = make_zone(*config.cluster, clusters, zone);
        REQUIRE_MESSAGE(part.ok(), (part ? "" : part.failure().text));
        auto zone_plan = planner(*part, zone);
        REQUIRE_MESSAGE(zone_plan.ok(), (zone_plan ? "" : zone_plan.failure().text));
        zones[zone].figures = predict(*part, *zone_plan);
        zones[zone].placement = std::move(*zone_plan);
    }
    return join_zones(whole, zones, leading);
}

}  // namespace

TEST_CASE("how many zones there are") {
    const auto zones = [](size_t servers, uint32_t servers_per_zone) {
        cluster_config config;
        config.servers.resize(servers);
        config.zone_servers = servers_per_zone;
        return zones_of(config);
    };
    CHECK(zones(6, 0) == 1);
    CHECK(zones(1024, 0) == 1);
    CHECK(zones(1025, 0) == 5);  // of 256 at most
    CHECK(zones(6, 2) == 3);
    CHECK(zones(7, 2) == 4);
    CHECK(zones(7, 7) == 1);
}

TEST_CASE("zones of equal servers are clusters of their own") {
    // Servers small0, large0, small1, large1 ...: zone 0 of 2 has small0 and small1, so that three
    // pairs make zones of three small and three large ones.
    const run_config six = config_of_pairs(3, "[placement]\nzone_servers = 3\n");
    REQUIRE(zones_of(*six.cluster) == 2);
    const auto whole = make_outline(*six.cluster, clusters);
    REQUIRE_MESSAGE(whole.ok(), (whole ? "" : whole.failure().text));
    CHECK(whole->cluster.servers == 6);
    CHECK(whole->demand.frequency.empty());
    std::vector<plan> planned;
    std::vector<double> token_s, batch_token_s;
    const zoned_plan placed =
        plan_zones(six, *whole, zone_plans::each, [&](const scene &zone_scene, uint32_t zone) {
            CHECK(zone_scene.server_names[2] == (zone == 0 ? "small2" : "large2"));
            auto zone_plan = plan_in_turn(zone_scene);
            REQUIRE(zone_plan.ok());
            planned.push_back(*zone_plan);
            token_s.push_back(predict(zone_scene, *zone_plan).token_s);
            batch_token_s.push_back(predict(zone_scene, *zone_plan).batch_token_s);
            return zone_plan;
        });
    REQUIRE(planned.size() == 2);
    CHECK(placed.placement.copies.size() == planned[0].copies.size() + planned[1].copies.size());
    // Every home has one token a second.
    CHECK(placed.figures.token_s == doctest::Approx((token_s[0] + token_s[1]) / 2));
    CHECK(placed.figures.batch_token_s ==
          doctest::Approx((batch_token_s[0] + batch_token_s[1]) / 2));
    CHECK(placed.figures.home_token_s.size() == 6);
    plan again = placed.placement;
    CHECK(check_plan(*whole, again).ok());
    for (uint32_t zone = 0; zone < 2; ++zone) {
        plan part = plan_of_zone(*six.cluster, *whole, placed.placement, zone);
        REQUIRE(part.copies.size() == planned[zone].copies.size());
        for (size_t i = 0; i < part.copies.size(); ++i) {
            CHECK(part.copies[i].expert == planned[zone].copies[i].expert);
            CHECK(part.copies[i].device == planned[zone].copies[i].device);
        }
    }
}

TEST_CASE("zones that are alike are planned once") {
    // Servers small0, large0, small1 ...: zones 0 and 2 of 4 have small ones, 1 and 3 large ones.
    const auto placed = [](const run_config &config, zone_plans mode,
                           std::vector<uint32_t> &asked) {
        const auto whole = make_outline(*config.cluster, clusters);
        REQUIRE_MESSAGE(whole.ok(), (whole ? "" : whole.failure().text));
        return plan_zones(config, *whole, mode, [&](const scene &zone, uint32_t number) {
            asked.push_back(number);
            return plan_in_turn(zone);
        });
    };
    const std::string of_three = "[placement]\nzone_servers = 3\n";
    const run_config twelve = config_of_pairs(6, of_three);
    std::vector<uint32_t> shared_zones, every_zone;
    const zoned_plan shared_plans = placed(twelve, zone_plans::of_scenes, shared_zones);
    const zoned_plan separate_plans = placed(twelve, zone_plans::each, every_zone);
    CHECK(shared_zones == std::vector<uint32_t>{0, 1});
    CHECK(every_zone == std::vector<uint32_t>{0, 1, 2, 3});
    REQUIRE(shared_plans.placement.copies.size() == separate_plans.placement.copies.size());
    for (size_t i = 0; i < shared_plans.placement.copies.size(); ++i) {
        CHECK(shared_plans.placement.copies[i].expert == separate_plans.placement.copies[i].expert);
        CHECK(shared_plans.placement.copies[i].device == separate_plans.placement.copies[i].device);
    }
    CHECK(shared_plans.placement.seconds == 2);
    CHECK(separate_plans.placement.seconds == 4);
    CHECK(shared_plans.figures.home_token_s == separate_plans.figures.home_token_s);
    CHECK(shared_plans.figures.token_s == separate_plans.figures.token_s);
    CHECK(shared_plans.figures.absent == separate_plans.figures.absent);
    // A link of one server, memory of one and popularity of each home make zones differ.
    const auto numbers = [&](run_config changed) {
        std::vector<uint32_t> asked;
        placed(changed, zone_plans::of_scenes, asked);
        return asked;
    };
    run_config linked = twelve;
    linked.cluster->links.push_back(linked.cluster->links[0]);
    linked.cluster->links.back().source = "small2", linked.cluster->links.back().bits_per_s = 1e8;
    CHECK(numbers(linked) == std::vector<uint32_t>{0, 1, 2});
    run_config larger = twelve;
    *larger.cluster->servers[4].expert_memory_bytes *= 2;
    CHECK(numbers(larger) == std::vector<uint32_t>{0, 1, 2});
    run_config drawn = twelve;
    drawn.cluster->workloads[0].per_user = true;
    CHECK(numbers(drawn) == std::vector<uint32_t>{0, 1, 2, 3});
}

TEST_CASE("a cluster of one zone is that zone") {
    const run_config six = config_of_pairs(3);
    const auto whole = make_scene(*six.cluster, clusters);
    const auto zone = make_zone(*six.cluster, clusters, 0);
    REQUIRE((whole.ok() && zone.ok()));
    CHECK(leading_zones(*six.cluster, zone_plans::of_scenes) == std::vector<uint32_t>{0});
    CHECK(zone->server_names == whole->server_names);
    CHECK(zone->demand.frequency == whole->demand.frequency);
}

TEST_CASE("zones are without users, and what is planned as one has a limit") {
    const run_config six = config_of_pairs(3, "[placement]\nzone_servers = 3\n");
    cluster_config with_users = *six.cluster;
    with_users.users.resize(1);
    CHECK_FALSE(make_outline(with_users, clusters).ok());
    cluster_config many;
    many.servers.resize(1025);
    const auto dense = make_scene(many, clusters);
    REQUIRE_FALSE(dense.ok());
    CHECK(dense.failure().text.find("1025 servers, and 1024 are the most") != std::string::npos);
}

}  // namespace zones_test
