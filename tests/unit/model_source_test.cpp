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
    model_source from;
    pass now;

    bench(std::vector<model_request> requests, const model_source_options &options,
          const model &of = mixtral())
        : from(of, std::move(requests), options) {
        from.connect(results);
    }
    bool next() {
        if (!from.next(now)) return false;
        results.outputs.clear();
        for (const pass_token &token : now.tokens) {
            if (!token.output) continue;
            std::vector<float> row(vocabulary, 0);
            row[static_cast<size_t>(answer(token))] = peak;
            results.outputs.insert(results.outputs.end(), row.begin(), row.end());
        }
        CHECK(now.tokens.size() <= from.tokens_max());
        CHECK(results.outputs.size() <= size_t{from.outputs_max()} * vocabulary);
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
    if (token.again) text += "a";
    if (token.next_row != MOORAGE_NEVER) {
        CHECK(token.next_row == token.row);
        text += "n";
    }
    return text;
}

// All passes: P or D, and their tokens.
std::vector<std::string> passes_of(bench &on) {
    std::vector<std::string> all;
    uint64_t rows = 0;
    while (on.next()) {
        std::string text = on.now.phase == MOORAGE_PREFILL ? "P" : "D";
        for (const pass_token &token : on.now.tokens) {
            CHECK(token.row == rows++);
            text += " " + text_of(token);
        }
        all.push_back(text);
        REQUIRE(all.size() < 1000);
    }
    CHECK_FALSE(on.next());  // the end stays the end
    return all;
}

using texts = std::vector<std::string>;
using ids = std::vector<int32_t>;

}  // namespace

TEST_CASE("a prompt enters in prefill passes, then every pass takes one token") {
    bench on({{{1, 2, 3, 4, 5}, 3}}, {.prefill = 2});
    CHECK(passes_of(on) == texts{"P 0.0@0=1 0.0@1=2", "P 0.0@2=3 0.0@3=4", "P 0.0@4=5ofn",
                                 "D 0.0@5=4on", "D 0.0@6=5ol"});
    CHECK(on.from.written() == std::vector<ids>{{4, 5, 6}});
    CHECK(on.from.scores()[0].tokens == 0);
    CHECK(on.from.context_max() == 8);
}

TEST_CASE("token by token: the prompt is silent until its last token") {
    bench on({{{1, 2, 3}, 2}}, {.prefill = 0});
    CHECK(passes_of(on) == texts{"D 0.0@0=1sn", "D 0.0@1=2sn", "D 0.0@2=3ofn", "D 0.0@3=2ol"});
    CHECK(on.from.written() == std::vector<ids>{{2, 3}});
}

TEST_CASE("one new token is first and last, its pass the only one where the prompt fits") {
    for (const uint32_t prefill : {3u, 100u}) {
        bench on({{{1, 2, 3}, 1}}, {.prefill = prefill});
        CHECK(passes_of(on) == texts{"P 0.0@0=1 0.0@1=2 0.0@2=3ofl"});
        CHECK(on.from.written() == std::vector<ids>{{2}});
    }
    bench one({{{9}, 2}}, {.prefill = 0});
    CHECK(passes_of(one) == texts{"D 0.0@0=9ofn", "D 0.0@1=0ol"});
}

TEST_CASE("a batch: streams are prefilled one after the other, decoded together, taken over") {
    bench on({{{1, 2, 3}, 2}, {{4}, 3}, {{5, 6}, 2}}, {.batch = 2, .prefill = 4});
    CHECK(passes_of(on) == texts{"P 0.0@0=1 0.0@1=2 0.0@2=3ofn", "P 1.1@0=4ofn",
                                 "D 0.0@3=2ol 1.1@1=10on", "P 2.0@0=5 2.0@1=6ofn",
                                 "D 2.0@2=21ol 1.1@2=11ol"});
    CHECK(on.from.written() == std::vector<ids>{{2, 3}, {10, 11, 12}, {21, 22}});
    CHECK(on.from.streams() == 2);
    CHECK(on.from.tokens_max() == 4);
    CHECK(on.from.outputs_max() == 2);
}

TEST_CASE("a batch token by token: prompts and continuations share passes") {
    bench on({{{1, 2, 3}, 1}, {{4}, 2}, {{5}, 1}}, {.batch = 2, .prefill = 0});
    CHECK(passes_of(on) ==
          texts{"D 0.0@0=1sn 1.1@0=4ofn", "D 0.0@1=2sn 1.1@1=10ol", "D 0.0@2=3ofl 2.1@0=5ofl"});
    CHECK(on.from.written() == std::vector<ids>{{2}, {10, 11}, {20}});
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
    const scaled_model of(rope_kind::longrope);
    bench on({{{1, 2, 3}, 5}}, {.prefill = 2}, of);
    // Four tokens fit; the fifth, written at position 3, needs the others anew.
    CHECK(passes_of(on) == texts{"P 0.0@0=1 0.0@1=2", "P 0.0@2=3ofn", "D 0.0@3=2on",
                                 "P 0.0@0=1a 0.0@1=2a", "P 0.0@2=3a 0.0@3=2an", "D 0.0@4=3on",
                                 "D 0.0@5=4on", "D 0.0@6=5ol"});
    CHECK(on.from.written() == std::vector<ids>{{2, 3, 4, 5, 6}});
}

TEST_CASE("in a batch token by token the others go on beside what is computed again") {
    const scaled_model of(rope_kind::longrope);
    bench on({{{1, 2, 3, 4}, 2}, {{5}, 3}}, {.batch = 2, .prefill = 0}, of);
    CHECK(passes_of(on) == texts{"D 0.0@0=1sn 1.1@0=5ofn", "D 0.0@1=2sn 1.1@1=10on",
                                 "D 0.0@2=3sn 1.1@2=11ol", "D 0.0@3=4ofn", "D 0.0@0=1san",
                                 "D 0.0@1=2san", "D 0.0@2=3san", "D 0.0@3=4san", "D 0.0@4=3ol"});
    CHECK(on.from.written() == std::vector<ids>{{3, 4}, {10, 11, 12}});
}

TEST_CASE("where each length has rotations of its own, each token beyond computes all again") {
    const scaled_model of(rope_kind::dynamic);
    bench on({{{1, 2, 3, 4}, 3}}, {.prefill = 8}, of);
    CHECK(passes_of(on) == texts{"P 0.0@0=1 0.0@1=2 0.0@2=3 0.0@3=4ofn",
                                 "P 0.0@0=1a 0.0@1=2a 0.0@2=3a 0.0@3=4an", "D 0.0@4=3on",
                                 "P 0.0@0=1a 0.0@1=2a 0.0@2=3a 0.0@3=4a 0.0@4=3an", "D 0.0@5=4ol"});
    // A text that ends there, or by an end token, computes nothing again.
    bench last({{{1, 2, 3, 4}, 1}}, {.prefill = 8}, of);
    CHECK(passes_of(last) == texts{"P 0.0@0=1 0.0@1=2 0.0@2=3 0.0@3=4ofl"});
    bench ended({{{1, 2, 3, 4}, 9}}, {.prefill = 8, .end_ids = {3}}, of);
    CHECK(passes_of(ended) == texts{"P 0.0@0=1 0.0@1=2 0.0@2=3 0.0@3=4ofn"});
}

TEST_CASE("a token knows the length of the text that it is computed in") {
    const scaled_model of(rope_kind::longrope);
    for (const uint32_t prefill : {0u, 2u, 8u}) {
        CAPTURE(prefill);
        bench written({{{1, 2, 3}, 4}}, {.prefill = prefill}, of);
        while (written.next())
            for (const pass_token &token : written.now.tokens)
                CHECK(token.sequence_length() ==
                      std::max<uint64_t>(token.again ? 5 : 3, token.position + 1));
        bench scored({{{1, 2, 3, 4, 5, 6}, 0}}, {.prefill = prefill}, of);
        while (scored.next())
            for (const pass_token &token : scored.now.tokens) CHECK(token.sequence_length() == 6);
    }
}

TEST_CASE("an end token ends a continuation and is no part of it") {
    std::vector<std::pair<uint64_t, int32_t>> seen;
    model_source_options options{.prefill = 8, .end_ids = {7, 11}};
    options.on_token = [&](uint64_t request, int32_t id) { seen.emplace_back(request, id); };
    bench on({{{1, 2, 3, 4, 5}, 10}, {{6}, 10}}, options);
    // Request 0 writes 4, 5, 6 and then 7; request 1 writes 10 and then 11.
    const texts passes = passes_of(on);
    CHECK(passes.size() == 4 + 2);
    CHECK(passes[3] == "D 0.0@7=6on");
    CHECK(passes[4] == "P 1.0@0=6ofn");
    CHECK(on.from.written() == std::vector<ids>{{4, 5, 6}, {10}});
    CHECK(seen == std::vector<std::pair<uint64_t, int32_t>>{{0, 4}, {0, 5}, {0, 6}, {1, 10}});
}

TEST_CASE("an end token at once leaves an empty text") {
    bench on({{{1}, 5}, {{2}, 1}}, {.prefill = 8, .end_ids = {0}});
    CHECK(passes_of(on).size() == 2);
    CHECK(on.from.written() == std::vector<ids>{{}, {10}});
}

TEST_CASE("no more tokens are computed than the limit says") {
    SUBCASE("within a prompt") {
        bench on({{{1, 2, 3, 4, 5}, 3}}, {.prefill = 3, .tokens = 4});
        CHECK(passes_of(on) == texts{"P 0.0@0=1 0.0@1=2 0.0@2=3", "P 0.0@3=4"});
        CHECK(on.from.written() == std::vector<ids>{{}});
    }
    SUBCASE("within a batch") {
        bench on({{{1}, 9}, {{2}, 9}, {{3}, 9}}, {.batch = 3, .prefill = 0, .tokens = 5});
        CHECK(passes_of(on) ==
              texts{"D 0.0@0=1ofn 1.1@0=2ofn 2.2@0=3ofn", "D 0.0@1=0on 1.1@1=10on"});
        // The results of the last pass still count.
        CHECK(on.from.written() == std::vector<ids>{{0, 1}, {10, 11}, {20}});
    }
    SUBCASE("beyond the work") {
        bench on({{{1, 2}, 2}}, {.prefill = 3, .tokens = 100});
        CHECK(passes_of(on).size() == 2);
    }
}

TEST_CASE("scoring by hand: every id but the first, from the logits before it") {
    // The model says 5 after 3 with the peak, and 9 where 2 comes: -log p is ln(159 + e^8) - 8 for
    // the first and ln(159 + e^8) for the second.
    const double all = std::log(159 + std::exp(8.0));
    for (const uint32_t prefill : {2u, 0u, 50u}) {
        CAPTURE(prefill);
        bench on({{{3, 5, 2}, 0}, {{4, 4}, 0}}, {.prefill = prefill});
        on.answer = [](const pass_token &token) { return token.position == 0 ? 5 : 9; };
        const texts passes = passes_of(on);
        if (prefill == 2)
            CHECK(passes == texts{"P 0.0@0=3o 0.0@1=5o", "P 0.0@2=2fl", "P 1.0@0=4o 1.0@1=4fl"});
        if (prefill == 0)
            CHECK(passes ==
                  texts{"D 0.0@0=3ofn", "D 0.0@1=5on", "D 0.0@2=2l", "D 1.0@0=4ofn", "D 1.0@1=4l"});
        CHECK(on.from.scores_texts());
        CHECK(on.from.scores()[0].tokens == 2);
        CHECK(on.from.scores()[0].nll_sum == doctest::Approx(all - 8 + all));
        CHECK(on.from.scores()[1].tokens == 1);
        CHECK(on.from.scores()[1].nll_sum == doctest::Approx(all));
        CHECK(on.from.written() == std::vector<ids>{{}, {}});
    }
}

TEST_CASE("a batch of texts of different lengths is scored as one by one") {
    const double right = std::log(159 + std::exp(8.0)) - 8;
    std::vector<model_request> requests = {{{1, 2, 3, 4}, 0}, {{5, 6}, 0}, {{7, 8, 9}, 0}};
    for (const uint32_t prefill : {0u, 3u}) {
        bench on(requests, {.batch = 2, .prefill = prefill});
        on.answer = [&](const pass_token &token) {
            return requests[token.request].ids[token.position + 1];
        };
        uint64_t tokens = 0;
        while (on.next()) tokens += on.now.tokens.size();
        CHECK(tokens == 9);
        for (size_t i = 0; i < requests.size(); ++i) {
            CHECK(on.from.scores()[i].tokens == requests[i].ids.size() - 1);
            CHECK(on.from.scores()[i].nll_sum ==
                  doctest::Approx(right * static_cast<double>(requests[i].ids.size() - 1)));
        }
    }
}

TEST_CASE("what is written is scored where that is asked") {
    bench on({{{1}, 3}}, {.prefill = 8, .score_written = true});
    while (on.next()) {
    }
    CHECK(on.from.scores()[0].tokens == 3);
    CHECK(on.from.scores()[0].nll_sum == doctest::Approx(3 * (std::log(159 + std::exp(8.0)) - 8)));
}

TEST_CASE("drawn tokens repeat with the seed") {
    const auto drawn = [](uint64_t seed) {
        bench on({{{1}, 40}}, {.prefill = 8, .how = {.temperature = 4, .seed = seed}});
        while (on.next()) {
        }
        return on.from.written()[0];
    };
    CHECK(drawn(1) == drawn(1));
    CHECK(drawn(1) != drawn(2));
    // At temperature 4 the peak of 8 has e^2 of e^2 + 159: the others are drawn, too.
    CHECK(drawn(3) != ids(40, 0));
}

TEST_CASE("what is drawn for a request does not depend on those beside it") {
    const auto drawn = [](uint32_t batch) {
        bench on({{{1}, 20}, {{1}, 12}, {{1}, 20}},
                 {.batch = batch, .prefill = 8, .how = {.temperature = 4, .seed = 5}});
        on.answer = [](const pass_token &) { return 7; };
        while (on.next()) {
        }
        return on.from.written();
    };
    const std::vector<std::vector<int32_t>> alone = drawn(1);
    CHECK(alone == drawn(2));
    CHECK(alone == drawn(3));
    CHECK(alone[0] != alone[2]);
}

TEST_CASE("routing by the model's rule, by hand") {
    bench on({{{1, 2}, 1}}, {.prefill = 8});
    REQUIRE(on.next());
    CHECK(on.from.layers() == 3);
    CHECK(on.from.experts() == 8);
    CHECK(on.from.top_k() == 2);
    CHECK(on.from.offers() == (MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS));
    // Probabilities in 16ths: token 0 has 8 at expert 6, 4 at 1; token 1 a tie of 2 and 5.
    const std::vector<double> sixteenths = {1, 4, 1, 0.5, 0.5, 0.5, 8, 0.5, 1, 1, 5, 1, 1, 5, 1, 1};
    for (const double p : sixteenths)
        on.results.router.push_back(static_cast<float>(std::log(p / 16)) + 3);
    std::vector<uint32_t> chosen(4);
    std::vector<float> weights(4), scores(16);
    on.from.route(on.now, 1, chosen.data());
    CHECK(chosen == std::vector<uint32_t>{6, 1, 2, 5});
    on.from.weights(on.now, 1, weights.data());
    CHECK(weights[0] == doctest::Approx(2 / 3.0));
    CHECK(weights[1] == doctest::Approx(1 / 3.0));
    CHECK(weights[2] == doctest::Approx(0.5));
    on.from.gate_scores(on.now, 1, scores.data());
    for (size_t i = 0; i < 16; ++i) CHECK(scores[i] == doctest::Approx(sixteenths[i] / 16));
    // Another choice: by the rule where it is NaN, as given elsewhere.
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const uint32_t other[] = {1, 0, 5, 7};
    float given[] = {nan, nan, 0.25f, nan};
    on.from.weigh(on.now, 1, other, given);
    CHECK(given[0] == doctest::Approx(4 / 5.0));
    CHECK(given[1] == doctest::Approx(1 / 5.0));
    CHECK(given[2] == 0.25f);
    CHECK(given[3] == doctest::Approx(1 / 6.0));
}

TEST_CASE("predictions: best first, the smaller expert among equals, for the rows of the pass") {
    bench on({{{1, 2}, 2}}, {.prefill = 8, .predict = true});
    CHECK(on.from.predictions_max() == 8);  // 4 top-k, at least 16, at most all
    CHECK((on.from.offers() & MOORAGE_NEEDS_PREDICTIONS) != 0);
    std::vector<uint32_t> experts(8);
    std::vector<float> scores(8);
    REQUIRE(on.next());
    CHECK(on.from.predict(0, 1, experts.data(), scores.data()) == 0);  // nothing known yet
    on.results.next_router = {0, 1, 2, 3, 4, 5, 6, 7, 3, 1, 3, 0, 3, 0, 0, 0};
    CHECK(on.from.predict(0, 1, experts.data(), scores.data()) == 8);
    CHECK(experts == std::vector<uint32_t>{7, 6, 5, 4, 3, 2, 1, 0});
    CHECK(on.from.predict(1, 1, experts.data(), scores.data()) == 8);
    CHECK(experts == std::vector<uint32_t>{0, 2, 4, 1, 3, 5, 6, 7});
    const double all = 3 * std::exp(3.0) + std::exp(1.0) + 4;
    CHECK(scores[0] == doctest::Approx(std::exp(3.0) / all));
    CHECK(scores[3] == doctest::Approx(std::exp(1.0) / all));
    CHECK(scores[7] == doctest::Approx(1 / all));
    // The next pass begins at row 2.
    REQUIRE(on.next());
    REQUIRE(on.now.tokens[0].row == 2);
    on.results.next_router = {0, 0, 9, 0, 0, 0, 0, 0};
    CHECK(on.from.predict(2, 0, experts.data(), scores.data()) == 8);
    CHECK(experts[0] == 2);
}

TEST_CASE("predictions count the correction that choices count, and scores do not have it") {
    const auto opened =
        open_model(std::filesystem::path(MOORAGE_SOURCE_DIR) / "tests/golden/deepseek_v3");
    REQUIRE(opened.ok());
    const model &of = **opened;
    const uint32_t first = of.config().moe_layers()[0];
    const std::span<const float> correction = of.weights().layers[first].correction_bias;
    REQUIRE(correction.size() == 16);
    bench on({{{1}, 1}}, {.prefill = 8, .predict = true}, of);
    REQUIRE(on.next());
    on.results.next_router.assign(16, 0);  // sigmoid: 1/2 each
    std::vector<uint32_t> experts(16);
    std::vector<float> scores(16);
    REQUIRE(on.from.predict(0, 0, experts.data(), scores.data()) == 16);
    for (size_t i = 0; i < 16; ++i) CHECK(scores[i] == 0.5f);
    for (size_t i = 1; i < 16; ++i) CHECK(correction[experts[i - 1]] >= correction[experts[i]]);
}

TEST_CASE("of many experts the best sixteen are predicted") {
    const auto opened = open_model(std::filesystem::path(MOORAGE_SOURCE_DIR) / "configs/demo");
    REQUIRE(opened.ok());
    model_source from(**opened, {{{1}, 1}}, {.predict = true});
    fake_results results;
    from.connect(results);
    CHECK(from.predictions_max() == 16);  // of 24 experts, top-4
    pass now;
    REQUIRE(from.next(now));
    for (int expert = 0; expert < 24; ++expert)  // 23, 22, ... but expert 3 best
        results.next_router.push_back(expert == 3 ? 9 : static_cast<float>(expert) / 10);
    std::vector<uint32_t> experts(24);
    std::vector<float> scores(24);
    REQUIRE(from.predict(0, 5, experts.data(), scores.data()) == 16);
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
    options.more = [&](model_request &out) {
        if (queue.empty()) return false;
        out = std::move(queue.front());
        queue.erase(queue.begin());
        return true;
    };
    options.on_token = [&](uint64_t request, int32_t id) { written.emplace_back(request, id); };
    options.on_end = [&](uint64_t request) { ended.push_back(request); };
    bench on({}, options);
    CHECK(on.from.context_max() == 20);
    CHECK(on.from.outputs_max() == 2);
    CHECK(on.from.wakes_ns() != MOORAGE_NEVER);
    // Two prompts, a pass each; then tokens of both together; request 0 wants two, 1 five.
    REQUIRE(on.next());
    CHECK(on.now.tokens.size() == 3);
    REQUIRE(on.next());
    CHECK(on.now.tokens.size() == 1);
    REQUIRE(on.next());
    CHECK(on.now.tokens.size() == 2);
    CHECK_FALSE(on.from.idle());  // takes the pass's results
    CHECK(ended == std::vector<uint64_t>{0});
    // A third has come meanwhile: it takes the free stream, and the number 2.
    queue.push_back({{9, 9}, 3});
    REQUIRE(on.next());
    CHECK(on.now.tokens.size() == 2);
    CHECK(on.now.tokens[0].request == 2);
    on.from.give_up(1);
    REQUIRE(on.next());
    CHECK(ended == std::vector<uint64_t>{0, 1});
    CHECK(on.now.tokens.size() == 1);
    REQUIRE(on.next());
    CHECK_FALSE(on.next());  // nobody is there
    CHECK(ended == std::vector<uint64_t>{0, 1, 2});
    CHECK(on.from.idle());
    CHECK_FALSE(on.next());
    // By `answer`: ten times the request and the position that the token was written after.
    using token = std::pair<uint64_t, int32_t>;
    CHECK(written ==
          std::vector<token>{{0, 2}, {1, 10}, {0, 3}, {1, 11}, {2, 21}, {2, 22}, {2, 23}});
    on.answer = [](const pass_token &) { return 1; };
    for (int i = 0; i < 300; ++i) {
        queue.push_back({{1}, 1});
        REQUIRE(on.next());
        REQUIRE_FALSE(on.next());
    }
    CHECK(ended.size() == 303);
    CHECK(on.from.written().size() < 70);
}

}  // namespace model_source_test
