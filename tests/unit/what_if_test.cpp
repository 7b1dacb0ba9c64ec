// Goal: `run --what-if` gives the gain of the same run by more of each resource. Method: each
// resource compared with a machine whose files have the larger figure; the sentence on savings
// worked by hand; the program on a run that its link decides.
#include <doctest/doctest.h>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "tools/comparison/what_if.h"
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

double measure_tpot(const std::string &file, const std::string &old_text,
                    const std::string &new_text, std::optional<resource> faster = {},
                    const std::string &dispatch = "load_all") {
    moorage::test::toy_run fixture;
    fixture.write(circle());
    fixture.config.experts = 4;
    fixture.config.dispatch.plugin = dispatch;
    if (!old_text.empty()) fixture.change(file, old_text, new_text);
    if (faster) fixture.config.speed_factors[*faster] = 2;
    return fixture.run_it().tpot_ms.mean;
}

what_if what_if_of(std::vector<std::pair<std::string, double>> rows) {
    what_if asked;
    asked.metric = "tpot_ms";
    asked.base_ms = 100;
    for (const auto &[name, ms] : rows) asked.rows.push_back({name, name, ms, ""});
    return asked;
}

}  // namespace

TEST_CASE("a resource twice as fast is the machine whose file says so") {
    const double base = measure_tpot("", "", "");
    const double link =
        measure_tpot("link.toml", "h2d_bytes_per_s = 10e9", "h2d_bytes_per_s = 20e9");
    CHECK(link < base);
    CHECK(measure_tpot("", "", "", resource::link) == link);
    // A resource that takes no part changes nothing.
    CHECK(measure_tpot("", "", "", resource::disk) == base);
    CHECK(measure_tpot("", "", "", resource::cpu) == base);
    const double cpu = measure_tpot("", "", "", {}, "cpu_all");
    CHECK(measure_tpot("", "", "", resource::cpu, "cpu_all") < cpu);
    const double node = measure_tpot("node.toml", "cpu_bytes_per_s = 50e9",
                                     "cpu_bytes_per_s = 100e9", {}, "cpu_all");
    CHECK(measure_tpot("", "", "", resource::cpu, "cpu_all") ==
          node);  // its arithmetic takes nothing
}

TEST_CASE("the sentence names what saves most, by how much, and what comes next") {
    std::string text =
        to_text(what_if_of({{"the CPU", 95.9}, {"the link", 99}, {"launches", 100.5}}));
    CHECK(text.find("the CPU decides: 10 % more of it saves 4.1 %; next is the link, with 1.0 %") !=
          std::string::npos);
    CHECK(text.find("the CPU") < text.find("the link"));
    CHECK(text.find("+0.5 %") != std::string::npos);  // slower
    text = to_text(what_if_of({{"the CPU", 99.6}, {"the link", 99.9}}));
    CHECK(text.find("nothing decides alone") != std::string::npos);
    what_if failed = what_if_of({{"the CPU", 95}});
    failed.rows.push_back({"disk", "the disk", {}, "it died"});
    CHECK(to_text(failed).find("the disk: it died") != std::string::npos);
    CHECK(to_json(failed)["rows"][1]["value"].is_null());
    CHECK(to_json(failed)["rows"][0]["saved"] == 0.05);
    for (const std::string &line : split(text, '\n')) CHECK(columns_of(line) <= 80);
}

TEST_CASE("of several runs each resource is a column, unless it helps none") {
    const what_if first_run =
        what_if_of({{"the CPU", 95}, {"GPU compute", 100}, {"the link", 100}});
    const what_if second_run =
        what_if_of({{"the CPU", 100}, {"GPU compute", 100}, {"the link", 102.25}});
    CHECK(what_if_table({"next_gate, cpu_all", "next_gate, cost"}, {&first_run, &second_run}, 60) ==
          "what would help: TPOT with 10 % more of one resource\n"
          "                      the CPU  the link\n"
          "  next_gate, cpu_all   -5.0 %    +0.0 %\n"
          "  next_gate, cost      +0.0 %    +2.2 %\n"
          "  no change: GPU compute\n");
}

TEST_CASE("the program asks it of emulated machines") {
    const moorage::test::program runner;
    const toy::folder &folder = runner.folder;
    toy::write_files(folder, 1, 8, 1);
    REQUIRE(write_trace(circle(), folder / "trace.safetensors").ok());
    folder.write("run.toml",
                 "[hardware]\nprofile = \"device.toml\"\nlink = \"link.toml\"\n"
                 "node = \"node.toml\"\n[source]\ntrace = \"trace.safetensors\"\n"
                 "shape = \"shape.toml\"\n[memory]\nexperts = 4\n");
    const auto result = runner.run({"run", "run.toml", "--what-if", "--json", "r.json"});
    CHECK(result.code == 0);
    CHECK(result.output.find("the link decides: 10 % more of it saves") != std::string::npos);
    const json report_json = json::parse(runner.read("r.json"));
    CHECK(report_json["what_if"]["base"] == report_json["tpot_ms"]["mean"]);
    CHECK(report_json["what_if"]["rows"].size() == 7);  // no disk; memory for experts
    CHECK(report_json["what_if"]["rows"][6]["resource"] == "expert_memory");
    // Two memories where a disk is below: each is the run with the larger one.
    const std::vector<std::string> tiers{"--set", "hardware.disk=nvme_gen4", "--set",
                                         "memory.experts=2"};
    const auto tpot_of = [&](std::vector<std::string> extra_arguments, const char *output_file) {
        std::vector<std::string> arguments{"run", "run.toml", "--json", output_file};
        arguments.insert(arguments.end(), tiers.begin(), tiers.end());
        arguments.insert(arguments.end(), extra_arguments.begin(), extra_arguments.end());
        REQUIRE(runner.run(arguments).code == 0);
        return json::parse(runner.read(output_file));
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
    const auto compared = runner.run(
        {"compare", "run.toml", "--sweep", "memory.experts=4,6", "--what-if", "--json", "c.json"});
    CHECK(compared.code == 0);
    CHECK(compared.output.find("what would help") != std::string::npos);
    const json rows = json::parse(runner.read("c.json"))["results"];
    REQUIRE(rows.size() == 2);
    CHECK(rows[0]["what_if"] == report_json["what_if"]);
    CHECK(rows[1]["what_if"]["base"] == rows[1]["tpot_ms"]["mean"]);
    // A configuration that does not fit says so once, not once for each resource.
    std::string device = runner.read("device.toml");
    const size_t position = device.find("memory_bytes = ") + 15, end = device.find('\n', position);
    folder.write("device.toml", device.replace(position, end - position, "\"1 kB\""));
    const auto small = runner.run({"run", "run.toml", "--what-if"});
    CHECK(small.code == 0);
    const size_t said = small.output.find(" usable");
    CHECK(said != std::string::npos);
    CHECK(small.output.find(" usable", said + 1) == std::string::npos);
}

}  // namespace what_if_test
