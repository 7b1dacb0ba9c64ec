// kernel_codes_test.cpp - goal: products with activations in codes follow the formats' definitions,
// with activations rounded as kernels_codes.h says. They have the same bits for few tokens and
// many, for any number of threads, any split of an expert and every instruction set of one kind.
// Method: sums in double of weight_at() with activations rounded here. Outputs are filled with NaN
// before. Bits are compared with those of one token at a time and with the arithmetic without
// vectors.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "core/execute/cpu/kernels.h"
#include "core/execute/cpu/kernels_codes_plain.h"
#include "core/execute/cpu/kernels_panels.h"
#include "core/execute/cpu/kernels_vector.h"
#include "tests/unit/random_weights.h"

namespace moorage::core::kernel_codes_test {
namespace {

std::vector<weight_type> types_in_codes() {
    std::vector<weight_type> types;
    for (const weight_format &format : weight_formats)
        if (usual_form_of(format.type) == activation_form::codes) types.push_back(format.type);
    return types;
}

template <class Body>
void with_each_target(Body &&body) {
    for (const std::string &target : vector_targets()) {
        choose_vector_target(target);
        CAPTURE(target);
        body(target);
    }
    choose_vector_target("");
}

double as_binary16(double value) {
    int exponent;
    std::frexp(value, &exponent);
    const double unit = std::ldexp(1, exponent - 11);
    return std::nearbyint(value / unit) * unit;
}

// 16 values, or 32 with the scale in binary16, as a number times integers of 127 at most, the
// nearest.
std::vector<double> rounded(const float *source, uint32_t count, uint32_t shared) {
    std::vector<double> values(count);
    for (uint32_t begin = 0; begin < count; begin += shared) {
        float largest = 0;
        for (uint32_t i = 0; i < shared; ++i)
            largest = std::max(largest, std::abs(source[begin + i]));
        const float exact_scale = largest / 127;
        const double scale = shared == 32 ? as_binary16(exact_scale) : exact_scale;
        for (uint32_t i = 0; i < shared; ++i)
            values[begin + i] =
                largest == 0 ? 0 : std::nearbyint(source[begin + i] * (127 / largest)) * scale;
    }
    return values;
}

uint32_t columns_for(std::mt19937_64 &random, weight_type type, uint32_t most) {
    const uint32_t block = format_of(type).block;
    return (1 + random() % most + block - 1) / block * block;
}

void run(thread_pool &pool, uint32_t tokens, const random_matrix &weights, float_rows &input,
         const std::vector<float> &bias, bool finely, float_rows &output) {
    const product operands{.weights = &weights.view(),
                           .input = input.view(),
                           .output = output.view(),
                           .bias = bias,
                           .finely = finely};
    multiply(pool, tokens, {&operands, 1});
}

void check_values(const random_matrix &weights, float_rows &input, uint32_t tokens,
                  const std::vector<float> &bias, bool finely, const float_rows &output) {
    const uint32_t columns = weights.view().columns;
    const bool wide = format_of(weights.view().type).block == 32 && !finely;
    uint32_t wrong = 0;
    for (uint32_t t = 0; t < tokens; ++t) {
        const std::vector<double> x = rounded(&input.at(t, 0), columns, wide ? 32 : 16);
        for (uint32_t r = 0; r < weights.view().rows; ++r) {
            double sum = bias.empty() ? 0 : bias[r], size = std::abs(sum);
            for (uint32_t c = 0; c < columns; ++c) {
                sum += weights.at(r, c) * x[c];
                // Minimums are multiplied by separate sums, so the rounding error is as large as
                // the codes.
                size += 4 * std::abs(weights.at(r, c) * x[c]);
            }
            // Sums of 32 activations are rounded to binary16 where minimums meet them.
            const bool halves = code_format_of(weights.view().type).offsets && wide;
            wrong += !(std::abs(output.at(t, r) - sum) <= (halves ? 5e-4 : 2e-6) * (size + 1e-3));
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("every format in codes, few tokens and many") {
    thread_pool one_thread(1, arithmetic::fast), three_threads(3, arithmetic::fast);
    for (const weight_type type : types_in_codes()) {
        CAPTURE(name_of(type));
        for (uint32_t round = 0; round < 8; ++round) {
            std::mt19937_64 random(round);
            const uint32_t tokens = round < 3 ? 1 + 2 * round : 7 + random() % 30;
            const uint32_t columns = columns_for(random, type, round % 4 ? 300 : 1500);
            random_matrix weights(random, type, 1 + random() % 70, columns, random() % 9);
            float_rows input(random, tokens, columns);
            const auto bias = random_floats(random, round % 2 ? weights.view().rows : 0);
            const bool finely = round % 3 == 2;
            std::map<bool, float_rows> kept;  // by whether multiply-adds round once
            with_each_target([&](const std::string &target) {
                float_rows got(tokens, weights.view().rows), apart = got, threads = got;
                run(one_thread, tokens, weights, input, bias, finely, got);
                check_values(weights, input, tokens, bias, finely, got);
                run(three_threads, tokens, weights, input, bias, finely, threads);
                CHECK(got.same_bits(threads));
                for (uint32_t t = 0; t < tokens; ++t) {
                    const product alone{.weights = &weights.view(),
                                        .input = {&input.at(t, 0), 1},
                                        .output = {&apart.at(t, 0), 1},
                                        .bias = bias,
                                        .finely = finely};
                    multiply(one_thread, 1, {&alone, 1});
                }
                CHECK(got.same_bits(apart));
                const bool once = target.starts_with("AVX") || target.starts_with("NEON");
                CHECK(kept.try_emplace(once, got).first->second.same_bits(got));
            });
        }
    }
}

TEST_CASE("readers make the codes, scales and offsets of the formats") {
    for (const weight_type type : types_in_codes()) {
        CAPTURE(name_of(type));
        std::mt19937_64 random(5);
        const uint32_t block = format_of(type).block;
        random_matrix weights(random, type, 40, 512);
        const code_format format = code_format_of(type);
        with_each_target([&](const std::string &) {
            const auto read = vector_codes().read[static_cast<size_t>(type)];
            uint32_t wrong = 0;
            for (uint32_t row = 0; row < 40; ++row)
                for (uint32_t begin = 0; begin < 512; begin += 256) {
                    const uint32_t count = block == 256 ? 256 : 32 * (1 + row % 8);
                    weight_chunk got;
                    std::memset(&got, 0xff, sizeof got);
                    read(weights.view().data + row * weights.view().row_bytes,
                         codes_end(weights.view()), begin, count, got);
                    for (uint32_t i = 0; i < count; ++i) {
                        const float code =
                            static_cast<float>(got.codes[i]) - static_cast<float>(format.zero);
                        const float offset = format.offsets ? got.offsets[i / 16] : 0;
                        const double value = static_cast<double>(code) * got.scales[i / 16];
                        wrong += static_cast<float>(value + offset) !=
                                 static_cast<float>(weights.at(row, begin + i));
                    }
                    // Codes behind the row's end add nothing.
                    for (uint32_t k = count / 16; k < 16; ++k)
                        wrong += got.scales[k] != 0 || (format.offsets && got.offsets[k] != 0);
                }
            CHECK(wrong == 0);
        });
    }
}

TEST_CASE("16 activations as codes: the nearest, halves to even, none lost and none made up") {
    with_each_target([&](const std::string &) {
        alignas(64) float values[16] = {127, -127, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, 100.4F};
        activation_chunk chunk;
        vector_codes().round(values, 16, &chunk, 3);
        CHECK(chunk.scales[3] == 1);
        const int8_t expected[] = {127, -127, 0, 2, 2, 0, -2, 100, 0};
        CHECK(std::equal(std::begin(expected), std::end(expected), chunk.codes + 48));
        CHECK(chunk.counts[3] == 102);
        CHECK(chunk.sums[3] == 102);
        for (const float none : {NAN, INFINITY, -INFINITY}) {
            values[9] = none;
            vector_codes().round(values, 16, &chunk, 0);
            CHECK(std::isnan(chunk.scales[0]));
        }
        // 32 share a scale of binary16, and a sum.
        alignas(64) float wide_values[32] = {};
        wide_values[3] = 254.1F;
        wide_values[20] = -100;
        vector_codes().round(wide_values, 32, &chunk, 14);
        CHECK(chunk.scales[14] == 2.0F);
        CHECK(chunk.scales[15] == 2.0F);
        CHECK(chunk.codes[14 * 16 + 20] == -50);
        CHECK(chunk.counts[14] == 127);
        CHECK(chunk.counts[15] == -50);
        CHECK(chunk.sums[14] == doctest::Approx(154.1).epsilon(1e-3));
        CHECK(chunk.sums[15] == 0);
        std::fill(std::begin(values), std::end(values), 1e-38F);
        vector_codes().round(values, 16, &chunk, 0);
        CHECK(chunk.scales[0] == 0);
        CHECK(chunk.counts[0] == 0);
    });
}

// Gate and up [intermediate, hidden], down turned; every segment of it gives the same bits.
struct coded_expert {
    random_matrix gate, up, down;
    std::vector<float> gate_bias, up_bias, down_bias;
    coded_expert(std::mt19937_64 &random, weight_type type, weight_type of_down, uint32_t hidden,
                 uint32_t intermediate)
        : gate(random, type, intermediate, hidden),
          up(random, type, intermediate, hidden),
          down(random, of_down, hidden, intermediate),
          gate_bias(random_floats(random, intermediate)),
          up_bias(random_floats(random, intermediate)),
          down_bias(random_floats(random, hidden)) {}
    mlp_weights segment(uint32_t first, uint32_t count) const {
        mlp_weights weights{gate.view(), up.view(), down.view(), {}, {}, down_bias};
        for (matrix *projection : {&weights.gate, &weights.up}) {
            projection->data += first * projection->row_bytes;
            projection->rows = count;
        }
        weights.down.columns = count;
        weights.down.data += bytes_of_columns(weights.down.type, first);
        weights.gate_bias = std::span(gate_bias).subspan(first, count);
        weights.up_bias = std::span(up_bias).subspan(first, count);
        return weights;
    }
};

mlp_call call_of(const mlp_weights &weights, uint32_t intermediate, uint32_t first, uint32_t tokens,
                 float_rows &input, float_rows &output) {
    mlp_call call{};
    call.weights = &weights;
    call.intermediate = intermediate;
    call.first = first;
    call.count = weights.gate.rows;
    call.unit = part_unit_of(weights.down);
    call.activation = activation_kind::silu;
    call.tokens = tokens;
    call.input = input.view();
    call.output = output.view();
    call.add = first != 0;
    return call;
}

// Every 16 of them as codes of 8 bits with a scale of their own, for the largest of them.
std::vector<double> rounded(std::vector<double> values) {
    for (size_t begin = 0; begin < values.size(); begin += 16) {
        double most = 0;
        for (size_t i = begin; i < begin + 16; ++i) most = std::max(most, std::abs(values[i]));
        const double scale = most / 127;
        for (size_t i = begin; i < begin + 16 && most > 0; ++i)
            values[i] = std::nearbyint(values[i] / scale) * scale;
    }
    return values;
}
double row_times(const random_matrix &weights, uint32_t row, const std::vector<double> &values) {
    double sum = 0;
    for (uint32_t i = 0; i < values.size(); ++i) sum += weights.at(row, i) * values[i];
    return sum;
}
std::vector<double> computed(const coded_expert &expert, std::vector<double> input) {
    input = rounded(std::move(input));
    std::vector<double> inner(expert.gate_bias.size()), output(expert.down_bias.size());
    for (uint32_t i = 0; i < inner.size(); ++i) {
        const double gate = row_times(expert.gate, i, input) + expert.gate_bias[i];
        const double up = row_times(expert.up, i, input) + expert.up_bias[i];
        inner[i] = gate / (1 + std::exp(-gate)) * up;
    }
    inner = rounded(std::move(inner));
    for (uint32_t i = 0; i < output.size(); ++i)
        output[i] = row_times(expert.down, i, inner) + expert.down_bias[i];
    return output;
}

TEST_CASE("experts of every format round 16 activations to a scale") {
    thread_pool fast(2, arithmetic::fast), exact(2);
    mlp_kernel in_codes(fast), in_floats(exact);
    for (const auto &[type, down_type] : {std::pair{weight_type::q8_0, weight_type::q4_0},
                                          std::pair{weight_type::q5_1, weight_type::q4_k},
                                          std::pair{weight_type::q6_k, weight_type::q8_0}}) {
        std::mt19937_64 random(5);
        const uint32_t hidden = 256, intermediate = 512;
        const coded_expert expert(random, type, down_type, hidden, intermediate);
        const mlp_weights whole = expert.segment(0, intermediate);
        for (const uint32_t tokens : {2u, 9u}) {
            float_rows input(random, tokens, hidden), got(tokens, hidden), slow(tokens, hidden);
            in_codes(call_of(whole, intermediate, 0, tokens, input, got));
            in_floats(call_of(whole, intermediate, 0, tokens, input, slow));
            double apart = 0, by_rounding = 0;
            for (uint32_t t = 0; t < tokens; ++t) {
                const auto first = &input.at(t, 0);
                const auto expected = computed(expert, std::vector<double>(first, first + hidden));
                for (uint32_t i = 0; i < hidden; ++i) {
                    apart += std::pow(got.at(t, i) - expected[i], 2);
                    by_rounding += std::pow(slow.at(t, i) - expected[i], 2);
                }
            }
            // A code near a tie may fall the other way: of thousands few do.
            CHECK(apart < 0.01 * by_rounding);
        }
    }
}

TEST_CASE("experts: tokens apart, threads and segments change no bit") {
    struct shape {
        weight_type type, down_type;
        uint32_t hidden, intermediate;
    };
    thread_pool one_thread(1, arithmetic::fast), three_threads(3, arithmetic::fast);
    for (const shape &dimensions : {shape{weight_type::q8_0, weight_type::q4_0, 96, 352},
                                    shape{weight_type::q4_k, weight_type::q6_k, 256, 768},
                                    shape{weight_type::q4_k, weight_type::q5_0, 512, 608}}) {
        std::mt19937_64 random(9);
        const coded_expert expert(random, dimensions.type, dimensions.down_type, dimensions.hidden,
                                  dimensions.intermediate);
        const uint32_t tokens = 19;
        float_rows input(random, tokens, dimensions.hidden);
        const mlp_weights whole = expert.segment(0, dimensions.intermediate);
        const uint32_t part = parts_of(dimensions.intermediate, part_unit_of(whole.down)).part;
        with_each_target([&](const std::string &) {
            mlp_kernel kernel(one_thread), wide(three_threads);
            float_rows together(tokens, dimensions.hidden), apart = together, cut = together,
                                                            threads = together;
            kernel(call_of(whole, dimensions.intermediate, 0, tokens, input, together));
            wide(call_of(whole, dimensions.intermediate, 0, tokens, input, threads));
            CHECK(together.same_bits(threads));
            for (uint32_t t = 0; t < tokens; ++t) {
                mlp_call call = call_of(whole, dimensions.intermediate, 0, 1, input, apart);
                call.gathered = &t;
                call.output.data = &apart.at(t, 0);
                kernel(call);
            }
            CHECK(together.same_bits(apart));
            const mlp_weights top = expert.segment(0, part),
                              rest = expert.segment(part, dimensions.intermediate - part);
            kernel(call_of(top, dimensions.intermediate, 0, tokens, input, cut));
            kernel(call_of(rest, dimensions.intermediate, part, tokens, input, cut));
            CHECK(together.same_bits(cut));
            thread_pool exact(1);
            mlp_kernel slow(exact);
            float_rows near(tokens, dimensions.hidden);
            slow(call_of(whole, dimensions.intermediate, 0, tokens, input, near));
            double apart_by = 0, size = 0;
            for (uint32_t t = 0; t < tokens; ++t)
                for (uint32_t i = 0; i < dimensions.hidden; ++i) {
                    apart_by += std::pow(together.at(t, i) - near.at(t, i), 2);
                    size += std::pow(near.at(t, i), 2);
                }
            CHECK(std::sqrt(apart_by / size) < 0.02);
            CHECK(apart_by > 0);
        });
    }
}

double as_bfloat(float value) {
    int exponent;
    std::frexp(value, &exponent);
    const double unit = std::ldexp(1, exponent - 8);
    return std::nearbyint(value / unit) * unit;
}

// Calls `body` for every instruction set, with matrix registers where there are some, and without.
template <class What>
void with_each_kind_of_pairs(const What &body) {
    for (const bool registers : {true, false}) {
        CAPTURE(registers);
        use_matrix_registers(registers);
        with_each_target([&](const std::string &) { body(); });
    }
    use_matrix_registers(true);
}

TEST_CASE("bf16 weights meet activations of bf16 in panels, and of float32 in rows") {
    thread_pool one_thread(1, arithmetic::fast), three_threads(3, arithmetic::fast);
    for (uint32_t round = 0; round < 8; ++round) {
        std::mt19937_64 random(round);
        const uint32_t tokens = round < 2 ? 3 : 7 + random() % 40;
        const uint32_t columns = 1 + random() % (round % 3 ? 300 : 40);
        random_matrix weights(random, weight_type::bf16, 1 + random() % 90, columns);
        float_rows input(random, tokens, columns);
        const auto bias = random_floats(random, round % 2 ? weights.view().rows : 0);
        with_each_kind_of_pairs([&] {
            float_rows got(tokens, weights.view().rows), threads = got;
            run(one_thread, tokens, weights, input, bias, false, got);
            run(three_threads, tokens, weights, input, bias, false, threads);
            CHECK(got.same_bits(threads));
            const bool rounds = tokens > STREAM_TOKENS_MAX && vector_pair_panels() != nullptr;
            uint32_t wrong = 0;
            for (uint32_t t = 0; t < tokens; ++t)
                for (uint32_t r = 0; r < weights.view().rows; ++r) {
                    double sum = bias.empty() ? 0 : bias[r], size = std::abs(sum);
                    for (uint32_t c = 0; c < columns; ++c) {
                        const float x = input.at(t, c);
                        const double term = weights.at(r, c) * (rounds ? as_bfloat(x) : x);
                        sum += term;
                        size += std::abs(term);
                    }
                    wrong += !(std::abs(got.at(t, r) - sum) <= 2e-6 * (size + 1e-3));
                }
            CHECK(wrong == 0);
        });
    }
}

TEST_CASE("experts of bf16: threads, segments and further tokens change no bit") {
    thread_pool one_thread(1, arithmetic::fast), three_threads(3, arithmetic::fast);
    for (const uint32_t tokens : {7u, 16u, 33u, 83u}) {
        std::mt19937_64 random(tokens);
        const coded_expert expert(random, weight_type::bf16, weight_type::bf16, 70, 608);
        const mlp_weights whole = expert.segment(0, 608);
        const uint32_t part = parts_of(608, part_unit_of(whole.down)).part;
        float_rows input(random, tokens, 70);
        with_each_kind_of_pairs([&] {
            mlp_kernel kernel(one_thread), wide(three_threads);
            float_rows together(tokens, 70), cut = together, threads = together, fewer(tokens, 70);
            kernel(call_of(whole, 608, 0, tokens, input, together));
            wide(call_of(whole, 608, 0, tokens, input, threads));
            CHECK(together.same_bits(threads));
            for (uint32_t first = 0; first < 608; first += part) {
                const mlp_weights segment = expert.segment(first, std::min(part, 608 - first));
                kernel(call_of(segment, 608, first, tokens, input, cut));
            }
            CHECK(together.same_bits(cut));
            mlp_call call = call_of(whole, 608, 0, 7, input, fewer);
            kernel(call);
            for (uint32_t t = 0; t < 7; ++t)
                CHECK(std::memcmp(&fewer.at(t, 0), &together.at(t, 0), 70 * sizeof(float)) == 0);
        });
    }
}

TEST_CASE("tiles of tokens: none too large, all but the last a multiple") {
    for (const uint32_t unit : {1u, 16u})
        for (uint32_t tokens = 1; tokens < 700; ++tokens) {
            const token_tiles tiles(tokens, 32, unit);
            CHECK(tiles.count() == (tokens + 31) / 32);
            uint32_t sum = 0, whole = 0;
            for (uint32_t tile = 0; tile < tiles.count(); ++tile) {
                CHECK(tiles.begin(tile) == sum);
                const bool fits = tiles.size(tile) >= 1 && tiles.size(tile) <= 32;
                CHECK(fits);
                sum += tiles.size(tile);
                whole += tiles.size(tile) % unit == 0;
            }
            CHECK(sum == tokens);
            CHECK(whole >= tiles.count() - 1);
        }
}

TEST_CASE("experts of bf16 round what lies between up and down as well") {
    thread_pool fast(2, arithmetic::fast), exact(2);
    std::mt19937_64 random(11);
    const coded_expert expert(random, weight_type::bf16, weight_type::bf16, 70, 65);
    const mlp_weights whole = expert.segment(0, 65);
    float_rows input(random, 33, 70), got(33, 70), near = got;
    mlp_kernel quick(fast), slow(exact);
    quick(call_of(whole, 65, 0, 33, input, got));
    slow(call_of(whole, 65, 0, 33, input, near));
    double apart = 0, size = 0;
    for (uint32_t t = 0; t < 33; ++t)
        for (uint32_t i = 0; i < 70; ++i) {
            apart += std::pow(got.at(t, i) - near.at(t, i), 2);
            size += std::pow(near.at(t, i), 2);
        }
    CHECK(std::sqrt(apart / size) < 0.008);
    CHECK((apart > 0) == (vector_pair_panels() != nullptr));
}

TEST_CASE("a number that is none reaches every sum that it belongs to and no other") {
    thread_pool pool(2, arithmetic::fast);
    std::mt19937_64 random(3);
    random_matrix weights(random, weight_type::q4_k, 20, 512);
    for (const uint32_t tokens : {3u, 20u}) {
        float_rows input(random, tokens, 512), output(tokens, 20);
        input.at(2, 300) = INFINITY;
        run(pool, tokens, weights, input, {}, false, output);
        for (uint32_t t = 0; t < tokens; ++t)
            for (uint32_t r = 0; r < 20; ++r) CHECK(std::isnan(output.at(t, r)) == (t == 2));
    }
}

TEST_CASE("exact arithmetic leaves activations alone, and so do formats made for them") {
    std::mt19937_64 random(4);
    CHECK(form_of(arithmetic::exact, weight_type::q4_0) == activation_form::floats);
    CHECK(form_of(arithmetic::by_format, weight_type::q4_0) == activation_form::codes);
    CHECK(form_of(arithmetic::by_format, weight_type::bf16) == activation_form::floats);
    CHECK(form_of(arithmetic::fast, weight_type::bf16) == activation_form::bfloats);
    for (const weight_type type :
         {weight_type::f32, weight_type::f16, weight_type::mxfp4, weight_type::fp8,
          weight_type::int4_32, weight_type::int4_ordered})
        CHECK(form_of(arithmetic::fast, type) == activation_form::floats);
}

}  // namespace
}  // namespace moorage::core::kernel_codes_test
