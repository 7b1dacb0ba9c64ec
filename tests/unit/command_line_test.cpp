// Goal: one grammar. An unreadable word is refused with the nearest readable one, a key or a flag
// means one thing in every command, old spellings are accepted with a notice. Method: the program,
// its commands and flags as --help lists them, each misspelt. Spellings of one thing are compared
// byte by byte. Figures are read as JSON.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "core/base/json.h"
#include "tests/unit/program.h"

namespace command_line_test {

namespace {

using moorage::test::program;
using moorage::test::program_result;
using words = std::vector<std::string>;

const std::string home = MOORAGE_SOURCE_DIR;

words joined(words first, const words &second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

struct leaf {
    words path;   // "plugins", "check"
    words flags;  // "--json", ...
};

// Commands without subcommands below `path`, as --help tells of them.
void find_leaves(const program &runner, const words &path, std::vector<leaf> &found) {
    std::istringstream help(runner.run(joined(path, {"--help"})).output);
    leaf command{path, {}};
    bool in_commands = false, has_commands = false;
    for (std::string line; std::getline(help, line);) {
        if (!line.starts_with(" ")) in_commands = line.starts_with("Subcommands");
        std::string word;
        std::istringstream rest(line);
        rest >> word;
        if (in_commands && line.starts_with("  ") && line[2] != ' ') {
            has_commands = true;
            find_leaves(runner, joined(path, {word}), found);
        }
        const size_t position = word.find("--");
        if (line.starts_with("  -") && position != std::string::npos)
            command.flags.push_back(word.substr(position));
    }
    if (!has_commands) found.push_back(command);
}

const std::vector<leaf> &all_leaves() {
    static const std::vector<leaf> leaves = [] {
        std::vector<leaf> found;
        find_leaves(program(), {}, found);
        return found;
    }();
    return leaves;
}

bool says(const std::string &text, const std::string &part) {
    const bool found = text.find(part) != std::string::npos;
    if (!found) MESSAGE("\"" << text << "\" lacks \"" << part << "\"");
    return found;
}

// A trace of the program's own making, and a run of it.
std::string write_trace(const program &runner) {
    const std::string file = runner.file("t.safetensors");
    REQUIRE(runner
                .run({"trace", "synth", "--out", file, "--layers", "24", "--experts", "60",
                      "--top-k", "4", "--tokens", "60", "--requests", "3"})
                .code == 0);
    return file;
}
words run_words(const std::string &trace) {
    return {"run",   home + "/configs/quickstart.toml", "--set", "source.trace=" + trace,
            "--set", "source.shape=qwen1_5_moe_a2_7b"};
}

}  // namespace

TEST_CASE("unknown commands and options get the nearest known one") {
    const moorage::test::program runner;
    const auto refused = [&](const std::vector<std::string> &words, const std::string &part) {
        const moorage::test::program_result result = runner.run(words);
        CAPTURE(result.errors);
        CHECK(result.code == 2);
        CHECK(result.output.empty());
        CHECK(result.errors.find(part) != std::string::npos);
    };
    refused({"rum"}, "rum: no command of moorage; did you mean run");
    refused({"plugins", "lisst"}, "lisst: no command of plugins; did you mean list");
    refused({"tun"}, "did you mean tune");  // and not run, which is as near
    refused({"comp"}, "did you mean compare");
    refused({"xyzzyx"}, "xyzzyx: no command of moorage; moorage --help lists them");
    refused({"run", "c.toml", "--sett", "a.b=c"}, "--sett: no option of run; did you mean --set");
    refused({"run", "c.toml", "--jsn=x"}, "--jsn: no option of run; did you mean --json");
    // The value of an option is not read as a word, and the error about the missing word stays.
    refused({"run", "--json", "rum"}, "config is required");
    refused({"tune", "c.toml", "--samples", "many"}, "--samples");
}

TEST_CASE("every flag of every command, misspelt, gets itself as the nearest") {
    const program runner;
    CHECK(all_leaves().size() >= 25);
    for (const leaf &command : all_leaves()) {
        CHECK(std::ranges::find(command.flags, "--set") != command.flags.end());
        for (const std::string &flag : command.flags) {
            const std::string wrong = flag + flag.back();
            CAPTURE(command.path.back() + " " + wrong);
            const program_result result = runner.run(joined(command.path, {wrong, "x"}));
            CHECK(result.code == 2);
            CHECK(says(result.errors, "; did you mean " + flag));
        }
        const program_result result =
            runner.run(joined(command.path, {"--set", "memory.expertz=3"}));
        CHECK(result.code == 2);
    }
}

TEST_CASE("every command, misspelt, gets itself as the nearest") {
    const program runner;
    for (const leaf &command : all_leaves()) {
        words wrong = command.path;
        wrong.back() += wrong.back().back();
        const program_result result = runner.run(wrong);
        CHECK(result.code == 2);
        CHECK(says(result.errors, "; did you mean " + command.path.back()));
    }
}

TEST_CASE("a flag of another command is told of with its commands, and words with the nearest") {
    const program runner;
    CHECK(says(runner.run({"run", "c.toml", "--policies", "lru"}).errors,
               "--policies: no option of run (place and replay have it)"));
    CHECK(says(runner.run({"run", "c.toml", "-x"}).errors, "-x: no option of run"));
    CHECK(says(runner.run({"replay", "t", "--order", "tokn"}).errors, "did you mean token"));
}

TEST_CASE("keys that a command has no use for are checked, and told") {
    const program runner;
    const program_result list = runner.run({"plugins", "list", "--set", "run.seed=3"});
    CHECK(list.code == 0);
    CHECK(says(list.errors, "--set run.seed: plugins list has no use for it"));
    const program_result help = runner.run({"help", "figures", "--set", "memory.exprts=3"});
    CHECK(help.code == 2);
    CHECK(says(help.errors, "did you mean experts"));
    const program_result size =
        runner.run({"trace", "info", write_trace(runner), "--set", "memory.bytes=5 GiBs"});
    CHECK(size.code == 2);
    CHECK(says(size.errors, "did you mean GiB"));
}

TEST_CASE("a flag is its key") {
    const program runner;
    const std::string trace = write_trace(runner);
    const auto synth = [&](const words &arguments) {
        REQUIRE(runner.run(joined({"trace", "synth", "--out", "s.safetensors"}, arguments)).code ==
                0);
        return runner.read("s.safetensors");
    };
    const std::string by_flag = synth({"--seed", "3", "--tokens", "50"});
    CHECK(by_flag == synth({"--set", "run.seed=3", "--set", "run.tokens=50"}));
    CHECK(by_flag != synth({"--seed", "4", "--tokens", "50"}));
    const auto replay = [&](const words &arguments) {
        const program_result result =
            runner.run(joined({"replay", trace, "--json", "-"}, arguments));
        REQUIRE_MESSAGE(result.code == 0, result.errors);
        return result.output;
    };
    CHECK(replay({"--policies", "random", "--slots", "25%", "--sharing", "per-layer", "--seed", "5",
                  "--tokens", "40"}) ==
          replay({"--set", "cache.plugin=random", "--set", "memory.experts=25%", "--set",
                  "memory.sharing=per-layer", "--set", "run.seed=5", "--set", "run.tokens=40"}));
    const auto run = [&](const words &arguments) {
        const program_result result =
            runner.run(joined(run_words(trace), joined({"--json", "-"}, arguments)));
        REQUIRE_MESSAGE(result.code == 0, result.errors);
        return result.output;
    };
    CHECK(run({"--seed", "7"}) == run({"--set", "run.seed=7"}));
    CHECK(run({"--seed", "7"}) == run({"--seed", "8", "--set", "run.seed=7"}));
    const program_result wrong = runner.run(joined(run_words(trace), {"--seed", "-1"}));
    CHECK(wrong.code == 2);
    CHECK(says(wrong.errors, "--seed: [run] seed is -1; choose from 0"));
    const program_result all =
        runner.run(joined(run_words(trace), {"--set", "source.top_k=-1"}));
    CHECK(says(all.errors, "top_k is -1; choose from 0 to 1048576 (0: all)"));
    // A share of the 24 x 60 experts is their count.
    CHECK(run({"--set", "memory.experts=20%"}) == run({"--set", "memory.experts=288"}));
    CHECK(run({"--set", "memory.experts=\"12.5 %\""}) == run({"--set", "memory.experts=180"}));
    CHECK(says(runner.run(joined(run_words(trace), {"--set", "memory.experts=0.01%"})).errors,
               "is less than one of the 1440 experts"));
}

TEST_CASE("--param is a key and its value, or the values to be tried") {
    const program runner;
    const std::string trace = write_trace(runner);
    const auto replay = [&](const words &arguments) {
        return runner.run(
            joined({"replay", trace, "--slots", "100", "--no-optimum", "--json", "-"}, arguments));
    };
    const program_result now = replay({"--policies", "lfu", "--param", "cache.lfu.half_life=3"});
    const program_result old = replay({"--policies", "lfu", "--param", "lfu.half_life=3"});
    CHECK(now.code == 0);
    CHECK(now.output == old.output);
    CHECK(now.errors.find("old spelling") == std::string::npos);
    CHECK(says(old.errors, "--param lfu.half_life=3: write --param cache.lfu.half_life=3"));
    CHECK(now.output == replay({"--policies", "lfu", "--param", "cache.half_life=3"}).output);
    CHECK(now.output == replay({"--policies", "lfu", "--set", "cache.lfu.half_life=3"}).output);
    const program_result several =
        replay({"--policies", "lru,lfu", "--param", "cache.lfu.half_life=0,16"});
    CHECK(several.output == replay({"--policies", "lru,lfu:half_life=0,lfu:half_life=16"}).output);
    CHECK(says(replay({"--policies", "lru", "--param", "cache.lfu.half_life=3"}).errors,
               "not among --policies"));
    CHECK(replay({"--policies", "lru", "--param", "half_life=3"}).code == 2);
}

TEST_CASE("old spellings are taken, and told") {
    const program runner;
    const std::string demo = home + "/configs/demo", plugins = MOORAGE_BINARY_DIR "/plugins/cache";
    const program_result old = runner.run({"plugins", "describe", "lru", "--path", plugins});
    CHECK(says(old.errors, "--path: write --plugins; the old spelling goes with the next release"));
    CHECK(old.output == runner.run({"plugins", "describe", "lru", "--plugins", plugins}).output);
    const program_result text = runner.run({"tokenize", demo, "--text", "To be"});
    CHECK(says(text.errors, "--text with a text: write --prompt TEXT"));
    CHECK(text.output == runner.run({"tokenize", demo, "--prompt", "To be"}).output);
    std::ofstream(runner.file("be.txt")) << "To be";
    const program_result file = runner.run({"tokenize", demo, "--text", "be.txt"});
    CHECK(file.output == text.output);
    CHECK(file.errors.empty());
    CHECK(runner.run({"load", "none.toml", "--texts", "be.txt"})
              .errors.find("--texts: write --text") != std::string::npos);
}

TEST_CASE("--json - is JSON alone, whatever else is written") {
    const program runner;
    const std::string trace = write_trace(runner), demo = home + "/configs/demo";
    const words run = joined(run_words(trace), {"--html", "r.html", "--timeline", "t.json"});
    const words command_lines[] = {
        run,
        {"compare", home + "/configs/quickstart.toml", "--set", "source.trace=" + trace, "--set",
         "source.shape=qwen1_5_moe_a2_7b", "--html", "c.html"},
        {"replay", trace, "--policies", "lru", "--slots", "10%"},
        {"plugins", "list"},
        {"plugins", "describe", "lru"},
        {"plugins", "check", MOORAGE_BINARY_DIR "/plugins/cache/lru.so", "--only", "calls-found"},
        {"trace", "info", trace},
        {"model", "info", demo, "--profile", "rtx_4090"},
        {"tokenize", demo, "--prompt", "a"},
        {"generate", demo, "--prompt", "a", "--max-tokens", "2"},
        {"place", home + "/configs/clusters/tiny.toml"},
        {"tune", home + "/configs/quickstart.toml", "--set", "source.trace=" + trace, "--set",
         "source.shape=qwen1_5_moe_a2_7b", "--param", "memory.experts=100:200", "--target",
         "hit_rate=0.1", "--samples", "2"}};
    for (const words &command_line : command_lines) {
        CAPTURE(command_line[0] + " " + command_line[1]);
        const program_result result = runner.run(joined(command_line, {"--json", "-"}));
        const auto parsed =
            moorage::core::json_or_discarded({result.output.data(), result.output.size()});
        CHECK_MESSAGE(!parsed.is_discarded(), result.output.substr(0, 200), result.errors);
    }
    CHECK(runner.read("r.html").find("<html") != std::string::npos);
    CHECK(runner.read("r.html").find("tpot_ms") != std::string::npos);
}

TEST_CASE("a file that is not there gets the nearest of its folder") {
    const program runner;
    const program_result config = runner.run({"run", home + "/configs/quikstart.toml"});
    CHECK(config.code == 2);
    CHECK(says(config.errors, "no such file; did you mean " + home + "/configs/quickstart.toml\n"));
    const program_result folder = runner.run({"run", "none/quickstart.toml"});
    CHECK(folder.code == 2);
    CHECK(says(folder.errors, "none/quickstart.toml: no such file\n"));
    write_trace(runner);
    for (const char *command : {"run", "compare"}) {
        const program_result trace =
            runner.run({command, home + "/configs/quickstart.toml", "--set",
                        "source.trace=" + runner.file("tt.safetensors")});
        CHECK(trace.code == 2);
        CHECK(says(trace.errors, "trace " + runner.file("tt.safetensors") +
                                     ": no such file; did you mean " +
                                     runner.file("t.safetensors")));
    }
    const program_result model = runner.run({"model", "info", home + "/configs/quickstart.toml"});
    CHECK(model.code == 1);
    CHECK(says(model.errors, "quickstart.toml: is a file; a model is a directory"));
    CHECK(says(model.errors, ".gguf"));
}

TEST_CASE("what is wrong in a sweep is blamed on --sweep, once") {
    const program runner;
    const std::string trace = write_trace(runner);
    const auto compare = [&](const words &arguments) {
        return runner.run(
            joined({"compare", home + "/configs/quickstart.toml", "--set", "source.trace=" + trace,
                    "--set", "source.shape=qwen1_5_moe_a2_7b"},
                   arguments));
    };
    const program_result key = compare({"--sweep", "cache.plugn=lru"});
    CHECK(key.code == 2);
    CHECK(says(key.errors, "--sweep cache.plugn: "));
    CHECK(says(key.errors, "did you mean plugin"));
    CHECK(says(compare({"--repeat", "source.trac=a,b"}).errors, "--repeat source.trac: "));
    CHECK(says(compare({"--repeat", "cache.plugin=lru,lfu"}).errors, "are for --sweep"));
    CHECK(says(compare({"--sweep", "memory.experts=3", "--sweep", "memory.experts=4"}).errors,
               "--sweep memory.experts is given twice"));
    const program_result policy = compare({"--sweep", "cache.plugin=lruu"});
    CHECK(policy.code == 2);
    CHECK(says(policy.errors, "did you mean lru"));
    CHECK(policy.errors.find("lruu") == policy.errors.rfind("lruu"));
}

TEST_CASE("a range that cannot be searched is refused, not replaced") {
    const program runner;
    const auto tune = [&](const words &arguments) {
        return runner.run(joined({"tune", home + "/configs/quickstart.toml", "--target",
                                  "tpot_ms=80", "--set", "run.tokens=5"},
                                 arguments));
    };
    const std::pair<words, const char *> wrong[] = {
        {{"--param", "memory.experts=100:400:-5"}, "step -5; choose from 1 to 300"},
        {{"--param", "memory.experts=100:400:0"}, "step 0; choose from 1 to 300"},
        {{"--param", "memory.experts=100:400:7.5"}, "values are whole numbers"},
        {{"--param", "memory.experts=nan:400:10"}, "\"nan\""},
        {{"--param", "memory.experts=100:400", "--from", "1"}, "given twice"},
        {{"--param", "memory.experts=100:400", "--runs", "0"}, "--runs"}};
    for (const auto &example : wrong) {
        CAPTURE(example.second);
        const program_result result = tune(example.first);
        CHECK(result.code == 2);
        CHECK(says(result.errors, example.second));
    }
}

TEST_CASE("what is said of policies that are not chosen is checked too") {
    const program runner;
    const auto run = [&](const std::string &set) {
        return runner.run({"run", home + "/configs/quickstart.toml", "--set", "run.tokens=2",
                           "--set", "cache.plugin=lfu", "--set", set});
    };
    const std::pair<const char *, const char *> wrong[] = {
        {"cache.lfuu.half_life=0", "--set cache.lfuu.half_life: no cache policy lfuu"},
        {"cache.lru.stampp=3", "no parameter stampp; did you mean stamp"},
        {"cache.lru.stamp=3", "--set cache.lru.stamp"},
        {"prefetch.nosuch.x=1", "--set prefetch.nosuch.x: no prefetch policy nosuch"},
        {"placement.nope.a=1", "of use on a cluster only"}};
    for (const auto &example : wrong) {
        CAPTURE(example.first);
        const program_result result = run(example.first);
        CHECK(result.code == 2);
        CHECK(says(result.errors, example.second));
    }
    CHECK(run("cache.lru.stamp=best_last").code == 0);
}

TEST_CASE(
    "a trace is not written over the log that it is made of, and keys that are lost are told") {
    const program runner;
    const std::string log = (runner.folder.path() / "log.jsonl").string();
    std::ofstream(log) << "{\"experts\":[[3,1]],\"typo_weights\":[[2,0]]}\n"
                          "{\"experts\":[[0,1]]}\n";
    const program_result overwritten = runner.run({"trace", "convert", log, "--out", log});
    CHECK(overwritten.code == 2);
    CHECK(says(overwritten.errors, "an input, which would be replaced; name another file"));
    CHECK(std::filesystem::file_size(log) == 63);
    const program_result converted =
        runner.run({"trace", "convert", log, "--out", log + ".safetensors"});
    CHECK(converted.code == 0);
    CHECK(says(converted.errors, "keys without a meaning here: typo_weights"));
    const program_result cut = runner.run({"trace", "convert", log + ".safetensors", "--out",
                                           log + ".safetensors", "--tokens", "0:1"});
    CHECK(cut.code == 2);
    CHECK(runner
              .run({"run", home + "/configs/quickstart.toml", "--set", "run.tokens=5", "--timeline",
                    log + ".json", "--timeline-window", "5:9"})
              .code == 2);
}

TEST_CASE("help without a topic lists the commands, and one explains a command") {
    const program runner;
    const program_result nothing = runner.run({}), bare = runner.run({"help"}),
                         part = runner.run({"plugins"});
    CHECK(nothing.code == 2);
    CHECK(says(nothing.errors, "replay  "));
    CHECK(part.code == 2);
    CHECK(says(part.errors, "Usage: moorage plugins"));
    CHECK(bare.code == 0);
    CHECK(says(bare.output, "replay  "));
    CHECK(says(bare.output, "moorage help figures, keys and"));
    CHECK(runner.run({"help", "plugins", "check"}).output ==
          runner.run({"plugins", "check", "--help"}).output);
    const std::string run = runner.run({"help", "run"}).output;  // a command and a section
    CHECK(run.find(runner.run({"run", "--help"}).output) == 0);
    CHECK(says(run, "[run]: what is run"));
    CHECK(runner.run({"help", "hit", "rate"}).output == runner.run({"help", "hit rate"}).output);
    const program_result wrong = runner.run({"help", "relpay"});
    CHECK(wrong.code == 2);
    CHECK(says(wrong.errors, "did you mean replay"));
}

TEST_CASE("help explains keys, tables, units and parameters, and the page is made of it") {
    const program runner;
    const std::string key = runner.run({"help", "memory.experts"}).output;
    CHECK(says(key, "memory.experts: cache slots"));
    CHECK(says(key, "an integer from 1 to 1048576, or text such as \"25%\""));
    CHECK(says(key, "--set memory.experts=VALUE"));
    CHECK(says(key, "unit        experts, or as text a share of 1\n"));
    CHECK(says(runner.run({"help", "run.batch"}).output, "default     1\n"));
    CHECK(says(runner.run({"help", "memory"}).output, "host_experts"));
    CHECK(says(runner.run({"help", "cluster.servers.load_bytes_per_s"}).output, "bytes/s"));
    CHECK(says(runner.run({"help", "cache.lfu.half_life"}).output, "cache.lfu.half_life: "));
    CHECK(says(runner.run({"help", "device.memory_bytes"}).output, "hw_profiles/device"));
    CHECK(says(runner.run({"help", "units"}).output, "KiB"));
    const std::string tokens_help = runner.run({"help", "tokens"}).output;  // a figure and a key
    CHECK(says(tokens_help, "tokens: number of processed tokens"));
    CHECK(says(tokens_help, "run.tokens: "));
    const program_result wrong = runner.run({"help", "memory.expertz"});
    CHECK(wrong.code == 2);
    CHECK(says(wrong.errors, "did you mean memory.experts"));
    std::ifstream page(home + "/docs/configuration.md", std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(page), {});
    // Write it anew: build/release/bin/moorage help keys --markdown > docs/configuration.md
    CHECK(text == runner.run({"help", "keys", "--markdown"}).output);
}

}  // namespace command_line_test
