// run_config_test.cpp - goal: a configuration is read as documented and every mistake in it is
// named. Method: small texts written here, with the file, line, key and remedy that the message has
// to hold.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "core/config/document.h"
#include "core/config/run_config.h"
#include "core/host/registry.h"
#include "tests/unit/config_texts.h"

namespace run_config_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

const setting *param(const stage_config &stage, const std::string &key) {
    for (const setting &setting : stage.params)
        if (setting.key == key) return &setting;
    return nullptr;
}

}  // namespace

TEST_CASE("the least configuration gets the documented defaults") {
    const run_config config = accepted(least);
    CHECK(config.executor == "emulator");
    CHECK(config.tokens == 0);
    CHECK(config.batch == 1);
    CHECK(config.prefill == 0);
    CHECK(config.seed == 0);
    CHECK(config.experts == 96);
    CHECK_FALSE(config.bytes.has_value());
    CHECK_FALSE(config.per_layer);
    CHECK_FALSE(config.buffer_experts.has_value());
    CHECK(config.fault_action == on_fault::abort);
    CHECK(config.cache.plugin == "lfu");
    CHECK(config.cache.place == "default");
    CHECK(config.placement.plugin.empty());
}

TEST_CASE("every section and key of the contract arrives where it belongs") {
    const run_config config = accepted(R"(
[run]
executor = "emulator"
tokens = 1000
batch = 4096
prefill = 32
seed = 9223372036854775807
[hardware]
profile = "rtx_a6000"
link = "pcie3_x16"
node = "ddr5_desktop"
[source]
trace = "/data/routing.safetensors"
shape = "mixtral_8x7b"
[memory]
bytes = 16_000_000_000
sharing = "per-layer"
buffer_experts = 6
[plugins]
path = ["../mine", "/opt/policies/x.so"]
on_fault = "replace"
[router]
plugin = "r"
[cache]
plugin = "c"
whole = -3
share = 0.25
on = true
name = "text"
[budget]
plugin = "b"
[prefetch]
plugin = "p"
[dispatch]
plugin = "d"
[placement]
plugin = "l"
[transport]
plugin = "t"
[cluster]
[report]
title = "a title"
)");
    CHECK(config.tokens == 1000);
    CHECK(config.batch == 4096);
    CHECK(config.prefill == 32);
    CHECK(config.seed == 9223372036854775807ull);
    CHECK(config.profile == "rtx_a6000");
    CHECK(config.link == "pcie3_x16");
    CHECK(config.node == "ddr5_desktop");
    CHECK(config.trace == "/data/routing.safetensors");
    CHECK(config.shape == "mixtral_8x7b");
    CHECK(config.bytes == 16'000'000'000ull);
    CHECK_FALSE(config.experts.has_value());
    CHECK(config.per_layer);
    CHECK(config.buffer_experts == 6);
    CHECK(config.fault_action == on_fault::replace);
    CHECK(config.title == "a title");
    const std::vector<std::filesystem::path> paths = {"mine", "/opt/policies/x.so"};
    CHECK(config.plugin_paths == paths);

    std::string names;
    for (const std::string_view kind : stage_kinds) names += config.stage(kind).plugin;
    CHECK(names == "rcbpdlt");
    CHECK(config.stage("wire").plugin == "tcp");
    REQUIRE(config.cache.params.size() == 4);
    CHECK(param(config.cache, "whole")->value == setting_value{int64_t{-3}});
    CHECK(param(config.cache, "share")->value == setting_value{0.25});
    CHECK(param(config.cache, "on")->value == setting_value{true});
    CHECK(param(config.cache, "name")->value == setting_value{std::string("text")});
    CHECK(param(config.cache, "share")->place == "conf/run.toml:27");
    CHECK(config.cache.place == "conf/run.toml:25");
}

TEST_CASE("paths of the file are relative to its folder, those of --set to the current one") {
    CHECK(accepted(least).trace == "conf/routing.safetensors");
    CHECK(accepted(least, {"source.trace=../a.safetensors"}).trace == "../a.safetensors");
    CHECK(accepted(least, {"source.trace=/b.safetensors"}).trace == "/b.safetensors");
    const auto parsed = parse_run_config(least, "run.toml", {});
    REQUIRE(parsed.ok());
    CHECK(parsed->trace == "routing.safetensors");
    CHECK(accepted(least, {"plugins.path=[\"x\", \"../y\"]"}).plugin_paths ==
          std::vector<std::filesystem::path>{"x", "../y"});
    CHECK(accepted(least, {"plugins.path=./one.so"}).plugin_paths ==
          std::vector<std::filesystem::path>{"one.so"});
}

TEST_CASE("paths to profiles and shapes of --set are made from the current folder") {
    const std::string current_folder = std::filesystem::current_path().string();
    const run_config config =
        accepted(least, {"hardware.profile=a/b.toml", "hardware.link=pcie4_x8",
                         "hardware.node=/n.toml", "source.shape=s.toml"});
    CHECK(config.profile == current_folder + "/a/b.toml");
    CHECK(config.link == "pcie4_x8");
    CHECK(config.node == "/n.toml");
    CHECK(config.shape == current_folder + "/s.toml");
}

TEST_CASE("unknown sections and keys name place, key and the nearest known") {
    const std::string section = refused(least + "[cahce]\nplugin = \"lru\"\n");
    CHECK(holds(section, "conf/run.toml:7"));
    CHECK(holds(section, "cahce"));
    CHECK(holds(section, "did you mean cache"));
    const std::string key = refused(least + "\n[run]\nbach = 2\n");
    CHECK(holds(key, "conf/run.toml:9"));
    CHECK(holds(key, "bach"));
    CHECK(holds(key, "did you mean batch"));
    CHECK(holds(refused(least + "bites = 4\n"), "did you mean bytes"));
    CHECK(holds(refused(least + "[report]\nqqqqqqqqq = 1\n"), "it has title"));
    CHECK(holds(refused("seed = 3\n" + least), "conf/run.toml:1: key seed stands outside"));
    CHECK(holds(refused("seed = 3\n" + least), "[run]"));
    CHECK(holds(refused(least + "[zzzzzzzzzzz]\n"), "prefetch"));
    CHECK(holds(refused(least, {"run.sead=3"}), "--set run.sead"));
    CHECK(holds(refused(least, {"run.sead=3"}), "did you mean seed"));
    CHECK(holds(refused(least, {"casche.plugin=lru"}), "did you mean cache"));
    CHECK(holds(refused(least + "[cache]\nplugn = \"lfu\"\n"), "did you mean plugin"));
    CHECK(holds(refused("run = 5\n" + least), "section is needed"));
    CHECK(holds(refused(least + "[[cache]]\nplugin = \"lru\"\n"),
                "conf/run.toml:7: cache is a list"));
}

TEST_CASE("a wrong type names the value and what is needed") {
    const struct {
        const char *text, *part;
    } cases[] = {
        {"[run]\ntokens = \"many\"\n", "[run] tokens is the text \"many\"; an integer from 0"},
        {"[run]\ntokens = 1.5\n", "an integer"},
        {"[run]\nseed = true\n", "[run] seed is true"},
        {"[run]\nbatch = [1]\n", "batch is a list"},
        {"[run]\nbatch = { a = 1 }\n", "batch is a table"},
        {"[run]\nseed = 1979-05-27\n", "seed is a date"},
        {"[run]\nexecutor = 3\n", "executor is 3; text is needed"},
        {"[report]\ntitle = \"\"\n", "not empty"},
        {"[report]\ntitle = \"a\\u0000b\"\n", "control characters"},
        {"[plugins]\npath = [\"a\", 3]\n", "holds 3"},
        {"[plugins]\npath = 3\n", "a list of such texts"},
        {"[plugins]\non_fault = \"ignore\"\n", "choose abort or replace"},
        {"[cache]\nplugin = 3\n", "[cache] plugin is 3"},
        {"[cache]\nplugin = \"\"\n", "[cache] plugin"},
        {"[cache]\nsizes = [1, 2]\n", "[cache] sizes is a list"},
        {"[cache]\nwhen = 07:32:00\n", "[cache] when is a date"},
        {"[cache]\nshare = nan\n", "a finite number"},
        {"[cache]\nshare = -inf\n", "a finite number"},
    };
    for (const auto &test_case : cases) {
        CAPTURE(test_case.text);
        const std::string text = refused(least + test_case.text);
        CHECK(holds(text, "conf/run.toml:8: "));
        CHECK(holds(text, test_case.part));
    }
}

TEST_CASE("values at a limit are taken and the next one is refused") {
    const struct {
        const char *key;
        long long low, high;
    } cases[] = {{"run.batch", 1, 4096},
                 {"run.tokens", 0, 9223372036854775807ll},
                 {"run.seed", 0, 9223372036854775807ll},
                 {"memory.experts", 1, 1 << 20},
                 {"memory.buffer_experts", 0, 1 << 16},
                 {"memory.bytes", 1, 1ll << 50}};
    for (const auto &test_case : cases) {
        CAPTURE(test_case.key);
        const std::string key = test_case.key + std::string("=");
        accepted(least, {key + std::to_string(test_case.low)});
        accepted(least, {key + std::to_string(test_case.high)});
        const std::string below = refused(least, {key + std::to_string(test_case.low - 1)});
        CHECK(holds(below, std::to_string(test_case.low - 1)));
        CHECK(
            holds(below, std::to_string(test_case.low) + " to " + std::to_string(test_case.high)));
        if (test_case.high < 9223372036854775807ll)
            CHECK(holds(refused(least, {key + std::to_string(test_case.high + 1)}), "choose from"));
    }
    CHECK(holds(refused(least + "[run]\nseed = 9223372036854775808\n"), "conf/run.toml:8"));
    CHECK(holds(refused(least, {"run.seed=9223372036854775808"}), "--set run.seed"));
    CHECK(holds(refused(least + "[run]\ntokens = -9223372036854775808\n"), "choose from 0"));
}

TEST_CASE("what a run cannot do without is asked for") {
    CHECK(holds(refused("[source]\ntrace = \"t\"\n[memory]\nexperts = 1\n"), "[hardware] profile"));
    CHECK(holds(refused("[hardware]\nprofile = \"h\"\n[memory]\nexperts = 1\n"),
                "[source] is not given"));
    CHECK(holds(refused("[hardware]\nprofile = \"h\"\n[source]\ntrace = \"t\"\n"), "experts = 96"));
    CHECK(holds(refused("[run]\nexecutor = \"cpu\"\n[hardware]\nengine = \"imp\"\n"
                        "[source]\nmodel = \"m\"\n"),
                "executor cpu runs this engine"));
    CHECK(holds(refused(least + "bytes = 5\n"), "both experts and bytes"));
    CHECK(holds(refused(least, {"memory.experts=4", "memory.bytes=5"}), "both experts and bytes"));
    // A size from --set replaces the file's, whichever unit that one has.
    const run_config config = accepted(least, {"memory.bytes=5"});
    CHECK(config.bytes == 5);
    CHECK_FALSE(config.experts.has_value());
}

TEST_CASE("an unknown executor and a cluster that is none are named") {
    CHECK(holds(refused(least + "[run]\nexecutor = \"emulatr\"\n"), "did you mean emulator"));
    CHECK(holds(refused(least + "[cluster]\nservers = 2\n"), "conf/run.toml:8: [cluster] servers"));
    CHECK(holds(refused(least + "[cluster]\nserver = 2\n"), "did you mean servers"));
}

TEST_CASE("a model as a source: what it takes, what a trace refuses") {
    const std::string model = "[hardware]\nprofile = \"h\"\n[source]\nmodel = \"m\"\n";
    run_config config = accepted(model + "prompt = [\"To be\", \"or\\nnot\"]\n");
    CHECK(config.model == "conf/m");
    CHECK(config.trace.empty());
    CHECK(config.prompts == std::vector<std::string>{"To be", "or\nnot"});
    CHECK(config.prefill == 512);
    CHECK(config.max_tokens == 128);
    CHECK(config.temperature == 0);
    CHECK(config.stop.at_model_ends);
    CHECK_FALSE(config.experts.has_value());
    CHECK_FALSE(config.bytes.has_value());
    config = accepted(model +
                      "text = \"t.txt\"\n[run]\nprefill = 0\nthreads = 2\n[memory]\n"
                      "split = 0.5\n");
    CHECK(config.text == "conf/t.txt");
    CHECK(config.prefill == 0);
    CHECK(config.threads == 2);
    CHECK(config.split == 0.5);
    CHECK(holds(refused(model + "prompt = \"a\"\ntext = \"b\"\n"), "both prompt and text"));
    CHECK(holds(refused(model + "trace = \"t\"\n"), "both trace and model"));
    CHECK(holds(refused(least, {"source.prompt=a"}), "[source] prompt needs a model"));
    CHECK(holds(refused(least, {"memory.split=0"}), "split"));
    CHECK(holds(refused(least, {"memory.split=1.5"}), "split"));
    CHECK_FALSE(accepted(least).guard);
    CHECK(accepted(least).prefill_displaces);
    config = accepted(least, {"run.guard=true", "run.guard_window=4", "run.guard_margin=0",
                              "memory.prefill_displaces=false"});
    CHECK(config.guard);
    CHECK(config.guard_window == 4);
    CHECK(config.guard_margin == 0);
    CHECK_FALSE(config.prefill_displaces);
    CHECK(holds(refused(least, {"run.guard_window=3"}), "guard_window"));
    CHECK(holds(refused(least, {"run.guard_margin=-0.1"}), "guard_margin"));
    CHECK(accepted(least).arithmetic_mode == arithmetic::by_format);
    CHECK(accepted(least, {"run.arithmetic=exact"}).arithmetic_mode == arithmetic::exact);
    CHECK(accepted(least, {"run.arithmetic=fast"}).arithmetic_mode == arithmetic::fast);
    CHECK(holds(refused(least, {"run.arithmetic=quick"}), "choose exact"));
    CHECK(holds(refused(least, {"run.arithmetic=fast", "run.executor=cuda"}),
                "executor cuda computes with activations as they are"));
    // --set replaces the trace of the file by a model.
    config = accepted(least, {"source.model=m", "source.prompt=a"});
    CHECK(config.trace.empty());
    CHECK(config.model == "m");
    // Real executors need neither a profile nor a size.
    config = accepted("[source]\nmodel = \"m\"\n[run]\nexecutor = \"cpu\"\n");
    CHECK(config.profile == "host");
}

TEST_CASE("--set types its value as TOML does, and else as text") {
    const auto value = [](const std::string &text) {
        const run_config config = accepted(least, {"cache.x=" + text});
        REQUIRE(config.cache.params.size() == 1);
        CHECK(config.cache.params[0].place == "--set cache.x");
        return config.cache.params[0].value;
    };
    CHECK(value("5") == setting_value{int64_t{5}});
    CHECK(value("-1_000") == setting_value{int64_t{-1000}});
    CHECK(value("0x10") == setting_value{int64_t{16}});
    CHECK(value("5.0") == setting_value{5.0});
    CHECK(value("1e3") == setting_value{1000.0});
    CHECK(value("true") == setting_value{true});
    CHECK(value("True") == setting_value{std::string("True")});
    CHECK(value("\"5\"") == setting_value{std::string("5")});
    CHECK(value("lru") == setting_value{std::string("lru")});
    CHECK(value("a = b") == setting_value{std::string("a = b")});
    CHECK(value("5 # five") == setting_value{std::string("5 # five")});
    CHECK(value("1979-05-27") == setting_value{std::string("1979-05-27")});
    // A number is text for a key that takes text.
    CHECK(accepted(least, {"report.title=2024"}).title == "2024");
    CHECK(accepted(least, {"hardware.profile=4090"}).profile == "4090");
    CHECK(accepted(least, {"run.seed=1", "run.seed=2"}).seed == 2);
    CHECK(accepted(least + "[run]\nseed = 3\n", {"run.seed=4"}).seed == 4);
    CHECK(holds(refused(least, {"cache.x=[1]"}), "--set cache.x: [cache] x is a list"));
    CHECK(holds(refused(least, {"cache.x=inf"}), "finite"));
    // A line break cannot smuggle in a second key.
    const auto two = parse_run_config(least, "run.toml",
                                      std::vector<override_value>{{"cache", "x", "1\ny = 2"}});
    CHECK_FALSE(two.ok());
}

TEST_CASE("parameters of one policy do not reach another") {
    const std::string text = least +
                             "[cache]\n"
                             "plugin = \"lfu\"\n"
                             "half_life = 16\n"
                             "[cache.lfu]\n"
                             "forget = true\n"
                             "[cache.marking]\n"
                             "salt = 7\n";
    const run_config plain = accepted(text);
    CHECK(plain.cache.params.size() == 2);
    CHECK(param(plain.cache, "half_life"));
    CHECK(param(plain.cache, "forget"));
    REQUIRE(plain.cache.other_tables.size() == 1);
    CHECK(plain.cache.other_tables[0].policy == "marking");
    CHECK(plain.cache.other_tables[0].place == "conf/run.toml:12");

    const run_config lru = accepted(text, {"cache.plugin=lru"});
    CHECK(lru.cache.plugin == "lru");
    CHECK(lru.cache.place == "--set cache.plugin");
    CHECK(lru.cache.params.empty());
    CHECK(lru.cache.other_tables.size() == 2);

    const run_config marking = accepted(text, {"cache.plugin=marking"});
    REQUIRE(marking.cache.params.size() == 1);
    CHECK(param(marking.cache, "salt")->value == setting_value{int64_t{7}});

    // The same policy named again changes nothing; --set parameters always count.
    CHECK(accepted(text, {"cache.plugin=lfu"}).cache.params.size() == 2);
    const run_config set = accepted(text, {"cache.plugin=lru", "cache.half_life=4"});
    REQUIRE(set.cache.params.size() == 1);
    CHECK(set.cache.params[0].place == "--set cache.half_life");
    CHECK(param(accepted(text, {"cache.half_life=4"}).cache, "half_life")->value ==
          setting_value{int64_t{4}});
    CHECK(param(accepted(text, {"cache.marking.salt=9", "cache.plugin=marking"}).cache, "salt")
              ->value == setting_value{int64_t{9}});
    CHECK(accepted(text, {"cache.marking.salt=9"}).cache.params.size() == 2);

    // Parameters without `plugin` were written for the default.
    CHECK(accepted(least + "[cache]\nx = 1\n").cache.params.size() == 1);
    CHECK(accepted(least + "[cache]\nx = 1\n", {"cache.plugin=fifo"}).cache.params.empty());
}

TEST_CASE("tables of policies are checked whether they count or not") {
    CHECK(holds(refused(least + "[cache.lfu]\nx = [1]\n"), "conf/run.toml:8: [cache.lfu] x"));
    CHECK(holds(refused(least + "[cache.lru]\nplugin = \"lru\"\n"), "unknown key plugin"));
    CHECK(holds(refused(least + "[cache.lru.deep]\nx = 1\n"), "[cache.lru] deep is a table"));
    const std::string twice = refused(least + "[cache]\nx = 1\n[cache.lfu]\nx = 2\n");
    CHECK(holds(twice, "conf/run.toml:8"));
    CHECK(holds(twice, "conf/run.toml:10"));
}

TEST_CASE("broken TOML names file and line") {
    const auto line_8 = [](const std::string &text) {
        const std::string message = refused(least + "[run]\n" + text);
        CHECK(holds(message, "conf/run.toml:8: not valid TOML"));
        return message;
    };
    line_8("seed = \n");
    line_8("seed 5\n");
    line_8("seed = \"open\n");
    line_8("seed = 5 5\n");
    line_8("seed = \xff\xfe\n");
    // The library takes it for granted that a key follows the bracket.
    for (const char *header : {"[$x]\n", "[=]\n", "[[\x01]]\n", " [ \xc3\xa9]\n", "[\n", "[[\n"})
        line_8(header);
    // Characters beyond ASCII are for strings and comments.
    line_8("\xef\xbb\x92 = 1\n");
    line_8("x = \"\"\"a\"\"\"\" \xef\xbb\x92\n");
    line_8("x = 1979-05-27T'''32:00t\xc4\xb4\n");
    line_8("x = 1='''\xc3\xa9'''\n");
    line_8("x = \"\\\xc3\xa9\"\n");
    CHECK(holds(line_8("x = \"\\u002541\"\n"), "escaped"));
    // Overlong, surrogate, beyond the last code point, cut short, a stray continuation.
    for (const char *bad : {"\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                            "\xf5\x80\x80\x80", "\xe2\x82", "\x80"})
        CHECK(holds(line_8("x = \"" + std::string(bad) + "\"\n"), "not UTF-8"));
    CHECK(holds(refused(least + "experts = 5\n"), "conf/run.toml:7: not valid TOML"));
    CHECK(holds(refused(least + "[memory]\nbytes = 5\n"), "not valid TOML"));
    CHECK(holds(refused(least + "[cache]\n\"a\\nb\" = 1\n"), "run.toml:8: a key holds more"));
    CHECK(holds(refused(least + "[cache]\n\"\" = 1\n"), "run.toml:8: a key holds more"));
    CHECK(holds(refused(least + "[cache]\n\"x.y\" = 1\n"), "run.toml:8: a key holds more"));
    CHECK_FALSE(read("").ok());
    CHECK_FALSE(read(std::string(1, '\0')).ok());
}

TEST_CASE("texts beyond ASCII arrive as they are") {
    const auto title = [](const std::string &quoted) {
        return accepted(least + "# \xc3\xa9\n[report]\ntitle = " + quoted + "\n").title;
    };
    for (const char *text : {"\xc3\xa9", "\xef\xbb\x92", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                             "\xf4\x8f\xbf\xbf", "100 %", "%41", "%C3%A9", "%%25", "%", "a%2"}) {
        CAPTURE(text);
        const std::string plain = text;
        CHECK(title("\"" + plain + "\"") == plain);
        CHECK(title("'" + plain + "'") == plain);
        CHECK(title("\"\"\"\\\n  " + plain + "\"\"\"") == plain);
    }
    CHECK(title("\"\\u00e9%41\"") == "\xc3\xa9%41");
    CHECK(accepted("\xef\xbb\xbf" + least).experts == 96);
    CHECK(accepted(least, {"report.title=\xc3\xa9%41"}).title == "\xc3\xa9%41");
    CHECK(accepted(least, {"source.trace=\"\xc3\xa9%41\""}).trace == "\xc3\xa9%41");
}

TEST_CASE("deep nesting and size are bounded") {
    const auto repeated = [](const std::string &part, size_t count) {
        std::string text;
        for (size_t i = 0; i < count; ++i) text += part;
        return text;
    };
    CHECK(holds(refused("x = " + repeated("[", 100'000)), "run.toml:1"));
    CHECK(holds(refused("x = " + repeated("{a=", 100'000)), "run.toml:1"));
    CHECK(holds(refused("\n" + repeated("a.", 100'000) + "a = 1\n"),
                "run.toml:2: not valid TOML: a key has more"));
    CHECK(holds(refused("[" + repeated("a.", 100'000) + "a]\n"),
                "run.toml:1: not valid TOML: a key has more"));
    CHECK(holds(refused("x = " + repeated("{a.a.a.a.a.a.a.a.a.a=", 1000)), "run.toml:1"));
    CHECK(holds(refused(repeated("# padding\n", 110'000)), "limit"));
    // Dots in strings and comments are no depth.
    const std::string dots = repeated(".", 500);
    CHECK(accepted(least + "# " + dots + "\n[report]\ntitle = \"" + dots + "\"\n").title == dots);
    CHECK(accepted(least + "[report]\ntitle = '''\n" + dots + "'''\n").title == dots);
}

TEST_CASE("a file is read with its directory as the base") {
    namespace fs = std::filesystem;
    const fs::path folder =
        fs::temp_directory_path() / ("moorage_run_config_test_" + std::to_string(getpid()));
    fs::create_directories(folder);
    std::ofstream(folder / "a.toml") << least;
    const auto config = load_run_config(folder / "a.toml", {});
    REQUIRE(config.ok());
    CHECK(config->file == folder / "a.toml");
    CHECK(config->trace == folder / "routing.safetensors");
    const auto missing = load_run_config(folder / "b.toml", {});
    REQUIRE_FALSE(missing.ok());
    CHECK(holds(missing.failure().text, "b.toml: no such file"));
    const auto directory = load_run_config(folder, {});
    REQUIRE_FALSE(directory.ok());
    CHECK(holds(directory.failure().text, "is a directory"));
    fs::remove_all(folder);
}

TEST_CASE("--set needs section, key and =") {
    const auto good = parse_override("source.trace = a=b.c ");
    REQUIRE(good.ok());
    CHECK(good->section == "source");
    CHECK(good->key == "trace");
    CHECK(good->value == "a=b.c");
    CHECK(parse_override("cache.lfu.half_life=4")->key == "lfu.half_life");
    for (const char *bad : {"", "x", "run=5", "run.seed", ".seed=5", "run.=5", "run..x=5", "=5",
                            "run.se ed=5", "run.\"seed\"=5"}) {
        CAPTURE(bad);
        const auto parsed = parse_override(bad);
        REQUIRE_FALSE(parsed.ok());
        CHECK(parsed.failure().usage);
        CHECK(holds(parsed.failure().text, "section.key=value"));
    }
}

TEST_CASE("--sweep splits at commas outside quotes and lists") {
    const auto values = [](const std::string &text) {
        const auto parsed = parse_sweep(text);
        REQUIRE(parsed.ok());
        return parsed->values;
    };
    using list = std::vector<std::string>;
    CHECK(values("memory.experts=64,128, 256") == list{"64", "128", "256"});
    CHECK(values("cache.plugin=lru") == list{"lru"});
    CHECK(values("report.title=\"a,b\",c") == list{"\"a,b\"", "c"});
    CHECK(values("plugins.path=[\"a\",\"b\"],[\"c\"]") == list{"[\"a\",\"b\"]", "[\"c\"]"});
    CHECK(parse_sweep("cache.plugin=lru")->section == "cache");
    CHECK(parse_sweep("cache.plugin=lru")->key == "plugin");
    for (const char *bad : {"memory.experts=", "memory.experts=1,,2", "memory.experts=1,", "x=1,2",
                            "memory.experts=1,2,1", "memory.experts"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_sweep(bad).ok());
    }
    std::string many = "run.seed=0";
    for (int i = 1; i <= 1024; ++i) many += "," + std::to_string(i);
    CHECK(holds(parse_sweep(many).failure().text, "limit"));
}

TEST_CASE("a sweep over policies keeps each one's parameters apart") {
    const std::string text = least + "[cache]\nplugin = \"lfu\"\nhalf_life = 16\n";
    const auto swept = parse_sweep("cache.plugin=lru,lfu");
    REQUIRE(swept.ok());
    std::vector<size_t> counts;
    for (const std::string &value : swept->values)
        counts.push_back(accepted(text, {"cache.plugin=" + value}).cache.params.size());
    CHECK(counts == std::vector<size_t>{0, 1});
}

TEST_CASE("the bundled configurations load, and the example shows every key") {
    const std::filesystem::path folder = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs";
    size_t count = 0;
    for (const auto &file : std::filesystem::directory_iterator(folder)) {
        if (file.path().extension() != ".toml") continue;
        CAPTURE(file.path().string());
        const auto config = load_run_config(file.path(), {});
        CHECK_MESSAGE(config.ok(), (config ? "" : config.failure().text));
        ++count;
    }
    CHECK(count >= 1);
    const auto text = read_document(folder / "example.toml");
    REQUIRE(text.ok());
    for (const char *key :
         {"executor", "tokens", "batch", "prefill", "seed", "profile", "link", "node", "trace",
          "shape", "experts", "bytes", "sharing", "buffer_experts", "path", "on_fault", "title"})
        CHECK(holds(*text, std::string(key) + " = "));
    for (const std::string_view kind : stage_kinds)
        CHECK(holds(*text, "[" + std::string(kind) + "]"));
}

TEST_CASE("library says which file a policy is in: beside the configuration, or in a plugin path") {
    const std::string text = least + "[cache]\nplugin = \"mine\"\nlibrary = \"deep/mine.so\"\n";
    const run_config absent = accepted(text);
    CHECK(absent.cache.library == "deep/mine.so");  // the registry looks in the plugin paths
    CHECK(absent.plugin_paths.empty());
    // A plugin chosen by --set does not keep the library of the plugin in the file.
    CHECK(accepted(text, {"cache.plugin=lru"}).cache.library.empty());
    CHECK(accepted(text, {"cache.plugin=lru", "cache.library=my.so"}).cache.library == "my.so");

    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("moorage-config-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder / "deep");
    std::ofstream(folder / "deep/mine.so") << "something";
    const auto parsed = parse_run_config(text, folder / "run.toml", {});
    REQUIRE(parsed.ok());
    CHECK(parsed->cache.library == folder / "deep/mine.so");
    CHECK(parsed->plugin_paths == std::vector{folder / "deep/mine.so"});  // so that it is loaded
    std::filesystem::remove_all(folder);
    CHECK(holds(refused(least + "[cache]\nlibrary = 3\n"), "library"));
    CHECK(
        holds(refused(least + "[cache]\n[cache.lru]\nlibrary = \"a.so\"\n"), "put it in [cache]"));
}

}  // namespace run_config_test
