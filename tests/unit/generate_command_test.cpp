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

using outcome = moorage::test::ended;

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
        CHECK(result.out.empty());
        CHECK(result.errors.starts_with("moorage: "));
        CHECK(result.errors.find('\n') == result.errors.size() - 1);
        return result;
    }
    json figures(const std::string &arguments) const {
        const outcome result = moorage(arguments + " --json -");
        CAPTURE(arguments);
        CAPTURE(result.errors);
        REQUIRE(result.code == 0);
        const json parsed = json_or_discarded(result.out);
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
    const bench on;
    const std::string prompt = "The president said that";
    const std::string text = prompt + continuation(prompt, 9) + "\n";
    const outcome plain =
        on.moorage("generate " + demo + greedy + "--prompt '" + prompt + "' --max-tokens 9");
    CHECK(plain.code == 0);
    CHECK(plain.out == text);
    CHECK(plain.says("9 tokens written"));
    const outcome quiet = on.moorage("generate " + demo + greedy + "-q --prompt '" + prompt +
                                     "' --max-tokens 9 --report");
    CHECK(quiet.out == text);
    CHECK_FALSE(quiet.says("tokens written"));
    // With the demo's configuration the machine is emulated; the text is the same.
    const outcome emulated = on.moorage("generate " + demo + " --config " + home +
                                        "/configs/demo.toml --max-tokens 9 --prompt '" + prompt +
                                        "' --set memory.split=0.5 --temperature 0");
    CHECK(emulated.code == 0);
    CHECK(emulated.out == text);
    CHECK(emulated.says("virtual time on rtx_4060_ti_16gb"));
}

TEST_CASE("text is drawn, unless asked otherwise, and a seed repeats it") {
    const bench on;
    const std::string line = "generate " + demo + " --prompt 'The president' --max-tokens 30 ";
    const outcome first = on.moorage(line), second = on.moorage(line);
    CHECK(first.code == 0);
    const size_t at = first.errors.find(", --seed ");
    REQUIRE(at != first.errors.npos);
    const std::string seed = first.errors.substr(at + 2, first.errors.find('\n', at) - at - 2);
    CHECK_FALSE(second.says(seed.c_str()));
    CHECK(first.out != second.out);
    const outcome again = on.moorage(line + seed);
    CHECK(again.out == first.out);
    CHECK(again.says(seed.c_str()));
    // The defaults, said. Another order of the same keys, in a file.
    const std::string said = " --temperature 0.8 --top-k 40 --top-p 0.95 --min-p 0.05";
    CHECK(on.moorage(line + seed + said).out == first.out);
    const std::string file = on.file("how.toml",
                                     "[run]\nexecutor = \"cpu\"\n[source]\nmin_p = 0.05\n"
                                     "top_p = 0.95\ntop_k = 40\ntemperature = 0.8\n");
    CHECK(on.moorage(line + seed + " --config " + file).out == first.out);
    const json report = on.figures(line + seed);
    CHECK(report["config"]["source"]["temperature"] == 0.8);
    CHECK(report["config"]["source"]["top_k"] == 40);
    CHECK(report["config"]["source"]["top_p"] == 0.95);
    CHECK(report["config"]["source"]["min_p"] == 0.05);
    // A file's seed and temperature count. Absent keys have the default.
    const std::string cold =
        on.file("cold.toml", "[run]\nexecutor = \"cpu\"\n[source]\ntemperature = 0\n");
    const outcome without = on.moorage(line + " --config " + cold);
    CHECK_FALSE(without.says("--seed"));
    CHECK(without.out == on.moorage(line + greedy).out);
    const std::string seeded = on.file("seeded.toml", "[run]\nexecutor = \"cpu\"\nseed = 77\n");
    CHECK(on.moorage(line + " --config " + seeded).out == on.moorage(line + "--seed 77").out);
}

TEST_CASE("run and trace record are greedy without being told") {
    const bench on;
    const std::string file =
        on.file("run.toml", "[run]\nexecutor = \"cpu\"\n[source]\nmodel = \"" + demo +
                                "\"\nprompt = \"The president\"\nmax_tokens = 12\n");
    const json report = on.figures("run " + file);
    CHECK_FALSE(report["config"]["source"].contains("temperature"));
    CHECK(report["seed"] == 0);
    CHECK(report["text"]["texts"][0]["text"] == continuation("The president", 12));
}

TEST_CASE("penalties keep a text from repeating itself") {
    const bench on;
    const std::string line =
        "generate " + demo + greedy + "-q --prompt 'ha ha ha ha ha ha' --max-tokens 40 ";
    const std::string plain = on.moorage(line).out;
    for (const char *flag : {"--repetition-penalty 3", "--presence-penalty 9",
                             "--frequency-penalty 9", "--frequency-penalty 9 --penalty-window 0"}) {
        CAPTURE(flag);
        const outcome held = on.moorage(line + flag);
        CHECK(held.code == 0);
        CHECK(held.out != plain);
    }
    CHECK(on.moorage(line + "--repetition-penalty 1 --presence-penalty 0").out == plain);
    CHECK(on.refused(line + "--repetition-penalty 0", 2).says("above 0"));
    CHECK(on.refused(line + "--min-p 2", 2).says("min_p"));
}

TEST_CASE("a text ends before what it is to stop at, however tokens cut it") {
    const bench on;
    const std::string prompt = "The president said that";
    const std::string line =
        "generate " + demo + greedy + "-q --max-tokens 24 --prompt '" + prompt + "' ";
    const std::string whole = continuation(prompt, 24);
    // Every piece of it, so that most begin or end inside of a token.
    for (size_t begin = 1; begin + 5 < whole.size(); begin += 7) {
        const std::string stop = whole.substr(begin, 5);
        if (stop.find('\'') != stop.npos || stop.find('\n') != stop.npos) continue;
        CAPTURE(stop);
        const outcome cut = on.moorage(line + "--stop '" + stop + "'");
        CHECK(cut.code == 0);
        CHECK(cut.out == prompt + whole.substr(0, whole.find(stop)) + "\n");
    }
    // The prompt is not looked at; several; one that never comes; in the report, too.
    CHECK(on.moorage(line + "--stop president").out == prompt + whole + "\n");
    const std::string early = whole.substr(4, 4), late = whole.substr(20, 4);
    CHECK(on.moorage(line + "--stop '" + late + "' --stop '" + early + "'").out ==
          prompt + whole.substr(0, std::min(whole.find(early), whole.find(late))) + "\n");
    const json report = on.figures(line + "--stop '" + late + "'");
    CHECK(report["text"]["texts"][0]["text"] == whole.substr(0, whole.find(late)));
    CHECK(report["config"]["source"]["stop"][0] == late);
    const outcome two = on.moorage("generate " + demo + greedy + "-q --max-tokens 24 --prompt '" +
                                   prompt + "' --prompt '" + prompt + "' --stop '" + late + "'");
    const std::string part = prompt + whole.substr(0, whole.find(late)) + "\n\n";
    CHECK(two.out == part + part);
    // At a token, by its id.
    const auto words = tokenizer::open(demo + "/tokenizer.json");
    REQUIRE(words.ok());
    const auto ids = (*words)->encode(prompt + whole, {});
    const auto before = (*words)->encode(prompt, {});
    REQUIRE((ids.ok() && before.ok()));
    const int32_t third = (*ids)[before->size() + 2];
    const std::string at_third = on.moorage(line + "--stop-id " + std::to_string(third)).out;
    CHECK(at_third.size() < (prompt + whole).size());
    CHECK((prompt + whole).starts_with(at_third.substr(0, at_third.size() - 1)));
    CHECK(on.refused(line + "--stop ''", 2).says("not empty"));
    CHECK(on.refused(line + "--stop-id 5000", 2).says("beyond the vocabulary"));
    CHECK(on.refused(line + "--stop-id five", 2).says("no token id"));
}

TEST_CASE("prompts from files and standard input") {
    const bench on;
    const std::string prompt = "The president said that";
    const std::string expected = prompt + continuation(prompt, 6) + "\n";
    const std::string line = "generate " + demo + greedy + "-q --max-tokens 6 ";
    CHECK(on.moorage(line + "--prompt-file " + on.file("a.txt", prompt)).out == expected);
    CHECK(on.moorage(line + "--prompt-file " + on.file("b.txt", prompt + "\n")).out == expected);
    CHECK(on.moorage(line + "--prompt-file " + on.file("c.txt", prompt + "\r\n")).out == expected);
    const std::string piped = "/bin/moorage " + line + "--prompt-file - <" + on.file("b.txt");
    std::FILE *const out = popen((MOORAGE_BINARY_DIR + piped).c_str(), "r");
    REQUIRE(out != nullptr);
    char text[1000];
    CHECK(std::string(text, std::fread(text, 1, sizeof text, out)) == expected);
    CHECK(pclose(out) == 0);
    CHECK(on.moorage(line + "--prompt-file " + on.file("d.txt", "\xef\xbb\xbf" + prompt)).out ==
          expected);
    const std::string wide("\xff\xfeT\0o\0", 6), packed("\x1f\x8b\x08 and so on");
    CHECK(on.refused(line + "--prompt-file " + on.file("e.txt", wide), 2).says("e.txt: is UTF-16"));
    CHECK(on.refused(line + "--prompt-file " + on.file("f.txt", packed), 2).says("by gzip"));
    CHECK(on.refused("eval " + demo + " --text " + on.file("e.txt", wide), 2).says("is UTF-16"));
    CHECK(on.moorage(line + "--prompt A --seed 6 --set run.seed=5").says("--seed 6 is not used"));
    CHECK(on.refused(line + "--prompt-file -", 2).says("standard input: holds no text"));
    const outcome both =
        on.moorage(line + "--prompt-file " + on.file("b.txt") + " --prompt 'Il y avait'");
    CHECK(both.out.starts_with("Il y avait"));
    CHECK(both.out.ends_with("\n\n" + expected + "\n"));
    CHECK(on.refused(line, 2).says("--prompt-file"));
    CHECK(on.refused(line + "--prompt-file " + on.file("none.txt"), 1).says("none.txt: No such"));
    CHECK(on.refused(line + "--prompt-file " + on.file("empty.txt", "\n"), 2).says("no text"));
    CHECK(on.refused(line + "--prompt-file " + on.file("odd.txt", "a\xff"), 2).says("UTF-8"));
    CHECK(on.refused(line + "--prompt-file - --prompt-file -", 2).says("twice"));
}

TEST_CASE("several prompts follow each other") {
    const bench on;
    const outcome result = on.moorage("generate " + demo +
                                      " -q --prompt 'def main(' --prompt 'Il y avait' "
                                      "--max-tokens 4 --set run.batch=2");
    CHECK(result.code == 0);
    CHECK(result.out.starts_with("def main("));
    CHECK(result.out.find("\n\nIl y avait") != std::string::npos);
    CHECK(result.errors.empty());
}

TEST_CASE("figures of generate as JSON, on standard output or in a file") {
    const bench on;
    const std::string common =
        "generate " + demo + greedy + "-q --prompt 'def main(' --max-tokens 4";
    const json all = on.figures(common);
    CHECK(all["executor"] == "cpu");
    CHECK(all["virtual_time"] == false);
    CHECK(all["requests"] == 1);
    const outcome both = on.moorage(common + " --json " + on.file("a.json"));
    CHECK(both.code == 0);
    CHECK(both.out == "def main(" + continuation("def main(", 4) + "\n");
    const json stored = json_or_discarded(read_file(on.file("a.json")));
    REQUIRE(stored.is_object());
    CHECK(stored["tokens"] == all["tokens"]);
    const outcome nowhere = on.moorage(common + " --json " + on.file("none/a.json"));
    CHECK(nowhere.code == 1);
    CHECK(nowhere.says("none/a.json"));
}

TEST_CASE("every executor by its name") {
    const bench on;
    const std::string config =
        on.file("run.toml", "[hardware]\nprofile = \"rtx_4090\"\n[memory]\nexperts = 30\n");
    const std::string common = "generate " + demo + greedy +
                               "-q --prompt 'def main(' --max-tokens 4 "
                               "--config " +
                               config + " --executor ";
    const std::string expected = "def main(" + continuation("def main(", 4) + "\n";
    for (const char *name : {"cpu", "emulator"}) {
        const outcome result = on.moorage(common + name);
        CHECK(result.code == 0);
        CHECK(result.out == expected);
    }
#ifndef MOORAGE_HAS_CUDA
    const outcome cuda = on.refused(common + "cuda", 1);
    CHECK(cuda.says("not part of this build"));
    CHECK(cuda.says("--preset cuda"));
#endif
    CHECK(on.refused(common + "gpu", 2).says("did you mean cpu"));
}

TEST_CASE("what cannot be generated says why, and writes no half of it") {
    const bench on;
    const std::string prompt = " --prompt a";
    CHECK(on.refused("generate " + on.file("none") + prompt, 1).says("none"));
    CHECK(on.refused("generate " + demo + prompt + " --max-tokens 1024", 2).says("1024 positions"));
    CHECK(on.refused("generate " + demo + " --prompt ''", 2).says("prompt 1"));
    CHECK(on.refused("generate " + demo + prompt + " --config " + on.file("none.toml"), 2)
              .says("none.toml"));
    CHECK(on.refused("generate " + demo + prompt + " --set memory.expert=3", 2).says("experts"));
    CHECK(on.refused("generate " + demo + prompt + " --set cache.plugin=lur", 2)
              .says("no cache policy lur"));
    CHECK(on.moorage("generate " + demo).code == 2);
    CHECK(on.moorage("generate --prompt a").code == 2);
    CHECK(on.moorage("generate " + demo + prompt + " --max-tokens 0").code == 2);
    const scratch_directory copy(demo);
    std::filesystem::remove(copy.path() / "tokenizer.json");
    const std::string mute = copy.path().string();
    CHECK(on.refused("generate " + mute + prompt, 2).says("tokenizer.json"));
    CHECK(on.refused("eval " + mute + " --text " + home + "/README.md", 2).says("tokenizer.json"));
    // Ids need none.
    CHECK(on.figures("eval " + mute + " --windows " + on.file("a.json", "[[1, 2, 3]]"))["tokens"] ==
          2);
    write_file(copy.path() / "tokenizer.json", std::string("{"));
    CHECK(on.refused("generate " + mute + prompt, 1).says("tokenizer.json"));
}

TEST_CASE("eval: parts add up to the whole, however they are computed") {
    const bench on;
    const std::string windows =
        on.file("w.json", R"({"code": {"windows": [[1, 2, 3, 4, 5], "def main(x): return x"]},
                      "prose": ["It was a bright cold day in April."]})");
    const json all = on.figures("eval " + demo + " --windows " + windows);
    const double sum =
        all["parts"]["code"]["nll"].get<double>() * all["parts"]["code"]["tokens"].get<double>() +
        all["parts"]["prose"]["nll"].get<double>() * all["parts"]["prose"]["tokens"].get<double>();
    const double tokens = all["tokens"].get<double>();
    CHECK(all["parts"]["code"]["tokens"].get<int>() + all["parts"]["prose"]["tokens"].get<int>() ==
          all["tokens"]);
    CHECK(all["nll"].get<double>() == doctest::Approx(sum / tokens));
    CHECK(all["perplexity"].get<double>() == doctest::Approx(std::exp(sum / tokens)));
    const json slow = on.figures("eval " + demo + " --windows " + windows +
                                 " --set run.prefill=0 --set run.batch=2");
    CHECK(slow["nll"].get<double>() == doctest::Approx(all["nll"].get<double>()).epsilon(1e-3));
    CHECK(slow["tokens"] == all["tokens"]);
    const outcome text = on.moorage("eval " + demo + " --windows " + windows);
    CHECK(text.code == 0);
    CHECK(text.out.find("prose") != std::string::npos);
}

TEST_CASE("eval: files that cannot be scored") {
    const bench on;
    const auto windows = [&](const std::string &content) {
        return "eval " + demo + " --windows " + on.file("w.json", content);
    };
    CHECK(on.refused(windows("[[1, 2"), 2).says("w.json: not valid JSON"));
    CHECK(on.refused(windows("[[1, 5000]]"), 2).says("w.json[0]: id 5000 at 1"));
    CHECK(on.refused(windows("{}"), 2).says("nothing to score"));
    CHECK(on.refused("eval " + demo + " --windows " + on.file("none.json"), 1).says("none.json"));
    CHECK(on.refused("eval " + demo + " --text " + on.file("a.txt", ""), 2).says("a.txt: 0 ids"));
    CHECK(on.refused("eval " + demo, 2).says("--windows"));
    CHECK(on.refused("eval " + demo + " --text a --windows b", 2).says("one of them"));
}

TEST_CASE("trace record writes what trace info and a run can read") {
    const bench on;
    const std::string file = on.file("t.safetensors");
    const std::string common =
        "trace record " + demo + " --prompt 'def main(' --max-tokens 6 --set run.prefill=0 --out ";
    const json figures = on.figures(common + file);
    const auto opened = trace::open(file);
    REQUIRE(opened.ok());
    CHECK(opened->tokens() == figures["tokens"].get<uint64_t>());
    CHECK(opened->layers() == 8);
    CHECK(opened->predictions() == 8);
    CHECK(opened->has_gate_scores());
    CHECK(opened->has_token_ids());
    CHECK(opened->meta("model") == "demo");
    const json replayed = on.figures("run " + on.file("run.toml",
                                                      "[hardware]\nprofile = "
                                                      "\"rtx_4090\"\n[source]\ntrace = "
                                                      "\"t.safetensors\"\n"
                                                      "[memory]\nexperts = 40\n"));
    CHECK(replayed["tokens"] == figures["tokens"]);
    CHECK(replayed["experts"]["requested"] == figures["experts"]["requested"]);
    const outcome lean =
        on.moorage(common + on.file("u.safetensors") + " --predictions 0 --drop-gate-scores");
    CHECK(lean.code == 0);
    CHECK(lean.out.starts_with(on.file("u.safetensors")));
    const auto small = trace::open(on.file("u.safetensors"));
    REQUIRE(small.ok());
    CHECK_FALSE(small->has_predictions());
    CHECK_FALSE(small->has_gate_scores());
    CHECK(small->has_weights());
    CHECK(on.refused("trace record " + demo + " --out " + file, 2).says("--prompt"));
    CHECK(on.refused(common + on.file("none/t.safetensors"), 1).says("none"));
}

TEST_CASE("run of a model: the same file, other executors") {
    const bench on;
    const std::string run = "run " + home + "/configs/demo.toml --set source.max_tokens=6";
    const json emulated = on.figures(run);
    CHECK(emulated["executor"] == "emulator");
    CHECK(emulated["virtual_time"] == true);
    const json real = on.figures(run + " --set run.executor=cpu --set hardware.profile=host");
    CHECK(real["virtual_time"] == false);
    CHECK(real["tokens"] == emulated["tokens"]);
    CHECK(real["experts"]["requested"] == emulated["experts"]["requested"]);
    CHECK(real["experts"]["hits"] == emulated["experts"]["hits"]);
    CHECK(on.refused(run + " --set source.model=" + on.file("none"), 1).says("none"));
    CHECK(on.refused(run + " --set source.prompt=", 2).says("prompt"));
}

}  // namespace generate_command_test
