// parts.cpp - each layout as a rule for one row. Models outlive the rules that point into them.
#include "core/convert/parts.h"

#include <algorithm>

#include "core/model/weight_values.h"

namespace moorage::core {

namespace {

// The source row for row `row` of heads of `length`.
uint64_t source_of(uint64_t row, uint64_t length, turning how) {
    const uint64_t at = row % length, half = length / 2;
    if (how == turning::to_neighbours) return row - at + (at % 2 == 0 ? at / 2 : half + at / 2);
    if (how == turning::to_halves) return row - at + (at < half ? 2 * at : 2 * (at - half) + 1);
    return row;
}

placed_row placed(const matrix &of, uint64_t row) { return {&of, static_cast<uint32_t>(row)}; }

}  // namespace

source_rows turned(const matrix &of, uint32_t heads, turning how) {
    const uint64_t length = of.rows / heads;
    return {{of.rows, of.columns},
            [of, length, how](uint64_t row) { return placed(of, source_of(row, length, how)); },
            {}};
}

std::vector<float> turned(std::span<const float> of, uint32_t heads, turning how) {
    std::vector<float> made(of.size());
    for (size_t i = 0; i < of.size(); ++i) made[i] = of[source_of(i, of.size() / heads, how)];
    return made;
}

source_rows stacked(const std::vector<mlp_weights> &of, matrix mlp_weights::*which) {
    const matrix &first = of.front().*which;
    const uint64_t rows = first.rows;
    return {{of.size(), rows, first.columns},
            [&of, which, rows](uint64_t row) { return placed(of[row / rows].*which, row % rows); },
            {}};
}

source_rows stacked(const std::vector<mlp_weights> &of,
                    std::span<const float> mlp_weights::*which) {
    return {{of.size(), (of.front().*which).size()},
            {},
            [&of, which](uint64_t row, std::span<float> out) {
                std::ranges::copy(of[row].*which, out.begin());
            }};
}

source_rows joined(const std::vector<mlp_weights> &of) {
    const uint64_t rows = of.front().gate.rows;
    return {{of.size(), 2 * rows, of.front().gate.columns},
            [&of, rows](uint64_t row) {
                const mlp_weights &expert = of[row / (2 * rows)];
                const uint64_t at = row % (2 * rows);
                return at < rows ? placed(expert.gate, at) : placed(expert.up, at - rows);
            },
            {}};
}

source_rows alternating(const std::vector<mlp_weights> &of) {
    const uint64_t inner = of.front().gate.rows, hidden = of.front().gate.columns;
    return {{of.size(), hidden, 2 * inner}, {}, [&of, hidden](uint64_t row, std::span<float> out) {
                const mlp_weights &expert = of[row / hidden];
                const auto column = static_cast<uint32_t>(row % hidden);
                for (uint32_t i = 0; i < out.size() / 2; ++i) {
                    out[2 * i] = weight_at(expert.gate, i, column);
                    out[2 * i + 1] = weight_at(expert.up, i, column);
                }
            }};
}

source_rows transposed_down(const std::vector<mlp_weights> &of) {
    const uint64_t inner = of.front().gate.rows, hidden = of.front().gate.columns;
    return {{of.size(), inner, hidden}, {}, [&of, inner](uint64_t row, std::span<float> out) {
                for (uint32_t i = 0; i < out.size(); ++i)
                    out[i] = weight_at(of[row / inner].down, i, static_cast<uint32_t>(row % inner));
            }};
}

source_rows alternating_bias(const std::vector<mlp_weights> &of) {
    return {{of.size(), 2 * of.front().gate_bias.size()},
            {},
            [&of](uint64_t row, std::span<float> out) {
                for (size_t i = 0; i < out.size(); ++i)
                    out[i] = (i % 2 == 0 ? of[row].gate_bias : of[row].up_bias)[i / 2];
            }};
}

source_rows keys_half(const attention_weights &of, const attention_config &config) {
    const uint64_t rank = config.kv_lora_rank, nope = config.nope_dim;
    std::vector<uint64_t> shape{config.heads, rank, nope};
    if (of.key_up)
        return {std::move(shape), [&of](uint64_t row) { return placed(of.key_up, row); }, {}};
    const uint64_t both = nope + config.value_dim;
    return {std::move(shape), {}, [&of, rank, both](uint64_t row, std::span<float> out) {
                for (uint64_t i = 0; i < out.size(); ++i)
                    out[i] = weight_at(of.kv_b, static_cast<uint32_t>(row / rank * both + i),
                                       static_cast<uint32_t>(row % rank));
            }};
}

source_rows values_half(const attention_weights &of, const attention_config &config) {
    const uint64_t value = config.value_dim, nope = config.nope_dim;
    std::vector<uint64_t> shape{config.heads, value, config.kv_lora_rank};
    if (of.value_up)
        return {std::move(shape), [&of](uint64_t row) { return placed(of.value_up, row); }, {}};
    return {std::move(shape),
            [&of, value, nope](uint64_t row) {
                return placed(of.kv_b, row / value * (nope + value) + nope + row % value);
            },
            {}};
}

source_rows whole_kv_b(const attention_weights &of, const attention_config &config) {
    if (of.kv_b) return rows_of(of.kv_b);
    const uint64_t value = config.value_dim, nope = config.nope_dim, rank = config.kv_lora_rank;
    return {{config.heads * (nope + value), rank},
            {},
            [&of, value, nope, rank](uint64_t row, std::span<float> out) {
                const uint64_t head = row / (nope + value), at = row % (nope + value);
                if (at >= nope)
                    return read_row(of.value_up, static_cast<uint32_t>(head * value + at - nope),
                                    out);
                for (uint64_t i = 0; i < rank; ++i)
                    out[i] = weight_at(of.key_up, static_cast<uint32_t>(head * rank + i),
                                       static_cast<uint32_t>(at));
            }};
}

}  // namespace moorage::core
