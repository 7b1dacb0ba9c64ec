// Goal: a row that fails, or whose policy dies, harms no other row, in every command that sets rows
// side by side. A row's process delivers exactly the bytes that it sent. Method: the built program
// with a policy that dies to order, its finished rows compared with those of a run in which nothing
// dies; reports packed and unpacked, by the bytes of their text, JSON and page.
#include "tests/unit/program.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/cluster/cluster_run.h"
#include "core/report/comparison.h"
#include "core/report/report_packing.h"
#include "core/source/trace_write.h"

namespace rows_test {

using namespace moorage::core;
using moorage::test::ended;
using moorage::test::program;

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
    json parsed(const std::string &name) const { return json::parse(read(name)); }
};

size_t count_of(const std::string &text, const std::string &part) {
    size_t count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
    return count;
}

}  // namespace

// The process goes on after such a call, so only what arrives tells that something is wrong.
TEST_CASE("a policy that reaches for descriptors is named, and no other row loses anything") {
    const bench on;
    const ended how =
        on.run({"compare", "run.toml", "--sweep", "cache.mortal.way=none,close,replace,scribble",
                "--json", "c.json", "--rows", "r.jsonl", "--jobs", "1"});
    CHECK(how.code == 1);
    const json all = on.parsed("c.json");
    CHECK(all["results"].size() == 1);
    REQUIRE(all["failed"].size() == 3);
    for (const json &row : all["failed"]) {
        const std::string text = row["error"];
        CAPTURE(text);
        CHECK(text.find("policy mortal (" + mortal + ")") != std::string::npos);
        CHECK(text.find("a descriptor that is moorage's") != std::string::npos);
        CHECK(row["garbled"] == true);
    }
    CHECK(count_of(on.read("r.jsonl"), "junk") == 0);
    const std::string whole =
        on.run({"run", "run.toml", "--set", "cache.mortal.way=none", "--json", "-"}).out;
    CHECK(json::parse(whole)["tokens"] == 64);
    for (const char *way : {"close", "replace", "scribble"}) {
        CAPTURE(way);
        const ended run = on.run(
            {"run", "run.toml", "--set", std::string("cache.mortal.way=") + way, "--json", "-"});
        CHECK(run.code == 3);
        CHECK_MESSAGE(run.errors.find("policy mortal (" + mortal + ")") != std::string::npos,
                      run.errors);
        const json said = json::parse(run.out, nullptr, false);
        REQUIRE_MESSAGE(said.is_object(), run.out);
        CHECK(said["failed"]["garbled"] == true);
    }
}

TEST_CASE("compare: rows die each in a way of its own, and the others stay") {
    const bench on;
    const ended how =
        on.run({"compare", "run.toml", "--sweep", "cache.mortal.way=segv,none,abort,exit,few,cry",
                "--json", "c.json", "--html", "c.html", "--jobs", "2"});
    CHECK(how.code == 1);
    const json all = on.parsed("c.json");
    REQUIRE(all["results"].size() == 2);
    REQUIRE(all["failed"].size() == 4);
    const auto failed = [&](const std::string &way) {
        for (const json &one : all["failed"])
            if (one["row"] == "cache.mortal.way=" + way) return one;
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
        CHECK(how.out.find("FAILED  " + row + ": ") != std::string::npos);
        CHECK(how.says(row + ": "));
        CHECK(on.read("c.html").find(row) != std::string::npos);
    }
    // The remaining rows equal those of a run without the dying policies.
    const ended alive = on.run({"compare", "run.toml", "--sweep", "cache.mortal.way=none,cry",
                                "--json", "alive.json", "--html", "alive.html"});
    CHECK(alive.code == 0);
    const json plain = on.parsed("alive.json");
    CHECK(plain["results"] == all["results"]);
    CHECK_FALSE(plain.contains("failed"));
    CHECK(on.read("alive.html").find("Failed") == std::string::npos);
}

TEST_CASE("compare: where no row is left, what was asked wrongly is wrong usage, else a failure") {
    const bench on;
    const ended wrong = on.run({"compare", "run.toml", "--set", "cache.mortal.wey=segv"});
    CHECK(wrong.code == 2);
    CHECK(wrong.out.empty());
    const ended dead =
        on.run({"compare", "run.toml", "--set", "cache.mortal.way=segv", "--json", "c.json"});
    CHECK(dead.code == 1);
    CHECK(dead.out.find("FAILED  run: ") != std::string::npos);
    CHECK(on.parsed("c.json")["failed"][0]["signal"] == "SIGSEGV");
    CHECK(on.parsed("c.json")["results"].empty());
    // One wrong row is a row that failed.
    const ended one = on.run({"compare", "run.toml", "--sweep", "memory.experts=4,400000"});
    CHECK(one.code != 2);
}

TEST_CASE("compare: how many rows run at a time changes nothing") {
    const bench on;
    std::string first;
    for (const char *jobs : {"1", "2", "7"}) {
        const ended how =
            on.run({"compare", "run.toml", "--sweep", "memory.experts=1,2,3,4,5,6", "--sweep",
                    "cache.plugin=lru,belady,mortal", "--jobs", jobs, "--json", "-"});
        CHECK(how.code == 0);
        if (first.empty()) first = how.out;
        CHECK(how.out == first);
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
    const bench on;
    const std::vector<std::string> common = {"replay",    "t.safetensors", "--slots", "2,4,6",
                                             "--plugins", mortal,          "--json",  "r.json"};
    auto words = common;
    words.insert(words.end(), {"--policies", "lru,mortal:way=abort:at=57,mortal,belady"});
    const ended how = on.run(words);
    CHECK(how.code == 1);
    const json all = on.parsed("r.json");
    // The trace has 64 requests in a circle of 8. Requests 62, 60 and 58 find the slots full, and
    // only these rows die.
    CHECK(all["failed"].size() == 3);
    CHECK(all["results"].size() == 9);
    CHECK(all["failed"][0]["row"] == "mortal:way=abort:at=57, 2 slots, shared");
    CHECK(all["failed"][0]["signal"] == "SIGABRT");
    CHECK(count_of(how.out, "FAILED") == 6);  // in the table, and why
    auto alive = common;
    alive.insert(alive.end(), {"--policies", "lru,mortal,belady"});
    CHECK(on.run(alive).code == 0);
    CHECK(on.parsed("r.json")["results"] == all["results"]);
    // Wrong advice fails its row alone; replaced, it is counted.
    auto wrong = common;
    wrong.insert(wrong.end(), {"--policies", "lru,mortal:way=few"});
    CHECK(on.run(wrong).code == 1);
    CHECK(on.parsed("r.json")["failed"].size() == 3);
    wrong.insert(wrong.end(), {"--on-fault", "replace"});
    CHECK(on.run(wrong).code == 0);
}

TEST_CASE("tune: values whose runs fail are shown, and the others count") {
    const bench on;
    // With one slot the policy is asked 63 times, with two 62 times, with eight never.
    const std::vector<std::string> common = {
        "tune",      "run.toml", "--param", "memory.experts",        "--target", "misses=60",
        "--samples", "8",        "--set",   "cache.mortal.way=segv", "--json",   "t.json"};
    auto words = common;
    words.insert(words.end(), {"--set", "cache.mortal.at=62"});
    const ended how = on.run(words);
    CHECK(how.code == 1);
    const json some = on.parsed("t.json");
    CHECK(some["samples"].size() == 7);
    CHECK(some["samples"][0]["value"] == 2);
    REQUIRE(some["failed"].size() == 1);
    CHECK(some["failed"][0]["row"] == "memory.experts=1");
    CHECK(some["failed"][0]["signal"] == "SIGSEGV");
    CHECK(how.out.find("FAILED  memory.experts=1: ") != std::string::npos);
    // Nothing left but the value at which nothing is evicted; it was run, and meets the target.
    words = common;
    words.insert(words.end(), {"--set", "cache.mortal.at=0"});
    const ended few = on.run(words);
    CHECK(few.code == 1);
    CHECK(on.parsed("t.json")["samples"].size() == 1);
    CHECK(on.parsed("t.json")["failed"].size() == 7);
    CHECK(on.parsed("t.json")["chosen"]["value"] == 8);
}

TEST_CASE("place: a policy that fails stands beside those that do not") {
    const program on;
    const std::string tiny = home + "/configs/clusters/tiny.toml";
    const ended both = on.run({"place", tiny, "--policies", "lfu,uniform", "--json", "p.json"});
    CHECK(both.code == 0);
    json plain = json::parse(on.read("p.json"))["results"];
    const ended wrong = on.run({"place", tiny, "--policies", "lfu,nobody,mortal_plan,uniform",
                                "--set", "plugins.path=" + mortal, "--json", "w.json"});
    CHECK(wrong.code == 1);
    json all = json::parse(on.read("w.json"))["results"];
    REQUIRE(all.size() == 4);
    CHECK(all[1]["policy"] == "nobody");
    CHECK(all[1]["failed"].get<std::string>().find("nobody") != std::string::npos);
    CHECK_FALSE(all[1].contains("death"));
    CHECK(all[2]["policy"] == "mortal_plan");
    CHECK(all[2]["death"]["signal"] == "SIGABRT");
    CHECK(count_of(wrong.out, "FAILED") == 2);
    all.erase(2), all.erase(1);
    for (json *rows : {&plain, &all})
        for (json &row : *rows) row.erase("seconds");
    CHECK(plain == all);
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
    const program on;
    on.folder.write("zones.toml", zones_toml({"1e9", "2e9", "3e9"}));
    const ended all = on.run({"place", "zones.toml", "--policies", "lfu,mortal_plan", "--set",
                              "plugins.path=" + mortal, "--json", "z.json"});
    CHECK(all.code == 1);
    const json rows = json::parse(on.read("z.json"))["results"];
    REQUIRE(rows.size() == 2);
    CHECK(rows[0]["facts"]["zones"] == 3);
    CHECK(rows[1]["death"]["signal"] == "SIGABRT");
    CHECK(rows[1]["failed"].get<std::string>().starts_with("zone 1 of 3: "));
    const ended none = on.run({"place", "zones.toml", "--policies", "nobody"});
    CHECK(none.code == 2);
    CHECK(none.errors.find("zone 1 of 3: --policies nobody: no placement policy") !=
          std::string::npos);
}

TEST_CASE("place: where one zone has no plan there is none, nor a part of one") {
    const program on;
    on.folder.write("zones.toml", zones_toml({"1e9", "2e9", "\"1000 B\""}));
    const ended how =
        on.run({"place", "zones.toml", "--policies", "lfu,uniform", "--json", "z.json"});
    CHECK(how.code == 1);
    const json rows = json::parse(on.read("z.json"))["results"];
    REQUIRE(rows.size() == 2);
    for (const json &row : rows) {
        CHECK(row["refusal"].get<std::string>().starts_with("zone 3 of 3: "));
        CHECK_FALSE(row.contains("placement"));
    }
}

TEST_CASE("a report that went through a pipe writes the same bytes") {
    const bench on;
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
    for (const auto &one : work) {
        const auto &file = one.first;
        const auto &overrides = one.second;
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
        const auto written = [](const run_report &of) {
            return to_json(of).dump(2, ' ', false, json::error_handler_t::replace);
        };
        CHECK(written(copy) == written(*report));
        const auto page = [](const run_report &of) {
            return to_html(comparison{"t", "", "", {{of}, {of}}}, "c");
        };
        CHECK(page(copy) == page(*report));
        CHECK(packed(copy) == bytes);
        // Missing or extra bytes are noticed, whatever their content.
        for (size_t cut = 0; cut < bytes.size(); cut += 1 + bytes.size() / 97) {
            run_report part;
            CHECK_FALSE(unpack(std::string_view(bytes).substr(0, cut), part));
        }
        run_report more;
        CHECK_FALSE(unpack(bytes + "x", more));
    }
}

}  // namespace rows_test
