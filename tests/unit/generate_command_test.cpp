// generate_command_test.cpp - goal: the commands that run models keep the contract: text alone on
// standard output, valid JSON, exit codes 0, 1 and 2, errors that name a remedy. Method: the built
// program on the demo model and on incomplete copies of it. Its output is compared with the
// library's own run, and commands with each other.
#include <doctest/doctest.h>

#include <cmath>

#include "core/base/json.h"
#include "core/model/tokenizer.h"
#include "core/pipeline/run.h"
#include "core/source/trace.h"
#include "tests/unit/model_files.h"
#include "tests/unit/program.h"

namespace generate_command_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

const std::string home = MOORAGE_SOURCE_DIR, demo = home + "/configs/demo";
const std::string greedy = " --temperature 0 ";

using outcome = moorage::test::program_result;

struct bench {
    scratch_directory place;
    std::string file(const std::string &name) const { return (place.path() / name).string(); }
    std::string file(const std::string &name, const std::string &content) const {
        write_file(place.path() / name, content);
        return file(name);
    }
    outcome moorage(const std::string &arguments) const {
        return ::moorage::test::run_line(arguments, file("errors"));
    }
    // Refused: nothing on standard output, one line of errors.
    outcome refused(const std::string &arguments, int code) const {
        const outcome result = moorage(arguments);
        CAPTURE(arguments);
        CAPTURE(result.errors);
        CHECK(result.code == code);
        CHECK(result.output.empty());
        CHECK(result.errors.starts_with("moorage: "));
        CHECK(result.errors.find('\n') == result.errors.size() - 1);
        return result;
    }
    json figures(const std::string &arguments) const {
        const outcome result = moorage(arguments + " --json -");
        CAPTURE(arguments);
        CAPTURE(result.errors);
        REQUIRE(result.code == 0);
        const json parsed = json_or_discarded(result.output);
        REQUIRE_FALSE(parsed.is_discarded());
        return parsed;
    }
};

// The text that the library writes after a prompt.
std::string continuation(const std::string &prompt, uint32_t tokens) {
    run_resources shared;
    REQUIRE(shared.scan(std::vector{std::filesystem::path(MOORAGE_BINARY_DIR) / "plugins"}).ok());
    run_config config;
    config.file = "test.toml";
    config.executor = "cpu";
    config.profile = "host";
    config.model = demo;
    config.prompts = {prompt};
    config.max_tokens = tokens;
    config.prefill = 512;
    const auto done = run(config, shared, {});
    REQUIRE(done.ok());
    return done->text.texts[0];
}

}  // namespace

TEST_CASE("generate writes the prompt and its continuation, and nothing else") {
    const bench fixture;
    const std::string prompt = "The president said that";
    const std::string text = prompt + continuation(prompt, 9) + "\n";
    const outcome plain =
        fixture.moorage("generate " + demo + greedy + "--prompt '" + prompt + "' --max-tokens 9");
    CHECK(plain.code == 0);
    CHECK(plain.output == text);
    CHECK(plain.says("9 tokens written"));
    const outcome quiet = fixture.moorage("generate " + demo + greedy + "-q --prompt '" + prompt +
                                          "' --max-tokens 9 --report");
    CHECK(quiet.output == text);
    CHECK_FALSE(quiet.says("tokens written"));
    // With the demo's configuration the machine is emulated; the text is the same.
    const outcome emulated = fixture.moorage("generate " + demo + " --config " + home +
                                             "/configs/demo.toml --max-tokens 9 --prompt '" +
                                             prompt + "' --set memory.split=0.5 --temperature 0");
    CHECK(emulated.code == 0);
    CHECK(emulated.output == text);
    CHECK(emulated.says("virtual time on rtx_4060_ti_16gb"));
}

TEST_CASE("text is drawn, unless asked otherwise, and a seed repeats it") {
    const bench fixture;
    const std::string line = "generate " + demo + " --prompt 'The president' --max-tokens 30 ";
    const outcome first = fixture.moorage(line), second = fixture.moorage(line);
    CHECK(first.code == 0);
    const size_t position = first.errors.find(", --seed ");
    REQUIRE(position != first.errors.npos);
    const std::string seed =
        first.errors.substr(position + 2, first.errors.find('\n', position) - position - 2);
    CHECK_FALSE(second.says(seed.c_str()));
    CHECK(first.output != second.output);
    const outcome again = fixture.moorage(line + seed);
    CHECK(again.output == first.output);
    CHECK(again.says(seed.c_str()));
    // The defaults, said. Another order of the same keys, in a file.
    const std::string said = " --temperature 0.8 --top-k 40 --top-p 0.95 --min-p 0.05";
    CHECK(fixture.moorage(line + seed + said).output == first.output);
    const std::string file = fixture.file("how.toml",
                                          "[run]\nexecutor = \"cpu\"\n[source]\nmin_p = 0.05\n"
                                          "top_p = 0.95\ntop_k = 40\ntemperature = 0.8\n");
    CHECK(fixture.moorage(line + seed + " --config " + file).output == first.output);
    const json report = fixture.figures(line + seed);
    CHECK(report["config"]["source"]["temperature"] == 0.8);
    CHECK(report["config"]["source"]["top_k"] == 40);
    CHECK(report["config"]["source"]["top_p"] == 0.95);
    CHECK(report["config"]["source"]["min_p"] == 0.05);
    // A file's seed and temperature count. Absent keys have the default.
    const std::string cold =
        fixture.file("cold.toml", "[run]\nexecutor = \"cpu\"\n[source]\ntemperature = 0\n");
    const outcome without = fixture.moorage(line + " --config " + cold);
    CHECK_FALSE(without.says("--seed"));
    CHECK(without.output == fixture.moorage(line + greedy).output);
    const std::string seeded =
        fixture.file("seeded.toml", "[run]\nexecutor = \"cpu\"\nseed = 77\n");
    CHECK(fixture.moorage(line + " --config " + seeded).output ==
          fixture.moorage(line + "--seed 77").output);
}

TEST_CASE("run and trace record are greedy without being told") {
    const bench fixture;
    const std::string file =
        fixture.file("run.toml", "[run]\nexecutor = \"cpu\"\n[source]\nmodel = \"" + demo +
                                     "\"\nprompt = \"The president\"\nmax_tokens = 12\n");
    const json report = fixture.figures("run " + file);
    CHECK_FALSE(report["config"]["source"].contains("temperature"));
    CHECK(report["seed"] == 0);
    CHECK(report["text"]["texts"][0]["text"] == continuation("The president", 12));
}

TEST_CASE("penalties keep a text from repeating itself") {
    const bench fixture;
    const std::string line =
        "generate " + demo + greedy + "-q --prompt 'ha ha ha ha ha ha' --max-tokens 40 ";
    const std::string plain = fixture.moorage(line).output;
    for (const char *flag : {"--repetition-penalty 3", "--presence-penalty 9",
                             "--frequency-penalty 9", "--frequency-penalty 9 --penalty-window 0"}) {
        CAPTURE(flag);
        const outcome held = fixture.moorage(line + flag);
        CHECK(held.code == 0);
        CHECK(held.output != plain);
    }
    CHECK(fixture.moorage(line + "--repetition-penalty 1 --presence-penalty 0").output == plain);
    CHECK(fixture.refused(line + "--repetition-penalty 0", 2).says("above 0"));
    CHECK(fixture.refused(line + "--min-p 2", 2).says("min_p"));
}

TEST_CASE("a text ends before what it is to stop at, however tokens cut it") {
    const bench fixture;
    const std::string prompt = "The president said that";
    const std::string line =
        "generate " + demo + greedy + "-q --max-tokens 24 --prompt '" + prompt + "' ";
    const std::string whole = continuation(prompt, 24);
    // Every piece of it, so that most begin or end inside of a token.
    for (size_t begin = 1; begin + 5 < whole.size(); begin += 7) {
        const std::string stop = whole.substr(begin, 5);
        if (stop.find('\'') != stop.npos || stop.find('\n') != stop.npos) continue;
        CAPTURE(stop);
        const outcome cut = fixture.moorage(line + "--stop '" + stop + "'");
        CHECK(cut.code == 0);
        CHECK(cut.output == prompt + whole.substr(0, whole.find(stop)) + "\n");
    }
    // The prompt is not looked at; several; one that never comes; in the report, too.
    CHECK(fixture.moorage(line + "--stop president").output == prompt + whole + "\n");
    const std::string early = whole.substr(4, 4), late = whole.substr(20, 4);
    CHECK(fixture.moorage(line + "--stop '" + late + "' --stop '" + early + "'").output ==
          prompt + whole.substr(0, std::min(whole.find(early), whole.find(late))) + "\n");
    const json report = fixture.figures(line + "--stop '" + late + "'");
    CHECK(report["text"]["texts"][0]["text"] == whole.substr(0, whole.find(late)));
    CHECK(report["config"]["source"]["stop"][0] == late);
    const outcome two =
        fixture.moorage("generate " + demo + greedy + "-q --max-tokens 24 --prompt '" + prompt +
                        "' --prompt '" + prompt + "' --stop '" + late + "'");
    const std::string part = prompt + whole.substr(0, whole.find(late)) + "\n\n";
    CHECK(two.output == part + part);
    // At a token, by its id.
    const auto words = tokenizer::open(demo + "/tokenizer.json");
    REQUIRE(words.ok());
    const auto ids = (*words)->encode(prompt + whole, {});
    const auto prompt_ids = (*words)->encode(prompt, {});
    REQUIRE((ids.ok() && prompt_ids.ok()));
    const int32_t third = (*ids)[prompt_ids->size() + 2];
    const std::string at_third =
        fixture.moorage(line + "--stop-id " + std::to_string(third)).output;
    CHECK(at_third.size() < (prompt + whole).size());
    CHECK((prompt + whole).starts_with(at_third.substr(0, at_third.size() - 1)));
    CHECK(fixture.refused(line + "--stop ''", 2).says("not empty"));
    CHECK(fixture.refused(line + "--stop-id 5000", 2).says("beyond the vocabulary"));
    CHECK(fixture.refused(line + "--stop-id five", 2).says("no token id"));
}

TEST_CASE("prompts from files and standard input") {
    const bench fixture;
    const std::string prompt = "The president said that";
    const std::string expected = prompt + continuation(prompt, 6) + "\n";
    const std::string line = "generate " + demo + greedy + "-q --max-tokens 6 ";
    CHECK(fixture.moorage(line + "--prompt-file " + fixture.file("a.txt", prompt)).output ==
          expected);
    CHECK(fixture.moorage(line + "--prompt-file " + fixture.file("b.txt", prompt + "\n")).output ==
          expected);
    CHECK(
        fixture.moorage(line + "--prompt-file " + fixture.file("c.txt", prompt + "\r\n")).output ==
        expected);
    const std::string piped = "/bin/moorage " + line + "--prompt-file - <" + fixture.file("b.txt");
    std::FILE *const output = popen((MOORAGE_BINARY_DIR + piped).c_str(), "r");
    REQUIRE(output != nullptr);
    char text[1000];
    CHECK(std::string(text, std::fread(text, 1, sizeof text, output)) == expected);
    CHECK(pclose(output) == 0);
    CHECK(fixture.moorage(line + "--prompt-file " + fixture.file("d.txt", "\xef\xbb\xbf" + prompt))
              .output == expected);
    const std::string wide("\xff\xfeT\0o\0", 6), packed("\x1f\x8b\x08 and so on");
    CHECK(fixture.refused(line + "--prompt-file " + fixture.file("e.txt", wide), 2)
              .says("e.txt: is UTF-16"));
    CHECK(fixture.refused(line + "--prompt-file " + fixture.file("f.txt", packed), 2)
              .says("by gzip"));
    CHECK(fixture.refused("eval " + demo + " --text " + fixture.file("e.txt", wide), 2)
              .says("is UTF-16"));
    CHECK(fixture.moorage(line + "--prompt A --seed 6 --set run.seed=5")
              .says("--seed 6 is not used"));
    CHECK(fixture.refused(line + "--prompt-file -", 2).says("standard input: holds no text"));
    const outcome two_prompts =
        fixture.moorage(line + "--prompt-file " + fixture.file("b.txt") + " --prompt 'Il y avait'");
    CHECK(two_prompts.output.starts_with("Il y avait"));
    CHECK(two_prompts.output.ends_with("\n\n" + expected + "\n"));
    CHECK(fixture.refused(line, 2).says("--prompt-file"));
    CHECK(fixture.refused(line + "--prompt-file " + fixture.file("none.txt"), 1)
              .says("none.txt: No such"));
    CHECK(fixture.refused(line + "--prompt-file " + fixture.file("empty.txt", "\n"), 2)
              .says("no text"));
    CHECK(fixture.refused(line + "--prompt-file " + fixture.file("odd.txt", "a\xff"), 2)
              .says("UTF-8"));
    CHECK(fixture.refused(line + "--prompt-file - --prompt-file -", 2).says("twice"));
}

TEST_CASE("several prompts follow each other") {
    const bench fixture;
    const outcome result = fixture.moorage("generate " + demo +
                                           " -q --prompt 'def main(' --prompt 'Il y avait' "
                                           "--max-tokens 4 --set run.batch=2");
    CHECK(result.code == 0);
    CHECK(result.output.starts_with("def main("));
    CHECK(result.output.find("\n\nIl y avait") != std::string::npos);
    CHECK(result.errors.empty());
}

TEST_CASE("figures of generate as JSON, on standard output or in a file") {
    const bench fixture;
    const std::string common =
        "generate " + demo + greedy + "-q --prompt 'def main(' --max-tokens 4";
    const json figures = fixture.figures(common);
    CHECK(figures["executor"] == "cpu");
    CHECK(figures["virtual_time"] == false);
    CHECK(figures["requests"] == 1);
    const outcome text_and_json = fixture.moorage(common + " --json " + fixture.file("a.json"));
    CHECK(text_and_json.code == 0);
    CHECK(text_and_json.output == "def main(" + continuation("def main(", 4) + "\n");
    const json stored = json_or_discarded(read_file(fixture.file("a.json")));
    REQUIRE(stored.is_object());
    CHECK(stored["tokens"] == figures["tokens"]);
    const outcome nowhere = fixture.moorage(common + " --json " + fixture.file("none/a.json"));
    CHECK(nowhere.code == 1);
    CHECK(nowhere.says("none/a.json"));
}

TEST_CASE("every executor by its name") {
    const bench fixture;
    const std::string config =
        fixture.file("run.toml", "[hardware]\nprofile = \"rtx_4090\"\n[memory]\nexperts = 30\n");
    const std::string common = "generate " + demo + greedy +
                               "-q --prompt 'def main(' --max-tokens 4 "
                               "--config " +
                               config + " --executor ";
    const std::string expected = "def main(" + continuation("def main(", 4) + "\n";
    for (const char *name : {"cpu", "emulator"}) {
        const outcome result = fixture.moorage(common + name);
        CHECK(result.code == 0);
        CHECK(result.output == expected);
    }
#ifndef MOORAGE_HAS_CUDA
    const outcome cuda = fixture.refused(common + "cuda", 1);
    CHECK(cuda.says("not part of this build"));
    CHECK(cuda.says("--preset cuda"));
#endif
    CHECK(fixture.refused(common + "gpu", 2).says("did you mean cpu"));
}

TEST_CASE("what cannot be generated says why, and writes no half of it") {
    const bench fixture;
    const std::string prompt = " --prompt a";
    CHECK(fixture.refused("generate " + fixture.file("none") + prompt, 1).says("none"));
    CHECK(fixture.refused("generate " + demo + prompt + " --max-tokens 1024", 2)
              .says("1024 positions"));
    CHECK(fixture.refused("generate " + demo + " --prompt ''", 2).says("prompt 1"));
    CHECK(fixture.refused("generate " + demo + prompt + " --config " + fixture.file("none.toml"), 2)
              .says("none.toml"));
    CHECK(
        fixture.refused("generate " + demo + prompt + " --set memory.expert=3", 2).says("experts"));
    CHECK(fixture.refused("generate " + demo + prompt + " --set cache.plugin=lur", 2)
              .says("no cache policy lur"));
    CHECK(fixture.moorage("generate " + demo).code == 2);
    CHECK(fixture.moorage("generate --prompt a").code == 2);
    CHECK(fixture.moorage("generate " + demo + prompt + " --max-tokens 0").code == 2);
    const scratch_directory copy(demo);
    std::filesystem::remove(copy.path() / "tokenizer.json");
    const std::string mute = copy.path().string();
    CHECK(fixture.refused("generate " + mute + prompt, 2).says("tokenizer.json"));
    CHECK(fixture.refused("eval " + mute + " --text " + home + "/README.md", 2)
              .says("tokenizer.json"));
    // Ids need none.
    CHECK(fixture.figures("eval " + mute + " --windows " +
                          fixture.file("a.json", "[[1, 2, 3]]"))["tokens"] == 2);
    write_file(copy.path() / "tokenizer.json", std::string("{"));
    CHECK(fixture.refused("generate " + mute + prompt, 1).says("tokenizer.json"));
}

TEST_CASE("eval: parts add up to the whole, however they are computed") {
    const bench fixture;
    const std::string windows =
        fixture.file("w.json", R"({"code": {"windows": [[1, 2, 3, 4, 5], "def main(x): return x"]},
                      "prose": ["It was a bright cold day in April."]})");
    const json figures = fixture.figures("eval " + demo + " --windows " + windows);
    const double sum = figures["parts"]["code"]["nll"].get<double>() *
                           figures["parts"]["code"]["tokens"].get<double>() +
                       figures["parts"]["prose"]["nll"].get<double>() *
                           figures["parts"]["prose"]["tokens"].get<double>();
    const double tokens = figures["tokens"].get<double>();
    CHECK(figures["parts"]["code"]["tokens"].get<int>() +
              figures["parts"]["prose"]["tokens"].get<int>() ==
          figures["tokens"]);
    CHECK(figures["nll"].get<double>() == doctest::Approx(sum / tokens));
    CHECK(figures["perplexity"].get<double>() == doctest::Approx(std::exp(sum / tokens)));
    const json slow = fixture.figures("eval " + demo + " --windows " + windows +
                                      " --set run.prefill=0 --set run.batch=2");
    CHECK(slow["nll"].get<double>() == doctest::Approx(figures["nll"].get<double>()).epsilon(1e-3));
    CHECK(slow["tokens"] == figures["tokens"]);
    const outcome text = fixture.moorage("eval " + demo + " --windows " + windows);
    CHECK(text.code == 0);
    CHECK(text.output.find("prose") != std::string::npos);
}

TEST_CASE("eval: files that cannot be scored") {
    const bench fixture;
    const auto windows = [&](const std::string &content) {
        return "eval " + demo + " --windows " + fixture.file("w.json", content);
    };
    CHECK(fixture.refused(windows("[[1, 2"), 2).says("w.json: not valid JSON"));
    CHECK(fixture.refused(windows("[[1, 5000]]"), 2).says("w.json[0]: id 5000 at 1"));
    CHECK(fixture.refused(windows("{}"), 2).says("nothing to score"));
    CHECK(fixture.refused("eval " + demo + " --windows " + fixture.file("none.json"), 1)
              .says("none.json"));
    CHECK(fixture.refused("eval " + demo + " --text " + fixture.file("a.txt", ""), 2)
              .says("a.txt: 0 ids"));
    CHECK(fixture.refused("eval " + demo, 2).says("--windows"));
    CHECK(fixture.refused("eval " + demo + " --text a --windows b", 2).says("one of them"));
}

TEST_CASE("trace record writes what trace info and a run can read") {
    const bench fixture;
    const std::string file = fixture.file("t.safetensors");
    const std::string common =
        "trace record " + demo + " --prompt 'def main(' --max-tokens 6 --set run.prefill=0 --out ";
    const json figures = fixture.figures(common + file);
    const auto opened = trace::open(file);
    REQUIRE(opened.ok());
    CHECK(opened->tokens() == figures["tokens"].get<uint64_t>());
    CHECK(opened->layers() == 8);
    CHECK(opened->predictions() == 8);
    CHECK(opened->has_gate_scores());
    CHECK(opened->has_token_ids());
    CHECK(opened->meta("model") == "demo");
    const json replayed = fixture.figures("run " + fixture.file("run.toml",
                                                                "[hardware]\nprofile = "
                                                                "\"rtx_4090\"\n[source]\ntrace = "
                                                                "\"t.safetensors\"\n"
                                                                "[memory]\nexperts = 40\n"));
    CHECK(replayed["tokens"] == figures["tokens"]);
    CHECK(replayed["experts"]["requested"] == figures["experts"]["requested"]);
    const outcome lean = fixture.moorage(common + fixture.file("u.safetensors") +
                                         " --predictions 0 --drop-gate-scores");
    CHECK(lean.code == 0);
    CHECK(lean.output.starts_with(fixture.file("u.safetensors")));
    const auto small = trace::open(fixture.file("u.safetensors"));
    REQUIRE(small.ok());
    CHECK_FALSE(small->has_predictions());
    CHECK_FALSE(small->has_gate_scores());
    CHECK(small->has_weights());
    CHECK(fixture.refused("trace record " + demo + " --out " + file, 2).says("--prompt"));
    CHECK(fixture.refused(common + fixture.file("none/t.safetensors"), 1).says("none"));
}

TEST_CASE("run of a model: the same file, other executors") {
    const bench fixture;
    const std::string run = "run " + home + "/configs/demo.toml --set source.max_tokens=6";
    const json emulated = fixture.figures(run);
    CHECK(emulated["executor"] == "emulator");
    CHECK(emulated["virtual_time"] == true);
    const json real = fixture.figures(run + " --set run.executor=cpu --set hardware.profile=host");
    CHECK(real["virtual_time"] == false);
    CHECK(real["tokens"] == emulated["tokens"]);
    CHECK(real["experts"]["requested"] == emulated["experts"]["requested"]);
    CHECK(real["experts"]["hits"] == emulated["experts"]["hits"]);
    CHECK(fixture.refused(run + " --set source.model=" + fixture.file("none"), 1).says("none"));
    CHECK(fixture.refused(run + " --set source.prompt=", 2).says("prompt"));
}

}  // namespace generate_command_test
