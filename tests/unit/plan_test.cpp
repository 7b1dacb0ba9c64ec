// plan_test.cpp - goal: a plan is used only if it is sound, and a plan file only by the cluster it
// was made for. Method: hand-made plans with one fault each, and the text that names it; files
// written and read again, and files with one value changed.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "core/base/json.h"
#include "tools/placement/plan.h"
#include "tests/unit/small_scene.h"

namespace plan_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

using copies = std::vector<moorage_copy>;

bool same(const copies &a, const copies &b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const moorage_copy &x, const moorage_copy &y) {
                          return x.expert == y.expert && x.device == y.device;
                      });
}

// The error of check_plan(), "" for a sound plan.
std::string fault_of(const scene &scene, copies list) {
    plan candidate{"hand", std::move(list), {}, 0};
    const status sound = check_plan(scene, candidate);
    return sound ? "" : sound.failure().text;
}

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

// The error of reading the JSON, "" if it is accepted.
std::string refusal_of(const scene &scene, const json &file) {
    const auto read = parse_plan(file.dump(), "made.json", scene);
    if (read) return "";
    CHECK_MESSAGE(read.failure().text.starts_with("made.json: "), read.failure().text);
    return read.failure().text;
}

const copies sound_copies = {{3, 2}, {0, 0}, {1, 2}, {0, 1}, {2, 1}};

json sound_file(const scene &scene) {
    plan sound{"hand", sound_copies, {{"curvature", 0.25}}, 0.5};
    REQUIRE(check_plan(scene, sound).ok());
    return to_json(scene, sound);
}

}  // namespace

TEST_CASE("a sound plan is put in order, bytes are counted by device") {
    const scene scene = small_scene();
    plan sound{"hand", sound_copies, {}, 0};
    REQUIRE(check_plan(scene, sound).ok());
    CHECK(same(sound.copies, {{0, 0}, {0, 1}, {1, 2}, {2, 1}, {3, 2}}));
    CHECK(device_used_bytes(scene, sound.copies) == std::vector<uint64_t>{10, 20, 20});
}

TEST_CASE("each rule has its own refusal, which names the thing") {
    const scene scene = small_scene();
    CHECK(fault_of(scene, sound_copies).empty());
    CHECK(has(fault_of(scene, {{4, 0}}), "expert 4, and there are 4"));
    CHECK(has(fault_of(scene, {{0, 3}}), "device 3, and there are 3"));
    CHECK(has(fault_of(scene, {{0, 0}, {2, 1}, {0, 0}}), "expert 0 of layer 0 on west.gpu0 twice"));
    CHECK(has(fault_of(scene, {{0, 0}, {1, 0}, {2, 0}, {3, 1}}),
              "30 bytes of experts on west.gpu0, which has room for 20"));
    // One below the limit is fine, the limit itself, too: 30 bytes on east.
    CHECK(fault_of(scene, {{0, 0}, {1, 2}, {2, 2}, {3, 2}}).empty());
    CHECK(has(fault_of(scene, {{0, 0}, {1, 0}, {2, 1}}), "no copy of expert 1 of layer 1"));
}

TEST_CASE("a cloud covers everything, and models that nobody asks for need no copy") {
    scene scene = small_scene();
    CHECK(has(fault_of(scene, {}), "no copy"));
    give_cloud(scene);
    CHECK(fault_of(scene, {}).empty());
    auto two = two_model_scene();
    CHECK(fault_of(two, sound_copies).empty());
    two.demand.home_model = {1, 0, 0.5, 0.5};
    CHECK(has(fault_of(two, sound_copies), "no copy of expert 0 of layer 0 of n"));
    CHECK(has(fault_of(two, {{0, 0}, {1, 0}, {2, 1}, {3, 1}, {4, 2}}), "expert 1 of layer 0 of n"));
    CHECK(fault_of(two, {{0, 0}, {1, 0}, {2, 1}, {3, 1}, {4, 2}, {5, 2}}).empty());
}

TEST_CASE("a plan file holds what the contract says and reads back the same") {
    const scene scene = small_scene();
    const json file = sound_file(scene);
    CHECK(file["policy"] == "hand");
    // [server, gpu of the server, layer, expert]
    CHECK(file["placement"] ==
          json({{0, 0, 0, 0}, {0, 1, 0, 0}, {1, 0, 0, 1}, {0, 1, 1, 0}, {1, 0, 1, 1}}));
    const auto read = parse_plan(file.dump(), "made.json", scene);
    REQUIRE(read.ok());
    CHECK(read->policy == "hand");
    CHECK(read->seconds == 0.5);
    REQUIRE(read->facts.size() == 1);
    CHECK(read->facts[0].name == "curvature");
    CHECK(read->facts[0].value == 0.25);
    CHECK(same(read->copies, {{0, 0}, {0, 1}, {1, 2}, {2, 1}, {3, 2}}));
    CHECK(to_json(scene, *read) == file);
}

TEST_CASE("several models have a fifth number") {
    scene two = two_model_scene();
    plan sound{"hand", {{0, 0}, {1, 0}, {2, 1}, {3, 1}, {5, 2}}, {}, 0};
    REQUIRE(check_plan(two, sound).ok());
    CHECK(device_used_bytes(two, sound.copies) == std::vector<uint64_t>{20, 20, 4});
    json file = to_json(two, sound);
    CHECK(file["placement"].back() == json({1, 0, 0, 1, 1}));
    const auto read = parse_plan(file.dump(), "made.json", two);
    REQUIRE(read.ok());
    CHECK(same(read->copies, sound.copies));
    file["placement"][0].erase(4);
    CHECK(has(refusal_of(two, file), "placement 0 is [0,0,0,0], expected 5 numbers"));
}

TEST_CASE("a plan of another cluster is refused by name") {
    scene base_scene = small_scene();
    const json file = sound_file(base_scene);
    scene renamed = base_scene;
    renamed.device_names[2] = "south.gpu0";
    CHECK(
        has(refusal_of(renamed, file), "devices 2 is \"east.gpu0\" there and \"south.gpu0\" here"));
    scene fewer = base_scene;
    fewer.device_names.pop_back(), fewer.cluster.device_server.pop_back();
    CHECK(has(refusal_of(fewer, file), "made for 3 devices, and this cluster has 2"));
    scene heavier = base_scene;
    heavier.demand.expert_bytes = {11};
    CHECK(has(refusal_of(heavier, file), "models 0 is"));
    scene smaller = base_scene;  // the same devices with less memory
    smaller.cluster.device_bytes[1] = 19;
    CHECK(has(refusal_of(smaller, file), "20 bytes of experts on west.gpu1"));
}

TEST_CASE("every number of a file is checked") {
    const scene scene = small_scene();
    const json file = sound_file(scene);
    const auto refusal_with = [&](json row) {
        json changed = file;
        changed["placement"][0] = std::move(row);
        return refusal_of(scene, changed);
    };
    CHECK(has(refusal_with({2, 0, 0, 0}), "placement 0 names server 2, and there are 2"));
    CHECK(has(refusal_with({0, 2, 0, 0}), "placement 0 names gpu 2, and there are 2"));
    CHECK(has(refusal_with({1, 1, 0, 0}), "placement 0 names gpu 1, and there is 1"));
    CHECK(has(refusal_with({0, 0, 2, 0}), "layer 2"));
    CHECK(has(refusal_with({0, 0, 0, 2}), "expert 2"));
    CHECK(has(refusal_with({0, 0, 0, uint64_t{1} << 32}), "expert 4294967296"));
    CHECK(has(refusal_with({0, 0, 0, ~uint64_t{0}}), "expert 18446744073709551615"));
    CHECK(has(refusal_with({0, 0, 0, -1}), "whole and not negative"));
    CHECK(has(refusal_with({0, 0, 0, 0.5}), "whole and not negative"));
    CHECK(has(refusal_with({0, 0, 0, "0"}), "whole and not negative"));
    CHECK(has(refusal_with({0, 0, 0}), "expected 4 numbers"));
    CHECK(has(refusal_with({0, 0, 0, 0, 0}), "expected 4 numbers"));
    CHECK(has(refusal_with(json::object()), "expected 4 numbers"));
    CHECK(has(refusal_with({0, 1, 0, 0}), "twice"));
    json long_list = file;
    for (int i = 0; i < 8; ++i) long_list["placement"].push_back({0, 0, 0, 0});
    CHECK(has(refusal_of(scene, long_list), "lists 13 copies, and there can be 12"));
}

TEST_CASE("what is no plan says so") {
    const scene scene = small_scene();
    const json file = sound_file(scene);
    for (const char *key : {"placement", "devices", "models", "policy"}) {
        json changed = file;
        changed.erase(key);
        CHECK_MESSAGE(has(refusal_of(scene, changed), std::string("\"") + key + "\""), key);
        changed[key] = 7;
        CHECK_MESSAGE(has(refusal_of(scene, changed), std::string("\"") + key + "\""), key);
    }
    CHECK(has(refusal_of(scene, {{"results", {file, file}}}), "several results"));
    CHECK(has(refusal_of(scene, json::array()), "is no plan"));
    CHECK(has(parse_plan("{\"placement\": [", "made.json", scene).failure().text, "is no JSON"));
    CHECK(has(parse_plan("", "made.json", scene).failure().text, "is no JSON"));
    const std::string deep(100000, '[');
    CHECK(has(parse_plan(deep, "made.json", scene).failure().text, "is no JSON"));
    const std::string closed = deep + std::string(100000, ']');
    CHECK(has(parse_plan(closed, "made.json", scene).failure().text, "is no plan"));
}

TEST_CASE("a plan is read from a file, and a file that is not there is named") {
    const scene scene = small_scene();
    const auto path = std::filesystem::temp_directory_path() /
                      ("moorage-plan-test-" + std::to_string(getpid()) + ".json");
    std::ofstream(path) << sound_file(scene).dump(1);
    const auto read = read_plan(path, scene);
    std::filesystem::remove(path);
    REQUIRE(read.ok());
    CHECK(read->copies.size() == 5);
    const auto gone = read_plan(path, scene);
    REQUIRE(!gone.ok());
    CHECK(has(gone.failure().text, path.string()));
}

}  // namespace plan_test
