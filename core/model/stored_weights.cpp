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
        fail(format("{}: tensor {} of shape {} is missing", shards_.error_path(), name,
                    shape_text(wanted)));
        return nullptr;
    }
    if (found->entry->shape != wanted) {
        fail(format("{}: tensor {} has the shape {}; config.json makes it {}", *found->file, name,
                    shape_text(found->entry->shape), shape_text(wanted)));
        return nullptr;
    }
    if (!found->used) {
        count(part, found->entry->bytes.size());
        if (counted && found->entry->type != dtype::u8) count_parameters(found->entry->elements());
    }
    found->used = true;
    return found;
}

std::optional<weight_type> stored_weights::type_of(const stored_tensor &tensor) {
    std::vector<std::string> known;
    for (const weight_format &format : weight_formats) {
        if (format.block != 1) continue;
        known.push_back(file_name_of(format));
        if (known.back() == name_of(tensor.entry->type)) return format.type;
    }
    fail(format("{}: tensor {} is of type {}; {} are supported", *tensor.file, tensor.entry->name,
                name_of(tensor.entry->type), listed(known, "and")));
    return std::nullopt;
}

std::byte *stored_weights::allocate(uint64_t bytes, const std::string &purpose) {
    // Many small matrices share one block.
    constexpr uint64_t block_bytes = 16u << 20, alignment = 64;
    const uint64_t taken = (bytes + alignment - 1) / alignment * alignment;
    if (taken > owned_.left_bytes) {
        const uint64_t wanted = taken > block_bytes / 4 ? taken : block_bytes;
        result<memory_block> block = memory_block::create(wanted, purpose);
        if (!block) {
            fail(block.failure().text);
            return nullptr;
        }
        owned_.blocks.push_back(std::move(*block));
        owned_.left_bytes = wanted;
    }
    const memory_block &last = owned_.blocks.back();
    std::byte *place = last.data() + (last.bytes() - owned_.left_bytes);
    owned_.left_bytes -= taken;
    return place;
}

const std::byte *stored_weights::values_of(const stored_tensor &tensor) {
    const std::byte *values = tensor.entry->bytes.data();
    if (reinterpret_cast<uintptr_t>(values) % bytes_of(tensor.entry->type) == 0) return values;
    std::byte *copy =
        allocate(tensor.entry->bytes.size(),
                 format("{}: an aligned copy of tensor {}", *tensor.file, tensor.entry->name));
    if (copy != nullptr) std::memcpy(copy, values, tensor.entry->bytes.size());
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
    std::vector<float> values(tensor.entry->elements());
    for (size_t i = 0; i < values.size(); ++i) values[i] = value_at(*tensor.entry, i);
    if (first_non_finite(values) == values.size()) return values;
    fail(format("{}: {}", *tensor.file, non_finite_text(*tensor.entry)));
    return {};
}

std::span<const float> stored_weights::keep_vector(std::vector<float> values) {
    owned_.vectors.push_back(std::move(values));
    return owned_.vectors.back();
}

std::span<const float> stored_weights::read_vector(const std::string &name, uint32_t count,
                                                   model_part part) {
    const stored_tensor *found = take(name, {count}, part);
    if (found == nullptr) return {};
    return keep_vector(floats_of(*found));
}

void stored_weights::read_experts(const std::string &layer, std::vector<mlp_weights> &experts) {
    if (failed()) return;
    experts.resize(config_.experts);
    const tensor_names &names = arch_.tensors;
    if (names.transposed && shards_.find(layer + names.fused_in + "_blocks") != nullptr)
        read_mxfp4(layer, experts);
    else if (names.transposed)
        read_transposed(layer, experts);
    else if (names.expert == nullptr || shards_.find(layer + names.fused_in) != nullptr)
        read_halves(layer, experts);
    else
        read_separate(layer, experts);
    if (config_.expert_bias) read_biases(layer, experts);
}

void stored_weights::read_latent(const std::string &prefix, attention_weights &weights) {
    const attention_config &attention = config_.attention;
    weights.kv_b = read_matrix(prefix + "kv_b_proj.weight",
                               attention.heads * (attention.nope_dim + attention.value_dim),
                               attention.kv_lora_rank, model_part::attention);
}

void stored_weights::read_separate(const std::string &layer, std::vector<mlp_weights> &experts) {
    const tensor_names &names = arch_.tensors;
    const uint32_t inner = config_.moe_intermediate;
    for (uint32_t expert = 0; expert < config_.experts && !failed(); ++expert) {
        const std::string prefix = format("{}{}.{}.", layer, names.expert, expert);
        const auto read = [&](const char *name, uint32_t rows, uint32_t columns) {
            return read_matrix(prefix + name + ".weight", rows, columns, model_part::experts);
        };
        experts[expert].gate = read(names.gate, inner, config_.hidden);
        experts[expert].up = read(names.up, inner, config_.hidden);
        experts[expert].down = read(names.down, config_.hidden, inner);
    }
}

// Fused experts [E, 2 I, H], gate before up, and [E, H, I].
void stored_weights::read_halves(const std::string &layer, std::vector<mlp_weights> &experts) {
    const uint64_t inner = config_.moe_intermediate, hidden = config_.hidden;
    const stored_tensor *gate_up = take(layer + arch_.tensors.fused_in,
                                        {config_.experts, 2 * inner, hidden}, model_part::experts);
    const stored_tensor *down = take(layer + arch_.tensors.fused_out,
                                     {config_.experts, hidden, inner}, model_part::experts);
    if (gate_up == nullptr || down == nullptr) return;
    const auto gate_up_type = type_of(*gate_up), down_type = type_of(*down);
    if (!gate_up_type || !down_type) return;
    const std::byte *gate_up_values = values_of(*gate_up), *down_values = values_of(*down);
    if (failed()) return;
    const uint64_t half = inner * bytes_of_columns(*gate_up_type, hidden);
    for (uint32_t expert = 0; expert < config_.experts; ++expert) {
        const std::byte *gate = gate_up_values + 2 * half * expert;
        experts[expert].gate =
            packed_matrix(*gate_up_type, config_.moe_intermediate, config_.hidden, gate);
        experts[expert].up =
            packed_matrix(*gate_up_type, config_.moe_intermediate, config_.hidden, gate + half);
        experts[expert].down =
            packed_matrix(*down_type, config_.hidden, config_.moe_intermediate,
                          down_values + expert * hidden * bytes_of_columns(*down_type, inner));
    }
}

// Fused experts [E, H, 2 I] with gate and up alternating, and [E, I, H]. Transposed into memory of
// our own.
void stored_weights::read_transposed(const std::string &layer, std::vector<mlp_weights> &experts) {
    const uint32_t inner = config_.moe_intermediate, hidden = config_.hidden;
    const stored_tensor *gate_up =
        take(layer + arch_.tensors.fused_in, {config_.experts, hidden, uint64_t{2} * inner},
             model_part::experts);
    const stored_tensor *down = take(layer + arch_.tensors.fused_out,
                                     {config_.experts, inner, hidden}, model_part::experts);
    if (gate_up == nullptr || down == nullptr) return;
    const auto type = type_of(*gate_up), down_type = type_of(*down);
    if (!type || !down_type) return;
    if (*type != *down_type)
        return fail(format("{}: tensor {} is of type {}, but {} of {}; an expert has one type",
                           *down->file, down->entry->name, name_of(*down_type),
                           gate_up->entry->name, name_of(*type)));
    const uint64_t element = bytes_of_columns(*type, 1);
    const uint64_t matrix_bytes = element * inner * hidden;  // bytes of one matrix
    std::byte *target =
        allocate(3 * matrix_bytes * config_.experts,
                 format("{}: turning round the experts of {}", *gate_up->file, layer));
    if (target == nullptr) return;
    for (uint32_t expert = 0; expert < config_.experts; ++expert, target += 3 * matrix_bytes) {
        const std::byte *source = gate_up->entry->bytes.data() + 2 * matrix_bytes * expert;
        transpose(*type, source, hidden, inner, size_t{2} * inner, 2, target);
        transpose(*type, source + element, hidden, inner, size_t{2} * inner, 2,
                  target + matrix_bytes);
        transpose(*type, down->entry->bytes.data() + matrix_bytes * expert, inner, hidden, hidden,
                  1, target + 2 * matrix_bytes);
        experts[expert].gate = packed_matrix(*type, inner, hidden, target);
        experts[expert].up = packed_matrix(*type, inner, hidden, target + matrix_bytes);
        experts[expert].down = packed_matrix(*type, hidden, inner, target + 2 * matrix_bytes);
    }
}

// Blocks [E, 2 I, H/32, 16] with gate and up alternating, [E, H, I/32, 16], and a scale for each
// block.
void stored_weights::read_mxfp4(const std::string &layer, std::vector<mlp_weights> &experts) {
    const uint32_t inner = config_.moe_intermediate, hidden = config_.hidden;
    if (inner % 32 != 0 || hidden % 32 != 0)
        return fail(format("{}: experts of {} x {} in MXFP4; both have to be multiples of 32",
                           shards_.error_path(), inner, hidden));
    const auto read = [&](const char *name, uint64_t rows, uint64_t columns) {
        const std::string stem = layer + name;
        const stored_tensor *blocks =
            take(stem + "_blocks", {config_.experts, rows, columns / 32, 16}, model_part::experts);
        const stored_tensor *scales =
            take(stem + "_scales", {config_.experts, rows, columns / 32}, model_part::experts);
        for (const stored_tensor *tensor : {blocks, scales})
            if (tensor != nullptr && tensor->entry->type != dtype::u8)
                fail(format("{}: tensor {} is of type {}; U8 is needed", *tensor->file,
                            tensor->entry->name, name_of(tensor->entry->type)));
        return std::pair(blocks, scales);
    };
    const auto [gate_up, gate_up_scales] =
        read(arch_.tensors.fused_in, uint64_t{2} * inner, hidden);
    const auto [down, down_scales] = read(arch_.tensors.fused_out, hidden, inner);
    if (failed()) return;
    count_parameters(uint64_t{3} * inner * hidden * config_.experts);
    // `step`: rows of the file from one row of the matrix to the next.
    const auto place = [](const stored_tensor *blocks, const stored_tensor *scales, uint64_t row,
                          uint32_t step, uint32_t rows, uint32_t columns) {
        matrix weights = packed_matrix(weight_type::mxfp4, rows, columns,
                                       blocks->entry->bytes.data(), scales->entry->bytes.data());
        weights.data += row * weights.row_bytes;
        weights.scales += row * weights.scale_row_bytes;
        weights.row_bytes *= step;
        weights.scale_row_bytes *= step;
        return weights;
    };
    for (uint32_t expert = 0; expert < config_.experts; ++expert) {
        const uint64_t row = uint64_t{2} * inner * expert;
        experts[expert].gate = place(gate_up, gate_up_scales, row, 2, inner, hidden);
        experts[expert].up = place(gate_up, gate_up_scales, row + 1, 2, inner, hidden);
        experts[expert].down =
            place(down, down_scales, uint64_t{hidden} * expert, 1, hidden, inner);
    }
}

void stored_weights::read_biases(const std::string &layer, std::vector<mlp_weights> &experts) {
    const uint32_t inner = config_.moe_intermediate, hidden = config_.hidden;
    // Biases stay beside the router when experts move, so they are counted with it.
    const stored_tensor *gate_up = take(layer + arch_.tensors.fused_in + "_bias",
                                        {config_.experts, uint64_t{2} * inner}, model_part::router);
    const stored_tensor *down = take(layer + arch_.tensors.fused_out + "_bias",
                                     {config_.experts, hidden}, model_part::router);
    if (gate_up == nullptr || down == nullptr) return;
    const std::vector<float> pairs = floats_of(*gate_up);
    if (failed()) return;
    std::vector<float> split(pairs.size());
    for (size_t i = 0; i < pairs.size() / 2; ++i) {
        const size_t expert = i / inner, row = i % inner;
        split[2 * expert * inner + row] = pairs[2 * i];
        split[(2 * expert + 1) * inner + row] = pairs[2 * i + 1];
    }
    const std::span<const float> gate_up_values = keep_vector(std::move(split));
    const std::span<const float> down_values = keep_vector(floats_of(*down));
    if (failed()) return;
    for (uint32_t expert = 0; expert < config_.experts; ++expert) {
        const size_t begin = size_t{2} * expert * inner;
        experts[expert].gate_bias = gate_up_values.subspan(begin, inner);
        experts[expert].up_bias = gate_up_values.subspan(begin + inner, inner);
        experts[expert].down_bias = down_values.subspan(size_t{expert} * hidden, hidden);
    }
}

}  // namespace moorage::core
