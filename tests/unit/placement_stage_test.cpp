// placement_stage_test.cpp - goal: wrong advice of a placement policy is refused by name, and moves
// are judged by Prism's Eq. (3) and (4). Method: the policies of tests/abi/bad and the C++
// template's, each in a cluster small enough to work out by hand.
#include <doctest/doctest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tools/placement/placement_stage.h"
#include "tests/unit/small_scene.h"

namespace placement_stage_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

using copies = std::vector<moorage_copy>;

const std::filesystem::path build = MOORAGE_BINARY_DIR;

// A stage with the policy of one library, or why there is none.
struct opened {
    registry policies;
    std::unique_ptr<placement_stage> stage;
    std::string error;
};

std::unique_ptr<opened> open(const std::filesystem::path &library, const scene &scene,
                             settings params = {}) {
    auto result = std::make_unique<opened>();
    const std::filesystem::path paths[] = {library};
    REQUIRE(result->policies.scan(paths).ok());
    stage_config config{library.stem().string(), "test.toml:3", std::move(params)};
    auto stage = placement_stage::open(config, result->policies, scene, 1);
    if (stage)
        result->stage = std::move(*stage);
    else
        result->error = stage.failure().text;
    return result;
}

std::unique_ptr<opened> open_bad(const std::string &name, const scene &scene) {
    return open(build / "bad" / (name + ".so"), scene);
}

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("wrong advice is refused with the policy's name") {
    const scene scene = small_scene();
    auto overfull = open_bad("placement_overfull", scene);
    REQUIRE(overfull->stage);
    const auto too_much = overfull->stage->make(scene, {});
    REQUIRE(!too_much.ok());
    CHECK(has(too_much.failure().text,
              "placement plugin placement_overfull: the plan puts 40 "
              "bytes of experts on west.gpu0, which has room for 20"));
    auto gap = open_bad("placement_gap", scene);
    REQUIRE(gap->stage);
    const auto missing = gap->stage->make(scene, {});
    REQUIRE(!missing.ok());
    CHECK(has(missing.failure().text,
              "placement plugin placement_gap: the plan has no copy of expert 1 of layer 1"));
}

TEST_CASE("a policy's refusal is passed on, and said to lack a text where it does") {
    scene scene = small_scene();
    auto silent = open_bad("placement_silent", scene);
    REQUIRE(silent->stage);
    const auto refused = silent->stage->make(scene, {});
    REQUIRE(!refused.ok());
    CHECK(has(refused.failure().text, "placement_silent: plan failed (invalid argument): no text"));
    auto mine = open(build / "tests/abi/templates/cpp_placement.so", scene);
    REQUIRE(mine->stage);
    CHECK(mine->stage->make(scene, {}).ok());
    scene.cluster.device_bytes = {10, 10, 10};
    const auto full = mine->stage->make(scene, {});
    REQUIRE(!full.ok());
    CHECK(has(full.failure().text, "no device has room for expert 3"));
}

TEST_CASE("an unknown policy or parameter names its place") {
    const scene scene = small_scene();
    registry none;
    const auto stage = placement_stage::open({"prisn", "test.toml:3", {}}, none, scene, 1);
    REQUIRE(!stage.ok());
    CHECK(has(stage.failure().text, "test.toml:3: "));
    CHECK(stage.failure().usage);
    auto wrong = open(build / "tests/abi/templates/cpp_placement.so", scene,
                      {{"cautoin", 1.0, "test.toml:4"}});
    CHECK(has(wrong->error, "caution"));
}

TEST_CASE("a plan comes with the policy's name and time, in order") {
    const scene scene = small_scene();
    auto mine = open(build / "tests/abi/templates/cpp_placement.so", scene);
    REQUIRE(mine->stage);
    const auto result = mine->stage->make(scene, {});
    REQUIRE(result.ok());
    CHECK(result->policy == "cpp_placement");
    CHECK(result->seconds >= 0);
    CHECK(result->facts.empty());
    for (size_t i = 1; i < result->copies.size(); ++i) {
        const moorage_copy &a = result->copies[i - 1], &b = result->copies[i];
        CHECK((a.expert < b.expert || (a.expert == b.expert && a.device < b.device)));
    }
}

TEST_CASE("remote calls are those that neither home nor its server can take") {
    scene scene = small_scene();
    // West has experts 0 and 2, east 1 and 3.
    const copies split = {{0, 0}, {1, 2}, {2, 1}, {3, 2}};
    // West's tokens miss 0.25 + 0.5 of 1 token/s, east's 0.1 + 0 of 10.
    CHECK(remote_per_s(scene, split) == doctest::Approx(1.75));
    // A second copy at the same server changes nothing, one at the other does.
    CHECK(remote_per_s(scene, copies{{0, 0}, {0, 1}, {1, 2}, {2, 1}, {3, 2}}) ==
          doctest::Approx(1.75));
    CHECK(remote_per_s(scene, copies{{0, 0}, {0, 2}, {1, 2}, {2, 1}, {3, 2}}) ==
          doctest::Approx(0.75));
    scene.demand.home_holds = {0, 1, 0, 1, 0, 0, 0, 0};  // west's tokens have 1 and 3 themselves
    CHECK(remote_per_s(scene, split) == doctest::Approx(1));
    CHECK(remote_per_s(scene, {}) == doctest::Approx(1.25 + 20));
}

TEST_CASE("a move counts what is added and what is removed, at each device's own rate") {
    const scene scene = small_scene();
    const copies current = {{0, 0}, {1, 2}, {2, 1}, {3, 2}},
                 candidate = {{0, 0}, {0, 2}, {1, 0}, {1, 2}, {2, 1}, {3, 1}};
    const weighed_move move(scene, current, candidate, 0.5, 60);
    const moorage_move &table = move.table();
    CHECK(table.size == sizeof(moorage_move));
    CHECK(table.added_copies == 3);  // (0, 2), (1, 0), (3, 1)
    CHECK(table.added_bytes == 30);
    CHECK(table.removed_copies == 1);  // (3, 2)
    CHECK(table.added_s == doctest::Approx(10.0 / 20 + 10.0 / 100 + 10.0 / 50));
    CHECK(table.removed_s == doctest::Approx(10.0 / 20));
    CHECK(table.remote_per_s_current == doctest::Approx(1.75));
    CHECK(table.remote_per_s_candidate == doctest::Approx(10));  // east lacks expert 3
    CHECK(table.remote_call_s == 0.5);
    CHECK(table.interval_s == 60);
    CHECK(table.current_count == 4);
    CHECK(table.candidate_count == 6);
    CHECK(table.host_cluster->devices == 3);
    CHECK(table.host_demand->homes == 2);
    const weighed_move none(scene, current, current, 0.5, 60);
    CHECK(none.table().added_copies + none.table().removed_copies == 0);
    const weighed_move first(scene, {}, current, 0.5, 60);
    CHECK(first.table().added_copies == 4);
}

TEST_CASE("Eq. 4 is strict, in seconds, and does nothing before a call was measured") {
    moorage_move move{};
    move.remote_per_s_current = 3, move.remote_per_s_candidate = 1;
    move.interval_s = 10, move.remote_call_s = 0.5;  // saves 2 * 0.5 * 10 = 10 s
    move.added_s = 6, move.removed_s = 4;
    CHECK_FALSE(pays(move));
    move.removed_s = 3.875;
    CHECK(pays(move));
    move.remote_call_s = 0;
    CHECK_FALSE(pays(move));
    move.added_s = move.removed_s = 0;
    CHECK_FALSE(pays(move));
}

TEST_CASE("the policy's own rule goes before the host's") {
    const scene scene = small_scene();
    const copies current = {{0, 0}, {1, 2}, {2, 1}, {3, 2}},
                 candidate = {{0, 0}, {0, 2}, {1, 2}, {2, 1}, {3, 2}};
    // Saves 1 call/s * 0.5 s * 2 s = 1 s, costs 0.5 s; caution 3 asks for 1.5 s.
    const weighed_move move(scene, current, candidate, 0.5, 2);
    const std::filesystem::path library = build / "tests/abi/templates/cpp_placement.so";
    CHECK(open(library, scene)->stage->adopt(move));
    CHECK_FALSE(open(library, scene, {{"caution", 3.0, "test.toml:4"}})->stage->adopt(move));
    // A policy without a rule of its own gets the host's.
    auto ruleless = open_bad("placement_gap", scene);
    CHECK(ruleless->stage->adopt(move));
    const weighed_move short_time(scene, current, candidate, 0.5, 1);
    CHECK_FALSE(ruleless->stage->adopt(short_time));
}

}  // namespace placement_stage_test
