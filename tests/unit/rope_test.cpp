// rope_test.cpp - goal: every kind of rotary embedding turns each pair by the angle of its paper.
// Method: tiny dimensions worked out by hand (powers of ten as theta, so that frequencies are plain
// numbers), properties at the ends of ramps and bands, and rotation as complex multiplication.
#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "core/model/rope.h"

namespace rope_test {

using namespace moorage::core;

namespace {

// theta 10^4 and 8 dimensions: frequencies 1, 0.1, 0.01, 0.001.
rope_config four_pairs(rope_kind kind) {
    rope_config config;
    config.kind = kind;
    config.theta = 10000;
    config.dimensions = 8;
    return config;
}

void near(const std::vector<float> &is, const std::vector<double> &expected) {
    REQUIRE(is.size() == expected.size());
    for (size_t i = 0; i < is.size(); ++i)
        CHECK(is[i] == doctest::Approx(expected[i]).epsilon(1e-6));
}

}  // namespace

TEST_CASE("plain: one decade a pair") {
    const rope_rotation turn = compute_rope_rotation(four_pairs(rope_kind::plain), 1);
    near(turn.frequencies, {1, 0.1, 0.01, 0.001});
    CHECK(turn.attention_factor == 1);
    CHECK(rope_scaling_of(four_pairs(rope_kind::plain), 1u << 20) == 0);
}

TEST_CASE("linear: all frequencies divided by the factor") {
    rope_config config = four_pairs(rope_kind::linear);
    config.factor = 4;
    const rope_rotation turn = compute_rope_rotation(config, 1);
    near(turn.frequencies, {0.25, 0.025, 0.0025, 0.00025});
    CHECK(turn.attention_factor == 1);
}

TEST_CASE("dynamic: plain within the trained context, the slowest pair stretched beyond") {
    rope_config config = four_pairs(rope_kind::dynamic);
    config.factor = 3;
    config.original_positions = 100;
    CHECK(rope_scaling_of(config, 100) == 0);
    CHECK(rope_scaling_of(config, 101) == 101);  // each length has a turn of its own
    near(compute_rope_rotation(config, 100).frequencies, {1, 0.1, 0.01, 0.001});
    // Twice the context: the base grows by (3 * 2 - 2)^(8/6) = 4^(4/3). Pair i then turns slower by
    // 4^(4/3 * i/4) = 4^(i/3), so the last one by 4.
    near(compute_rope_rotation(config, 200).frequencies,
         {1, 0.1 / std::cbrt(4.0), 0.01 / std::cbrt(16.0), 0.001 / 4});
    CHECK(compute_rope_rotation(config, 101).frequencies[3] < 0.001f);
    CHECK(compute_rope_rotation(config, 101).frequencies[3] >
          compute_rope_rotation(config, 102).frequencies[3]);
}

TEST_CASE("yarn: pairs that turn often stay, those that do not are interpolated") {
    rope_config config = four_pairs(rope_kind::yarn);
    config.factor = 10;
    // The pair at index i turns P * 10^-i / (2 pi) times in P positions: beta_fast = 10 is reached
    // at i = 1 and beta_slow = 0.1 at i = 3 for P = 200 pi.
    config.original_positions = 628;
    config.beta_fast = 10;
    config.beta_slow = 0.1;
    SUBCASE("not truncated") {
        config.truncate = false;
        const double log_excess =
            std::log10(628 / (200 * std::numbers::pi));  // P is a whole number
        const auto blend = [&](double i) {
            const double ramp = std::min(1.0, std::max(0.0, (i - 1 - log_excess) / 2));
            return std::pow(10, -i) * (1 - ramp + ramp / 10);
        };
        near(compute_rope_rotation(config, 1).frequencies, {1, blend(1), blend(2), blend(3)});
        CHECK(blend(2) == doctest::Approx(0.01 * 0.55).epsilon(1e-3));
    }
    SUBCASE("bounds rounded outwards") {
        config.truncate = true;
        // 0.9999 and 2.9999 become 0 and 3: ramp 0, 1/3, 2/3, 1.
        near(compute_rope_rotation(config, 1).frequencies, {1, 0.1 * 0.7, 0.01 * 0.4, 0.001 * 0.1});
    }
    SUBCASE("bounds are kept within the dimensions") {
        config.truncate = true;
        config.beta_fast = 1e9;   // would be before the first pair: 0
        config.beta_slow = 1e-9;  // would be beyond the last dimension: 7
        near(compute_rope_rotation(config, 1).frequencies,
             {1, 0.1 * (1 - 0.9 / 7), 0.01 * (1 - 1.8 / 7), 0.001 * (1 - 2.7 / 7)});
    }
}

TEST_CASE("yarn: the attention factor") {
    rope_config config = four_pairs(rope_kind::yarn);
    config.original_positions = 4096;
    config.factor = 40;
    const double usual = 0.1 * std::log(40.0) + 1;
    CHECK(compute_rope_rotation(config, 1).attention_factor == doctest::Approx(usual));
    config.mscale = 0.707;
    CHECK(compute_rope_rotation(config, 1).attention_factor ==
          doctest::Approx(usual));  // both or none
    config.mscale_all = 0.707;
    CHECK(compute_rope_rotation(config, 1).attention_factor == doctest::Approx(1));
    config.mscale_all = 1;
    CHECK(compute_rope_rotation(config, 1).attention_factor ==
          doctest::Approx((0.0707 * std::log(40.0) + 1) / usual));
    config.attention_factor = 1.25;
    CHECK(compute_rope_rotation(config, 1).attention_factor == 1.25f);
    config.attention_factor = 0;
    config.factor = 1;
    CHECK(compute_rope_rotation(config, 1).attention_factor == 1);
}

TEST_CASE("llama3: three bands of wavelengths") {
    // Wavelengths are 2 pi times 1, 10, 100, 1000. With 400 pi trained positions and factors 1 and
    // 20 the bounds are 20 pi and 400 pi, save for the rounding of the positions.
    rope_config config = four_pairs(rope_kind::llama3);
    config.factor = 8;
    config.original_positions = 1257;
    config.low_frequency_factor = 1;
    config.high_frequency_factor = 19;
    // 628.3 lies between 1257 / 19 = 66.2 and 1257; 62.8 is short, 6283 is long.
    const double kept = (1257 / (200 * std::numbers::pi) - 1) / 18;
    near(compute_rope_rotation(config, 1).frequencies,
         {1, 0.1, 0.01 * (kept + (1 - kept) / 8), 0.001 / 8});
    CHECK(compute_rope_rotation(config, 1).attention_factor == 1);
    // The blend meets both bands: at the bounds it is the plain and the interpolated frequency.
    config.original_positions = 629;  // low bound just above the wavelength 628.3
    CHECK(compute_rope_rotation(config, 1).frequencies[2] ==
          doctest::Approx(0.01 / 8).epsilon(1e-2));
    config.original_positions = 628 * 19;  // high bound just below it
    CHECK(compute_rope_rotation(config, 1).frequencies[2] == doctest::Approx(0.01).epsilon(1e-2));
}

TEST_CASE("longrope: a factor for each pair, by the length of the context") {
    rope_config config = four_pairs(rope_kind::longrope);
    config.short_factor = {1, 1, 2, 2};
    config.long_factor = {1, 5, 10, 20};
    config.original_positions = 256;
    config.factor = 16;
    CHECK(rope_scaling_of(config, 256) == 0);
    CHECK(rope_scaling_of(config, 257) == 1);
    CHECK(rope_scaling_of(config, 5000) == 1);
    near(compute_rope_rotation(config, 256).frequencies, {1, 0.1, 0.005, 0.0005});
    near(compute_rope_rotation(config, 257).frequencies, {1, 0.02, 0.001, 0.00005});
    rope_config alike = config;
    alike.long_factor = config.short_factor;
    CHECK(rope_scaling_of(alike, 5000) == 0);  // a border that changes nothing
    // ln 16 / ln 256 = 1/2
    CHECK(compute_rope_rotation(config, 1).attention_factor == doctest::Approx(std::sqrt(1.5)));
    config.attention_factor = 1.19;
    CHECK(compute_rope_rotation(config, 1).attention_factor == 1.19f);
    config.attention_factor = 0;
    config.factor = 1;
    CHECK(compute_rope_rotation(config, 1).attention_factor == 1);
}

TEST_CASE("turns by length, in any order of lengths, are those made for each length") {
    rope_config dynamic = four_pairs(rope_kind::dynamic),
                longrope = four_pairs(rope_kind::longrope);
    dynamic.factor = longrope.factor = 3;
    dynamic.original_positions = longrope.original_positions = 100;
    longrope.short_factor = {1, 1, 2, 2};
    longrope.long_factor = {1, 5, 10, 20};
    for (const rope_config &config : {dynamic, longrope, four_pairs(rope_kind::plain)}) {
        rope_rotations turns(config);
        for (const uint64_t length : {1u, 100u, 101u, 250u, 250u, 7u, 101u, 99u, 250u})
            CHECK(turns.turn_for_length(length).frequencies ==
                  compute_rope_rotation(config, length).frequencies);
    }
}

TEST_CASE("rotation multiplies pairs as complex numbers") {
    const rope_rotation turn{{1.0f, 0.25f}, 1.5f};
    std::vector<float> cosines(2), sines(2);
    rope_angles(turn, 3, cosines, sines);
    for (const bool interleaved : {false, true}) {
        CAPTURE(interleaved);
        std::vector<float> values = {0.5f, -1, 2, 3, 42};  // the last one is not rotated
        const size_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : 2;
        std::vector<std::complex<double>> original;
        for (size_t i = 0; i < 2; ++i)
            original.emplace_back(values[i * step], values[i * step + apart]);
        rope_rotate(interleaved, cosines, sines, values.data());
        for (size_t i = 0; i < 2; ++i) {
            const auto expected = original[i] * std::polar(1.5, 3.0 * turn.frequencies[i]);
            CHECK(values[i * step] == doctest::Approx(expected.real()));
            CHECK(values[i * step + apart] == doctest::Approx(expected.imag()));
        }
        CHECK(values[4] == 42);
    }
}

TEST_CASE("scores depend on the distance alone") {
    const rope_rotation turn = compute_rope_rotation(four_pairs(rope_kind::plain), 1);
    const auto turned = [&](std::vector<float> values, uint32_t position) {
        std::vector<float> cosines(4), sines(4);
        rope_angles(turn, position, cosines, sines);
        rope_rotate(false, cosines, sines, values.data());
        return values;
    };
    const std::vector<float> query = {1, 2, -1, 0.5f, 0, 3, 1, -2}, key = {2, 1, 1, 1, -1, 0, 2, 1};
    const auto score = [&](uint32_t query_position, uint32_t key_position) {
        const auto a = turned(query, query_position), b = turned(key, key_position);
        double sum = 0;
        for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * b[i];
        return sum;
    };
    CHECK(score(5, 2) == doctest::Approx(score(103, 100)).epsilon(1e-4));
    CHECK(score(5, 2) != doctest::Approx(score(5, 3)).epsilon(1e-4));
}

}  // namespace rope_test
