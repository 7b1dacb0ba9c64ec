// Goal: a trace is dealt out to streams as the header says: whole requests in order, one token of
// each live stream a pass, prefill apart, the next row known where it will be decoded. Method: a
// small trace of three requests, with passes written out by hand.
#include "core/source/trace_source.h"

#include <doctest/doctest.h>

#include "toy_machine.h"

namespace trace_source_test {

using namespace moorage::core;

namespace {

// Requests of 3, 1 and 2 tokens; row r asks for expert r.
struct bench {
    toy::folder folder;
    std::unique_ptr<trace> source;

    bench() {
        std::vector<std::vector<std::vector<uint16_t>>> chosen;
        for (uint16_t row = 0; row < 6; ++row) chosen.push_back({{row}, {row}});
        const auto data = toy::routing(chosen, 8, {0, 3, 4, 6}, true);
        REQUIRE(write_trace(data, folder / "t.safetensors").ok());
        auto opened = trace::open(folder / "t.safetensors");
        REQUIRE(opened.ok());
        source = std::make_unique<trace>(std::move(opened).value());
    }
};

// "stream:row" of every token of every pass; "p" before a prefill pass; "!" after a request's first
// output.
std::string deal_passes(trace_source &source) {
    std::string text;
    pass current_pass;
    while (source.next(current_pass)) {
        text += current_pass.phase == MOORAGE_PREFILL ? "| p" : "|";
        for (const pass_token &token : current_pass.tokens)
            text += " " + std::to_string(token.stream) + ":" + std::to_string(token.row) +
                    (token.first ? "!" : "") + (token.last ? "." : "");
        text += " ";
    }
    return text;
}

}  // namespace

TEST_CASE("one stream takes request after request") {
    bench fixture;
    trace_source source(*fixture.source, {});
    CHECK(deal_passes(source) == "| 0:0! | 0:1 | 0:2. | 0:3!. | 0:4! | 0:5. ");
    CHECK(source.tokens_max() == 1);
    CHECK((source.offers() & MOORAGE_NEEDS_FUTURE) != 0);
}

TEST_CASE("two streams decode side by side; a free one takes the next request") {
    bench fixture;
    trace_source source(*fixture.source, {.batch = 2});
    CHECK(deal_passes(source) == "| 0:0! 1:3!. | 0:1 1:4! | 0:2. 1:5. ");
    CHECK((source.offers() & MOORAGE_NEEDS_FUTURE) == 0);
}

TEST_CASE("prefill is a pass of its own, all but the last token at most") {
    bench fixture;
    trace_source source(*fixture.source, {.prefill = 2});
    CHECK(deal_passes(source) == "| p 0:0 0:1! | 0:2. | 0:3!. | p 0:4! | 0:5. ");
    CHECK(source.tokens_max() == 2);
    trace_source longer(*fixture.source, {.batch = 2, .prefill = 9});
    CHECK(deal_passes(longer) == "| p 0:0 0:1! | 0:2. 1:3!. | p 0:4! | 0:5. ");
}

TEST_CASE("a limit on tokens cuts the last request") {
    bench fixture;
    trace_source source(*fixture.source, {.tokens = 5});
    CHECK(deal_passes(source) == "| 0:0! | 0:1 | 0:2. | 0:3!. | 0:4!. ");
}

TEST_CASE("the row after is known for whoever predicts across tokens") {
    bench fixture;
    trace_source source(*fixture.source, {});
    pass current_pass;
    std::vector<uint64_t> next;
    while (source.next(current_pass)) next.push_back(current_pass.tokens[0].next_row);
    CHECK(next == std::vector<uint64_t>{1, 2, 3, 4, 5, MOORAGE_NEVER});
    uint32_t expert = 9;
    float score = 0;
    CHECK(source.predict(4, 1, &expert, &score) == 1);
    CHECK(expert == 4);
    CHECK(score == 1.0f);
}

TEST_CASE("routing of a pass is read row by row") {
    bench fixture;
    trace_source source(*fixture.source, {.batch = 2});
    pass current_pass;
    REQUIRE(source.next(current_pass));
    uint32_t chosen[2] = {};
    source.route(current_pass, 1, chosen);
    CHECK(chosen[0] == 0);
    CHECK(chosen[1] == 3);
}

}  // namespace trace_source_test
