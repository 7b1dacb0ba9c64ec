// stored_packed.cpp - matrices of a directory that their publisher has packed: 8-bit floats with
// block scales, and four-bit numbers of GPTQ, AWQ and compressed-tensors.
#include <cstring>
#include <utility>

#include "core/base/text.h"
#include "core/model/packed_int4.h"
#include "core/model/stored_weights.h"
#include "core/model/weight_values.h"

namespace moorage::core {

// Reads the tensors whose names replace ".weight". None: the matrix is not packed, or reading
// failed.
std::optional<matrix> stored_weights::read_packed(const std::string &name, uint32_t rows,
                                                  uint32_t columns, model_part part) {
    constexpr std::string_view ending = ".weight";
    if (failed() || !name.ends_with(ending)) return std::nullopt;
    const std::string stem = name.substr(0, name.size() - ending.size());
    const packing_kind kind = config_.packing.kind;
    if (kind == packing_kind::fp8) {
        const stored_tensor *plain = shards_.find(name);
        if (plain == nullptr || plain->entry->type != dtype::f8_e4m3) return std::nullopt;
        return read_fp8(stem, rows, columns, part);
    }
    const bool packed = kind == packing_kind::compressed
                            ? shards_.find(stem + ".weight_packed") != nullptr
                            : (kind == packing_kind::gptq || kind == packing_kind::awq) &&
                                  shards_.find(stem + ".qweight") != nullptr;
    if (!packed) return std::nullopt;
    return read_int4(stem, rows, columns, part);
}

const stored_tensor *stored_weights::take_of_type(const std::string &name, const shape &wanted,
                                                  model_part part,
                                                  std::initializer_list<dtype> types) {
    const stored_tensor *found = take(name, wanted, part, /*counted=*/false);
    if (found == nullptr) return nullptr;
    std::vector<std::string> names;
    for (const dtype type : types) {
        if (found->entry->type == type) return found;
        names.emplace_back(name_of(type));
    }
    fail(format("{}: tensor {} is of type {}; {} {} needed", *found->file, name,
                name_of(found->entry->type), listed(names, "or"),
                names.size() == 1 ? "is" : "are"));
    return nullptr;
}

matrix stored_weights::read_fp8(const std::string &stem, uint32_t rows, uint32_t columns,
                                model_part part) {
    const auto blocks = [](uint32_t count) { return uint64_t{(count + 127) / 128}; };
    const stored_tensor *values =
        take_of_type(stem + ".weight", {rows, columns}, part, {dtype::f8_e4m3});
    const stored_tensor *scales =
        take_of_type(stem + ".weight_scale_inv", {blocks(rows), blocks(columns)}, part,
                     {dtype::f32, dtype::bf16, dtype::f16});
    if (failed()) return {};
    count_parameters(uint64_t{rows} * columns);
    const std::byte *factors = scales->entry->bytes.data();
    if (scales->entry->type != dtype::f32) {
        const std::vector<float> wide = floats_of(*scales);
        std::byte *copy =
            allocate(wide.size() * sizeof(float), format("{}: scales of {}", *scales->file, stem));
        if (failed() || copy == nullptr) return {};
        std::memcpy(copy, wide.data(), wide.size() * sizeof(float));
        factors = copy;
    }
    const matrix weights =
        packed_matrix(weight_type::fp8, rows, columns, values->entry->bytes.data(), factors);
    if (columns % group_values == 0) return weights;
    // Rows that end within a group are rare and small, so they become floats.
    std::byte *floats = allocate(uint64_t{rows} * columns * sizeof(float),
                                 format("{}: tensor {}.weight as floats", *values->file, stem));
    if (floats == nullptr) return {};
    for (uint32_t row = 0; row < rows; ++row)
        read_row(weights, row,
                 {reinterpret_cast<float *>(floats) + uint64_t{row} * columns, columns});
    return packed_matrix(weight_type::f32, rows, columns, floats);
}

// The group of each column; empty: groups in order.
std::vector<uint32_t> stored_weights::read_order(const std::string &name, const packed_int4 &packed,
                                                 model_part part) {
    const bool needed = config_.packing.needs_order && packed.groups > 1;
    if (!needed && shards_.find(name) == nullptr) return {};
    const stored_tensor *found = take_of_type(name, {packed.columns}, part, {dtype::i32});
    if (found == nullptr) return {};
    std::vector<uint32_t> order(packed.columns);
    std::memcpy(order.data(), found->entry->bytes.data(), order.size() * sizeof(uint32_t));
    const uint32_t width = packed.group == 0 ? packed.columns : packed.group;
    bool in_order = true;
    for (uint32_t i = 0; i < packed.columns; ++i) {
        if (order[i] >= packed.groups)
            fail(format("{}: tensor {} holds {} at {}; the matrix has {} groups", *found->file,
                        name, static_cast<int32_t>(order[i]), i, packed.groups));
        in_order = in_order && order[i] == i / width;
    }
    if (in_order) order.clear();
    return order;
}

matrix stored_weights::read_int4(const std::string &stem, uint32_t rows, uint32_t columns,
                                 model_part part) {
    const std::initializer_list<dtype> floats = {dtype::f16, dtype::bf16, dtype::f32};
    packed_int4 packed;
    packed.kind = config_.packing.kind;
    packed.rows = rows;
    packed.columns = columns;
    packed.group = config_.packing.group;
    packed.zeros_less_one = config_.packing.zeros_less_one;
    if (packed.group != 0) packed.groups = (columns + packed.group - 1) / packed.group;
    if (columns % 8 != 0 || (rows % 8 != 0 && packed.kind != packing_kind::compressed)) {
        fail(format("{}: {} of shape [{}, {}] is packed; multiples of 8 are needed",
                    shards_.error_path(), stem, rows, columns));
        return {};
    }
    const auto entry_of = [](const stored_tensor *tensor) {
        return tensor ? tensor->entry : nullptr;
    };
    if (packed.kind == packing_kind::compressed) {
        packed.codes = entry_of(
            take_of_type(stem + ".weight_packed", {rows, columns / 8}, part, {dtype::i32}));
        packed.scales =
            entry_of(take_of_type(stem + ".weight_scale", {rows, packed.groups}, part, floats));
        if (config_.packing.needs_zeros || shards_.find(stem + ".weight_zero_point") != nullptr)
            packed.zeros = entry_of(take_of_type(
                stem + ".weight_zero_point", {(rows + 7) / 8, packed.groups}, part, {dtype::i32}));
        if (shards_.find(stem + ".weight_shape") != nullptr)
            take(stem + ".weight_shape", {2}, part, /*counted=*/false);
        packed.group_of = read_order(stem + ".weight_g_idx", packed, part);
    } else {
        const bool awq = packed.kind == packing_kind::awq;
        const shape packed_shape = awq ? shape{columns, rows / 8} : shape{columns / 8, rows};
        packed.codes = entry_of(take_of_type(stem + ".qweight", packed_shape, part, {dtype::i32}));
        packed.zeros =
            entry_of(take_of_type(stem + ".qzeros", {packed.groups, rows / 8}, part, {dtype::i32}));
        packed.scales =
            entry_of(take_of_type(stem + ".scales", {packed.groups, rows}, part, floats));
        if (!awq) packed.group_of = read_order(stem + ".g_idx", packed, part);
    }
    if (failed()) return {};
    count_parameters(uint64_t{rows} * columns);
    const result<int4_layout> layout = layout_of(packed);
    if (!layout) {
        fail(format("{}: {} {}", shards_.error_path(), stem, layout.failure().text));
        return {};
    }
    std::byte *target = allocate(layout->data_bytes + layout->scale_bytes,
                                 format("{}: {} in rows", shards_.error_path(), stem));
    if (target == nullptr) return {};
    owned_.orders.push_back(packed.group_of);
    return pack(packed, *layout, target, owned_.orders.back().data());
}

}  // namespace moorage::core
