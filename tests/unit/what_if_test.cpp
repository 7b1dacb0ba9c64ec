// Goal: `run --what-if` gives the gain of the same run by more of each resource. Method: each
// resource compared with a machine whose files have the larger figure; the sentence on savings
// worked by hand; the program on a run that its link decides.
#include <doctest/doctest.h>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "core/report/what_if.h"
#include "tests/unit/program.h"
#include "tests/unit/toy_run.h"

namespace what_if_test {

using namespace moorage::core;

namespace {

// 64 tokens, a layer of 8 experts asked for in a circle: of four slots none is hit.
trace_data circle() {
    std::vector<std::vector<std::vector<uint16_t>>> chosen;
    for (uint16_t token = 0; token < 64; ++token)
        chosen.push_back({{static_cast<uint16_t>(token % 8)}});
    return toy::routing(chosen, 8, {0, 64}, false);
}

double tpot(const std::string &file, const std::string &from, const std::string &to,
            std::optional<resource> faster = {}, const std::string &dispatch = "load_all") {
    moorage::test::toy_run on;
    on.write(circle());
    on.config.experts = 4;
    on.config.dispatch.plugin = dispatch;
    if (!from.empty()) on.change(file, from, to);
    if (faster) on.config.faster[*faster] = 2;
    return on.run_it().tpot_ms.mean;
}

what_if asked_of(std::vector<std::pair<std::string, double>> rows) {
    what_if asked;
    asked.metric = "tpot_ms";
    asked.base_ms = 100;
    for (const auto &[name, ms] : rows) asked.rows.push_back({name, name, ms, ""});
    return asked;
}

}  // namespace

TEST_CASE("a resource twice as fast is the machine whose file says so") {
    const double before = tpot("", "", "");
    const double link = tpot("link.toml", "h2d_bytes_per_s = 10e9", "h2d_bytes_per_s = 20e9");
    CHECK(link < before);
    CHECK(tpot("", "", "", resource::link) == link);
    // A resource that takes no part changes nothing.
    CHECK(tpot("", "", "", resource::disk) == before);
    CHECK(tpot("", "", "", resource::cpu) == before);
    const double cpu = tpot("", "", "", {}, "cpu_all");
    CHECK(tpot("", "", "", resource::cpu, "cpu_all") < cpu);
    const double node =
        tpot("node.toml", "cpu_bytes_per_s = 50e9", "cpu_bytes_per_s = 100e9", {}, "cpu_all");
    CHECK(tpot("", "", "", resource::cpu, "cpu_all") == node);  // its arithmetic takes nothing
}

TEST_CASE("the sentence names what saves most, by how much, and what comes next") {
    std::string text =
        to_text(asked_of({{"the CPU", 95.9}, {"the link", 99}, {"launches", 100.5}}));
    CHECK(text.find("the CPU decides: 10 % more of it saves 4.1 %; next is the link, with 1.0 %") !=
          std::string::npos);
    CHECK(text.find("the CPU") < text.find("the link"));
    CHECK(text.find("+0.5 %") != std::string::npos);  // slower
    text = to_text(asked_of({{"the CPU", 99.6}, {"the link", 99.9}}));
    CHECK(text.find("nothing decides alone") != std::string::npos);
    what_if failed = asked_of({{"the CPU", 95}});
    failed.rows.push_back({"disk", "the disk", {}, "it died"});
    CHECK(to_text(failed).find("the disk: it died") != std::string::npos);
    CHECK(to_json(failed)["rows"][1]["value"].is_null());
    CHECK(to_json(failed)["rows"][0]["saved"] == 0.05);
    for (const std::string &line : split(text, '\n')) CHECK(columns_of(line) <= 80);
}

TEST_CASE("of several runs each resource is a column, unless it helps none") {
    const what_if one = asked_of({{"the CPU", 95}, {"GPU compute", 100}, {"the link", 100}});
    const what_if other = asked_of({{"the CPU", 100}, {"GPU compute", 100}, {"the link", 102.25}});
    CHECK(what_if_table({"next_gate, cpu_all", "next_gate, cost"}, {&one, &other}, 60) ==
          "what would help: TPOT with 10 % more of one resource\n"
          "                      the CPU  the link\n"
          "  next_gate, cpu_all   -5.0 %    +0.0 %\n"
          "  next_gate, cost      +0.0 %    +2.2 %\n"
          "  no change: GPU compute\n");
}

TEST_CASE("the program asks it of emulated machines") {
    const moorage::test::program on;
    const toy::folder &folder = on.folder;
    toy::write_files(folder, 1, 8, 1);
    REQUIRE(write_trace(circle(), folder / "trace.safetensors").ok());
    folder.write("run.toml",
                 "[hardware]\nprofile = \"device.toml\"\nlink = \"link.toml\"\n"
                 "node = \"node.toml\"\n[source]\ntrace = \"trace.safetensors\"\n"
                 "shape = \"shape.toml\"\n[memory]\nexperts = 4\n");
    const auto how = on.run({"run", "run.toml", "--what-if", "--json", "r.json"});
    CHECK(how.code == 0);
    CHECK(how.out.find("the link decides: 10 % more of it saves") != std::string::npos);
    const json told = json::parse(on.read("r.json"));
    CHECK(told["what_if"]["base"] == told["tpot_ms"]["mean"]);
    CHECK(told["what_if"]["rows"].size() == 7);  // no disk; memory for experts
    CHECK(told["what_if"]["rows"][6]["resource"] == "expert_memory");
    // Two memories where a disk is below: each is the run with the larger one.
    const std::vector<std::string> tiers{"--set", "hardware.disk=nvme_gen4", "--set",
                                         "memory.experts=2"};
    const auto tpot_of = [&](std::vector<std::string> more, const char *to) {
        std::vector<std::string> all{"run", "run.toml", "--json", to};
        all.insert(all.end(), tiers.begin(), tiers.end());
        all.insert(all.end(), more.begin(), more.end());
        REQUIRE(on.run(all).code == 0);
        return json::parse(on.read(to));
    };
    const json stored = tpot_of({"--set", "memory.host_experts=7", "--what-if"}, "d.json");
    const json &helped = stored["what_if"]["rows"];
    REQUIRE(helped.size() == 9);
    CHECK(helped[6]["resource"] == "disk");
    CHECK(helped[8]["resource"] == "host_memory");
    // A tenth of 7 is rounded up to one; 8 are all, and the circle never waits for the disk again.
    CHECK(helped[8]["value"] ==
          tpot_of({"--set", "memory.host_experts=8"}, "m.json")["tpot_ms"]["mean"]);
    CHECK(helped[8]["value"] < stored["tpot_ms"]["mean"]);
    // Side by side, each row is asked for itself, and says what it says alone.
    const auto both = on.run(
        {"compare", "run.toml", "--sweep", "memory.experts=4,6", "--what-if", "--json", "c.json"});
    CHECK(both.code == 0);
    CHECK(both.out.find("what would help") != std::string::npos);
    const json rows = json::parse(on.read("c.json"))["results"];
    REQUIRE(rows.size() == 2);
    CHECK(rows[0]["what_if"] == told["what_if"]);
    CHECK(rows[1]["what_if"]["base"] == rows[1]["tpot_ms"]["mean"]);
    // A configuration that does not fit says so once, not once for each resource.
    std::string device = on.read("device.toml");
    const size_t at = device.find("memory_bytes = ") + 15, end = device.find('\n', at);
    folder.write("device.toml", device.replace(at, end - at, "\"1 kB\""));
    const auto small = on.run({"run", "run.toml", "--what-if"});
    CHECK(small.code == 0);
    const size_t said = small.out.find(" usable");
    CHECK(said != std::string::npos);
    CHECK(small.out.find(" usable", said + 1) == std::string::npos);
}

}  // namespace what_if_test
