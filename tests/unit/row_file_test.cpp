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
using moorage::test::ended;
using moorage::test::program;

namespace {

const std::string policies = std::string(MOORAGE_BINARY_DIR) + "/tests/policies/";

// Eight experts of two layers, asked for in a circle with this step.
void write_trace_file(const program &on, uint16_t step) {
    std::vector<std::vector<std::vector<uint16_t>>> chosen;
    for (uint16_t token = 0; token < 64; ++token) {
        const auto first = static_cast<uint16_t>(token * step % 8);
        chosen.push_back({{first}, {static_cast<uint16_t>((first + 3) % 8)}});
    }
    REQUIRE(write_trace(toy::routing(chosen, 8, {0, 64}, false), on.file("t.safetensors")).ok());
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
    size_t lines(const std::string &name) const {
        const std::string text = read(name);
        return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    }
    // The first lines alone, and a last one that was cut off.
    void cut(const std::string &name, size_t kept) const {
        const std::string text = read(name);
        size_t end = 0;
        for (size_t i = 0; i < kept; ++i) end = text.find('\n', end) + 1;
        folder.write(name, text.substr(0, end + 20));
    }
};

const std::vector<std::string> six = {
    "compare", "run.toml", "--sweep", "memory.experts=2,3,4", "--sweep", "cache.plugin=lru,fifo"};

std::vector<std::string> with(std::vector<std::string> words,
                              const std::vector<std::string> &more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

}  // namespace

TEST_CASE("rows are kept as they end, and --resume runs those that are missing") {
    const bench on;
    const ended whole = on.run(with(six, {"--rows", "r.jsonl", "--json", "whole.json"}));
    REQUIRE_MESSAGE(whole.code == 0, whole.errors);
    REQUIRE(on.lines("r.jsonl") == 6);
    const json line = json::parse(on.read("r.jsonl").substr(0, on.read("r.jsonl").find('\n')));
    CHECK(line["row"].get<std::string>().starts_with("memory.experts="));
    CHECK(line["report"]["tokens"] == 64);
    CHECK(line["hash"].get<std::string>().size() == 32);
    on.cut("r.jsonl", 4);
    const ended rest = on.run(with(six, {"--rows", "r.jsonl", "--resume", "--json", "rest.json"}));
    CHECK(rest.code == 0);
    CHECK(rest.out == whole.out);
    CHECK(on.read("rest.json") == on.read("whole.json"));
    CHECK(on.lines("r.jsonl") == 4 + 1 + 2);  // with the one that was cut off
    // All are there: nothing runs.
    const size_t all = on.lines("r.jsonl");
    const ended none = on.run(with(six, {"--rows", "r.jsonl", "--resume", "--json", "none.json"}));
    CHECK(none.out == whole.out);
    CHECK(on.read("none.json") == on.read("whole.json"));
    CHECK(on.lines("r.jsonl") == all);
}

TEST_CASE("a row whose settings, trace, profile or library changed is run again") {
    const bench on;
    REQUIRE(on.run(with(six, {"--rows", "r.jsonl"})).code == 0);
    const std::string six_rows = on.read("r.jsonl");
    const auto runs = [&](const std::vector<std::string> &more) {
        on.folder.write("r.jsonl", six_rows);
        const ended how = on.run(with(with(six, more), {"--rows", "r.jsonl", "--resume"}));
        CHECK_MESSAGE(how.code == 0, how.errors);
        return on.lines("r.jsonl") - 6;
    };
    CHECK(runs({}) == 0);
    CHECK(runs({"--set", "run.seed=3"}) == 6);
    CHECK(runs({"--sweep", "run.batch=1,2"}) == 12);
    std::string device = on.read("device.toml");
    on.folder.write("device.toml", device + "\n# a remark\n");
    CHECK(runs({}) == 6);
    on.folder.write("device.toml", device);
    CHECK(runs({}) == 0);
    write_trace_file(on, 3);
    CHECK(runs({}) == 6);
    write_trace_file(on, 5);
    CHECK(runs({}) == 0);
}

TEST_CASE("an interrupted comparison shows its rows, and can go on") {
    const bench on;
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
    const std::string out = on.file("out.txt"), errors = on.file("errors.txt");
    for (const int signal : {SIGTERM, SIGINT}) {
        const int to = ::open(out.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600),
                  err = ::open(errors.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
        std::filesystem::remove(on.file("c.json.rows"));
        const pid_t child = on.start(with(common, {sound + ",mortal"}), to, err);
        ::close(to), ::close(err);
        // Rows of `mortal` wait for ever, so this comparison never ends.
        while (on.lines("c.json.rows") < 6) std::this_thread::sleep_for(10ms);
        // The signal goes to the program alone, or to its whole group, as from a terminal.
        ::kill(signal == SIGINT ? -child : child, signal);
        CHECK(program::wait(child) == 128 + signal);
        const json shown = json::parse(on.read("c.json"));
        CHECK(shown["interrupted"]["rows"] == 16 * 7);
        CHECK(shown["interrupted"]["signal"] == (signal == SIGINT ? "SIGINT" : "SIGTERM"));
        CHECK(shown["results"].size() == on.lines("c.json.rows"));
        CHECK(on.read("out.txt").find("interrupted by SIG") != std::string::npos);
        CHECK(on.read("out.txt").find("--resume") != std::string::npos);
        CHECK_FALSE(shown.contains("failed"));
    }
    std::filesystem::copy_file(on.file("c.json.rows"), on.file("k.jsonl"));
    const ended rest = on.run(with(common, {sound, "--resume", "--rows", "k.jsonl"}));
    CHECK_MESSAGE(rest.code == 0, rest.errors);
    CHECK(on.lines("k.jsonl") == 16 * 6);  // finished rows did not run again
    const std::string resumed = on.read("c.json");
    // Rows are kept beside the JSON until all are there.
    CHECK(on.run(with(common, {sound, "--resume"})).out == rest.out);
    CHECK(std::ranges::count(on.names(), "c.json.rows") == 0);
    CHECK(on.read("c.json") == resumed);
    CHECK(on.run(with(common, {sound})).out == rest.out);
    CHECK(on.read("c.json") == resumed);
}

TEST_CASE("--resume without a file is wrong usage; --csv has every row") {
    const bench on;
    const ended nowhere = on.run(with(six, {"--resume"}));
    CHECK(nowhere.code == 2);
    CHECK(nowhere.says("--rows FILE"));
    const ended table = on.run(with(six, {"--csv", "t.csv", "--json", "t.json"}));
    CHECK(table.code == 0);
    const std::string csv = on.read("t.csv");
    CHECK(std::count(csv.begin(), csv.end(), '\n') == 7);
    CHECK(csv.starts_with("row,"));
    const json results = json::parse(on.read("t.json"))["results"];
    for (const json &row : results) {
        const std::string misses = "," + row["experts"]["misses"].dump() + ",";
        CHECK(csv.find(misses) != std::string::npos);
    }
    // A cell with a comma is quoted, and a failed row says why.
    const ended dead = on.run({"compare", "run.toml", "--sweep", "cache.plugin=lru,mortal", "--set",
                               "plugins.path=" + policies + "mortal.so", "--set",
                               "cache.mortal.way=segv", "--csv", "d.csv"});
    CHECK(dead.code == 1);
    CHECK(on.read("d.csv").find("cache.plugin=mortal,") != std::string::npos);
    CHECK(on.read("d.csv").find("SIGSEGV") != std::string::npos);
}

TEST_CASE("rows of one worker do not influence each other, whatever a policy remembers") {
    const bench on;
    for (const char *policy : {"remembers", "remembers_on_heap"}) {
        const std::vector<std::string> common = {
            "--set",  "plugins.path=" + policies + "remembers.so",
            "--set",  "cache.plugin=" + std::string(policy),
            "--jobs", "1",
            "--json", "m.json"};
        const ended all =
            on.run(with({"compare", "run.toml", "--sweep", "memory.experts=3,4,5,6"}, common));
        REQUIRE_MESSAGE(all.code == 0, all.errors);
        const json rows = json::parse(on.read("m.json"))["results"];
        REQUIRE(rows.size() == 4);
        for (int size = 3; size <= 6; ++size) {
            const ended one = on.run(
                with({"compare", "run.toml", "--set", "memory.experts=" + std::to_string(size)},
                     common));
            REQUIRE(one.code == 0);
            const json alone = json::parse(on.read("m.json"))["results"][0];
            CHECK(rows[static_cast<size_t>(size - 3)]["experts"] == alone["experts"]);
        }
    }
}

TEST_CASE("an interrupted replay shows its rows, and goes on") {
    const bench on;
    const std::vector<std::string> common = {"replay", "t.safetensors", "--slots",
                                             "2,4,6",  "--json",        "r.json"};
    const auto words = with(common, {"--policies", "lru,fifo,lfu", "--rows", "r.rows"});
    const ended whole = on.run(words);
    REQUIRE(whole.code == 0);
    const std::string figures = on.read("r.json");
    const size_t lines = on.lines("r.rows");
    on.cut("r.rows", 3);
    const ended rest = on.run(with(words, {"--resume"}));
    CHECK(rest.out == whole.out);
    CHECK(on.read("r.json") == figures);
    CHECK(on.lines("r.rows") == lines + 1);
}

TEST_CASE("no output replaces an input, nor a file that holds no rows") {
    const bench on;
    const std::string trace = on.read("t.safetensors"), config = on.read("run.toml"),
                      device = on.read("device.toml");
    on.folder.write("notes.txt", "first note\nsecond note\n");
    const std::vector<std::vector<std::string>> refused = {
        {"--rows", "t.safetensors"}, {"--rows", "run.toml"},
        {"--rows", "device.toml"},   {"--rows", "notes.txt"},
        {"--json", "run.toml"},      {"--csv", "t.safetensors"},
        {"--html", "device.toml"},   {"--json", "./run.toml"},
        {"--json", "t.safetensors"}, {"--rows", "notes.txt", "--resume"}};
    for (const auto &words : refused) {
        CAPTURE(words[0] + " " + words[1]);
        const ended how = on.run(with(six, words));
        CHECK(how.code == 2);
        CHECK_MESSAGE(how.errors.find("name another") != std::string::npos, how.errors);
    }
    CHECK(on.run({"run", "run.toml", "--timeline", "device.toml"}).code == 2);
    CHECK(on.run({"run", "run.toml", "--json", "run.toml"}).code == 2);
    CHECK(on.run({"replay", "t.safetensors", "--policies", "lru", "--slots", "4", "--rows",
                  "t.safetensors"})
              .code == 2);
    CHECK(on.run({"tune", "run.toml", "--param", "memory.experts", "--target", "tpot_ms=50",
                  "--rows", "run.toml"})
              .code == 2);
    const std::string fifo = on.file("pipe");
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    CHECK(on.run(with(six, {"--rows", "pipe"})).code == 2);
    CHECK(on.read("t.safetensors") == trace);
    CHECK(on.read("run.toml") == config);
    CHECK(on.read("device.toml") == device);
    CHECK(on.read("notes.txt") == "first note\nsecond note\n");
}

TEST_CASE("a row that was damaged is made again") {
    const bench on;
    const ended whole = on.run(with(six, {"--rows", "r.jsonl", "--json", "whole.json"}));
    REQUIRE(whole.code == 0);
    const std::string rows = on.read("r.jsonl");
    // A digit of the first row's bytes, one digit less, and one more.
    const size_t packed = rows.find("\"packed\":\"") + 10, digit = packed + 41;
    for (const std::string &other :
         {std::string(1, rows[digit] == '7' ? '8' : '7'), std::string(), std::string("00")}) {
        on.folder.write("r.jsonl", rows.substr(0, digit) + other + rows.substr(digit + 1));
        const ended rest =
            on.run(with(six, {"--rows", "r.jsonl", "--resume", "--json", "rest.json"}));
        CHECK(rest.code == 0);
        CHECK(rest.errors.find("damaged") != std::string::npos);
        CHECK(on.read("rest.json") == on.read("whole.json"));
        CHECK(on.lines("r.jsonl") == 7);
    }
}

// The time that a policy took is among a row's figures, so rows that were kept show the same again.
TEST_CASE("placements are kept as they end, and --resume makes those that are missing") {
    const bench on;
    const std::string tiny = std::string(MOORAGE_SOURCE_DIR) + "/configs/clusters/tiny.toml";
    const std::vector<std::string> words = {
        "place",      tiny,
        "--policies", "lfu,joint:effort=1000",
        "--rows",     "p.rows",
        "--json",     "p.json",
        "--sweep",    "cluster.servers.expert_memory_bytes=1e9,2e9"};
    const ended whole = on.run(words);
    REQUIRE_MESSAGE(whole.code == 0, whole.errors);
    const std::string figures = on.read("p.json");
    REQUIRE(on.lines("p.rows") == 4);
    const ended none = on.run(with(words, {"--resume"}));
    CHECK(none.out == whole.out);
    CHECK(on.read("p.json") == figures);
    CHECK(on.lines("p.rows") == 4);
    on.cut("p.rows", 3);
    const ended rest = on.run(with(words, {"--resume"}));
    CHECK(rest.code == 0);
    CHECK(on.lines("p.rows") == 3 + 1 + 1);  // with the one that was cut off
    const ended other = on.run(with(words, {"--resume", "--set", "run.seed=7"}));
    CHECK(other.code == 0);
    CHECK(on.lines("p.rows") == 3 + 1 + 1 + 4);
}

}  // namespace row_file_test
