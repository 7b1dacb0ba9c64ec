// gpus_run_test.cpp - goal: a run over several GPUs is reported, refused if it is impossible, and
// in plain cases not slower than one GPU that has everything. Method: runs on the toy machine;
// texts.
#include "tests/unit/config_texts.h"
#include "tests/unit/toy_run.h"

#include "core/base/json.h"
#include "core/base/random.h"

namespace gpus_run_test {

using namespace moorage;
using namespace moorage::core;

namespace {

// 30 tokens of 2 layers, 4 of 8 experts each, drawn.
trace_data drawn() {
    random_stream draws(5, 0);
    std::vector<std::vector<std::vector<uint16_t>>> chosen;
    for (int token = 0; token < 30; ++token) {
        std::vector<std::vector<uint16_t>> layers;
        for (int layer = 0; layer < 2; ++layer) {
            std::vector<uint16_t> experts;
            while (experts.size() < 4) {
                const auto expert = static_cast<uint16_t>(draws.below(8));
                if (std::ranges::find(experts, expert) == experts.end()) experts.push_back(expert);
            }
            layers.push_back(experts);
        }
        chosen.push_back(layers);
    }
    return toy::routing(chosen, 8, {0, 30}, false);
}

const std::string two =
    "[hardware]\ndevices = [\"rtx_4090\", \"rtx_3090\"]\n[source]\ntrace = \"t.safetensors\"\n";

}  // namespace

TEST_CASE("two equal GPUs with a quick link are not slower than one that has everything") {
    test::toy_run fixture;
    fixture.write(drawn());
    fixture.config.experts = 16;
    const run_report alone = fixture.run_it();
    fixture.folder.write(
        "peer.toml",
        "kind = \"link\"\nname = \"peer\"\nh2d_bytes_per_s = 10e9\n"
        "d2h_bytes_per_s = 10e9\nissue_ns = 10\n[sources]\nh2d_bytes_per_s = \"[G] x\"\n"
        "d2h_bytes_per_s = \"[G] x\"\nissue_ns = \"[G] x\"\n");
    fixture.config.devices.profiles = {fixture.config.profile, fixture.config.profile};
    fixture.config.devices.peer = (fixture.folder / "peer.toml").string();
    const run_report two_gpus = fixture.run_it();
    CHECK(two_gpus.experts.requested == alone.experts.requested);
    CHECK(two_gpus.experts.misses == alone.experts.misses);  // each is loaded once
    CHECK(two_gpus.total_ms < alone.total_ms);
    REQUIRE(two_gpus.devices.size() == 2);
    CHECK(two_gpus.devices[0].experts == 8);
    CHECK(two_gpus.devices[1].slots == 8);
    CHECK(two_gpus.devices[0].hits + two_gpus.devices[1].hits == two_gpus.experts.hits);
    CHECK(alone.devices.empty());
    CHECK(to_json(two_gpus)["devices"].size() == 2);
    CHECK(!to_json(alone).contains("devices"));
    CHECK(to_text(two_gpus).find("GPU 1") != std::string::npos);
}

TEST_CASE("slots are divided by the room that the devices have, or as listed") {
    test::toy_run run;
    run.write(drawn());
    run.folder.write("small.toml", [] {
        std::string text = toy::device_toml;
        const std::string room = "1_000_000_000";
        return text.replace(text.find(room), room.size(), "500_000_000");
    }());
    run.config.devices.profiles = {run.config.profile, (run.folder / "small.toml").string()};
    run.config.experts = 12;
    const run_report by_room = run.run_it();
    CHECK(by_room.devices[0].slots == 8);
    CHECK(by_room.devices[1].slots == 4);
    run.config.experts.reset();
    run.config.devices.experts = {3, 9};
    const run_report listed = run.run_it();
    CHECK(listed.devices[0].slots == 3);
    CHECK(listed.devices[1].slots == 9);
    CHECK(listed.devices[0].experts == 4);  // 3 of 12 parts of 16
}

TEST_CASE("what cannot be is refused with a remedy") {
    const std::string size = "[memory]\nexperts = 96\n";
    test::accepted(two + size);
    using test::holds, test::refused;
    CHECK(holds(refused("[run]\nexecutor = \"cpu\"\n" + two + size), "\"emulator\""));
    CHECK(holds(refused("[hardware]\nprofile = \"rtx_4090\"\npeer = \"pcie4_x16\"\n[source]\n"
                        "trace = \"t.safetensors\"\n" +
                        size),
                "[hardware] devices"));
    CHECK(holds(refused(two + "[memory]\ndevice_experts = [5]\n"), "2 counts"));
    CHECK(holds(refused(two + size + "device_experts = [5, 6]\n"), "keep one of them"));
    CHECK(test::accepted(two + "[memory]\ndevice_experts = [5, 6]\n").devices.experts ==
          std::vector<uint32_t>{5, 6});
}

}  // namespace gpus_run_test
