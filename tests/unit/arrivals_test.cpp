// Goal: requests of a home come at the right times, are dealt out to passes as arrivals.h says, and
// choose the experts of their trace or table; equal seeds give equal runs. Method: passes of listed
// arrivals written out by hand. Moments of drawn arrivals are compared with their process, with
// bounds of five standard deviations. The trace itself is the reference of the routing.
#include "tools/cluster/arrivals.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "toy_machine.h"

namespace arrivals_test {

using namespace moorage::core;

namespace {

constexpr uint64_t second = 1'000'000'000;

// Requests of the given lengths; row r asks for experts r mod 7 and 7 in every layer. Domains take
// turns.
struct bench {
    toy::folder folder;
    std::unique_ptr<trace> rows;
    uint64_t now = 0;

    explicit bench(const std::vector<uint64_t> &lengths) {
        std::vector<std::vector<std::vector<uint16_t>>> chosen;
        std::vector<uint64_t> offsets = {0};
        for (const uint64_t length : lengths) offsets.push_back(offsets.back() + length);
        for (uint64_t row = 0; row < offsets.back(); ++row) {
            const std::vector<uint16_t> experts = {static_cast<uint16_t>(row % 7), 7};
            chosen.push_back({experts, {experts[1], experts[0]}});
        }
        auto data = toy::routing(chosen, 8, offsets, true);
        data.metadata["domains"] = "code,prose";
        for (size_t i = 0; i < lengths.size(); ++i)
            data.request_domain.push_back(static_cast<int32_t>(i % 2));
        REQUIRE(write_trace(data, folder / "t.safetensors").ok());
        auto opened = trace::open(folder / "t.safetensors");
        REQUIRE(opened.ok());
        rows = std::make_unique<trace>(std::move(opened).value());
    }
    arrival_source source(std::vector<arrival_phase> phases, const arrival_options &options) {
        auto source = arrival_source::make(std::move(phases), options, &now);
        if (!source) FAIL(source.failure().text);
        return std::move(source).value();
    }
};

// "time: stream:position" of every token of every pass, "p" before a prefill pass, "!" after a
// request's first output, "." after its end, "-" after a silent token. A pass takes 10 s.
std::string dealt(arrival_source &source, uint64_t &now) {
    std::string text;
    pass pass;
    for (;;) {
        if (!source.next(pass)) {
            if (source.wakes_ns() == MOORAGE_NEVER) return text;
            CHECK(source.wakes_ns() > now);
            now = source.wakes_ns();
            continue;
        }
        text += std::to_string(now / second) + (pass.phase == MOORAGE_PREFILL ? "p" : ":");
        for (const pass_token &token : pass.tokens) {
            text += " " + std::to_string(token.stream) + ":" + std::to_string(token.position) +
                    (token.first ? "!" : "") + (token.last ? "." : "") + (token.silent ? "-" : "");
            CHECK(token.output ==
                  (token.position + 1 >= source.requests()[token.request].input_tokens));
        }
        text += " | ";
        now += 10 * second;
        source.pass_done(pass, now);
    }
}

std::string times(const request_times &request) {
    return std::to_string(request.arrived_ns / second) + " " +
           std::to_string(request.started_ns / second) + " " +
           std::to_string(request.first_ns / second) + " " +
           std::to_string(request.ended_ns / second);
}

}  // namespace

TEST_CASE("a prompt goes first, in chunks; then all live requests decode together") {
    bench fixture({20});
    const std::vector<arrival> listed = {{1, 5, 3}, {2, 1, 2}, {22, 2, 1}, {200, 2, 2}};
    auto source = fixture.source({{.rows = fixture.rows.get()}},
                                 {.batch = 2, .prefill_max = 3, .arrivals = listed});
    CHECK(source.tokens_max() == 3);
    CHECK(source.idle());
    // The third finds no stream until the second has ended; its prompt yields its only output.
    CHECK(dealt(source, fixture.now) ==
          "1p 0:0 0:1 0:2 | 11p 0:3 0:4! | 21: 0:5 1:0! | 31: 0:6. 1:1. | 41p 0:0 0:1!. | "
          "200p 0:0 0:1! | 210: 0:2. | ");
    REQUIRE(source.requests().size() == 4);
    CHECK(times(source.requests()[0]) == "1 1 21 41");
    CHECK(times(source.requests()[1]) == "2 21 31 41");
    CHECK(times(source.requests()[2]) == "22 41 51 51");
    CHECK(times(source.requests()[3]) == "200 200 210 220");
    CHECK(source.idle());
}

TEST_CASE("without prefill a prompt is decoded in silence") {
    bench fixture({20});
    const std::vector<arrival> listed = {{0, 3, 2}, {0, 1, 1}};
    auto source = fixture.source({{.rows = fixture.rows.get()}},
                                 {.batch = 2, .prefill_max = 0, .arrivals = listed});
    CHECK(dealt(source, fixture.now) == "0: 0:0- 1:0!. | 10: 0:1- | 20: 0:2! | 30: 0:3. | ");
}

TEST_CASE("nothing arrives at the end or later, nor above the number of requests") {
    bench fixture({20});
    const std::vector<arrival> listed = {{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {4, 1, 1}};
    const auto count = [&](const arrival_options &options) {
        fixture.now = 0;
        auto source = fixture.source({{.rows = fixture.rows.get()}}, options);
        dealt(source, fixture.now);
        return source.requests().size();
    };
    CHECK(count({.arrivals = listed}) == 4);
    CHECK(count({.end_ns = 3 * second, .arrivals = listed}) == 2);
    CHECK(count({.end_ns = 3 * second + 1, .arrivals = listed}) == 3);
    CHECK(count({.requests_max = 3, .arrivals = listed}) == 3);
    CHECK(count({.begin_ns = 2 * second, .arrivals = listed}) == 3);
    CHECK(count({.requests_max = 0, .arrivals = listed}) == 0);
}

TEST_CASE("lengths that are not given are the trace's; a request that is too short begins again") {
    bench fixture({6});
    const auto lengths = [&](uint32_t input, uint32_t output) {
        fixture.now = 0;
        auto source = fixture.source({{.rows = fixture.rows.get(),
                                       .poisson_s = 1,
                                       .input_tokens = input,
                                       .output_tokens = output}},
                                     {.requests_max = 1});
        pass pass;
        std::string rows;
        while (source.requests().empty() || !source.idle()) {
            if (!source.next(pass)) {
                fixture.now = source.wakes_ns();
                continue;
            }
            for (const pass_token &token : pass.tokens)
                rows += std::to_string(arrival_source::row_in_phase(token.row));
        }
        const request_times &request = source.requests()[0];
        return std::to_string(request.input_tokens) + "+" + std::to_string(request.output_tokens) +
               ":" + rows;
    };
    CHECK(lengths(0, 0) == "5+2:012345");
    CHECK(lengths(2, 0) == "2+5:012345");
    CHECK(lengths(0, 1) == "6+1:012345");
    CHECK(lengths(0, 3) == "4+3:012345");
    CHECK(lengths(2, 2) == "2+2:012");
    CHECK(lengths(0, 9) == "1+9:012345012");
    CHECK(lengths(8, 0) == "8+1:01234501");
}

TEST_CASE("routing, predictions and the next row are those of the trace") {
    bench fixture({3, 9, 4, 5});
    auto source =
        fixture.source({{.rows = fixture.rows.get(), .requests = {2, 3}, .poisson_s = 100}},
                       {.seed = 5, .end_ns = 5000 * second, .batch = 3, .prefill_max = 8});
    CHECK(source.layers() == 2);
    CHECK(source.experts() == 8);
    CHECK(source.top_k() == 2);
    CHECK(source.predictions_max() == 2);
    CHECK(source.offers() == MOORAGE_NEEDS_PREDICTIONS);
    pass pass;
    bool seen[4] = {};
    for (;;) {
        if (!source.next(pass)) {
            if (source.wakes_ns() == MOORAGE_NEVER) break;
            fixture.now = source.wakes_ns();
            continue;
        }
        std::vector<uint32_t> chosen(pass.tokens.size() * 2), predicted(2);
        std::vector<float> scores(2);
        for (uint32_t layer = 0; layer < 2; ++layer) {
            source.route(pass, layer, chosen.data());
            for (size_t i = 0; i < pass.tokens.size(); ++i) {
                const pass_token &token = pass.tokens[i];
                const request_times &request = source.requests()[token.request];
                CHECK(token.arrived_ns == request.arrived_ns);
                REQUIRE(request.trace_request >= 2);
                seen[request.trace_request] = true;
                const uint64_t row =
                    fixture.rows->request_offsets()[request.trace_request] + token.position;
                CHECK(arrival_source::row_in_phase(token.row) == row);
                for (uint32_t rank = 0; rank < 2; ++rank)
                    CHECK(chosen[2 * i + rank] == fixture.rows->expert(row, layer, rank));
                CHECK(source.predict(token.row, layer, predicted.data(), scores.data()) == 2);
                CHECK(predicted[0] == fixture.rows->predicted(row, layer, 0));
                const bool has_next = !token.last && token.output;
                CHECK(token.next_row == (has_next ? token.row + 1 : MOORAGE_NEVER));
            }
        }
    }
    CHECK(source.requests().size() > 20);
    CHECK((seen[2] && seen[3]));
}

TEST_CASE("requests of domains") {
    bench fixture({3, 4, 5});
    using names = std::vector<std::string>;
    CHECK(*requests_of(*fixture.rows, names{}) == std::vector<uint64_t>{0, 1, 2});
    CHECK(*requests_of(*fixture.rows, names{"prose"}) == std::vector<uint64_t>{1});
    CHECK(*requests_of(*fixture.rows, names{"prose", "code"}) == std::vector<uint64_t>{0, 1, 2});
    const auto unknown = requests_of(*fixture.rows, names{"cod"});
    REQUIRE(!unknown.ok());
    CHECK(unknown.failure().text.find("did you mean code") != std::string::npos);
}

TEST_CASE("a Poisson process has its mean and its shape, and only its own seed") {
    bench fixture({2});
    const arrival_phase phase = {
        .rows = fixture.rows.get(), .poisson_s = 2, .input_tokens = 1, .output_tokens = 1};
    const auto gaps = [&](uint64_t seed, uint32_t home) {
        fixture.now = 0;
        auto source = fixture.source({phase}, {.seed = seed, .home = home, .requests_max = 20'000});
        std::vector<double> intervals;
        pass pass;
        uint64_t previous_ns = 0;
        for (;;) {
            if (source.next(pass)) continue;
            if (source.wakes_ns() == MOORAGE_NEVER) return intervals;
            fixture.now = source.wakes_ns();
            intervals.push_back(static_cast<double>(fixture.now - previous_ns) / 2e9);
            previous_ns = fixture.now;
        }
    };
    const std::vector<double> sample = gaps(1, 3);
    REQUIRE(sample.size() == 20'000);
    CHECK(sample == gaps(1, 3));
    CHECK(sample != gaps(2, 3));
    CHECK(sample != gaps(1, 4));
    double sum = 0;
    for (const double gap : sample) sum += gap;
    CHECK(std::abs(sum / 20'000 - 1) < 5 / std::sqrt(20'000.0));
    // The largest distance of the two distribution functions (Kolmogorov): above 1.95 / sqrt(n)
    // once in a thousand.
    std::vector<double> sorted = sample;
    std::ranges::sort(sorted);
    double distance = 0;
    for (size_t i = 0; i < sorted.size(); ++i)
        distance = std::max(distance,
                            std::abs(1 - std::exp(-sorted[i]) - static_cast<double>(i) / 20'000));
    CHECK(distance < 1.95 / std::sqrt(20'000.0));
}

TEST_CASE("a phase changes what is asked and how often") {
    bench fixture({2, 2, 2, 2});
    auto source = fixture.source(
        {{.rows = fixture.rows.get(), .requests = {0, 2}, .poisson_s = 1},
         {.begin_ns = 1000 * second, .rows = fixture.rows.get(), .requests = {1}, .poisson_s = 4},
         {.begin_ns = 3000 * second, .rows = fixture.rows.get(), .requests = {3}, .poisson_s = 1}},
        {.end_ns = 4000 * second, .batch = 64});
    pass pass;
    for (;;) {
        if (source.next(pass)) continue;
        if (source.wakes_ns() == MOORAGE_NEVER) break;
        fixture.now = source.wakes_ns();
    }
    uint64_t counts[3] = {}, asked[4] = {};
    for (const request_times &request : source.requests()) {
        const uint64_t second_of = request.arrived_ns / second;
        CHECK(request.phase == (second_of < 1000 ? 0u : second_of < 3000 ? 1u : 2u));
        ++counts[request.phase];
        ++asked[request.trace_request];
    }
    CHECK(std::abs(double(counts[0]) - 1000) < 5 * std::sqrt(1000.0));
    CHECK(std::abs(double(counts[1]) - 500) < 5 * std::sqrt(500.0));
    CHECK(std::abs(double(counts[2]) - 1000) < 5 * std::sqrt(1000.0));
    CHECK(asked[0] + asked[2] == counts[0]);
    CHECK(std::abs(double(asked[0]) - double(asked[2])) < 5 * std::sqrt(1000.0));
    CHECK(asked[1] == counts[1]);
    CHECK(asked[3] == counts[2]);
}

TEST_CASE("a home that draws its routing") {
    bench fixture({2});
    const std::vector<double> frequency = {1, 0.5, 0.5, 0, 0.25, 0.25, 0.5, 1};  // 2 layers of 4
    const auto table = drawn_routing::from_frequency(2, 4, 2, frequency, 9);
    REQUIRE(table.ok());
    const auto choices = [&](uint32_t home) {
        fixture.now = 0;
        auto source = fixture.source(
            {{.drawn = *table, .poisson_s = 1, .input_tokens = 2, .output_tokens = 3}},
            {.home = home, .end_ns = 500 * second, .batch = 2});
        CHECK(source.offers() == 0);
        std::vector<uint32_t> all_choices;
        pass pass;
        for (;;) {
            if (!source.next(pass)) {
                if (source.wakes_ns() == MOORAGE_NEVER) return all_choices;
                fixture.now = source.wakes_ns();
                continue;
            }
            std::vector<uint32_t> chosen(2 * pass.tokens.size()), again(chosen);
            for (uint32_t layer = 0; layer < 2; ++layer) {
                source.route(pass, layer, chosen.data());
                source.route(pass, layer, again.data());
                CHECK(chosen == again);
                all_choices.insert(all_choices.end(), chosen.begin(), chosen.end());
            }
            std::vector<float> weights(chosen.size(), NAN);
            source.weigh(pass, 0, chosen.data(), weights.data());
            CHECK(weights == std::vector<float>(chosen.size(), 0.0f));
            fixture.now += second / 4;
        }
    };
    const auto sample = choices(1);
    CHECK(sample.size() > 4 * 2 * 2 * 300);  // four tokens that go through the layers, of each
    CHECK(sample == choices(1));
    CHECK(sample != choices(2));
}

TEST_CASE("wrong phases and options are told") {
    bench fixture({2}), other_fixture({2});
    const trace *rows = fixture.rows.get();
    const std::vector<double> frequency(12, 0.5);
    const auto wide = drawn_routing::from_frequency(3, 4, 2, frequency, 0);
    const auto refused = [&](std::vector<arrival_phase> phases, const arrival_options &options,
                             const std::string &text) {
        const auto source = arrival_source::make(std::move(phases), options, &fixture.now);
        REQUIRE(!source.ok());
        INFO(source.failure().text);
        CHECK(source.failure().text.find(text) != std::string::npos);
    };
    refused({}, {}, "0 phases");
    refused({{.rows = rows}}, {}, "neither poisson_s nor a list");
    refused({{.poisson_s = 1}}, {}, "needs a trace or a table");
    refused({{.rows = rows, .poisson_s = -1}}, {}, "poisson_s -1");
    refused({{.rows = rows, .poisson_s = NAN}}, {}, "poisson_s nan");
    refused({{.rows = rows, .poisson_s = 1}}, {.batch = 0}, "batch 0");
    refused({{.rows = rows, .requests = {1}, .poisson_s = 1}}, {}, "request 1");
    refused({{.drawn = *wide, .poisson_s = 1, .input_tokens = 1}}, {}, "output_tokens are needed");
    refused({{.begin_ns = 5, .rows = rows, .poisson_s = 1}, {.begin_ns = 5, .rows = rows}}, {},
            "not after 5 ns");
    refused(
        {{.rows = rows, .poisson_s = 1},
         {.begin_ns = 1, .drawn = *wide, .poisson_s = 1, .input_tokens = 1, .output_tokens = 1}},
        {}, "phase 1 has 3 layers, 4 experts, top 2; phase 0 has 2, 8, top 2");
}

}  // namespace arrivals_test
