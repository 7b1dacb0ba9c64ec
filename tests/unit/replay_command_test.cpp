// replay_command_test.cpp - goal: `moorage replay` keeps the contract: fields, exit codes, stable
// bytes, a table that fits. Method: run the built program on small traces. Compare its figures with
// each other and with those of the library, never with an earlier output.
#include "tests/unit/replay_fixture.h"

#include <map>
#include <set>

#include "core/base/json.h"
#include "core/base/text.h"
#include "tests/unit/program.h"

namespace replay_command_test {

using namespace moorage;
using namespace moorage::core;
using namespace moorage::test;

namespace {

// A trace on disk for the life of a test.
struct trace_file {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() /
        ("moorage-replay-command-" + std::to_string(getpid()) + ".safetensors");
    explicit trace_file(trace_data data) {
        data.tokens = data.chosen.size() / (data.layers * data.top_k);
        data.request_offsets = {0, data.tokens};
        REQUIRE(write_trace(data, path).ok());
    }
    ~trace_file() { std::filesystem::remove(path); }
};

program_result moorage_replay_of(const trace_file &file, const std::string &arguments) {
    const std::string errors = file.path.string() + ".errors";
    program_result result = run_line("replay " + file.path.string() + " " + arguments, errors);
    std::filesystem::remove(errors);
    return result;
}

json json_of(const trace_file &file, const std::string &arguments) {
    const program_result result = moorage_replay_of(file, arguments + " --json -");
    REQUIRE_MESSAGE(result.code == 0, result.errors);
    return parse_json(result.output);
}

}  // namespace

TEST_CASE("the fields of the contract are there and agree with each other and with the library") {
    const trace_file file(random_choices({3, 10, 2}, 300, 5));
    const auto source = trace::open(file.path);
    REQUIRE(source.ok());
    const json report = json_of(file,
                                "--policies lru,random,belady --slots 6,40% --sharing "
                                "shared,per-layer --order serial --seed 9");
    CHECK(report["trace"] == file.path.string());
    REQUIRE(report["results"].size() == 12);
    std::map<std::string, std::set<uint64_t>> optimum;
    for (const json &row : report["results"]) {
        const std::string policy = row["policy"];
        const uint32_t slots = row["slots"];
        const sharing pools = *parse_sharing(row["sharing"].get<std::string>());
        CHECK((slots == 6 || slots == 12));
        CHECK(row["order"] == "serial");
        CHECK(row["seed"] == 9);
        CHECK(row["requests"] == 300 * 3 * 2);
        CHECK(row["hits"].get<uint64_t>() + row["misses"].get<uint64_t>() == 1800);
        CHECK(row["misses"].get<uint64_t>() >= row["opt_misses"].get<uint64_t>());
        CHECK(row["faults"] == 0);
        CHECK(row["seconds"] == 0.0);
        if (policy == "belady") CHECK(row["misses"] == row["opt_misses"]);
        replay_job job = job_of(policy, slots, order::serial, pools);
        job.seed = 9;
        CHECK(row["misses"] == count_replay(*source, job).misses);
        optimum[name_of(pools) + std::to_string(slots)].insert(row["opt_misses"].get<uint64_t>());
    }
    CHECK(optimum.size() == 4);
    for (const auto &[size, values] : optimum) CHECK(values.size() == 1);
    const json timed = json_of(file, "--policies lru --slots 6 --timing");
    for (const json &row : timed["results"]) CHECK(row["seconds"].get<double>() > 0);
}

TEST_CASE("equal runs write equal bytes, whatever the threads; the seed matters where it should") {
    const trace_file file(random_choices({4, 12, 3}, 400, 6));
    const std::string work = "--policies all --slots 10,25% --sharing per-layer,shared --json - ";
    const program_result serial = moorage_replay_of(file, work + "--jobs 1");
    CHECK(serial.code == 0);
    CHECK(serial.output == moorage_replay_of(file, work + "--jobs 1").output);
    CHECK(serial.output == moorage_replay_of(file, work + "--jobs 4").output);
    const json other_seed = json_of(file, "--policies random,lru --slots 10 --seed 1");
    const json first = json_of(file, "--policies random,lru --slots 10 --seed 0");
    CHECK(first["results"][0]["misses"] != other_seed["results"][0]["misses"]);
    CHECK(first["results"][1]["misses"] == other_seed["results"][1]["misses"]);
}

TEST_CASE("parameters come with the label or for every entry of a policy") {
    const trace_file file(random_choices({2, 8, 2}, 200, 8));
    const json report = json_of(
        file, "--policies lfu,lfu:half_life=16,lru --slots 5 --param cache.lfu.half_life=3");
    const json &rows = report["results"];
    REQUIRE(rows.size() == 3);
    CHECK(rows[0]["policy"] == "lfu");
    CHECK(rows[0]["parameters"]["half_life"] == 3);
    CHECK(rows[1]["policy"] == "lfu:half_life=16");
    CHECK(rows[1]["parameters"]["half_life"] == 16);
}

TEST_CASE("a key that --set gives counts before the flag that stands for it") {
    const trace_file file(random_choices({2, 8, 2}, 50, 8));
    const json report =
        json_of(file,
                "--policies lru --slots 50% --sharing shared --set memory.experts=4 "
                "--set cache.plugin=fifo --set memory.sharing=per-layer");
    REQUIRE(report["results"].size() == 1);
    const json &row = report["results"][0];
    CHECK(row["policy"] == "fifo");
    CHECK(row["slots"] == 4);
    CHECK(row["sharing"] == "per-layer");
}

TEST_CASE("wrong usage ends with 2 and says what was meant, what fails ends with 1") {
    const trace_file file(random_choices({2, 8, 2}, 50, 8));
    const std::pair<const char *, const char *> wrong[] = {
        {"--policies lrux", "did you mean lru"},
        {"--policies lfu:half_lif=2", "half_life"},
        {"--policies lru --param cache.lfu.half_life=2", "not among --policies"},
        {"--policies lfu:half_life=4 --param cache.lfu.half_life=0,16", "is given twice"},
        {"--policies lfu --param cache.lfu.half_life=0,16 --param cache.lfu.half_life=8",
         "say two things of one parameter"},
        {"--policies lfu --param cache.lfu.half_life=0 --set cache.lfu.half_life=16",
         "--set cache.lfu.half_life=16"},
        {"--policies lru --slots 0", "--slots 0"},
        {"--policies lru --slots 2.5", "--slots 2.5"},
        {"--policies lru --slots 1%", "--slots 1%"},
        {"--policies lru --slots x", "--slots x"},
        {"--policies lru --sharing both", "--sharing"},
        {"--order random", "--order"},
        {"--nonsense", "--nonsense"},
    };
    for (const auto &usage : wrong) {
        CAPTURE(usage.first);
        const program_result result = moorage_replay_of(file, usage.first);
        CHECK(result.code == 2);
        CHECK(result.errors.find(usage.second) != std::string::npos);
        CHECK(result.output.empty());
    }
    CHECK(moorage_replay_of(file, "--json /no/such/folder/file").code == 1);
    const std::string bad = std::string("--plugins ") + MOORAGE_BINARY_DIR +
                            "/tests/policies --policies scripted:fault=few --slots 4";
    const program_result result = moorage_replay_of(file, bad);
    CHECK(result.code == 1);
    CHECK(result.errors.find("scripted") != std::string::npos);
    const auto repaired = moorage_replay_of(file, bad + " --on-fault replace --json -");
    CHECK(repaired.code == 0);
    CHECK(parse_json(repaired.output)["results"][0]["faults"].get<int>() > 0);
}

TEST_CASE("the table fits 100 columns, a small one 80, and the working set is warned of") {
    const trace_file file(random_choices({12, 20, 4}, 100, 8));
    const auto widest = [](const std::string &text) {
        size_t columns = 0;
        for (const std::string &line : split(text, '\n')) columns = std::max(columns, line.size());
        return columns;
    };
    // The first line is the trace's path, as long as it is.
    const auto below_title = [](const std::string &text) {
        return text.substr(text.find('\n') + 1);
    };
    const program_result many = moorage_replay_of(
        file, "--policies all --slots 10,20,30,44,45,48,100,200,240 --sharing shared,per-layer");
    CHECK(many.code == 0);
    // Only policies that the trace cannot feed are left out.
    CHECK(many.errors.find("left out: cache policy score needs tensor gate_scores") !=
          std::string::npos);
    CHECK(widest(below_title(many.output)) <= 100);
    // 44 = 11 other layers x 4 experts; one token's working set is 48.
    CHECK(many.output.find("10, 20, 30, 44 slots hits exactly 0 %") != std::string::npos);
    CHECK(many.output.find("45 slots hits next to nothing") != std::string::npos);
    const program_result few = moorage_replay_of(file, "--policies lru,lfu --slots 60,120");
    CHECK(widest(below_title(few.output)) <= 80);
    CHECK(few.output.find("warning") == std::string::npos);
}

}  // namespace replay_command_test
