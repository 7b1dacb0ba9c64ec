// model_source_test.cpp - goal: requests to a model enter in the right passes, and logits are
// evaluated rightly. Method: a source over a small model, fed with logits made by hand instead of
// computed ones. Passes, flags, texts, likelihoods and rankings are worked out on paper.
#include "core/source/model_source.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

namespace model_source_test {

using namespace moorage::core;

namespace {

struct fake_results final : pass_results {
    std::vector<float> router, next_router, outputs;
    std::span<const float> router_logits() const override { return router; }
    std::span<const float> next_router_logits() const override { return next_router; }
    std::span<const float> logits() const override { return outputs; }
};

const model &mixtral() {  // 3 layers, top-2 of 8 experts, 160 tokens
    static const auto opened =
        open_model(std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/golden/mixtral");
    REQUIRE(opened.ok());
    return **opened;
}

constexpr uint32_t vocabulary = 160;
constexpr float peak = 8;  // logit of the next written token, 0 for the others

// A source whose model "says" `answer` at every output.
struct bench {
    fake_results results;
    std::function<int32_t(const pass_token &)> answer = [](const pass_token &token) {
        return static_cast<int32_t>(10 * token.request + token.position);
    };
    model_source source;
    pass current_pass;

    bench(std::vector<model_request> requests, const model_source_options &options,
          const model &tested_model = mixtral())
        : source(tested_model, std::move(requests), options) {
        source.connect(results);
    }
    bool next() {
        if (!source.next(current_pass)) return false;
        results.outputs.clear();
        for (const pass_token &token : current_pass.tokens) {
            if (!token.output) continue;
            std::vector<float> row(vocabulary, 0);
            row[static_cast<size_t>(answer(token))] = peak;
            results.outputs.insert(results.outputs.end(), row.begin(), row.end());
        }
        CHECK(current_pass.tokens.size() <= source.tokens_max());
        CHECK(results.outputs.size() <= size_t{source.outputs_max()} * vocabulary);
        return true;
    }
};

// A token as text, "request.stream@position=id" and its flags: o output, f first, l last, s silent,
// n its row stands for the next, a computed again.
std::string text_of(const pass_token &token) {
    std::string text = std::to_string(token.request) + "." + std::to_string(token.stream) + "@" +
                       std::to_string(token.position) + "=" + std::to_string(token.token_id);
    if (token.output) text += "o";
    if (token.first) text += "f";
    if (token.last) text += "l";
    if (token.silent) text += "s";
    if (token.recomputed) text += "a";
    if (token.next_row != MOORAGE_NEVER) {
        CHECK(token.next_row == token.row);
        text += "n";
    }
    return text;
}

// All passes: P or D, and their tokens.
std::vector<std::string> passes_of(bench &fixture) {
    std::vector<std::string> passes;
    uint64_t rows = 0;
    while (fixture.next()) {
        std::string text = fixture.current_pass.phase == MOORAGE_PREFILL ? "P" : "D";
        for (const pass_token &token : fixture.current_pass.tokens) {
            CHECK(token.row == rows++);
            text += " " + text_of(token);
        }
        passes.push_back(text);
        REQUIRE(passes.size() < 1000);
    }
    CHECK_FALSE(fixture.next());  // the end stays the end
    return passes;
}

using texts = std::vector<std::string>;
using ids = std::vector<int32_t>;

}  // namespace

TEST_CASE("a prompt enters in prefill passes, then every pass takes one token") {
    bench fixture({{{1, 2, 3, 4, 5}, 3}}, {.prefill = 2});
    CHECK(passes_of(fixture) == texts{"P 0.0@0=1 0.0@1=2", "P 0.0@2=3 0.0@3=4", "P 0.0@4=5ofn",
                                      "D 0.0@5=4on", "D 0.0@6=5ol"});
    CHECK(fixture.source.written() == std::vector<ids>{{4, 5, 6}});
    CHECK(fixture.source.scores()[0].tokens == 0);
    CHECK(fixture.source.context_max() == 8);
}

TEST_CASE("token by token: the prompt is silent until its last token") {
    bench fixture({{{1, 2, 3}, 2}}, {.prefill = 0});
    CHECK(passes_of(fixture) == texts{"D 0.0@0=1sn", "D 0.0@1=2sn", "D 0.0@2=3ofn", "D 0.0@3=2ol"});
    CHECK(fixture.source.written() == std::vector<ids>{{2, 3}});
}

TEST_CASE("one new token is first and last, its pass the only one where the prompt fits") {
    for (const uint32_t prefill : {3u, 100u}) {
        bench fixture({{{1, 2, 3}, 1}}, {.prefill = prefill});
        CHECK(passes_of(fixture) == texts{"P 0.0@0=1 0.0@1=2 0.0@2=3ofl"});
        CHECK(fixture.source.written() == std::vector<ids>{{2}});
    }
    bench short_prompt({{{9}, 2}}, {.prefill = 0});
    CHECK(passes_of(short_prompt) == texts{"D 0.0@0=9ofn", "D 0.0@1=0ol"});
}

TEST_CASE("a batch: streams are prefilled one after the other, decoded together, taken over") {
    bench fixture({{{1, 2, 3}, 2}, {{4}, 3}, {{5, 6}, 2}}, {.batch = 2, .prefill = 4});
    CHECK(passes_of(fixture) == texts{"P 0.0@0=1 0.0@1=2 0.0@2=3ofn", "P 1.1@0=4ofn",
                                      "D 0.0@3=2ol 1.1@1=10on", "P 2.0@0=5 2.0@1=6ofn",
                                      "D 2.0@2=21ol 1.1@2=11ol"});
    CHECK(fixture.source.written() == std::vector<ids>{{2, 3}, {10, 11, 12}, {21, 22}});
    CHECK(fixture.source.streams() == 2);
    CHECK(fixture.source.tokens_max() == 4);
    CHECK(fixture.source.outputs_max() == 2);
}

TEST_CASE("a batch token by token: prompts and continuations share passes") {
    bench fixture({{{1, 2, 3}, 1}, {{4}, 2}, {{5}, 1}}, {.batch = 2, .prefill = 0});
    CHECK(passes_of(fixture) ==
          texts{"D 0.0@0=1sn 1.1@0=4ofn", "D 0.0@1=2sn 1.1@1=10ol", "D 0.0@2=3ofl 2.1@0=5ofl"});
    CHECK(fixture.source.written() == std::vector<ids>{{2}, {10, 11}, {20}});
}

// Mixtral, were it trained on texts of four tokens and scaled beyond.
struct scaled_model final : model {
    explicit scaled_model(rope_kind kind) {
        config_ = mixtral().config();
        config_.rope.kind = kind;
        config_.rope.original_positions = 4;
        config_.rope.factor = 2;
        config_.rope.short_factor.assign(config_.rope.dimensions / 2, 1);
        config_.rope.long_factor.assign(config_.rope.dimensions / 2, 3);
        weights_ = mixtral().weights();
    }
};

TEST_CASE("a text that outgrows its rotations is computed again before its next token") {
    const scaled_model scaled(rope_kind::longrope);
    bench fixture({{{1, 2, 3}, 5}}, {.prefill = 2}, scaled);
    // Four tokens fit; the fifth, written at position 3, needs the others anew.
    CHECK(passes_of(fixture) == texts{"P 0.0@0=1 0.0@1=2", "P 0.0@2=3ofn", "D 0.0@3=2on",
                                      "P 0.0@0=1a 0.0@1=2a", "P 0.0@2=3a 0.0@3=2an", "D 0.0@4=3on",
                                      "D 0.0@5=4on", "D 0.0@6=5ol"});
    CHECK(fixture.source.written() == std::vector<ids>{{2, 3, 4, 5, 6}});
}

TEST_CASE("in a batch token by token the others go on beside what is computed again") {
    const scaled_model scaled(rope_kind::longrope);
    bench fixture({{{1, 2, 3, 4}, 2}, {{5}, 3}}, {.batch = 2, .prefill = 0}, scaled);
    CHECK(passes_of(fixture) == texts{"D 0.0@0=1sn 1.1@0=5ofn", "D 0.0@1=2sn 1.1@1=10on",
                                      "D 0.0@2=3sn 1.1@2=11ol", "D 0.0@3=4ofn", "D 0.0@0=1san",
                                      "D 0.0@1=2san", "D 0.0@2=3san", "D 0.0@3=4san",
                                      "D 0.0@4=3ol"});
    CHECK(fixture.source.written() == std::vector<ids>{{3, 4}, {10, 11, 12}});
}

TEST_CASE("where each length has rotations of its own, each token beyond computes all again") {
    const scaled_model scaled(rope_kind::dynamic);
    bench fixture({{{1, 2, 3, 4}, 3}}, {.prefill = 8}, scaled);
    CHECK(passes_of(fixture) ==
          texts{"P 0.0@0=1 0.0@1=2 0.0@2=3 0.0@3=4ofn", "P 0.0@0=1a 0.0@1=2a 0.0@2=3a 0.0@3=4an",
                "D 0.0@4=3on", "P 0.0@0=1a 0.0@1=2a 0.0@2=3a 0.0@3=4a 0.0@4=3an", "D 0.0@5=4ol"});
    // A text that ends there, or by an end token, computes nothing again.
    bench last({{{1, 2, 3, 4}, 1}}, {.prefill = 8}, scaled);
    CHECK(passes_of(last) == texts{"P 0.0@0=1 0.0@1=2 0.0@2=3 0.0@3=4ofl"});
    bench ended({{{1, 2, 3, 4}, 9}}, {.prefill = 8, .end_ids = {3}}, scaled);
    CHECK(passes_of(ended) == texts{"P 0.0@0=1 0.0@1=2 0.0@2=3 0.0@3=4ofn"});
}

TEST_CASE("a token knows the length of the text that it is computed in") {
    const scaled_model scaled(rope_kind::longrope);
    for (const uint32_t prefill : {0u, 2u, 8u}) {
        CAPTURE(prefill);
        bench written({{{1, 2, 3}, 4}}, {.prefill = prefill}, scaled);
        while (written.next())
            for (const pass_token &token : written.current_pass.tokens)
                CHECK(token.sequence_length() ==
                      std::max<uint64_t>(token.recomputed ? 5 : 3, token.position + 1));
        bench scored({{{1, 2, 3, 4, 5, 6}, 0}}, {.prefill = prefill}, scaled);
        while (scored.next())
            for (const pass_token &token : scored.current_pass.tokens)
                CHECK(token.sequence_length() == 6);
    }
}

TEST_CASE("an end token ends a continuation and is no part of it") {
    std::vector<std::pair<uint64_t, int32_t>> seen;
    model_source_options options{.prefill = 8, .end_ids = {7, 11}};
    options.on_token = [&](uint64_t request, int32_t id) { seen.emplace_back(request, id); };
    bench fixture({{{1, 2, 3, 4, 5}, 10}, {{6}, 10}}, options);
    // Request 0 writes 4, 5, 6 and then 7; request 1 writes 10 and then 11.
    const texts passes = passes_of(fixture);
    CHECK(passes.size() == 4 + 2);
    CHECK(passes[3] == "D 0.0@7=6on");
    CHECK(passes[4] == "P 1.0@0=6ofn");
    CHECK(fixture.source.written() == std::vector<ids>{{4, 5, 6}, {10}});
    CHECK(seen == std::vector<std::pair<uint64_t, int32_t>>{{0, 4}, {0, 5}, {0, 6}, {1, 10}});
}

TEST_CASE("an end token at once leaves an empty text") {
    bench fixture({{{1}, 5}, {{2}, 1}}, {.prefill = 8, .end_ids = {0}});
    CHECK(passes_of(fixture).size() == 2);
    CHECK(fixture.source.written() == std::vector<ids>{{}, {10}});
}

TEST_CASE("no more tokens are computed than the limit says") {
    SUBCASE("within a prompt") {
        bench fixture({{{1, 2, 3, 4, 5}, 3}}, {.prefill = 3, .tokens = 4});
        CHECK(passes_of(fixture) == texts{"P 0.0@0=1 0.0@1=2 0.0@2=3", "P 0.0@3=4"});
        CHECK(fixture.source.written() == std::vector<ids>{{}});
    }
    SUBCASE("within a batch") {
        bench fixture({{{1}, 9}, {{2}, 9}, {{3}, 9}}, {.batch = 3, .prefill = 0, .tokens = 5});
        CHECK(passes_of(fixture) ==
              texts{"D 0.0@0=1ofn 1.1@0=2ofn 2.2@0=3ofn", "D 0.0@1=0on 1.1@1=10on"});
        // The results of the last pass still count.
        CHECK(fixture.source.written() == std::vector<ids>{{0, 1}, {10, 11}, {20}});
    }
    SUBCASE("beyond the work") {
        bench fixture({{{1, 2}, 2}}, {.prefill = 3, .tokens = 100});
        CHECK(passes_of(fixture).size() == 2);
    }
}

TEST_CASE("scoring by hand: every id but the first, from the logits before it") {
    // The model says 5 after 3 with the peak, and 9 where 2 comes: -log p is ln(159 + e^8) - 8 for
    // the first and ln(159 + e^8) for the second.
    const double log_total = std::log(159 + std::exp(8.0));
    for (const uint32_t prefill : {2u, 0u, 50u}) {
        CAPTURE(prefill);
        bench fixture({{{3, 5, 2}, 0}, {{4, 4}, 0}}, {.prefill = prefill});
        fixture.answer = [](const pass_token &token) { return token.position == 0 ? 5 : 9; };
        const texts passes = passes_of(fixture);
        if (prefill == 2)
            CHECK(passes == texts{"P 0.0@0=3o 0.0@1=5o", "P 0.0@2=2fl", "P 1.0@0=4o 1.0@1=4fl"});
        if (prefill == 0)
            CHECK(passes ==
                  texts{"D 0.0@0=3ofn", "D 0.0@1=5on", "D 0.0@2=2l", "D 1.0@0=4ofn", "D 1.0@1=4l"});
        CHECK(fixture.source.scores_texts());
        CHECK(fixture.source.scores()[0].tokens == 2);
        CHECK(fixture.source.scores()[0].nll_sum == doctest::Approx(log_total - 8 + log_total));
        CHECK(fixture.source.scores()[1].tokens == 1);
        CHECK(fixture.source.scores()[1].nll_sum == doctest::Approx(log_total));
        CHECK(fixture.source.written() == std::vector<ids>{{}, {}});
    }
}

TEST_CASE("a batch of texts of different lengths is scored as one by one") {
    const double right = std::log(159 + std::exp(8.0)) - 8;
    std::vector<model_request> requests = {{{1, 2, 3, 4}, 0}, {{5, 6}, 0}, {{7, 8, 9}, 0}};
    for (const uint32_t prefill : {0u, 3u}) {
        bench fixture(requests, {.batch = 2, .prefill = prefill});
        fixture.answer = [&](const pass_token &token) {
            return requests[token.request].ids[token.position + 1];
        };
        uint64_t tokens = 0;
        while (fixture.next()) tokens += fixture.current_pass.tokens.size();
        CHECK(tokens == 9);
        for (size_t i = 0; i < requests.size(); ++i) {
            CHECK(fixture.source.scores()[i].tokens == requests[i].ids.size() - 1);
            CHECK(fixture.source.scores()[i].nll_sum ==
                  doctest::Approx(right * static_cast<double>(requests[i].ids.size() - 1)));
        }
    }
}

TEST_CASE("what is written is scored where that is asked") {
    bench fixture({{{1}, 3}}, {.prefill = 8, .score_written = true});
    while (fixture.next()) {
    }
    CHECK(fixture.source.scores()[0].tokens == 3);
    CHECK(fixture.source.scores()[0].nll_sum ==
          doctest::Approx(3 * (std::log(159 + std::exp(8.0)) - 8)));
}

TEST_CASE("drawn tokens repeat with the seed") {
    const auto drawn = [](uint64_t seed) {
        bench fixture({{{1}, 40}},
                      {.prefill = 8, .sampling_options = {.temperature = 4, .seed = seed}});
        while (fixture.next()) {
        }
        return fixture.source.written()[0];
    };
    CHECK(drawn(1) == drawn(1));
    CHECK(drawn(1) != drawn(2));
    // At temperature 4 the peak of 8 has e^2 of e^2 + 159: the others are drawn, too.
    CHECK(drawn(3) != ids(40, 0));
}

TEST_CASE("what is drawn for a request does not depend on those beside it") {
    const auto drawn = [](uint32_t batch) {
        bench fixture(
            {{{1}, 20}, {{1}, 12}, {{1}, 20}},
            {.batch = batch, .prefill = 8, .sampling_options = {.temperature = 4, .seed = 5}});
        fixture.answer = [](const pass_token &) { return 7; };
        while (fixture.next()) {
        }
        return fixture.source.written();
    };
    const std::vector<std::vector<int32_t>> alone = drawn(1);
    CHECK(alone == drawn(2));
    CHECK(alone == drawn(3));
    CHECK(alone[0] != alone[2]);
}

TEST_CASE("routing by the model's rule, by hand") {
    bench fixture({{{1, 2}, 1}}, {.prefill = 8});
    REQUIRE(fixture.next());
    CHECK(fixture.source.layers() == 3);
    CHECK(fixture.source.experts() == 8);
    CHECK(fixture.source.top_k() == 2);
    CHECK(fixture.source.offers() == (MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS));
    // Probabilities in 16ths: token 0 has 8 at expert 6, 4 at 1; token 1 a tie of 2 and 5.
    const std::vector<double> sixteenths = {1, 4, 1, 0.5, 0.5, 0.5, 8, 0.5, 1, 1, 5, 1, 1, 5, 1, 1};
    for (const double p : sixteenths)
        fixture.results.router.push_back(static_cast<float>(std::log(p / 16)) + 3);
    std::vector<uint32_t> chosen(4);
    std::vector<float> weights(4), scores(16);
    fixture.source.route(fixture.current_pass, 1, chosen.data());
    CHECK(chosen == std::vector<uint32_t>{6, 1, 2, 5});
    fixture.source.weights(fixture.current_pass, 1, weights.data());
    CHECK(weights[0] == doctest::Approx(2 / 3.0));
    CHECK(weights[1] == doctest::Approx(1 / 3.0));
    CHECK(weights[2] == doctest::Approx(0.5));
    fixture.source.gate_scores(fixture.current_pass, 1, scores.data());
    for (size_t i = 0; i < 16; ++i) CHECK(scores[i] == doctest::Approx(sixteenths[i] / 16));
    // Another choice: by the rule where it is NaN, as given elsewhere.
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const uint32_t experts[] = {1, 0, 5, 7};
    float choice_weights[] = {nan, nan, 0.25f, nan};
    fixture.source.weigh(fixture.current_pass, 1, experts, choice_weights);
    CHECK(choice_weights[0] == doctest::Approx(4 / 5.0));
    CHECK(choice_weights[1] == doctest::Approx(1 / 5.0));
    CHECK(choice_weights[2] == 0.25f);
    CHECK(choice_weights[3] == doctest::Approx(1 / 6.0));
}

TEST_CASE("predictions: best first, the smaller expert among equals, for the rows of the pass") {
    bench fixture({{{1, 2}, 2}}, {.prefill = 8, .predict = true});
    CHECK(fixture.source.predictions_max() == 8);  // 4 top-k, at least 16, at most all
    CHECK((fixture.source.offers() & MOORAGE_NEEDS_PREDICTIONS) != 0);
    std::vector<uint32_t> experts(8);
    std::vector<float> scores(8);
    REQUIRE(fixture.next());
    CHECK(fixture.source.predict(0, 1, experts.data(), scores.data()) == 0);  // nothing known yet
    fixture.results.next_router = {0, 1, 2, 3, 4, 5, 6, 7, 3, 1, 3, 0, 3, 0, 0, 0};
    CHECK(fixture.source.predict(0, 1, experts.data(), scores.data()) == 8);
    CHECK(experts == std::vector<uint32_t>{7, 6, 5, 4, 3, 2, 1, 0});
    CHECK(fixture.source.predict(1, 1, experts.data(), scores.data()) == 8);
    CHECK(experts == std::vector<uint32_t>{0, 2, 4, 1, 3, 5, 6, 7});
    const double exponential_sum = 3 * std::exp(3.0) + std::exp(1.0) + 4;
    CHECK(scores[0] == doctest::Approx(std::exp(3.0) / exponential_sum));
    CHECK(scores[3] == doctest::Approx(std::exp(1.0) / exponential_sum));
    CHECK(scores[7] == doctest::Approx(1 / exponential_sum));
    // The next pass begins at row 2.
    REQUIRE(fixture.next());
    REQUIRE(fixture.current_pass.tokens[0].row == 2);
    fixture.results.next_router = {0, 0, 9, 0, 0, 0, 0, 0};
    CHECK(fixture.source.predict(2, 0, experts.data(), scores.data()) == 8);
    CHECK(experts[0] == 2);
}

TEST_CASE("predictions count the correction that choices count, and scores do not have it") {
    const auto opened =
        open_model(std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/golden/deepseek_v3");
    REQUIRE(opened.ok());
    const model &deepseek = **opened;
    const uint32_t first = deepseek.config().moe_layers()[0];
    const std::span<const float> correction = deepseek.weights().layers[first].correction_bias;
    REQUIRE(correction.size() == 16);
    bench fixture({{{1}, 1}}, {.prefill = 8, .predict = true}, deepseek);
    REQUIRE(fixture.next());
    fixture.results.next_router.assign(16, 0);  // sigmoid: 1/2 each
    std::vector<uint32_t> experts(16);
    std::vector<float> scores(16);
    REQUIRE(fixture.source.predict(0, 0, experts.data(), scores.data()) == 16);
    for (size_t i = 0; i < 16; ++i) CHECK(scores[i] == 0.5f);
    for (size_t i = 1; i < 16; ++i) CHECK(correction[experts[i - 1]] >= correction[experts[i]]);
}

TEST_CASE("of many experts the best sixteen are predicted") {
    const auto opened = open_model(std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo");
    REQUIRE(opened.ok());
    model_source source(**opened, {{{1}, 1}}, {.predict = true});
    fake_results results;
    source.connect(results);
    CHECK(source.predictions_max() == 16);  // of 24 experts, top-4
    pass now;
    REQUIRE(source.next(now));
    for (int expert = 0; expert < 24; ++expert)  // 23, 22, ... but expert 3 best
        results.next_router.push_back(expert == 3 ? 9 : static_cast<float>(expert) / 10);
    std::vector<uint32_t> experts(24);
    std::vector<float> scores(24);
    REQUIRE(source.predict(0, 5, experts.data(), scores.data()) == 16);
    experts.resize(16);
    CHECK(experts ==
          std::vector<uint32_t>{3, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9});
}

TEST_CASE("requests come while others are under way, end, are given up, and are forgotten") {
    std::vector<model_request> queue = {{{1, 2, 3}, 2}, {{4}, 5}};
    std::vector<std::pair<uint64_t, int32_t>> written;
    std::vector<uint64_t> ended;
    model_source_options options;
    options.batch = 2;
    options.prefill = 8;
    options.context_max = 20;
    options.take_request = [&](model_request &request) {
        if (queue.empty()) return false;
        request = std::move(queue.front());
        queue.erase(queue.begin());
        return true;
    };
    options.on_token = [&](uint64_t request, int32_t id) { written.emplace_back(request, id); };
    options.on_end = [&](uint64_t request) { ended.push_back(request); };
    bench fixture({}, options);
    CHECK(fixture.source.context_max() == 20);
    CHECK(fixture.source.outputs_max() == 2);
    CHECK(fixture.source.wakes_ns() != MOORAGE_NEVER);
    // Two prompts, a pass each; then tokens of both together; request 0 wants two, 1 five.
    REQUIRE(fixture.next());
    CHECK(fixture.current_pass.tokens.size() == 3);
    REQUIRE(fixture.next());
    CHECK(fixture.current_pass.tokens.size() == 1);
    REQUIRE(fixture.next());
    CHECK(fixture.current_pass.tokens.size() == 2);
    CHECK_FALSE(fixture.source.idle());  // takes the pass's results
    CHECK(ended == std::vector<uint64_t>{0});
    // A third has come meanwhile: it takes the free stream, and the number 2.
    queue.push_back({{9, 9}, 3});
    REQUIRE(fixture.next());
    CHECK(fixture.current_pass.tokens.size() == 2);
    CHECK(fixture.current_pass.tokens[0].request == 2);
    fixture.source.give_up(1);
    REQUIRE(fixture.next());
    CHECK(ended == std::vector<uint64_t>{0, 1});
    CHECK(fixture.current_pass.tokens.size() == 1);
    REQUIRE(fixture.next());
    CHECK_FALSE(fixture.next());  // nobody is there
    CHECK(ended == std::vector<uint64_t>{0, 1, 2});
    CHECK(fixture.source.idle());
    CHECK_FALSE(fixture.next());
    // By `answer`: ten times the request and the position that the token was written after.
    using token = std::pair<uint64_t, int32_t>;
    CHECK(written ==
          std::vector<token>{{0, 2}, {1, 10}, {0, 3}, {1, 11}, {2, 21}, {2, 22}, {2, 23}});
    fixture.answer = [](const pass_token &) { return 1; };
    for (int i = 0; i < 300; ++i) {
        queue.push_back({{1}, 1});
        REQUIRE(fixture.next());
        REQUIRE_FALSE(fixture.next());
    }
    CHECK(ended.size() == 303);
    CHECK(fixture.source.written().size() < 70);
}

}  // namespace model_source_test
