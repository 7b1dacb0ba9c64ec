// quantise_test.cpp - goal: written blocks stand for the given values, as nearly as their format
// allows. Method: blocks worked out by hand; bounds on each error by the width of a step; every
// 8-bit float and the middles between them. The same floats in ggml's own files (beside the
// project, skipped if absent): equal bytes for formats with one scale, no larger squared error for
// the others.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "tools/convert/quantise.h"
#include "core/model/weight_values.h"
#include "tests/skip.h"
#include "tests/unit/vector_file.h"

namespace moorage::core::quantise_test {
namespace {

constexpr weight_type written[] = {
    weight_type::f32,  weight_type::f16,    weight_type::bf16,   weight_type::q8_0,
    weight_type::q4_0, weight_type::q4_1,   weight_type::q5_0,   weight_type::q5_1,
    weight_type::q2_k, weight_type::q3_k,   weight_type::q4_k,   weight_type::q5_k,
    weight_type::q6_k, weight_type::iq4_nl, weight_type::iq4_xs, weight_type::mxfp4_gguf};

std::vector<std::byte> packed(weight_type type, std::span<const float> row) {
    std::vector<std::byte> bytes(bytes_of_columns(type, row.size()));
    quantise_row(type, row, bytes);
    return bytes;
}

std::vector<float> values_of(weight_type type, std::span<const std::byte> bytes, size_t count) {
    std::vector<float> values(count);
    read_row(packed_matrix(type, 1, static_cast<uint32_t>(count), bytes.data()), 0, values);
    return values;
}

std::vector<float> quantise_and_restore(weight_type type, std::span<const float> row) {
    return values_of(type, packed(type, row), row.size());
}

double squared_error(std::span<const float> is, std::span<const float> wanted) {
    double sum = 0;
    for (size_t i = 0; i < is.size(); ++i)
        sum += (double{is[i]} - wanted[i]) * (double{is[i]} - wanted[i]);
    return sum;
}

// Error bound for a block of 256 values from `low` to `high`. It is half the widest step that any
// group can have, with the error from rounding its scale.
double bound_of(weight_type type, double low, double high) {
    const double most = std::max(std::abs(low), std::abs(high)), range = high - low;
    const double half = 1 + 1.0 / 1024;  // binary16 scales
    switch (type) {
        case weight_type::f32:
            return 0;
        case weight_type::bf16:
            return most / 256;
        case weight_type::f16:
            return most / 2048;
        case weight_type::q8_0:
            return most / 127 * (0.5 * half + 127.0 / 2048);
        case weight_type::q4_0:  // the far end is cut by a step
            return most / 8 * half;
        case weight_type::q5_0:
            return most / 16 * half;
        case weight_type::q4_1:
            return range / 15 * 0.5 * half + most / 1024;
        case weight_type::q5_1:
            return range / 31 * 0.5 * half + most / 1024;
        case weight_type::mxfp4_gguf:  // 4 to 6 on its scale is the greatest; 6 to 8 is cut to 6
            return most / 4;
        default:
            return most;
    }
}

// x - value is at most a step of the group for any fitted scale. With searched scales the bound is
// on the root mean square: that of uniform steps of range / codes, with a quarter more.
double rms_bound_of(weight_type type, double low, double high) {
    const double range = std::max(high, 0.0) - std::min(low, 0.0);
    const double most = std::max(std::abs(low), std::abs(high));
    const double uniform = 1.25 / std::sqrt(12.0);
    switch (type) {
        case weight_type::q2_k:
            return range / 3 * uniform;
        case weight_type::q3_k:
            return most / 4 * uniform;
        case weight_type::q4_k:
            return range / 15 * uniform;
        case weight_type::q5_k:
            return range / 31 * uniform;
        case weight_type::q6_k:
            return most / 32 * uniform;
        case weight_type::iq4_nl:
        case weight_type::iq4_xs:  // the widest step of the table is 24 of 127
            return most * 24 / 127 * uniform;
        default:
            return HUGE_VAL;
    }
}

}  // namespace

TEST_CASE("blocks worked out by hand") {
    // The greatest magnitude, -4, is code 0, so d = -4 / -8 = 0.5 and 3.5 is code 15.
    std::vector<float> x(32, 0);
    x[0] = -4;
    x[1] = 3.5F;
    x[16] = 0.25F;  // half a step: rounded up
    x[17] = -0.26F;
    const std::vector<std::byte> q4 = packed(weight_type::q4_0, x);
    CHECK(q4[0] == std::byte{0x00});
    CHECK(q4[1] == std::byte{0x38});         // 0.5 as binary16 is 0x3800
    CHECK(q4[2] == std::byte{0 | 9 << 4});   // -4 -> 0; 0.25 -> 8.5 -> 9
    CHECK(q4[3] == std::byte{15 | 7 << 4});  // 3.5 -> 15; -0.26 -> 7.98 -> 7 (cut of 7.98)
    CHECK(q4[4] == std::byte{8 | 8 << 4});
    // d = 127 / 127 = 1.
    x.assign(32, 0);
    x[3] = -127;
    x[4] = 2.4F;
    const std::vector<std::byte> q8 = packed(weight_type::q8_0, x);
    CHECK(q8[0] == std::byte{0x00});
    CHECK(q8[1] == std::byte{0x3c});
    CHECK(q8[5] == std::byte{0x81});
    CHECK(q8[6] == std::byte{2});
    // 6 = 1.5 * 4 has the exponent 2, so the scale is 2^0, stored as 127; 6 is code 7, -0.5 code 9.
    x.assign(32, 0);
    x[0] = 6;
    x[31] = -0.5F;
    const std::vector<std::byte> fp4 = packed(weight_type::mxfp4_gguf, x);
    CHECK(fp4[0] == std::byte{127});
    CHECK(fp4[1] == std::byte{7});
    CHECK(fp4[16] == std::byte{9 << 4});
    // Half way between two codes the even one: 0 to 1, 1 to 2, 2 to 3, ... 6 to 7.
    const std::vector<float> ties{0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5};
    std::ranges::copy(ties, x.begin() + 1);
    const std::vector<std::byte> even = packed(weight_type::mxfp4_gguf, x);
    for (size_t i = 0; i < ties.size(); ++i) CHECK(int(even[2 + i]) == int((i + 1) / 2 * 2));
}

// Groups with scales of 1 and 1/2, whose values are all the codes. The greatest scale is at the end
// of its codes that has no counterpart at the other end.
TEST_CASE("scales in codes of their own come back, the greatest too") {
    for (const auto &[type, count] :
         {std::pair(weight_type::q3_k, 4), std::pair(weight_type::q6_k, 32)}) {
        const std::string_view name = name_of(type);
        CAPTURE(name);
        std::vector<float> x(256);
        for (int i = 0; i < 256; ++i) {
            // Each group of 16 has the least code.
            const int code = i % 16 == 0 ? -count : (i * 7 + i / 16) % (2 * count) - count;
            x[static_cast<size_t>(i)] = static_cast<float>(code) * (i < 16 ? 1.0F : 0.5F);
        }
        CHECK(quantise_and_restore(type, x) == x);
    }
}

TEST_CASE("errors stay within the steps of the formats") {
    std::mt19937_64 random(1);
    for (int round = 0; round < 200; ++round) {
        std::normal_distribution<float> normal(round % 3 == 0 ? 0.3F : 0, 0.02F * (1 + round % 7));
        std::vector<float> x(256);
        for (float &value : x) value = normal(random);
        if (round % 5 == 0) x[round] *= 6;
        const double low = *std::ranges::min_element(x), high = *std::ranges::max_element(x);
        for (const weight_type type : written) {
            CAPTURE(std::string(name_of(type)));
            REQUIRE(can_quantise(type));
            const std::vector<float> restored = quantise_and_restore(type, x);
            double worst = 0;
            for (size_t i = 0; i < x.size(); ++i)
                worst = std::max(worst, std::abs(double{restored[i]} - x[i]));
            CHECK(worst <= bound_of(type, low, high) * (1 + 1e-6));
            CHECK(std::sqrt(squared_error(restored, x) / 256) <= rms_bound_of(type, low, high));
        }
    }
}

TEST_CASE("zeros, one value, and scales of every size are kept") {
    for (const weight_type type : written) {
        CAPTURE(std::string(name_of(type)));
        std::vector<float> x(256, 0);
        CHECK(squared_error(quantise_and_restore(type, x), x) == 0);
        x[77] = 1;
        const std::vector<float> restored = quantise_and_restore(type, x);
        CHECK(restored[77] == doctest::Approx(1).epsilon(0.02));
        // IQ4's tables have no zero: 31 values of a group are 1 / 127.
        CHECK(squared_error(restored, x) < 0.002);
        for (const float size : {1e-3F, 1e4F}) {
            std::mt19937_64 random(3);
            std::normal_distribution<float> normal(0, size);
            for (float &value : x) value = normal(random);
            const std::vector<float> restored = quantise_and_restore(type, x);
            CHECK(std::ranges::all_of(restored, [](float value) { return std::isfinite(value); }));
            const double share =
                squared_error(restored, x) / squared_error(x, std::vector<float>(256));
            CHECK(share < 0.2);
        }
    }
}

TEST_CASE("what mxfp4 can say comes back as it was") {
    constexpr float codes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    std::mt19937_64 random(5);
    for (int round = 0; round < 500; ++round) {
        std::vector<float> x(32);
        const uint64_t kinds = 1 + random() % 8;
        for (float &value : x)
            value = std::ldexp(codes[random() % kinds], static_cast<int>(round % 200) - 100) *
                    (random() % 2 == 0 ? 1.0F : -1.0F);
        CHECK(squared_error(quantise_and_restore(weight_type::mxfp4_gguf, x), x) == 0);
    }
}

TEST_CASE("the nearest 8-bit float, by all of them") {
    for (int code = 0; code < 0x7f; ++code) {
        const float value = float_of_e4m3(static_cast<uint8_t>(code));
        CHECK(e4m3_of_float(value) == code);
        CHECK(e4m3_of_float(-value) == (code | 0x80));
        if (code == 0x7e) break;
        const float next = float_of_e4m3(static_cast<uint8_t>(code + 1)),
                    middle = (value + next) / 2;
        CHECK(e4m3_of_float(middle) == (code % 2 == 0 ? code : code + 1));
        CHECK(e4m3_of_float(std::nextafter(middle, 0.0F)) == code);
        CHECK(e4m3_of_float(std::nextafter(middle, 1e9F)) == code + 1);
    }
    CHECK(e4m3_of_float(1e6F) == 0x7e);
    CHECK(e4m3_of_float(-449) == 0xfe);
    CHECK(fp8_scale(0) == 1);
    CHECK(fp8_scale(224) == 0.5F);
}

TEST_CASE("as near as ggml's own files") {
    const auto path = std::filesystem::path(MOORAGE_SHARED_DATA) / "quant/blocks/ggml.safetensors";
    if (!std::filesystem::exists(path)) return test::skip(path.string() + " is not here");
    const test::vector_file file(path);
    for (const weight_type type : written) {
        std::string name = name_of(type);
        for (char &letter : name) letter = static_cast<char>(std::toupper(letter));
        const tensor *source = file.find(name + ".source");
        const tensor *bytes = file.find(name + ".quantised.bytes");
        if (source == nullptr || bytes == nullptr) continue;
        CAPTURE(name);
        const tensor *values = file.find(name + ".quantised.values");
        const size_t columns = source->shape[1], rows = source->shape[0];
        const bool one_scale = type == weight_type::q8_0 || type == weight_type::q4_0 ||
                               type == weight_type::q4_1 || type == weight_type::q5_0 ||
                               type == weight_type::q5_1 || format_of(type).block == 1;
        double own_error = 0, their_error = 0;
        for (size_t row = 0; row < rows; ++row) {
            std::vector<float> x(columns), read(columns);
            std::memcpy(x.data(), source->bytes.data() + row * columns * 4, columns * 4);
            std::memcpy(read.data(), values->bytes.data() + row * columns * 4, columns * 4);
            const std::vector<std::byte> packed_row = packed(type, x);
            const std::span<const std::byte> stored =
                bytes->bytes.subspan(row * packed_row.size(), packed_row.size());
            CAPTURE(row);
            if (one_scale) CHECK(std::ranges::equal(packed_row, stored));
            // Blocks of every size: each error over the block's own sum of squares.
            const double size = squared_error(x, std::vector<float>(columns));
            if (size == 0 || !std::isfinite(size)) continue;
            own_error += squared_error(values_of(type, packed_row, columns), x) / size;
            their_error += squared_error(read, x) / size;
        }
        MESSAGE(name << ": squared error over squares " << own_error / static_cast<double>(rows)
                     << ", ggml's " << their_error / static_cast<double>(rows));
        CHECK(own_error <= their_error * 1.0001);
    }
}

}  // namespace moorage::core::quantise_test
