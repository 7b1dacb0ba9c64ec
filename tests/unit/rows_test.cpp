// Goal: a row that fails, or whose policy dies, harms no other row, in every command that sets rows
// side by side. A row's process delivers exactly the bytes that it sent. Method: the built program
// with a policy that dies to order, its finished rows compared with those of a run in which nothing
// dies; reports packed and unpacked, by the bytes of their text, JSON and page.
#include "tests/unit/program.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tools/cluster/cluster_run.h"
#include "tools/comparison/comparison.h"
#include "core/report/report_packing.h"
#include "core/source/trace_write.h"

namespace rows_test {

using namespace moorage::core;
using moorage::test::program;
using moorage::test::program_result;

namespace {

const std::string home = MOORAGE_SOURCE_DIR;
const std::string mortal = std::string(MOORAGE_BINARY_DIR) + "/tests/policies/mortal.so";

// Eight experts of one layer, asked for in a circle, and the policy that dies.
struct bench : program {
    bench() {
        std::vector<std::vector<std::vector<uint16_t>>> chosen;
        for (uint16_t token = 0; token < 64; ++token)
            chosen.push_back({{static_cast<uint16_t>(token * 5 % 8)}});
        toy::write_files(folder, 1, 8, 1);
        REQUIRE(
            write_trace(toy::routing(chosen, 8, {0, 64}, false), folder / "t.safetensors").ok());
        folder.write("run.toml",
                     "[hardware]\nprofile = \"device.toml\"\nlink = \"link.toml\"\n"
                     "node = \"node.toml\"\n[source]\ntrace = \"t.safetensors\"\n"
                     "shape = \"shape.toml\"\n[memory]\nexperts = 4\n[cache]\nplugin = \"mortal\"\n"
                     "mortal.at = 3\n[plugins]\npath = [\"" +
                         mortal + "\"]\n");
    }
    json read_json(const std::string &name) const { return json::parse(read(name)); }
};

size_t count_of(const std::string &text, const std::string &part) {
    size_t count = 0;
    for (size_t position = 0; (position = text.find(part, position)) != std::string::npos;
         position += part.size())
        ++count;
    return count;
}

}  // namespace

// The process goes on after such a call, so only what arrives tells that something is wrong.
TEST_CASE("a policy that reaches for descriptors is named, and no other row loses anything") {
    const bench runner;
    const program_result result = runner.run(
        {"compare", "run.toml", "--sweep", "cache.mortal.way=none,close,replace,scribble", "--json",
         "c.json", "--rows", "r.jsonl", "--jobs", "1"});
    CHECK(result.code == 1);
    const json report = runner.read_json("c.json");
    CHECK(report["results"].size() == 1);
    REQUIRE(report["failed"].size() == 3);
    for (const json &row : report["failed"]) {
        const std::string text = row["error"];
        CAPTURE(text);
        CHECK(text.find("policy mortal (" + mortal + ")") != std::string::npos);
        CHECK(text.find("a descriptor that is moorage's") != std::string::npos);
        CHECK(row["garbled"] == true);
    }
    CHECK(count_of(runner.read("r.jsonl"), "junk") == 0);
    const std::string whole =
        runner.run({"run", "run.toml", "--set", "cache.mortal.way=none", "--json", "-"}).output;
    CHECK(json::parse(whole)["tokens"] == 64);
    for (const char *way : {"close", "replace", "scribble"}) {
        CAPTURE(way);
        const program_result run = runner.run(
            {"run", "run.toml", "--set", std::string("cache.mortal.way=") + way, "--json", "-"});
        CHECK(run.code == 3);
        CHECK_MESSAGE(run.errors.find("policy mortal (" + mortal + ")") != std::string::npos,
                      run.errors);
        const json said = json::parse(run.output, nullptr, false);
        REQUIRE_MESSAGE(said.is_object(), run.output);
        CHECK(said["failed"]["garbled"] == true);
    }
}

TEST_CASE("compare: rows die each in a way of its own, and the others stay") {
    const bench runner;
    const program_result result = runner.run(
        {"compare", "run.toml", "--sweep", "cache.mortal.way=segv,none,abort,exit,few,cry",
         "--json", "c.json", "--html", "c.html", "--jobs", "2"});
    CHECK(result.code == 1);
    const json report = runner.read_json("c.json");
    REQUIRE(report["results"].size() == 2);
    REQUIRE(report["failed"].size() == 4);
    const auto failed = [&](const std::string &way) {
        for (const json &row : report["failed"])
            if (row["row"] == "cache.mortal.way=" + way) return row;
        FAIL("no row for " << way);
        return json();
    };
    CHECK(failed("segv")["signal"] == "SIGSEGV");
    CHECK(failed("abort")["signal"] == "SIGABRT");
    CHECK(failed("exit")["exit_code"] == 0);
    for (const char *way : {"segv", "abort", "exit"}) {
        const json row = failed(way);
        if (row["call"].is_null()) continue;  // the host has not noted whom it calls
        CHECK(row["policy"] == "mortal");
        CHECK(row["kind"] == "cache");
        CHECK(row["call"] == "victims");
        CHECK(row["layer"] == 0);
        CHECK(row["token"] == 7);  // the fourth call, after four loads into empty slots
    }
    // Wrong advice is an error, but no death.
    CHECK_FALSE(failed("few").contains("signal"));
    CHECK(failed("few")["error"].get<std::string>().find("mortal") != std::string::npos);
    for (const char *way : {"segv", "abort", "exit", "few"}) {
        const std::string row = "cache.mortal.way=" + std::string(way);
        CHECK(result.output.find("FAILED  " + row + ": ") != std::string::npos);
        CHECK(result.says(row + ": "));
        CHECK(runner.read("c.html").find(row) != std::string::npos);
    }
    // The rows stay, since some are missing, and are not made again.
    CHECK(result.says("c.json.rows has the rows that did not fail"));
    const std::string kept_rows = runner.read("c.json.rows");
    CHECK(std::count(kept_rows.begin(), kept_rows.end(), '\n') == 2);
    const program_result resumed = runner.run({"compare", "run.toml", "--sweep",
                                               "cache.mortal.way=segv,none,abort,exit,few,cry",
                                               "--json", "c.json", "--jobs", "2", "--resume"});
    CHECK(resumed.code == 1);
    CHECK(runner.read("c.json.rows") == kept_rows);
    CHECK(runner.read_json("c.json")["results"] == report["results"]);
    // The remaining rows equal those of a run without the dying policies.
    const program_result alive =
        runner.run({"compare", "run.toml", "--sweep", "cache.mortal.way=none,cry", "--json",
                    "alive.json", "--html", "alive.html"});
    CHECK(alive.code == 0);
    const json plain = runner.read_json("alive.json");
    CHECK(plain["results"] == report["results"]);
    CHECK_FALSE(plain.contains("failed"));
    CHECK(runner.read("alive.html").find("Failed") == std::string::npos);
}

TEST_CASE("compare: where no row is left, what was asked wrongly is wrong usage, else a failure") {
    const bench runner;
    const program_result wrong =
        runner.run({"compare", "run.toml", "--set", "cache.mortal.wey=segv"});
    CHECK(wrong.code == 2);
    CHECK(wrong.output.empty());
    const program_result dead =
        runner.run({"compare", "run.toml", "--set", "cache.mortal.way=segv", "--json", "c.json"});
    CHECK(dead.code == 1);
    CHECK(dead.output.find("FAILED  run: ") != std::string::npos);
    CHECK(runner.read_json("c.json")["failed"][0]["signal"] == "SIGSEGV");
    CHECK(runner.read_json("c.json")["results"].empty());
    // One wrong row is a row that failed.
    const program_result partial =
        runner.run({"compare", "run.toml", "--sweep", "memory.experts=4,400000"});
    CHECK(partial.code != 2);
}

TEST_CASE("compare: how many rows run at a time changes nothing") {
    const bench runner;
    std::string first;
    for (const char *jobs : {"1", "2", "7"}) {
        const program_result result =
            runner.run({"compare", "run.toml", "--sweep", "memory.experts=1,2,3,4,5,6", "--sweep",
                        "cache.plugin=lru,belady,mortal", "--jobs", jobs, "--json", "-"});
        CHECK(result.code == 0);
        if (first.empty()) first = result.output;
        CHECK(result.output == first);
    }
    const json rows = json::parse(first)["results"];
    REQUIRE(rows.size() == 18);
    for (const json &row : rows) {
        // The optimum of a size is that of its belady row.
        const json &experts = row["experts"];
        CHECK(experts["misses"] >= row["opt_misses"]);
        if (row["config"]["cache"]["plugin"] == "belady")
            CHECK(experts["misses"] == row["opt_misses"]);
    }
}

TEST_CASE("replay: a policy that dies at some sizes leaves the others, the optimum and the table") {
    const bench runner;
    const std::vector<std::string> common = {"replay",    "t.safetensors", "--slots", "2,4,6",
                                             "--plugins", mortal,          "--json",  "r.json"};
    auto words = common;
    words.insert(words.end(), {"--policies", "lru,mortal:way=abort:at=57,mortal,belady"});
    const program_result result = runner.run(words);
    CHECK(result.code == 1);
    const json report = runner.read_json("r.json");
    // The trace has 64 requests in a circle of 8. Requests 62, 60 and 58 find the slots full, and
    // only these rows die.
    CHECK(report["failed"].size() == 3);
    CHECK(report["results"].size() == 9);
    CHECK(report["failed"][0]["row"] == "mortal:way=abort:at=57, 2 slots, shared");
    CHECK(report["failed"][0]["signal"] == "SIGABRT");
    CHECK(count_of(result.output, "FAILED") == 6);  // in the table, and why
    auto alive = common;
    alive.insert(alive.end(), {"--policies", "lru,mortal,belady"});
    CHECK(runner.run(alive).code == 0);
    CHECK(runner.read_json("r.json")["results"] == report["results"]);
    // Wrong advice fails its row alone; replaced, it is counted.
    auto wrong = common;
    wrong.insert(wrong.end(), {"--policies", "lru,mortal:way=few"});
    CHECK(runner.run(wrong).code == 1);
    CHECK(runner.read_json("r.json")["failed"].size() == 3);
    wrong.insert(wrong.end(), {"--on-fault", "replace"});
    CHECK(runner.run(wrong).code == 0);
}

TEST_CASE("tune: values whose runs fail are shown, and the others count") {
    const bench runner;
    // With one slot the policy is asked 63 times, with two 62 times, with eight never.
    const std::vector<std::string> common = {
        "tune",      "run.toml", "--param", "memory.experts",        "--target", "misses=60",
        "--samples", "8",        "--set",   "cache.mortal.way=segv", "--json",   "t.json"};
    auto words = common;
    words.insert(words.end(), {"--set", "cache.mortal.at=62"});
    const program_result result = runner.run(words);
    CHECK(result.code == 1);
    const json report = runner.read_json("t.json");
    CHECK(report["samples"].size() == 7);
    CHECK(report["samples"][0]["value"] == 2);
    REQUIRE(report["failed"].size() == 1);
    CHECK(report["failed"][0]["row"] == "memory.experts=1");
    CHECK(report["failed"][0]["signal"] == "SIGSEGV");
    CHECK(result.output.find("FAILED  memory.experts=1: ") != std::string::npos);
    // Nothing left but the value at which nothing is evicted; it was run, and meets the target.
    words = common;
    words.insert(words.end(), {"--set", "cache.mortal.at=0"});
    const program_result few = runner.run(words);
    CHECK(few.code == 1);
    CHECK(runner.read_json("t.json")["samples"].size() == 1);
    CHECK(runner.read_json("t.json")["failed"].size() == 7);
    CHECK(runner.read_json("t.json")["chosen"]["value"] == 8);
}

TEST_CASE("place: a policy that fails stands beside those that do not") {
    const program runner;
    const std::string tiny = home + "/configs/clusters/tiny.toml";
    const program_result complete =
        runner.run({"place", tiny, "--policies", "lfu,uniform", "--json", "p.json"});
    CHECK(complete.code == 0);
    json plain = json::parse(runner.read("p.json"))["results"];
    const program_result wrong =
        runner.run({"place", tiny, "--policies", "lfu,nobody,mortal_plan,uniform", "--set",
                    "plugins.path=" + mortal, "--json", "w.json"});
    CHECK(wrong.code == 1);
    json rows = json::parse(runner.read("w.json"))["results"];
    REQUIRE(rows.size() == 4);
    CHECK(rows[1]["policy"] == "nobody");
    CHECK(rows[1]["failed"].get<std::string>().find("nobody") != std::string::npos);
    CHECK_FALSE(rows[1].contains("death"));
    CHECK(rows[2]["policy"] == "mortal_plan");
    CHECK(rows[2]["death"]["signal"] == "SIGABRT");
    CHECK(count_of(wrong.output, "FAILED") == 2);
    rows.erase(2), rows.erase(1);
    for (json *rows : {&plain, &rows})
        for (json &row : *rows) row.erase("seconds");
    CHECK(plain == rows);
}

// Three servers that are asked alike, each a zone; their memory as given.
std::string zones_toml(const std::vector<std::string> &bytes) {
    std::string text = "[cluster]\n[[cluster.models]]\nname = \"switch_base_8\"\n";
    for (size_t i = 0; i < bytes.size(); ++i)
        text += "[[cluster.servers]]\nname = \"s" + std::to_string(i) +
                "\"\nflops = 1e12\nexpert_memory_bytes = " + bytes[i] + "\nworkload = \"drawn\"\n";
    return text +
           "[[cluster.links]]\nfrom = \"*\"\nto = \"*\"\nbits_per_s = 1e9\nlatency_s = 1e-3\n"
           "[[cluster.workloads]]\nname = \"drawn\"\nzipf = 1.0\ndraw_seed = 3\n"
           "[placement]\nzone_servers = 1\n";
}

TEST_CASE("place: a policy that dies in a zone is named with the zone") {
    const program runner;
    runner.folder.write("zones.toml", zones_toml({"1e9", "2e9", "3e9"}));
    const program_result result =
        runner.run({"place", "zones.toml", "--policies", "lfu,mortal_plan", "--set",
                    "plugins.path=" + mortal, "--json", "z.json"});
    CHECK(result.code == 1);
    const json rows = json::parse(runner.read("z.json"))["results"];
    REQUIRE(rows.size() == 2);
    CHECK(rows[0]["facts"]["zones"] == 3);
    CHECK(rows[1]["death"]["signal"] == "SIGABRT");
    CHECK(rows[1]["failed"].get<std::string>().starts_with("zone 1 of 3: "));
    const program_result none = runner.run({"place", "zones.toml", "--policies", "nobody"});
    CHECK(none.code == 2);
    CHECK(none.errors.find("zone 1 of 3: --policies nobody: no placement policy") !=
          std::string::npos);
}

TEST_CASE("place: where one zone has no plan there is none, nor a part of one") {
    const program runner;
    runner.folder.write("zones.toml", zones_toml({"1e9", "2e9", "\"1000 B\""}));
    const program_result result =
        runner.run({"place", "zones.toml", "--policies", "lfu,uniform", "--json", "z.json"});
    CHECK(result.code == 1);
    const json rows = json::parse(runner.read("z.json"))["results"];
    REQUIRE(rows.size() == 2);
    for (const json &row : rows) {
        CHECK(row["refusal"].get<std::string>().starts_with("zone 3 of 3: "));
        CHECK_FALSE(row.contains("placement"));
    }
}

TEST_CASE("a report that went through a pipe writes the same bytes") {
    const bench runner;
    run_resources shared;
    const std::string configs = home + "/configs";
    std::vector<std::pair<std::string, std::vector<override_value>>> work = {
        {configs + "/quickstart.toml", {{"run", "tokens", "40"}}},
        {configs + "/quickstart.toml", {{"run", "tokens", "40"}, {"run", "guard", "true"}}},
        {configs + "/demo.toml", {{"source", "max_tokens", "6"}}},
        {configs + "/clusters/tiny.toml", {}},
        {configs + "/clusters/prism.toml", {{"cluster", "duration_s", "40"}}},
    };
    for (const auto &file : std::filesystem::directory_iterator(configs + "/systems"))
        if (file.path().extension() == ".toml")
            work.push_back({file.path(), {{"run", "tokens", "30"}}});
    CHECK(work.size() > 12);
    for (const auto &entry : work) {
        const auto &file = entry.first;
        const auto &overrides = entry.second;
        CAPTURE(file);
        const auto config = load_run_config(file, overrides);
        REQUIRE_MESSAGE(config.ok(), config.failure().text);
        REQUIRE(shared.scan(config->plugin_paths).ok());
        auto report = run_either(*config, shared, {});
        REQUIRE_MESSAGE(report.ok(), report.failure().text);
        // Values that the program does not make, but a report may hold.
        report->text.own_nll = 1.0 / 3;
        report->faults["x\xFF"] = 3;
        report->warnings.push_back("\x1b[31m \xC2\x9B");
        report->config["extra"] = {
            {"float", 1.0}, {"tiny", 5e-324}, {"minus", -7}, {"null", nullptr}};
        const std::string bytes = packed(*report);
        run_report copy;
        REQUIRE(unpack(bytes, copy));
        CHECK(to_text(copy) == to_text(*report));
        const auto written = [](const run_report &written_report) {
            return to_json(written_report).dump(2, ' ', false, json::error_handler_t::replace);
        };
        CHECK(written(copy) == written(*report));
        const auto page = [](const run_report &written_report) {
            return to_html(comparison{"t", "", "", {{written_report}, {written_report}}}, "c");
        };
        CHECK(page(copy) == page(*report));
        CHECK(packed(copy) == bytes);
        // Missing or extra bytes are noticed, whatever their content.
        for (size_t cut = 0; cut < bytes.size(); cut += 1 + bytes.size() / 97) {
            run_report part;
            CHECK_FALSE(unpack(std::string_view(bytes).substr(0, cut), part));
        }
        run_report unpacked;
        CHECK_FALSE(unpack(bytes + "x", unpacked));
    }
}

}  // namespace rows_test
