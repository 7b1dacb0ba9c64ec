// Goal: finished rows are not lost, a command resumes with the others alone, and rows of one worker
// do not influence each other. Method: the built program, interrupted, and its rows counted in the
// file. Its later output is compared with that of an undisturbed run.
#include "tests/unit/program.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <sys/stat.h>

#include "core/base/json.h"
#include "core/source/trace_write.h"

namespace row_file_test {

using namespace moorage::core;
using namespace std::chrono_literals;
using moorage::test::program;
using moorage::test::program_result;

namespace {

const std::string policies = std::string(MOORAGE_BINARY_DIR) + "/tests/policies/";

// Eight experts of two layers, asked for in a circle with this step.
void write_trace_file(const program &runner, uint16_t step) {
    std::vector<std::vector<std::vector<uint16_t>>> chosen;
    for (uint16_t token = 0; token < 64; ++token) {
        const auto first = static_cast<uint16_t>(token * step % 8);
        chosen.push_back({{first}, {static_cast<uint16_t>((first + 3) % 8)}});
    }
    REQUIRE(
        write_trace(toy::routing(chosen, 8, {0, 64}, false), runner.file("t.safetensors")).ok());
}

struct bench : program {
    bench() {
        toy::write_files(folder, 2, 8, 1);
        write_trace_file(*this, 5);
        folder.write("run.toml",
                     "[hardware]\nprofile = \"device.toml\"\nlink = \"link.toml\"\n"
                     "node = \"node.toml\"\n[source]\ntrace = \"t.safetensors\"\n"
                     "shape = \"shape.toml\"\n[memory]\nexperts = 4\n");
    }
    size_t count_lines(const std::string &name) const {
        const std::string text = read(name);
        return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    }
    // The first lines alone, and a last one that was cut off.
    void keep_lines(const std::string &name, size_t kept) const {
        const std::string text = read(name);
        size_t end = 0;
        for (size_t i = 0; i < kept; ++i) end = text.find('\n', end) + 1;
        folder.write(name, text.substr(0, end + 20));
    }
};

const std::vector<std::string> six = {
    "compare", "run.toml", "--sweep", "memory.experts=2,3,4", "--sweep", "cache.plugin=lru,fifo"};

std::vector<std::string> add_words(std::vector<std::string> words,
                                   const std::vector<std::string> &extra_words) {
    words.insert(words.end(), extra_words.begin(), extra_words.end());
    return words;
}

}  // namespace

TEST_CASE("rows are kept as they end, and --resume runs those that are missing") {
    const bench runner;
    const program_result whole =
        runner.run(add_words(six, {"--rows", "r.jsonl", "--json", "whole.json"}));
    REQUIRE_MESSAGE(whole.code == 0, whole.errors);
    REQUIRE(runner.count_lines("r.jsonl") == 6);
    const json line =
        json::parse(runner.read("r.jsonl").substr(0, runner.read("r.jsonl").find('\n')));
    CHECK(line["row"].get<std::string>().starts_with("memory.experts="));
    CHECK(line["report"]["tokens"] == 64);
    CHECK(line["hash"].get<std::string>().size() == 32);
    runner.keep_lines("r.jsonl", 4);
    const program_result rest =
        runner.run(add_words(six, {"--rows", "r.jsonl", "--resume", "--json", "rest.json"}));
    CHECK(rest.code == 0);
    CHECK(rest.output == whole.output);
    CHECK(runner.read("rest.json") == runner.read("whole.json"));
    CHECK(runner.count_lines("r.jsonl") == 4 + 1 + 2);  // with the one that was cut off
    // All are there: nothing runs.
    const size_t line_count = runner.count_lines("r.jsonl");
    const program_result none =
        runner.run(add_words(six, {"--rows", "r.jsonl", "--resume", "--json", "none.json"}));
    CHECK(none.output == whole.output);
    CHECK(runner.read("none.json") == runner.read("whole.json"));
    CHECK(runner.count_lines("r.jsonl") == line_count);
}

TEST_CASE("a row whose settings, trace, profile or library changed is run again") {
    const bench runner;
    REQUIRE(runner.run(add_words(six, {"--rows", "r.jsonl"})).code == 0);
    const std::string six_rows = runner.read("r.jsonl");
    const auto runs = [&](const std::vector<std::string> &extra_words) {
        runner.folder.write("r.jsonl", six_rows);
        const program_result result =
            runner.run(add_words(add_words(six, extra_words), {"--rows", "r.jsonl", "--resume"}));
        CHECK_MESSAGE(result.code == 0, result.errors);
        return runner.count_lines("r.jsonl") - 6;
    };
    CHECK(runs({}) == 0);
    CHECK(runs({"--set", "run.seed=3"}) == 6);
    CHECK(runs({"--sweep", "run.batch=1,2"}) == 12);
    std::string device = runner.read("device.toml");
    runner.folder.write("device.toml", device + "\n# a remark\n");
    CHECK(runs({}) == 6);
    runner.folder.write("device.toml", device);
    CHECK(runs({}) == 0);
    write_trace_file(runner, 3);
    CHECK(runs({}) == 6);
    write_trace_file(runner, 5);
    CHECK(runs({}) == 0);
}

TEST_CASE("an interrupted comparison shows its rows, and can go on") {
    const bench runner;
    std::string sizes = "1";
    for (int size = 2; size <= 16; ++size) sizes += "," + std::to_string(size);
    const std::vector<std::string> common = {"compare", "run.toml",
                                             "--sweep", "memory.experts=" + sizes,
                                             "--set",   "plugins.path=" + policies + "mortal.so",
                                             "--set",   "cache.mortal.way=wait",
                                             "--set",   "plugins.call_limit_ms=0",
                                             "--jobs",  "2",
                                             "--json",  "c.json",
                                             "--sweep"};
    const std::string sound = "cache.plugin=lru,fifo,lfu,llru,sieve,clock";
    const std::string output = runner.file("out.txt"), errors = runner.file("errors.txt");
    for (const int signal : {SIGTERM, SIGINT}) {
        const int output_fd = ::open(output.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600),
                  error_fd = ::open(errors.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        std::filesystem::remove(runner.file("c.json.rows"));
        const pid_t child =
            runner.start(add_words(common, {sound + ",mortal"}), output_fd, error_fd);
        ::close(output_fd), ::close(error_fd);
        // Rows of `mortal` wait for ever, so this comparison never ends.
        while (runner.count_lines("c.json.rows") < 6) std::this_thread::sleep_for(10ms);
        // The signal goes to the program alone, or to its whole group, as from a terminal.
        ::kill(signal == SIGINT ? -child : child, signal);
        CHECK(program::wait(child) == 128 + signal);
        const json shown = json::parse(runner.read("c.json"));
        CHECK(shown["interrupted"]["rows"] == 16 * 7);
        CHECK(shown["interrupted"]["signal"] == (signal == SIGINT ? "SIGINT" : "SIGTERM"));
        CHECK(shown["results"].size() == runner.count_lines("c.json.rows"));
        CHECK(runner.read("out.txt").find("interrupted by SIG") != std::string::npos);
        CHECK(runner.read("out.txt").find("--resume") != std::string::npos);
        CHECK_FALSE(shown.contains("failed"));
    }
    std::filesystem::copy_file(runner.file("c.json.rows"), runner.file("k.jsonl"));
    const program_result rest =
        runner.run(add_words(common, {sound, "--resume", "--rows", "k.jsonl"}));
    CHECK_MESSAGE(rest.code == 0, rest.errors);
    CHECK(runner.count_lines("k.jsonl") == 16 * 6);  // finished rows did not run again
    const std::string resumed = runner.read("c.json");
    // Rows are kept beside the JSON until all are there.
    CHECK(runner.run(add_words(common, {sound, "--resume"})).output == rest.output);
    CHECK(std::ranges::count(runner.names(), "c.json.rows") == 0);
    CHECK(runner.read("c.json") == resumed);
    CHECK(runner.run(add_words(common, {sound})).output == rest.output);
    CHECK(runner.read("c.json") == resumed);
}

TEST_CASE("--resume without a file is wrong usage; --csv has every row") {
    const bench runner;
    const program_result nowhere = runner.run(add_words(six, {"--resume"}));
    CHECK(nowhere.code == 2);
    CHECK(nowhere.says("--rows FILE"));
    const program_result table = runner.run(add_words(six, {"--csv", "t.csv", "--json", "t.json"}));
    CHECK(table.code == 0);
    const std::string csv = runner.read("t.csv");
    CHECK(std::count(csv.begin(), csv.end(), '\n') == 7);
    CHECK(csv.starts_with("row,"));
    const json results = json::parse(runner.read("t.json"))["results"];
    for (const json &row : results) {
        const std::string misses = "," + row["experts"]["misses"].dump() + ",";
        CHECK(csv.find(misses) != std::string::npos);
    }
    // A cell with a comma is quoted, and a failed row says why.
    const program_result dead =
        runner.run({"compare", "run.toml", "--sweep", "cache.plugin=lru,mortal", "--set",
                    "plugins.path=" + policies + "mortal.so", "--set", "cache.mortal.way=segv",
                    "--csv", "d.csv"});
    CHECK(dead.code == 1);
    CHECK(runner.read("d.csv").find("cache.plugin=mortal,") != std::string::npos);
    CHECK(runner.read("d.csv").find("SIGSEGV") != std::string::npos);
}

TEST_CASE("rows of one worker do not influence each other, whatever a policy remembers") {
    const bench runner;
    for (const char *policy : {"remembers", "remembers_on_heap"}) {
        const std::vector<std::string> common = {
            "--set",  "plugins.path=" + policies + "remembers.so",
            "--set",  "cache.plugin=" + std::string(policy),
            "--jobs", "1",
            "--json", "m.json"};
        const program_result all_sizes = runner.run(
            add_words({"compare", "run.toml", "--sweep", "memory.experts=3,4,5,6"}, common));
        REQUIRE_MESSAGE(all_sizes.code == 0, all_sizes.errors);
        const json rows = json::parse(runner.read("m.json"))["results"];
        REQUIRE(rows.size() == 4);
        for (int size = 3; size <= 6; ++size) {
            const program_result single_size = runner.run(add_words(
                {"compare", "run.toml", "--set", "memory.experts=" + std::to_string(size)},
                common));
            REQUIRE(single_size.code == 0);
            const json alone = json::parse(runner.read("m.json"))["results"][0];
            CHECK(rows[static_cast<size_t>(size - 3)]["experts"] == alone["experts"]);
        }
    }
}

TEST_CASE("an interrupted replay shows its rows, and goes on") {
    const bench runner;
    const std::vector<std::string> common = {"replay", "t.safetensors", "--slots",
                                             "2,4,6",  "--json",        "r.json"};
    const auto words = add_words(common, {"--policies", "lru,fifo,lfu", "--rows", "r.rows"});
    const program_result whole = runner.run(words);
    REQUIRE(whole.code == 0);
    const std::string figures = runner.read("r.json");
    const size_t lines = runner.count_lines("r.rows");
    runner.keep_lines("r.rows", 3);
    const program_result rest = runner.run(add_words(words, {"--resume"}));
    CHECK(rest.output == whole.output);
    CHECK(runner.read("r.json") == figures);
    CHECK(runner.count_lines("r.rows") == lines + 1);
}

TEST_CASE("no output replaces an input, nor a file that holds no rows") {
    const bench runner;
    const std::string trace = runner.read("t.safetensors"), config = runner.read("run.toml"),
                      device = runner.read("device.toml");
    runner.folder.write("notes.txt", "first note\nsecond note\n");
    const std::vector<std::vector<std::string>> refused = {
        {"--rows", "t.safetensors"}, {"--rows", "run.toml"},
        {"--rows", "device.toml"},   {"--rows", "notes.txt"},
        {"--json", "run.toml"},      {"--csv", "t.safetensors"},
        {"--html", "device.toml"},   {"--json", "./run.toml"},
        {"--json", "t.safetensors"}, {"--rows", "notes.txt", "--resume"}};
    for (const auto &words : refused) {
        CAPTURE(words[0] + " " + words[1]);
        const program_result result = runner.run(add_words(six, words));
        CHECK(result.code == 2);
        CHECK_MESSAGE(result.errors.find("name another") != std::string::npos, result.errors);
    }
    CHECK(runner.run({"run", "run.toml", "--timeline", "device.toml"}).code == 2);
    CHECK(runner.run({"run", "run.toml", "--json", "run.toml"}).code == 2);
    CHECK(runner
              .run({"replay", "t.safetensors", "--policies", "lru", "--slots", "4", "--rows",
                    "t.safetensors"})
              .code == 2);
    CHECK(runner
              .run({"tune", "run.toml", "--param", "memory.experts", "--target", "tpot_ms=50",
                    "--rows", "run.toml"})
              .code == 2);
    const std::string fifo = runner.file("pipe");
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    CHECK(runner.run(add_words(six, {"--rows", "pipe"})).code == 2);
    CHECK(runner.read("t.safetensors") == trace);
    CHECK(runner.read("run.toml") == config);
    CHECK(runner.read("device.toml") == device);
    CHECK(runner.read("notes.txt") == "first note\nsecond note\n");
}

TEST_CASE("a row that was damaged is made again") {
    const bench runner;
    const program_result whole =
        runner.run(add_words(six, {"--rows", "r.jsonl", "--json", "whole.json"}));
    REQUIRE(whole.code == 0);
    const std::string rows = runner.read("r.jsonl");
    // A digit of the first row's bytes, one digit less, and one more.
    const size_t packed = rows.find("\"packed\":\"") + 10, digit = packed + 41;
    for (const std::string &replacement :
         {std::string(1, rows[digit] == '7' ? '8' : '7'), std::string(), std::string("00")}) {
        runner.folder.write("r.jsonl",
                            rows.substr(0, digit) + replacement + rows.substr(digit + 1));
        const program_result rest =
            runner.run(add_words(six, {"--rows", "r.jsonl", "--resume", "--json", "rest.json"}));
        CHECK(rest.code == 0);
        CHECK(rest.errors.find("damaged") != std::string::npos);
        CHECK(runner.read("rest.json") == runner.read("whole.json"));
        CHECK(runner.count_lines("r.jsonl") == 7);
    }
}

// The time that a policy took is among a row's figures, so rows that were kept show the same again.
TEST_CASE("placements are kept as they end, and --resume makes those that are missing") {
    const bench runner;
    const std::string tiny = std::string(MOORAGE_SOURCE_DIR) + "/configs/clusters/tiny.toml";
    const std::vector<std::string> words = {
        "place",      tiny,
        "--policies", "lfu,joint:effort=1000",
        "--rows",     "p.rows",
        "--json",     "p.json",
        "--sweep",    "cluster.servers.expert_memory_bytes=1e9,2e9"};
    const program_result whole = runner.run(words);
    REQUIRE_MESSAGE(whole.code == 0, whole.errors);
    const std::string figures = runner.read("p.json");
    REQUIRE(runner.count_lines("p.rows") == 4);
    const program_result none = runner.run(add_words(words, {"--resume"}));
    CHECK(none.output == whole.output);
    CHECK(runner.read("p.json") == figures);
    CHECK(runner.count_lines("p.rows") == 4);
    runner.keep_lines("p.rows", 3);
    const program_result rest = runner.run(add_words(words, {"--resume"}));
    CHECK(rest.code == 0);
    CHECK(runner.count_lines("p.rows") == 3 + 1 + 1);  // with the one that was cut off
    const program_result other_seed =
        runner.run(add_words(words, {"--resume", "--set", "run.seed=7"}));
    CHECK(other_seed.code == 0);
    CHECK(runner.count_lines("p.rows") == 3 + 1 + 1 + 4);
}

}  // namespace row_file_test
