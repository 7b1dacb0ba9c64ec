// weight_values_test.cpp - goal: stored weights have their publishers' values, bit for bit, in the
// definitions and in every kernel. Method: blocks with the values of ggml's own library
// (tests/data/quant, more beside the project); every code of the 8-bit floats; rows of random bytes
// by the definition and by each instruction set.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "core/base/finite.h"
#include "core/base/mapped_file.h"
#include "core/base/safetensors.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/model/weight_values.h"
#include "tests/skip.h"
#include "tests/unit/vector_file.h"
#include "tests/unit/random_weights.h"

namespace moorage::core::weight_values_test {
namespace {

namespace fs = std::filesystem;

// Lower case: the names in ggml's files.
std::string lower_case(std::string text) {
    for (char &letter : text) letter = static_cast<char>(std::tolower(letter));
    return text;
}

using vectors = test::vector_file;

// The float with these bits; all that are no numbers are the same.
uint32_t bits_of(float value) {
    return std::isnan(value) ? 0x7fc00000u : std::bit_cast<uint32_t>(value);
}

// Rows by the definition and by every instruction set.
void check_rows(const matrix &weights, const float *expected) {
    std::vector<float> row(weights.columns);
    uint64_t wrong = 0;
    const auto compare = [&](uint32_t number) {
        for (uint32_t i = 0; i < weights.columns; ++i) {
            float value;
            std::memcpy(&value, expected + uint64_t{number} * weights.columns + i, sizeof value);
            // Without the processor's help Highway widens infinite halves to finite numbers.
            if (weights.type == weight_type::f16 && !std::isfinite(value)) continue;
            wrong += bits_of(value) != bits_of(row[i]);
        }
    };
    for (uint32_t number = 0; number < weights.rows; ++number) {
        read_row(weights, number, row);
        compare(number);
    }
    CHECK(wrong == 0);
    for (const std::string &target : vector_targets()) {
        choose_vector_target(target);
        CAPTURE(target);
        for (uint32_t number = 0; number < weights.rows; ++number) {
            std::ranges::fill(row, NAN);
            widen(weights, number, row.data());
            compare(number);
        }
        CHECK(wrong == 0);
    }
    choose_vector_target("");
}

// Checks what the file has of GGUF's formats; says how many it found.
uint32_t check_blocks(const vectors &file) {
    uint32_t found = 0;
    for (const tensor &bytes : file.tensors.tensors) {
        if (!bytes.name.ends_with(".bytes")) continue;
        const std::string stem = bytes.name.substr(0, bytes.name.rfind('.'));
        const tensor *values = file.tensors.find(stem + ".values");
        REQUIRE(values != nullptr);
        CAPTURE(bytes.name);
        const std::string name = lower_case(stem.substr(0, stem.find('.')));
        const auto *format = std::ranges::find_if(weight_formats, [&](const weight_format &entry) {
            return entry.name == name && entry.gguf_id != no_gguf_id;
        });
        REQUIRE(format != std::end(weight_formats));
        const auto rows = static_cast<uint32_t>(bytes.shape[0]);
        const auto columns = static_cast<uint32_t>(values->shape[1]);
        REQUIRE(bytes_of_columns(format->type, columns) == bytes.shape[1]);
        check_rows(packed_matrix(format->type, rows, columns, bytes.bytes.data()),
                   reinterpret_cast<const float *>(values->bytes.data()));
        ++found;
    }
    return found;
}

}  // namespace

TEST_CASE("blocks have the values that ggml gives them") {
    const fs::path path = fs::path(MOORAGE_SOURCE_DIR) / "tests/data/quant/ggml.safetensors";
    CHECK(check_blocks(vectors(path)) == 30);  // 15 formats, quantised numbers and random codes
}

TEST_CASE("more blocks with the values that ggml gives them") {
    const fs::path beside = fs::path(MOORAGE_SHARED_DATA) / "quant/blocks/ggml.safetensors";
    if (!fs::exists(beside)) return test::skip(beside.string() + " is not here");
    CHECK(check_blocks(vectors(beside)) == 30);
}

TEST_CASE("8-bit floats") {
    const vectors file(fs::path(MOORAGE_SOURCE_DIR) / "tests/data/quant/published.safetensors");
    const tensor *codes = file.tensors.find("e4m3.codes"),
                 *values = file.tensors.find("e4m3.values");
    REQUIRE((codes && values && codes->bytes.size() == 256));
    const float unit_scale = 1;
    std::vector<std::byte> row(codes->bytes.begin(), codes->bytes.end());
    std::vector<float> scales(2, unit_scale);
    matrix weights = packed_matrix(weight_type::fp8, 1, 256, row.data(),
                                   reinterpret_cast<const std::byte *>(scales.data()));
    check_rows(weights, reinterpret_cast<const float *>(values->bytes.data()));
    for (uint32_t code = 0; code < 256; ++code)
        CHECK(bits_of(float_of_e4m3(static_cast<uint8_t>(code))) ==
              bits_of(value_at(*values, code)));
    CHECK(float_of_e4m3(0x7e) == 448);
    CHECK(float_of_e4m3(0x81) == -0x1p-9F);
}

TEST_CASE("128 rows share the scales of fp8") {
    std::vector<std::byte> data(size_t{300} * 160, std::byte{0x38});  // ones
    const float scales[3][2] = {{1, 2}, {3, 4}, {5, 6}};
    const matrix weights = packed_matrix(weight_type::fp8, 300, 160, data.data(),
                                         reinterpret_cast<const std::byte *>(scales));
    CHECK(weights.row_bytes == 160);
    CHECK(weights.scale_row_bytes == 8);
    CHECK(bytes_of(weights) == 300 * 160 + 3 * 8);
    std::vector<float> expected;
    for (uint32_t row = 0; row < 300; ++row)
        for (uint32_t column = 0; column < 160; ++column)
            expected.push_back(scales[row / 128][column / 128]);
    check_rows(weights, expected.data());
}

TEST_CASE("kernels and definitions agree on random bytes") {
    std::mt19937_64 random(20);
    for (const weight_format &format : weight_formats) {
        // Zeros of these formats have a sign in some kernels. kernels_test.cpp tests their values.
        if (format.order == value_order::pairs) continue;
        CAPTURE(std::string(format.name));
        for (const uint32_t columns : {256u, 768u}) {
            const random_matrix weights(random, format.type, 40, columns, random() % 7);
            std::vector<float> expected(size_t{40} * columns);
            for (uint32_t row = 0; row < 40; ++row)
                for (uint32_t column = 0; column < columns; ++column)
                    expected[size_t{row} * columns + column] =
                        weight_at(weights.view(), row, column);
            check_rows(weights.view(), expected.data());
        }
    }
}

}  // namespace moorage::core::weight_values_test
