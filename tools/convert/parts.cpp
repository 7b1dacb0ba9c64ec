// parts.cpp - each layout as a rule for one row. Models outlive the rules that point into them.
#include "tools/convert/parts.h"

#include <algorithm>

#include "core/model/weight_values.h"

namespace moorage::core {

namespace {

// The source row for row `row` of heads of `length`.
uint64_t source_row_of(uint64_t row, uint64_t length, head_order order) {
    const uint64_t head_row = row % length, half = length / 2;
    if (order == head_order::to_neighbours)
        return row - head_row + (head_row % 2 == 0 ? head_row / 2 : half + head_row / 2);
    if (order == head_order::to_halves)
        return row - head_row + (head_row < half ? 2 * head_row : 2 * (head_row - half) + 1);
    return row;
}

placed_row placed(const matrix &weights, uint64_t row) {
    return {&weights, static_cast<uint32_t>(row)};
}

}  // namespace

source_rows reorder_heads(const matrix &weights, uint32_t heads, head_order order) {
    const uint64_t length = weights.rows / heads;
    return {{weights.rows, weights.columns},
            [weights, length, order](uint64_t row) {
                return placed(weights, source_row_of(row, length, order));
            },
            {}};
}

std::vector<float> reorder_heads(std::span<const float> values, uint32_t heads, head_order order) {
    std::vector<float> reordered(values.size());
    for (size_t i = 0; i < values.size(); ++i)
        reordered[i] = values[source_row_of(i, values.size() / heads, order)];
    return reordered;
}

source_rows stack_experts(const std::vector<mlp_weights> &experts, matrix mlp_weights::*member) {
    const matrix &first = experts.front().*member;
    const uint64_t rows = first.rows;
    return {{experts.size(), rows, first.columns},
            [&experts, member, rows](uint64_t row) {
                return placed(experts[row / rows].*member, row % rows);
            },
            {}};
}

source_rows stack_experts(const std::vector<mlp_weights> &experts,
                          std::span<const float> mlp_weights::*member) {
    return {{experts.size(), (experts.front().*member).size()},
            {},
            [&experts, member](uint64_t row, std::span<float> values) {
                std::ranges::copy(experts[row].*member, values.begin());
            }};
}

source_rows join_gate_up(const std::vector<mlp_weights> &experts) {
    const uint64_t rows = experts.front().gate.rows;
    return {{experts.size(), 2 * rows, experts.front().gate.columns},
            [&experts, rows](uint64_t row) {
                const mlp_weights &expert = experts[row / (2 * rows)];
                const uint64_t expert_row = row % (2 * rows);
                return expert_row < rows ? placed(expert.gate, expert_row)
                                         : placed(expert.up, expert_row - rows);
            },
            {}};
}

source_rows alternate_gate_up(const std::vector<mlp_weights> &experts) {
    const uint64_t inner = experts.front().gate.rows, hidden = experts.front().gate.columns;
    return {{experts.size(), hidden, 2 * inner},
            {},
            [&experts, hidden](uint64_t row, std::span<float> values) {
                const mlp_weights &expert = experts[row / hidden];
                const auto column = static_cast<uint32_t>(row % hidden);
                for (uint32_t i = 0; i < values.size() / 2; ++i) {
                    values[2 * i] = weight_at(expert.gate, i, column);
                    values[2 * i + 1] = weight_at(expert.up, i, column);
                }
            }};
}

source_rows transpose_down(const std::vector<mlp_weights> &experts) {
    const uint64_t inner = experts.front().gate.rows, hidden = experts.front().gate.columns;
    return {{experts.size(), inner, hidden},
            {},
            [&experts, inner](uint64_t row, std::span<float> values) {
                for (uint32_t i = 0; i < values.size(); ++i)
                    values[i] =
                        weight_at(experts[row / inner].down, i, static_cast<uint32_t>(row % inner));
            }};
}

source_rows alternate_bias(const std::vector<mlp_weights> &experts) {
    return {{experts.size(), 2 * experts.front().gate_bias.size()},
            {},
            [&experts](uint64_t row, std::span<float> values) {
                for (size_t i = 0; i < values.size(); ++i)
                    values[i] = (i % 2 == 0 ? experts[row].gate_bias : experts[row].up_bias)[i / 2];
            }};
}

source_rows key_half_rows(const attention_weights &attention, const attention_config &config) {
    const uint64_t rank = config.kv_lora_rank, nope = config.nope_dim;
    std::vector<uint64_t> shape{config.heads, rank, nope};
    if (attention.key_up)
        return {std::move(shape),
                [&attention](uint64_t row) { return placed(attention.key_up, row); },
                {}};
    const uint64_t head_rows = nope + config.value_dim;
    return {
        std::move(shape), {}, [&attention, rank, head_rows](uint64_t row, std::span<float> values) {
            for (uint64_t i = 0; i < values.size(); ++i)
                values[i] =
                    weight_at(attention.kv_b, static_cast<uint32_t>(row / rank * head_rows + i),
                              static_cast<uint32_t>(row % rank));
        }};
}

source_rows value_half_rows(const attention_weights &attention, const attention_config &config) {
    const uint64_t value = config.value_dim, nope = config.nope_dim;
    std::vector<uint64_t> shape{config.heads, value, config.kv_lora_rank};
    if (attention.value_up)
        return {std::move(shape),
                [&attention](uint64_t row) { return placed(attention.value_up, row); },
                {}};
    return {std::move(shape),
            [&attention, value, nope](uint64_t row) {
                return placed(attention.kv_b, row / value * (nope + value) + nope + row % value);
            },
            {}};
}

source_rows joined_kv_b_rows(const attention_weights &attention, const attention_config &config) {
    if (attention.kv_b) return rows_of(attention.kv_b);
    const uint64_t value = config.value_dim, nope = config.nope_dim, rank = config.kv_lora_rank;
    return {{config.heads * (nope + value), rank},
            {},
            [&attention, value, nope, rank](uint64_t row, std::span<float> values) {
                const uint64_t head = row / (nope + value), head_row = row % (nope + value);
                if (head_row >= nope)
                    return read_row(attention.value_up,
                                    static_cast<uint32_t>(head * value + head_row - nope), values);
                for (uint64_t i = 0; i < rank; ++i)
                    values[i] = weight_at(attention.key_up, static_cast<uint32_t>(head * rank + i),
                                          static_cast<uint32_t>(head_row));
            }};
}

}  // namespace moorage::core
