// stored_weights.cpp - tensors of a directory as matrices and vectors, and the layouts of experts.
#include "core/model/stored_weights.h"

#include <array>
#include <cctype>
#include <cstring>
#include <utility>

#include "core/base/finite.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

// Transposes source [rows, columns] into target [columns, rows]. Rows of the source are `stride`
// elements apart, columns `step`. Blocked, so that both sides stay in the cache.
template <class Element>
void transpose(const std::byte *source, uint32_t rows, uint32_t columns, size_t stride, size_t step,
               std::byte *target) {
    constexpr uint32_t block = 64;
    for (uint32_t top = 0; top < rows; top += block)
        for (uint32_t left = 0; left < columns; left += block)
            for (uint32_t column = left; column < std::min(left + block, columns); ++column)
                for (uint32_t row = top; row < std::min(top + block, rows); ++row)
                    std::memcpy(target + (size_t{column} * rows + row) * sizeof(Element),
                                source + (row * stride + column * step) * sizeof(Element),
                                sizeof(Element));
}

void transpose(weight_type type, const std::byte *source, uint32_t rows, uint32_t columns,
               size_t stride, size_t step, std::byte *target) {
    with_type(type, [&](auto constant) {
        constexpr weight_format format = format_of(constant());
        if constexpr (format.block == 1)
            transpose<std::array<std::byte, format.bytes>>(source, rows, columns, stride, step,
                                                           target);
    });
}

// The name in safetensors: "BF16".
std::string file_name_of(const weight_format &format) {
    std::string name = format.name;
    for (char &letter : name) letter = static_cast<char>(std::toupper(letter));
    return name;
}

}  // namespace

const stored_tensor *stored_weights::take(const std::string &name, const shape &wanted,
                                          model_part part, bool counted) {
    if (failed()) return nullptr;
    stored_tensor *found = shards_.find(name);
    if (found == nullptr) {
        fail(format("{}: tensor {} of shape {} is missing", shards_.place(), name,
                    shape_text(wanted)));
        return nullptr;
    }
    if (found->what->shape != wanted) {
        fail(format("{}: tensor {} has the shape {}; config.json makes it {}", *found->file, name,
                    shape_text(found->what->shape), shape_text(wanted)));
        return nullptr;
    }
    if (!found->used) {
        count(part, found->what->bytes.size());
        if (counted && found->what->type != dtype::u8) count_parameters(found->what->elements());
    }
    found->used = true;
    return found;
}

std::optional<weight_type> stored_weights::type_of(const stored_tensor &tensor) {
    std::vector<std::string> known;
    for (const weight_format &format : weight_formats) {
        if (format.block != 1) continue;
        known.push_back(file_name_of(format));
        if (known.back() == name_of(tensor.what->type)) return format.type;
    }
    fail(format("{}: tensor {} is of type {}; {} are supported", *tensor.file, tensor.what->name,
                name_of(tensor.what->type), listed(known, "and")));
    return std::nullopt;
}

std::byte *stored_weights::own(uint64_t bytes, const std::string &purpose) {
    // Many small matrices share one block.
    constexpr uint64_t block_bytes = 16u << 20, alignment = 64;
    const uint64_t taken = (bytes + alignment - 1) / alignment * alignment;
    if (taken > owned_.left_bytes) {
        const uint64_t wanted = taken > block_bytes / 4 ? taken : block_bytes;
        result<memory_block> made = memory_block::create(wanted, purpose);
        if (!made) {
            fail(made.failure().text);
            return nullptr;
        }
        owned_.blocks.push_back(std::move(*made));
        owned_.left_bytes = wanted;
    }
    const memory_block &last = owned_.blocks.back();
    std::byte *place = last.data() + (last.bytes() - owned_.left_bytes);
    owned_.left_bytes -= taken;
    return place;
}

const std::byte *stored_weights::values_of(const stored_tensor &tensor) {
    const std::byte *values = tensor.what->bytes.data();
    if (reinterpret_cast<uintptr_t>(values) % bytes_of(tensor.what->type) == 0) return values;
    std::byte *copy = own(tensor.what->bytes.size(), format("{}: an aligned copy of tensor {}",
                                                            *tensor.file, tensor.what->name));
    if (copy != nullptr) std::memcpy(copy, values, tensor.what->bytes.size());
    return copy;
}

matrix stored_weights::read_matrix(const std::string &name, uint32_t rows, uint32_t columns,
                                   model_part part) {
    if (std::optional<matrix> packed = read_packed(name, rows, columns, part)) return *packed;
    const stored_tensor *found = take(name, {rows, columns}, part);
    if (found == nullptr) return {};
    const std::optional<weight_type> type = type_of(*found);
    if (!type) return {};
    return packed_matrix(*type, rows, columns, values_of(*found));
}

// These are read completely, so they are checked for odd values here. Matrices are not: their odd
// values show in the results.
std::vector<float> stored_weights::floats_of(const stored_tensor &tensor) {
    if (!type_of(tensor)) return {};
    std::vector<float> all(tensor.what->elements());
    for (size_t i = 0; i < all.size(); ++i) all[i] = value_at(*tensor.what, i);
    if (first_odd(all) == all.size()) return all;
    fail(format("{}: {}", *tensor.file, odd_value(*tensor.what)));
    return {};
}

std::span<const float> stored_weights::keep(std::vector<float> values) {
    owned_.vectors.push_back(std::move(values));
    return owned_.vectors.back();
}

std::span<const float> stored_weights::read_vector(const std::string &name, uint32_t count,
                                                   model_part part) {
    const stored_tensor *found = take(name, {count}, part);
    if (found == nullptr) return {};
    return keep(floats_of(*found));
}

void stored_weights::read_experts(const std::string &layer, std::vector<mlp_weights> &out) {
    if (failed()) return;
    out.resize(config_.experts);
    const tensor_names &names = row_.tensors;
    if (names.turned && shards_.find(layer + names.fused_in + "_blocks") != nullptr)
        read_mxfp4(layer, out);
    else if (names.turned)
        read_turned(layer, out);
    else if (names.expert == nullptr || shards_.find(layer + names.fused_in) != nullptr)
        read_halves(layer, out);
    else
        read_separate(layer, out);
    if (config_.expert_bias) read_biases(layer, out);
}

void stored_weights::read_latent(const std::string &prefix, attention_weights &out) {
    const attention_config &of = config_.attention;
    out.kv_b = read_matrix(prefix + "kv_b_proj.weight", of.heads * (of.nope_dim + of.value_dim),
                           of.kv_lora_rank, model_part::attention);
}

void stored_weights::read_separate(const std::string &layer, std::vector<mlp_weights> &out) {
    const tensor_names &names = row_.tensors;
    const uint32_t inner = config_.moe_intermediate;
    for (uint32_t expert = 0; expert < config_.experts && !failed(); ++expert) {
        const std::string prefix = format("{}{}.{}.", layer, names.expert, expert);
        const auto read = [&](const char *name, uint32_t rows, uint32_t columns) {
            return read_matrix(prefix + name + ".weight", rows, columns, model_part::experts);
        };
        out[expert].gate = read(names.gate, inner, config_.hidden);
        out[expert].up = read(names.up, inner, config_.hidden);
        out[expert].down = read(names.down, config_.hidden, inner);
    }
}

// Fused experts [E, 2 I, H], gate before up, and [E, H, I].
void stored_weights::read_halves(const std::string &layer, std::vector<mlp_weights> &out) {
    const uint64_t inner = config_.moe_intermediate, hidden = config_.hidden;
    const stored_tensor *in = take(layer + row_.tensors.fused_in,
                                   {config_.experts, 2 * inner, hidden}, model_part::experts);
    const stored_tensor *down =
        take(layer + row_.tensors.fused_out, {config_.experts, hidden, inner}, model_part::experts);
    if (in == nullptr || down == nullptr) return;
    const auto in_type = type_of(*in), down_type = type_of(*down);
    if (!in_type || !down_type) return;
    const std::byte *in_values = values_of(*in), *down_values = values_of(*down);
    if (failed()) return;
    const uint64_t half = inner * bytes_of_columns(*in_type, hidden);
    for (uint32_t expert = 0; expert < config_.experts; ++expert) {
        const std::byte *gate = in_values + 2 * half * expert;
        out[expert].gate = packed_matrix(*in_type, config_.moe_intermediate, config_.hidden, gate);
        out[expert].up =
            packed_matrix(*in_type, config_.moe_intermediate, config_.hidden, gate + half);
        out[expert].down =
            packed_matrix(*down_type, config_.hidden, config_.moe_intermediate,
                          down_values + expert * hidden * bytes_of_columns(*down_type, inner));
    }
}

// Fused experts [E, H, 2 I] with gate and up alternating, and [E, I, H]. Transposed into memory of
// our own.
void stored_weights::read_turned(const std::string &layer, std::vector<mlp_weights> &out) {
    const uint32_t inner = config_.moe_intermediate, hidden = config_.hidden;
    const stored_tensor *in =
        take(layer + row_.tensors.fused_in, {config_.experts, hidden, uint64_t{2} * inner},
             model_part::experts);
    const stored_tensor *down =
        take(layer + row_.tensors.fused_out, {config_.experts, inner, hidden}, model_part::experts);
    if (in == nullptr || down == nullptr) return;
    const auto type = type_of(*in), down_type = type_of(*down);
    if (!type || !down_type) return;
    if (*type != *down_type)
        return fail(format("{}: tensor {} is of type {}, but {} of {}; an expert has one type",
                           *down->file, down->what->name, name_of(*down_type), in->what->name,
                           name_of(*type)));
    const uint64_t element = bytes_of_columns(*type, 1);
    const uint64_t one = element * inner * hidden;  // bytes of one matrix
    std::byte *target = own(3 * one * config_.experts,
                            format("{}: turning round the experts of {}", *in->file, layer));
    if (target == nullptr) return;
    for (uint32_t expert = 0; expert < config_.experts; ++expert, target += 3 * one) {
        const std::byte *source = in->what->bytes.data() + 2 * one * expert;
        transpose(*type, source, hidden, inner, size_t{2} * inner, 2, target);
        transpose(*type, source + element, hidden, inner, size_t{2} * inner, 2, target + one);
        transpose(*type, down->what->bytes.data() + one * expert, inner, hidden, hidden, 1,
                  target + 2 * one);
        out[expert].gate = packed_matrix(*type, inner, hidden, target);
        out[expert].up = packed_matrix(*type, inner, hidden, target + one);
        out[expert].down = packed_matrix(*type, hidden, inner, target + 2 * one);
    }
}

// Blocks [E, 2 I, H/32, 16] with gate and up alternating, [E, H, I/32, 16], and a scale for each
// block.
void stored_weights::read_mxfp4(const std::string &layer, std::vector<mlp_weights> &out) {
    const uint32_t inner = config_.moe_intermediate, hidden = config_.hidden;
    if (inner % 32 != 0 || hidden % 32 != 0)
        return fail(format("{}: experts of {} x {} in MXFP4; both have to be multiples of 32",
                           shards_.place(), inner, hidden));
    const auto read = [&](const char *name, uint64_t rows, uint64_t columns) {
        const std::string full = layer + name;
        const stored_tensor *blocks =
            take(full + "_blocks", {config_.experts, rows, columns / 32, 16}, model_part::experts);
        const stored_tensor *scales =
            take(full + "_scales", {config_.experts, rows, columns / 32}, model_part::experts);
        for (const stored_tensor *one : {blocks, scales})
            if (one != nullptr && one->what->type != dtype::u8)
                fail(format("{}: tensor {} is of type {}; U8 is needed", *one->file,
                            one->what->name, name_of(one->what->type)));
        return std::pair(blocks, scales);
    };
    const auto [in, in_scales] = read(row_.tensors.fused_in, uint64_t{2} * inner, hidden);
    const auto [down, down_scales] = read(row_.tensors.fused_out, hidden, inner);
    if (failed()) return;
    count_parameters(uint64_t{3} * inner * hidden * config_.experts);
    // `step`: rows of the file from one row of the matrix to the next.
    const auto place = [](const stored_tensor *blocks, const stored_tensor *scales, uint64_t row,
                          uint32_t step, uint32_t rows, uint32_t columns) {
        matrix made = packed_matrix(weight_type::mxfp4, rows, columns, blocks->what->bytes.data(),
                                    scales->what->bytes.data());
        made.data += row * made.row_bytes;
        made.scales += row * made.scale_row_bytes;
        made.row_bytes *= step;
        made.scale_row_bytes *= step;
        return made;
    };
    for (uint32_t expert = 0; expert < config_.experts; ++expert) {
        const uint64_t row = uint64_t{2} * inner * expert;
        out[expert].gate = place(in, in_scales, row, 2, inner, hidden);
        out[expert].up = place(in, in_scales, row + 1, 2, inner, hidden);
        out[expert].down = place(down, down_scales, uint64_t{hidden} * expert, 1, hidden, inner);
    }
}

void stored_weights::read_biases(const std::string &layer, std::vector<mlp_weights> &out) {
    const uint32_t inner = config_.moe_intermediate, hidden = config_.hidden;
    // Biases stay beside the router when experts move, so they are counted with it.
    const stored_tensor *in = take(layer + row_.tensors.fused_in + "_bias",
                                   {config_.experts, uint64_t{2} * inner}, model_part::router);
    const stored_tensor *down = take(layer + row_.tensors.fused_out + "_bias",
                                     {config_.experts, hidden}, model_part::router);
    if (in == nullptr || down == nullptr) return;
    const std::vector<float> pairs = floats_of(*in);
    if (failed()) return;
    std::vector<float> split(pairs.size());
    for (size_t i = 0; i < pairs.size() / 2; ++i) {
        const size_t expert = i / inner, at = i % inner;
        split[2 * expert * inner + at] = pairs[2 * i];
        split[(2 * expert + 1) * inner + at] = pairs[2 * i + 1];
    }
    const std::span<const float> in_values = keep(std::move(split));
    const std::span<const float> down_values = keep(floats_of(*down));
    if (failed()) return;
    for (uint32_t expert = 0; expert < config_.experts; ++expert) {
        const size_t begin = size_t{2} * expert * inner;
        out[expert].gate_bias = in_values.subspan(begin, inner);
        out[expert].up_bias = in_values.subspan(begin + inner, inner);
        out[expert].down_bias = down_values.subspan(size_t{expert} * hidden, hidden);
    }
}

}  // namespace moorage::core
