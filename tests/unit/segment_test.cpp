// segment_test.cpp - goal: the image of a segment holds its rows and columns and nothing else, and
// experts are cut at the borders of sums. Method: experts of random sizes, of every type and with
// rows far apart (as gpt-oss stores gate and up), gathered byte by byte in plain loops; images
// copied in pieces in random order; views read back value by value; borders compared with a search
// over all.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/random.h"
#include "core/model/segment.h"

namespace segment_test {

using namespace moorage::core;

namespace {

uint64_t scale_bytes(weight_type type, uint64_t columns) {
    return type == weight_type::mxfp4 ? columns / 32 : 0;
}

// An expert in memory of its own; every byte is random. `gap`: rows of gate and up in turn.
struct made_expert {
    std::vector<std::byte> values[3], scales[3];
    std::vector<float> biases[3];
    mlp_weights weights;

    made_expert(weight_type type, uint32_t hidden, uint32_t inner, bool gap,
                random_stream &random) {
        matrix *parts[] = {&weights.gate, &weights.up, &weights.down};
        for (int i = 0; i < 3; ++i) {
            matrix &part = *parts[i];
            const uint64_t step = gap && i < 2 ? 2 : 1;
            part.type = type;
            part.rows = i < 2 ? inner : hidden;
            part.columns = i < 2 ? hidden : inner;
            part.row_bytes = step * bytes_of_columns(type, part.columns);
            part.scale_row_bytes = step * scale_bytes(type, part.columns);
            fill(values[i], part.rows * part.row_bytes, random);
            fill(scales[i], part.rows * part.scale_row_bytes, random);
            part.data = values[i].data();
            part.scales = scales[i].empty() ? nullptr : scales[i].data();
            biases[i].resize(part.rows);
            for (float &bias : biases[i]) bias = static_cast<float>(random.unit());
        }
        weights.gate_bias = biases[0];
        weights.up_bias = biases[1];
        weights.down_bias = biases[2];
    }
    static void fill(std::vector<std::byte> &bytes, uint64_t count, random_stream &random) {
        bytes.resize(count);
        for (std::byte &byte : bytes) byte = static_cast<std::byte>(random.next());
    }
};

// Appends one matrix: rows [row, row + rows), columns [column, column + columns), then scales.
void gather(const matrix &source, uint32_t row, uint32_t rows, uint32_t column, uint32_t columns,
            std::vector<std::byte> &target) {
    for (const bool scales : {false, true}) {
        const std::byte *base = scales ? source.scales : source.data;
        const uint64_t stride = scales ? source.scale_row_bytes : source.row_bytes;
        const uint64_t begin =
            scales ? scale_bytes(source.type, column) : bytes_of_columns(source.type, column);
        const uint64_t count =
            scales ? scale_bytes(source.type, columns) : bytes_of_columns(source.type, columns);
        for (uint32_t r = row; r < row + rows; ++r)
            for (uint64_t b = 0; b < count; ++b) target.push_back(base[r * stride + begin + b]);
    }
}

std::vector<std::byte> slow_image(const mlp_weights &expert, uint32_t first, uint32_t count) {
    std::vector<std::byte> image;
    gather(expert.gate, first, count, 0, expert.gate.columns, image);
    gather(expert.up, first, count, 0, expert.up.columns, image);
    gather(expert.down, 0, expert.down.rows, first, count, image);
    return image;
}

void check_same(const matrix &a, const matrix &b) {
    REQUIRE(a.rows == b.rows);
    REQUIRE(a.columns == b.columns);
    REQUIRE(a.type == b.type);
    std::vector<std::byte> left, right;
    gather(a, 0, a.rows, 0, a.columns, left);
    gather(b, 0, b.rows, 0, b.columns, right);
    CHECK(left == right);
}

void check_segment(const mlp_weights &expert, uint32_t first, uint32_t count,
                   random_stream &random) {
    const segment_image image(expert, first, count);
    const std::vector<std::byte> expected = slow_image(expert, first, count);
    REQUIRE(image.bytes() == expected.size());

    // Borders at random, pieces in random order, guarded by bytes that must stay.
    std::vector<uint64_t> borders = {0, image.bytes()};
    for (int i = 0; i < 12; ++i) borders.push_back(random.below(image.bytes() + 1));
    std::ranges::sort(borders);
    std::vector<size_t> order(borders.size() - 1);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (size_t i = order.size(); i-- > 1;) std::swap(order[i], order[random.below(i + 1)]);
    std::vector<std::byte> target(image.bytes() + 2, std::byte{0x5a});
    for (const size_t piece : order)
        image.copy(borders[piece], borders[piece + 1], target.data() + 1);
    CHECK(target.front() == std::byte{0x5a});
    CHECK(target.back() == std::byte{0x5a});
    CHECK(std::memcmp(target.data() + 1, expected.data(), expected.size()) == 0);

    // The same by way of its sources, handed over in blocks of any size and order.
    std::vector<std::byte> taken(image.bytes() + 2, std::byte{0x5a});
    for (const size_t piece : order) {
        std::vector<segment_image::source> sources;
        image.find_sources(borders[piece], borders[piece + 1], sources);
        for (const segment_image::source &source : sources)
            for (uint64_t left = source.bytes; left != 0;) {
                const uint64_t bytes = 1 + random.below(left);
                left -= bytes;
                image.copy_source(source, left, {source.data + left, bytes}, taken.data() + 1);
            }
    }
    CHECK(taken == target);

    const mlp_weights seen = image.view(expected.data()), in_place = image.in_place();
    CHECK(seen.gate.row_bytes == bytes_of_columns(seen.gate.type, seen.gate.columns));
    CHECK(seen.down.row_bytes == bytes_of_columns(seen.down.type, count));
    check_same(seen.gate, in_place.gate);
    check_same(seen.up, in_place.up);
    check_same(seen.down, in_place.down);
    CHECK(seen.gate_bias.data() == expert.gate_bias.data() + first);
    CHECK(seen.up_bias.size() == count);
    CHECK(in_place.up_bias.data() == expert.up_bias.data() + first);
    CHECK(in_place.down_bias.size() == expert.down.rows);
}

}  // namespace

TEST_CASE("images are what a plain gather gives, in any order of pieces") {
    random_stream random(20250807, 1);
    for (const weight_type type :
         {weight_type::bf16, weight_type::f16, weight_type::f32, weight_type::mxfp4})
        for (int round = 0; round < 30; ++round) {
            const uint32_t unit = type == weight_type::mxfp4 ? 32 : 1;
            const uint32_t hidden = unit * (1 + static_cast<uint32_t>(random.below(9)));
            const uint32_t inner = unit * (1 + static_cast<uint32_t>(random.below(12)));
            const made_expert expert(type, hidden, inner, round % 2 == 1, random);
            const uint32_t first = unit * static_cast<uint32_t>(random.below(inner / unit));
            const uint32_t count =
                unit * (1 + static_cast<uint32_t>(random.below((inner - first) / unit)));
            CAPTURE(hidden);
            CAPTURE(inner);
            CAPTURE(first);
            CAPTURE(count);
            check_segment(expert.weights, first, count, random);
            check_segment(expert.weights, 0, inner, random);
            // A split moves no byte twice.
            const uint64_t whole = segment_image(expert.weights, 0, inner).bytes();
            const uint64_t top = segment_image(expert.weights, 0, first).bytes();
            CHECK(top + segment_image(expert.weights, first, inner - first).bytes() == whole);
            CHECK(whole == bytes_of(expert.weights.gate) + bytes_of(expert.weights.up) +
                               bytes_of(expert.weights.down));
        }
}

TEST_CASE("bytes by type") {
    CHECK(bytes_of_columns(weight_type::f32, 3) == 12);
    CHECK(bytes_of_columns(weight_type::bf16, 3) == 6);
    CHECK(bytes_of_columns(weight_type::f16, 3) == 6);
    CHECK(bytes_of_columns(weight_type::mxfp4, 64) == 32);
    matrix weights;
    weights.type = weight_type::mxfp4;
    weights.rows = 5;
    weights.columns = 64;
    weights.row_bytes = 1000;  // gaps do not count
    CHECK(bytes_of(weights) == 5 * (32 + 2));
}

TEST_CASE("parts: multiples of 32, at most eight, together the whole") {
    for (uint32_t rows = 1; rows <= 5000; ++rows) {
        const expert_parts parts = parts_of(rows);
        REQUIRE(parts.part % 32 == 0);
        REQUIRE(parts.count() <= 8);
        REQUIRE(parts.count() >= 1);
        REQUIRE(uint64_t{parts.part} * parts.count() >= rows);
        REQUIRE(uint64_t{parts.part} * (parts.count() - 1) < rows);
        // No smaller part would do.
        REQUIRE((parts.part == 32 || uint64_t{parts.part - 32} * 8 < rows));
    }
    CHECK(parts_of(1408).part == 192);
    CHECK(parts_of(14336).part == 1792);
    CHECK(parts_of(14336).count() == 8);
}

TEST_CASE("top rows: the nearest border, never none") {
    for (const uint32_t rows : {1u, 31u, 32u, 33u, 64u, 80u, 1408u, 2880u, 14336u})
        for (int step = -2; step <= 22; ++step) {
            const double theta = step / 20.0;
            const expert_parts parts = parts_of(rows);
            const uint32_t top = top_rows(rows, theta);
            CAPTURE(rows);
            CAPTURE(theta);
            CHECK(top >= 1);
            CHECK((top == rows || top % parts.part == 0));
            if (theta >= 1) CHECK(top == rows);
            const double wanted = std::clamp(theta, 0.0, 1.0) * rows;
            for (uint32_t part = 1; part <= parts.count(); ++part) {
                const double border = std::min(part * parts.part, rows);
                CHECK(std::abs(top - wanted) <= std::abs(border - wanted));
            }
        }
    CHECK(top_rows(1408, 0.5) == 768);  // 704 is nearer to 768 than to 576
    CHECK(top_rows(14336, 0.25) == 3584);
}

}  // namespace segment_test
