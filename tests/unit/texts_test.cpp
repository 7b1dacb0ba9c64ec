// texts_test.cpp - goal: a configuration becomes the right requests to a model. Impossible requests
// are refused with file, place and limit. Method: every form of file on small models, requests
// written out by hand; every error's text; files damaged at random, which give requests within
// their limits or an error of one line.
#include "core/pipeline/texts.h"

#include <doctest/doctest.h>

#include "core/base/json.h"
#include "core/base/random.h"
#include "core/pipeline/text_ends.h"
#include "toy_machine.h"

namespace texts_test {

using namespace moorage::core;

namespace {

using ids = std::vector<int32_t>;

struct opened {
    std::unique_ptr<model> loaded_model;
    std::unique_ptr<tokenizer> words;
};

const opened &demo() {  // 4096 ids, 1024 positions, no id that begins a text
    static const opened demo_parts = [] {
        const auto path = std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo";
        auto opened_model = open_model(path);
        auto words = tokenizer::open(path / "tokenizer.json");
        REQUIRE(opened_model.ok());
        REQUIRE(words.ok());
        return opened{std::move(*opened_model), std::move(*words)};
    }();
    return demo_parts;
}

struct bench {
    toy::folder folder;
    run_config config;

    bench() {
        config.file = "run.toml";
        config.model = "models/demo";
    }
    result<text_job> make(bool with_words = true) {
        return make_job(config, *demo().loaded_model, with_words ? demo().words.get() : nullptr);
    }
    result<text_job> make_from_file(const std::string &name, const std::string &content,
                                    bool with_words = true) {
        folder.write(name, content);
        config.text = folder / name;
        return make(with_words);
    }
    std::vector<ids> windows_of(const std::string &name, const std::string &content,
                                bool with_words = true) {
        const auto job = make_from_file(name, content, with_words);
        if (!job) FAIL(job.failure().text);
        std::vector<ids> windows;
        for (const model_request &request : job->requests) {
            CHECK(request.new_tokens == 0);
            windows.push_back(request.ids);
        }
        return windows;
    }
    // The error's text without the folder.
    std::string refusal(const std::string &name, const std::string &content,
                        bool with_words = true) {
        const auto job = make_from_file(name, content, with_words);
        REQUIRE_FALSE(job.ok());
        CHECK(job.failure().usage);
        std::string text = job.failure().text;
        const std::string place = folder.path().string() + "/";
        REQUIRE(text.starts_with(place));
        return text.substr(place.size());
    }
};

ids encode(std::string_view text) {
    const auto encoding = demo().words->encode(text, {});
    REQUIRE(encoding.ok());
    return *encoding;
}

std::string list_of(size_t count) {
    std::string text = "[[1";
    for (size_t i = 1; i < count; ++i) text += ",1";
    return text + "]]";
}

}  // namespace

TEST_CASE("prompts are encoded and continued") {
    bench fixture;
    fixture.config.prompts = {"The president said that", "def main("};
    fixture.config.max_tokens = 7;
    const auto job = fixture.make();
    REQUIRE(job.ok());
    REQUIRE(job->requests.size() == 2);
    CHECK(job->requests[0].ids == encode("The president said that"));
    CHECK(job->requests[1].ids == encode("def main("));
    CHECK(job->requests[1].new_tokens == 7);
    CHECK(job->prompts == fixture.config.prompts);
    CHECK(job->part_names.empty());
}

TEST_CASE("a text is cut into windows, one id that is left over is dropped") {
    bench fixture;
    const std::string text = "It was a bright cold day in April.";
    const ids ids_of_text = encode(text);
    REQUIRE(ids_of_text.size() > 8);
    for (uint32_t window = 2; window <= ids_of_text.size() + 1; ++window) {
        CAPTURE(window);
        fixture.config.window = window;
        const std::vector<ids> windows = fixture.windows_of("a.txt", text);
        size_t position = 0;
        for (size_t i = 0; i < windows.size(); ++i) {
            CHECK(windows[i].size() == std::min<size_t>(window, ids_of_text.size() - position));
            for (const int32_t id : windows[i]) CHECK(id == ids_of_text[position++]);
        }
        CHECK(position == ids_of_text.size() - (ids_of_text.size() % window == 1 ? 1 : 0));
    }
}

TEST_CASE("windows never go beyond the positions of the model") {
    bench fixture;
    fixture.config.window = 60'000;
    std::string text;
    for (int i = 0; i < 1500; ++i) text += " one";
    const ids ids_of_text = encode(text);
    const std::vector<ids> windows = fixture.windows_of("a.txt", text);
    REQUIRE(windows.size() == (ids_of_text.size() + 1023) / 1024);
    CHECK(windows[0].size() == 1024);
}

TEST_CASE("every form of windows in JSON") {
    bench fixture;
    CHECK(fixture.windows_of("a.json", "[[1, 2, 3], [4095, 0]]", false) ==
          std::vector<ids>{{1, 2, 3}, {4095, 0}});
    CHECK(fixture.windows_of("a.json", R"(["def main(", [5, 6]])") ==
          std::vector<ids>{encode("def main("), {5, 6}});
    const char *parts = R"({"code": {"windows": [[1, 2], [3, 4]], "note": "n"}, "prose": [[5, 6]],
                            "text": ["def main("]})";
    CHECK(fixture.windows_of("a.json", parts) ==
          std::vector<ids>{{1, 2}, {3, 4}, {5, 6}, encode("def main(")});
    const auto job = fixture.make();
    REQUIRE(job.ok());
    CHECK(job->part_names == std::vector<std::string>{"code", "prose", "text"});
    CHECK(job->parts == std::vector<uint32_t>{0, 0, 1, 2});
    // A text within is cut as one of its own file is.
    fixture.config.window = 2;
    const ids ids_of_text = encode("def main(");
    const std::vector<ids> cut = fixture.windows_of("a.json", R"({"p": ["def main("]})");
    CHECK(cut.size() == ids_of_text.size() / 2);
    CHECK(cut[0] == ids{ids_of_text[0], ids_of_text[1]});
}

TEST_CASE("errors name file, place, value and limit") {
    bench fixture;
    CHECK(fixture.refusal("a.json", "[[1, 2], [3, 4096]]") ==
          "a.json[1]: id 4096 at 1 is beyond the vocabulary of 4096");
    CHECK(fixture.refusal("a.json", R"({"x": {"windows": [[1, 2], [7]]}})") ==
          "a.json: x[1]: 1 ids; two or more are needed");
    CHECK(fixture.refusal("a.json", "[[]]") == "a.json[0]: 0 ids; two or more are needed");
    CHECK(fixture.refusal("a.json", "[[1, 2, -3]]") ==
          "a.json[0][2]: -3 is no id, a whole number from 0 to 4095");
    CHECK(fixture.refusal("a.json", "[[1, 2.5]]") ==
          "a.json[0][1]: 2.5 is no id, a whole number from 0 to 4095");
    CHECK(fixture.refusal("a.json", "[[4294967297, 1]]")
              .starts_with("a.json[0][0]: 4294967297 is no"));
    CHECK(
        fixture.refusal("a.json", "[[18446744073709551615, 1]]").starts_with("a.json[0][0]: 1844"));
    CHECK(fixture.refusal("a.json", R"([["a", 1]])").starts_with("a.json[0][0]: \"a\" is no id"));
    CHECK(fixture.refusal("a.json", "[[1, 2], 3]") ==
          "a.json[1]: 3 where a list of ids or a text is needed");
    CHECK(fixture.refusal("a.json", "[{}]") ==
          "a.json[0]: an object of 0 keys where a list of ids or a text is needed");
    CHECK(fixture.refusal("a.json", R"({"x": {"window": [[1, 2]]}})") ==
          "a.json: x: an object of 1 keys where a list of windows is needed, each a list of ids or "
          "a text");
    CHECK(
        fixture.refusal("a.json", "7").starts_with("a.json: 7 where a list of windows is needed"));
    CHECK(fixture.refusal("a.json", "[]").starts_with("a.json: a list of 0 where"));
    CHECK(fixture.refusal("a.json", R"({"x": []})").starts_with("a.json: x: a list of 0 where"));
    CHECK(fixture.refusal("a.json", "{}") == "a.json: nothing to score");
    CHECK(fixture.refusal("a.json", R"([""])") == "a.json[0]: 0 ids; two or more are needed");
    const std::string longer = fixture.refusal("a.json", list_of(1025));
    CHECK(longer.starts_with("a.json[0]: 1025 ids"));
    CHECK(longer.find("1024 positions of models/demo") != std::string::npos);
    CHECK(fixture.windows_of("a.json", list_of(1024)).size() == 1);
    const std::string broken = fixture.refusal("a.json", "[[1, 2],\n [3, }");
    CHECK(broken.starts_with("a.json: not valid JSON: "));
    CHECK(broken.find("line 2") != std::string::npos);
    CHECK(fixture.refusal("a.json", "").starts_with("a.json: not valid JSON: "));
    CHECK(fixture.refusal("a.txt", "") == "a.txt: 0 ids; two or more are needed");
    CHECK(
        fixture.refusal("a.txt", "caf\xe9 au").starts_with("a.txt: byte 3 is 0xe9, which is not"));
}

TEST_CASE("what needs a tokenizer says so, and where") {
    bench fixture;
    fixture.folder.write("a.json", R"([[1, 2], "text"])");
    fixture.config.text = fixture.folder / "a.json";
    auto job = fixture.make(false);
    REQUIRE_FALSE(job.ok());
    CHECK(job.failure().text.ends_with(
        "a.json[1]: text needs a tokenizer, and models/demo has no tokenizer.json"));
    fixture.config.text.clear();
    fixture.config.prompts = {"a"};
    job = fixture.make(false);
    REQUIRE_FALSE(job.ok());
    CHECK(job.failure().text.starts_with("prompt 1: text needs a tokenizer"));
}

TEST_CASE("prompts that cannot be continued") {
    bench fixture;
    auto job = fixture.make();
    REQUIRE_FALSE(job.ok());
    CHECK(job.failure().text.starts_with("run.toml: a model needs something to do"));
    fixture.config.prompts = {"a", ""};
    job = fixture.make();
    REQUIRE_FALSE(job.ok());
    CHECK(job.failure().text.starts_with("prompt 2: 0 ids"));
    fixture.config.prompts = {"def main("};
    const auto length = static_cast<uint32_t>(encode("def main(").size());
    fixture.config.max_tokens = 1024 - length;
    CHECK(fixture.make().ok());
    fixture.config.max_tokens = 1025 - length;
    job = fixture.make();
    REQUIRE_FALSE(job.ok());
    CHECK(job.failure().text.find("1024 positions") != std::string::npos);
    CHECK(job.failure().text.find("max_tokens") != std::string::npos);
}

TEST_CASE("a file that is not there, and one that is a folder") {
    bench fixture;
    for (const auto &path : {fixture.folder / "none.json", fixture.folder.path()}) {
        fixture.config.text = path;
        const auto job = fixture.make();
        REQUIRE_FALSE(job.ok());
        CHECK(job.failure().text.find(path.string()) == 0);
    }
}

TEST_CASE("files damaged at random end in requests within the limits or in one line") {
    const std::string healthy =
        R"({"code": {"windows": [[1, 2, 3], [4, 5], "def main(x):"], "n": 1.5e3},)"
        "\n"
        R"("prose": [[4095, 0], "Il y avait \u00e9t\u00e9"], "more": [["x"]]})";
    const std::string pieces[] = {"[",
                                  "]",
                                  "{",
                                  "}",
                                  ",",
                                  "\"",
                                  "-",
                                  "9999999999",
                                  "1e999",
                                  "null",
                                  "\\u",
                                  "\\ud800",
                                  "\xff",
                                  "\xc3",
                                  std::string(1, '\0'),
                                  "[[[[[[[[[[[[[[[[[["};
    bench fixture;
    int refused = 0;
    for (uint32_t round = 0; round < 1500; ++round) {
        CAPTURE(round);
        random_stream random(6, round);
        std::string text = healthy;
        if (round % 2 == 0) text.replace(text.find("[\"x\"]"), 5, "[1, 2]");  // nothing else wrong
        for (uint64_t count = random.below(3); count-- > 0;) {
            const size_t position = random.below(text.size());
            const std::string &piece = pieces[random.below(std::size(pieces))];
            switch (random.below(4)) {
                case 0:
                    text[position] = static_cast<char>(random.below(256));
                    break;
                case 1:
                    text.insert(position, piece);
                    break;
                case 2:
                    text.erase(position, random.below(12) + 1);
                    break;
                default:
                    text.replace(position, std::min<size_t>(piece.size(), text.size() - position),
                                 piece);
            }
            if (text.empty()) text = " ";
        }
        const auto job = fixture.make_from_file(round % 7 == 6 ? "a.txt" : "a.json", text);
        if (!job) {
            ++refused;
            CHECK(job.failure().text.starts_with(fixture.folder.path().string()));
            CHECK(job.failure().text.find('\n') == std::string::npos);
            continue;
        }
        CHECK_FALSE(job->requests.empty());
        CHECK(job->parts.size() == job->requests.size());
        for (size_t i = 0; i < job->requests.size(); ++i) {
            CHECK((job->part_names.empty() || job->parts[i] < job->part_names.size()));
            CHECK(job->requests[i].ids.size() >= 2);
            CHECK(job->requests[i].ids.size() <= 1024);
            for (const int32_t id : job->requests[i].ids) CHECK((id >= 0 && id < 4096));
        }
    }
    CHECK(refused > 500);
    CHECK(refused < 1450);
}

TEST_CASE("deep nesting is refused, not followed") {
    bench fixture;
    const std::string deep(200'000, '[');
    CHECK(fixture.refusal("a.json", deep).starts_with("a.json: not valid JSON"));
    CHECK(fixture.refusal("a.json", deep + std::string(deep.size(), ']'))
              .starts_with("a.json[0][0]: "));
}

namespace {

// By the definition: the place where a stop is complete first, and the longest stop there.
std::string cut_by_definition(const std::string &text, const std::vector<std::string> &stops) {
    for (size_t end = 1; end <= text.size(); ++end) {
        size_t longest = 0;
        for (const std::string &stop : stops)
            if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
        if (longest != 0) return text.substr(0, end - longest);
    }
    return text;
}

}  // namespace

TEST_CASE("a text is cut before the stop that is complete first") {
    const auto cut = [](const char *text, std::vector<std::string> stops) {
        return cut_at_stop(text, stops);
    };
    CHECK(cut("one two", {}) == "one two");
    CHECK(cut("one two", {"two"}) == "one ");
    CHECK(cut("one two", {"tw", "two"}) == "one ");
    CHECK(cut("one two", {"wo", "e"}) == "on");
    CHECK(cut("xabc", {"abc", "b"}) == "xa");
    CHECK(cut("xab", {"ab", "b"}) == "x");
    CHECK(cut("aaab", {"aab"}) == "a");
    CHECK(cut("stop", {"stop"}) == "");
    CHECK(cut("sto", {"stop"}) == "sto");
}

TEST_CASE("texts and stops by chance: pieces of any length show the same, and never take back") {
    random_stream random(11, 3);
    const auto drawn = [&](size_t most) {
        std::string text;
        for (size_t left = 1 + random.below(most); left > 0; --left)
            text += static_cast<char>('a' + random.below(3));
        return text;
    };
    for (int round = 0; round < 3000; ++round) {
        const std::string text = drawn(30);
        std::vector<std::string> stops(1 + random.below(3));
        for (std::string &stop : stops) stop = drawn(5);
        const std::string expected = cut_by_definition(text, stops);
        CHECK(cut_at_stop(text, stops) == expected);
        stop_stream shown(&stops);
        std::string shown_text;
        for (size_t position = 0; position < text.size();) {
            const size_t bytes = std::min<size_t>(text.size() - position, 1 + random.below(4));
            shown_text += shown.push(text.substr(position, bytes));
            position += bytes;
            // Text that is out stays, and nothing is held back without need.
            CHECK(expected.starts_with(shown_text));
            if (!shown.has_stopped()) CHECK(position - shown_text.size() < 5);
        }
        CHECK(shown.has_stopped() == (expected != text));
        CHECK(shown_text + shown.finish() == expected);
    }
}

TEST_CASE("what ends a text: the model's ends, ids, names of special tokens, texts") {
    run_config config;
    config.model = "models/demo";
    const auto rules = [&] {
        return end_rules_of(config, *demo().loaded_model, demo().words.get());
    };
    REQUIRE(rules().ok());
    CHECK(rules()->ids == ids{0});  // of its config.json
    CHECK(rules()->texts.empty());
    const std::string name(demo().words->token_of(0));
    REQUIRE(demo().words->is_special(0));
    config.stop = {.at_model_ends = false, .texts = {"the", name}, .ids = {7, 7}};
    CHECK(rules()->ids == ids{7, 0});
    CHECK(rules()->texts == std::vector<std::string>{"the"});
    config.stop = {.at_model_ends = false, .texts = {}, .ids = {}};
    CHECK(rules()->ids.empty());
    config.stop.ids = {4096};
    CHECK(rules().failure().text ==
          "[source] stop: token 4096 is beyond the vocabulary of models/demo: ids are below 4096");
    config.stop = {.at_model_ends = true, .texts = {"a\xff"}, .ids = {}};
    CHECK(rules().failure().text.find("UTF-8") != std::string::npos);
    config.stop.texts = {"a"};
    CHECK(
        end_rules_of(config, *demo().loaded_model, nullptr).failure().text.find("tokenizer.json") !=
        std::string::npos);
}

}  // namespace texts_test
