// packed_weights_test.cpp - goal: matrices of GPTQ, AWQ, compressed-tensors and FP8 checkpoints
// have their publishers' values, bit for bit, by definition and by kernel. Method: tensors with
// their values, made apart from this program (tests/data/quant, more beside the project); groups
// out of order and odd sizes worked out by hand.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <numeric>

#include "core/base/mapped_file.h"
#include "core/execute/cpu/kernels.h"
#include "core/model/packed_int4.h"
#include "core/model/weight_values.h"
#include "tests/skip.h"
#include "tests/unit/vector_file.h"

namespace moorage::core::packed_weights_test {
namespace {

namespace fs = std::filesystem;

using packed_file = test::vector_file;

bool same_values(const matrix &weights, const tensor &values) {
    REQUIRE(values.shape == std::vector<uint64_t>{weights.rows, weights.columns});
    std::vector<float> row(weights.columns);
    for (uint32_t r = 0; r < weights.rows; ++r) {
        const std::byte *expected =
            values.bytes.data() + uint64_t{r} * weights.columns * sizeof(float);
        const uint64_t bytes = weights.columns * sizeof(float);
        read_row(weights, r, row);
        if (std::memcmp(row.data(), expected, bytes) != 0) return false;
        if (weights.columns % group_values != 0) continue;
        widen(weights, r, row.data());
        if (std::memcmp(row.data(), expected, bytes) != 0) return false;
    }
    return true;
}

// A matrix and the memory that it points into.
struct owned_matrix {
    std::vector<float> memory;
    std::vector<uint32_t> order;
    matrix weights;
};
owned_matrix pack_matrix(packed_int4 source) {
    owned_matrix result;
    const auto layout = layout_of(source);
    REQUIRE(layout.ok());
    result.memory.resize((layout->data_bytes + layout->scale_bytes + 3) / 4);
    result.order = source.group_of;
    result.weights = pack(source, *layout, reinterpret_cast<std::byte *>(result.memory.data()),
                          result.order.data());
    return result;
}

owned_matrix read_packed(const packed_file &file, const std::string &stem, packing_kind kind) {
    packed_int4 source;
    source.kind = kind;
    const tensor &values = *file.find(stem + ".values");
    source.rows = static_cast<uint32_t>(values.shape[0]);
    source.columns = static_cast<uint32_t>(values.shape[1]);
    source.group = 128;
    source.groups = (source.columns + 127) / 128;
    source.zeros_less_one = stem.starts_with("gptq.");
    const bool compressed = kind == packing_kind::compressed;
    source.codes = file.find(stem + (compressed ? ".weight_packed" : ".qweight"));
    source.scales = file.find(stem + (compressed ? ".weight_scale" : ".scales"));
    source.zeros = file.find(stem + (compressed ? ".weight_zero_point" : ".qzeros"));
    if (const tensor *order = file.find(stem + ".g_idx")) {
        source.group_of.resize(source.columns);
        std::memcpy(source.group_of.data(), order->bytes.data(), order->bytes.size());
        bool in_order = true;
        for (uint32_t i = 0; i < source.columns; ++i)
            in_order = in_order && source.group_of[i] == i / 128;
        if (in_order) source.group_of.clear();
    }
    return pack_matrix(source);
}

uint32_t check_all(const packed_file &file) {
    uint32_t checked = 0;
    for (const tensor &values : file.tensors.tensors) {
        if (!values.name.ends_with(".values") || values.name.starts_with("e4m3")) continue;
        const std::string stem = values.name.substr(0, values.name.rfind('.'));
        CAPTURE(stem);
        ++checked;
        if (stem.starts_with("fp8")) {
            const tensor &codes = *file.find(stem + ".weight");
            CHECK(
                same_values(packed_matrix(weight_type::fp8, static_cast<uint32_t>(codes.shape[0]),
                                          static_cast<uint32_t>(codes.shape[1]), codes.bytes.data(),
                                          file.find(stem + ".weight_scale_inv")->bytes.data()),
                            values));
            continue;
        }
        const packing_kind kind = stem.starts_with("gptq")  ? packing_kind::gptq
                                  : stem.starts_with("awq") ? packing_kind::awq
                                                            : packing_kind::compressed;
        CHECK(same_values(read_packed(file, stem, kind).weights, values));
    }
    return checked;
}

tensor tensor_of(const std::vector<uint32_t> &words) {
    tensor result;
    result.type = dtype::i32;
    result.bytes = std::as_bytes(std::span(words));
    return result;
}

}  // namespace

TEST_CASE("packed matrices have the values that their publishers mean") {
    CHECK(check_all(packed_file(fs::path(MOORAGE_SOURCE_DIR) /
                                "tests/data/quant/published.safetensors")) == 7);
}

TEST_CASE("more packed matrices") {
    const fs::path beside = fs::path(MOORAGE_SHARED_DATA) / "quant/blocks/published.safetensors";
    if (!fs::exists(beside)) return test::skip(beside.string() + " is not here");
    CHECK(check_all(packed_file(beside)) == 18);
}

TEST_CASE("groups of every size, and in any order") {
    // Eight rows of 96 columns as in compressed-tensors. Column c of row r has the code (r + c) %
    // 16, the scale of group g in row r is 1 + g + r / 8, zero points are 8.
    constexpr uint32_t rows = 8, columns = 96;
    std::vector<uint32_t> words(rows * columns / 8);
    for (uint32_t r = 0; r < rows; ++r)
        for (uint32_t c = 0; c < columns; ++c)
            words[(r * columns + c) / 8] |= (r + c) % 16 << 4 * (c % 8);
    const tensor codes = tensor_of(words);
    for (const uint32_t group : {32u, 96u, 48u}) {
        CAPTURE(group);
        packed_int4 source;
        source.kind = packing_kind::compressed;
        source.rows = rows, source.columns = columns, source.group = group,
        source.groups = columns / group;
        source.codes = &codes;
        std::vector<float> scales(rows * source.groups);
        for (uint32_t r = 0; r < rows; ++r)
            for (uint32_t g = 0; g < source.groups; ++g)
                scales[r * source.groups + g] =
                    1.0F + static_cast<float>(g) + static_cast<float>(r) / 8;
        tensor held;
        held.type = dtype::f32;
        held.bytes = std::as_bytes(std::span(scales));
        source.scales = &held;
        const auto check = [&](const matrix &weights, auto &&group_of) {
            for (uint32_t r = 0; r < rows; ++r) {
                std::vector<float> row(columns);
                widen(weights, r, row.data());
                for (uint32_t c = 0; c < columns; ++c) {
                    const float expected = scales[r * source.groups + group_of(c)] *
                                           (static_cast<float>((r + c) % 16) - 8);
                    CHECK(row[c] == expected);
                    CHECK(weight_at(weights, r, c) == expected);
                }
            }
        };
        if (group % 32 == 0) {
            const owned_matrix result = pack_matrix(source);
            CHECK(result.weights.type == weight_type::int4_32);
            check(result.weights, [&](uint32_t c) { return c / group; });
        } else {
            const auto refused = layout_of(source);
            REQUIRE_FALSE(refused.ok());
            CHECK(refused.failure().text ==
                  "has groups of 48 columns; multiples of 32 are supported");
        }
        // Every second column of another group.
        source.group_of.resize(columns);
        for (uint32_t c = 0; c < columns; ++c) source.group_of[c] = c % source.groups;
        const owned_matrix ordered = pack_matrix(source);
        CHECK(ordered.weights.type == weight_type::int4_ordered);
        CHECK(bytes_of(ordered.weights) == rows * (columns / 2 + source.groups * 8));
        check(ordered.weights, [&](uint32_t c) { return c % source.groups; });
        CHECK(part_unit_of(ordered.weights) == columns);
    }
    packed_int4 narrow;
    narrow.rows = 8, narrow.columns = 40;
    REQUIRE_FALSE(layout_of(narrow).ok());
    CHECK(layout_of(narrow).failure().text ==
          "has rows of 40 four-bit values; multiples of 32 are supported");
}

TEST_CASE("parts of experts end with blocks") {
    CHECK(parts_of(1408, 256).part == 1408);  // 256 does not divide it: one part
    CHECK(parts_of(1536, 256).part == 256);
    CHECK(parts_of(1536, 256).count() == 6);
    CHECK(parts_of(14336, 256).part == 1792);
    CHECK(parts_of(704).part == 96);
    CHECK(top_rows(1536, 0.5, 256) == 768);
    CHECK(top_rows(1536, 0.4, 256) == 512);
    matrix down;
    down.columns = 512;
    for (const auto &[type, unit] :
         {std::pair{weight_type::bf16, 32u}, std::pair{weight_type::q4_0, 32u},
          std::pair{weight_type::q4_k, 256u}, std::pair{weight_type::fp8, 128u},
          std::pair{weight_type::int4_64, 64u}, std::pair{weight_type::int4_ordered, 512u}}) {
        down.type = type;
        CHECK(part_unit_of(down) == unit);
    }
}

}  // namespace moorage::core::packed_weights_test
