// activation_window_test.cpp - goal: counts fade by half in a half-life, at any scale of time.
// Method: every addition kept in a list and weighted anew when asked, with the library's exp2.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "core/base/random.h"
#include "tools/placement/statistics.h"
#include "tests/unit/small_scene.h"

namespace activation_window_test {

using namespace moorage::core;
using namespace moorage::test;

namespace {

struct addition {
    uint32_t home, expert;
    double tokens;
    uint64_t at_ns;
};

// The expected values of the window, computed from the list of all additions.
struct naive_window {
    std::vector<addition> additions;
    double half_life_s;
    uint64_t start_ns = 0;

    double count(uint32_t home, uint32_t expert, uint64_t now_ns) const {
        double sum = 0;
        for (const addition &entry : additions)
            if (entry.home == home && entry.expert == expert)
                sum += entry.tokens *
                       std::exp2((static_cast<double>(entry.at_ns) - static_cast<double>(now_ns)) *
                                 1e-9 / half_life_s);
        return sum;
    }
};

// Compares all figures; the demand is that of two_model_scene(): experts 0..3 in 2 layers of model
// 0, 4 and 5 in one layer of model 1, top-1.
void compare(const naive_window &naive, const activation_window &window, uint64_t now_ns) {
    demand_arrays demand = two_model_scene().demand;
    window.fill(demand, now_ns);
    for (uint32_t home = 0; home < 2; ++home) {
        std::vector<double> counts;
        for (uint32_t expert = 0; expert < 6; ++expert)
            counts.push_back(naive.count(home, expert, now_ns));
        const double first = (counts[0] + counts[1] + counts[2] + counts[3]) / 2;
        const double second = counts[4] + counts[5];
        const double tokens = first + second;
        for (uint32_t expert = 0; expert < 6; ++expert)
            CHECK(demand.frequency[home * 6 + expert] ==
                  doctest::Approx(tokens > 0 ? counts[expert] / tokens : 0).epsilon(1e-9));
        CHECK(demand.home_model[home * 2] == doctest::Approx(tokens > 0 ? first / tokens : 0));
        CHECK(demand.home_model[home * 2 + 1] == doctest::Approx(tokens > 0 ? second / tokens : 0));
        const double elapsed_s = static_cast<double>(now_ns - naive.start_ns) * 1e-9;
        const double span_s =
            naive.half_life_s / std::log(2.0) * (1 - std::exp2(-elapsed_s / naive.half_life_s));
        CHECK(demand.window_s == doctest::Approx(span_s).epsilon(1e-9));
        CHECK(demand.home_tokens_per_s[home] == doctest::Approx(tokens / span_s).epsilon(1e-9));
    }
}

}  // namespace

TEST_CASE("the window equals a sum over everything that happened") {
    for (const double half_life_s : {0.01, 1.0, 600.0}) {
        CAPTURE(half_life_s);
        const uint64_t start_ns = 5'000'000'000;
        naive_window naive{{}, half_life_s, start_ns};
        activation_window window(two_model_scene().demand, half_life_s, start_ns);
        random_stream random(1, 7);
        uint64_t now_ns = start_ns;
        // From microseconds to many half-lives between additions, so that scaling happens.
        for (int n = 0; n < 600; ++n) {
            now_ns += random.below(uint64_t{1} << (10 + random.below(24)));
            const addition entry{static_cast<uint32_t>(random.below(2)),
                                 static_cast<uint32_t>(random.below(6)),
                                 static_cast<double>(1 + random.below(9)), now_ns};
            naive.additions.push_back(entry);
            window.add(entry.home, entry.expert, entry.tokens, entry.at_ns);
            if (n % 50 == 49) compare(naive, window, now_ns + random.below(1'000'000'000));
        }
    }
}

TEST_CASE("half of what happened a half-life ago is left, and rates settle") {
    demand_arrays demand = two_model_scene().demand;
    activation_window window(demand, 10);
    // Ten tokens a second through model 0 for 200 s: experts 0 and 2, then 1 and 3 from 190 s on.
    for (uint64_t n = 0; n < 2000; ++n) {
        const uint64_t now_ns = n * 100'000'000;
        const uint32_t late = n >= 1900;
        window.add(0, 0 + late, 1, now_ns);
        window.add(0, 2 + late, 1, now_ns);
    }
    window.fill(demand, 200'000'000'000);
    CHECK(demand.home_tokens_per_s[0] == doctest::Approx(10).epsilon(0.01));
    CHECK(demand.home_tokens_per_s[1] == 0);
    CHECK(demand.home_model[0] == 1);
    CHECK(demand.home_model[1] == 0);
    CHECK(demand.frequency[0] == doctest::Approx(0.5).epsilon(0.01));
    CHECK(demand.frequency[1] == doctest::Approx(0.5).epsilon(0.01));
    CHECK(demand.frequency[6] == 0);
    CHECK(demand.window_s == doctest::Approx(10 / std::log(2.0)).epsilon(1e-4));
    CHECK(demand.view().calls == 0);
}

TEST_CASE("nothing yet, late news and very long pauses") {
    demand_arrays demand = two_model_scene().demand;
    activation_window window(demand, 1, 100);
    window.fill(demand, 100);
    CHECK(demand.window_s == 0);
    CHECK(demand.home_tokens_per_s[0] == 0);
    // A home that reports late counts at its own time.
    naive_window naive{{{0, 0, 4, 9'000'000'000}, {0, 1, 4, 7'000'000'000}}, 1, 100};
    for (const addition &entry : naive.additions)
        window.add(entry.home, entry.expert, entry.tokens, entry.at_ns);
    compare(naive, window, 10'000'000'000);
    // A year of half-lives later only the new counts.
    const uint64_t year_ns = 31'536'000'000'000'000;
    window.add(0, 3, 2, year_ns);
    window.fill(demand, year_ns);
    CHECK(demand.frequency[3] == 2);  // in one layer of two: as many as two tokens to a token
    CHECK(demand.frequency[0] == 0);
    CHECK(std::isfinite(demand.home_tokens_per_s[0]));
}

}  // namespace activation_window_test
