// kernels_mlp_codes.cpp - gate, up, activation and down of experts in codes.
#include "core/execute/cpu/kernels_mlp_codes.h"

namespace moorage::core {

namespace {

bool streams(const mlp_call &call) { return call.tokens <= STREAM_TOKENS_MAX; }

const float *input_of(const mlp_call &call, uint32_t token) {
    const size_t row = call.gathered ? call.gathered[token] : token;
    return call.input.data + row * call.input.stride;
}

const float *down_start(const mlp_call &call, uint32_t first) {
    const auto &bias = call.weights->down_bias;
    return call.first == 0 && !bias.empty() ? bias.data() + first : nullptr;
}

const float *start_of(std::span<const float> bias, uint32_t first) {
    return bias.empty() ? nullptr : bias.data() + first;
}

}  // namespace

activation_chunk *mlp_codes::chunks(size_t place, const code_layout &cut, uint32_t token) const {
    return reinterpret_cast<activation_chunk *>(base_ + place) + size_t{token} * cut.chunks();
}

coded_tokens mlp_codes::tiles(size_t place, const code_layout &cut, uint32_t tokens) const {
    return {reinterpret_cast<uint32_t *>(base_ + place), cut,
            token_tiles(tokens, vector_codes().tokens)};
}

mlp_codes::work mlp_codes::plan(thread_pool &pool, std::span<const mlp_call> calls) {
    uint64_t total_bytes = 0;
    for (const mlp_call &call : calls)
        if (streams(call)) total_bytes += call.count * call.weights->gate.row_bytes;
    work all;
    for (size_t job = 0; job < calls.size(); ++job) {
        const mlp_call &call = calls[job];
        const mlp_weights &weights = *call.weights;
        call_plan &by = plans_[job];
        const uint32_t hidden = weights.gate.columns;
        by.input = {hidden, hidden, CODE_BLOCK};
        by.inner = {call.count, parts_of(call.intermediate, call.unit).part, CODE_BLOCK};
        assert(call.first % by.inner.part == 0 && call.count % CODE_BLOCK == 0);
        const auto bytes_of = [&](const code_layout &cut) {
            return call.tokens * (streams(call) ? cut.chunks() * sizeof(activation_chunk)
                                                : coded_tokens::words_of(cut) * sizeof(uint32_t));
        };
        by.inputs = all.floats;
        by.inners = by.inputs + floats_of_bytes(bytes_of(by.input));
        all.floats = by.inners + floats_of_bytes(bytes_of(by.inner));
        by.rows = CODE_ROWS;
        by.down_rows = CODE_ROWS;
        if (streams(call)) {
            by.rows = code_rows_of_item(weights.gate.row_bytes, total_bytes, pool.threads());
            by.down_rows = code_rows_of_item(weights.down.row_bytes, total_bytes, pool.threads());
        } else {
            const size_t blocks = std::max(panel_blocks(by.input), panel_blocks(by.inner));
            all.panel_floats =
                std::max(all.panel_floats, floats_of_bytes(blocks * sizeof(code_panel_block)));
            all.sums_floats = std::max(all.sums_floats, size_t{call.tokens} * 2 * CODE_ROWS);
        }
        const bool any = call.tokens != 0;
        all.packs.add(!any            ? 0
                      : streams(call) ? 1
                                      : token_tiles(call.tokens, vector_codes().tokens).count());
        all.gates.add(any ? divide_up(call.count, by.rows) : 0);
        all.downs.add(any ? divide_up(weights.down.rows, by.down_rows) : 0);
    }
    return all;
}

void mlp_codes::round_inputs(const mlp_call &call, const call_plan &by, uint32_t tile) const {
    if (streams(call)) {
        for (uint32_t t = 0; t < call.tokens; ++t)
            round_row(input_of(call, t), by.input, chunks(by.inputs, by.input, t));
        return;
    }
    const coded_tokens to = tiles(by.inputs, by.input, call.tokens);
    for (uint32_t t = 0; t < to.tiles.size(tile); ++t) {
        const float *const from = input_of(call, to.tiles.begin(tile) + t);
        for (uint32_t column = 0; column < by.input.columns; column += by.input.shared)
            to.put(tile, t, column, from + column);
    }
}

void mlp_codes::stream_gate_up(const mlp_call &call, const call_plan &by, uint32_t first) const {
    constexpr uint32_t rows_max = 64;
    const mlp_weights &weights = *call.weights;
    float gates[STREAM_TOKENS_MAX][rows_max], ups[STREAM_TOKENS_MAX][rows_max];
    code_task task{};
    task.first = first;
    task.count = std::min(by.rows, call.count - first);
    task.part = by.input.part;
    task.tokens = call.tokens;
    for (uint32_t t = 0; t < call.tokens; ++t) task.inputs[t] = chunks(by.inputs, by.input, t);
    task.output_stride = rows_max;
    task.weights = &weights.gate;
    task.start = start_of(weights.gate_bias, first);
    task.output = gates[0];
    vector_codes().multiply(task);
    task.weights = &weights.up;
    task.start = start_of(weights.up_bias, first);
    task.output = ups[0];
    vector_codes().multiply(task);
    for (uint32_t t = 0; t < call.tokens; ++t) {
        vector_elements().activate(call.activation, call.limit, task.count, gates[t], ups[t]);
        for (uint32_t row = 0; row < task.count; row += CODE_BLOCK)
            round_at(gates[t] + row, by.inner, first + row, chunks(by.inners, by.inner, t));
    }
}

void mlp_codes::stream_down(const mlp_call &call, const call_plan &by, uint32_t first) const {
    code_task task{};
    task.weights = &call.weights->down;
    task.first = first;
    task.count = std::min(by.down_rows, call.weights->down.rows - first);
    task.part = by.inner.part;
    task.tokens = call.tokens;
    for (uint32_t t = 0; t < call.tokens; ++t) task.inputs[t] = chunks(by.inners, by.inner, t);
    task.start = down_start(call, first);
    task.add = call.add;
    task.output = call.output.data + first;
    task.output_stride = call.output.stride;
    vector_codes().multiply(task);
}

// own: the thread's panel, then its sums [tokens, gate rows and up rows].
void mlp_codes::block_gate_up(const mlp_call &call, const call_plan &by, uint32_t first,
                              float *own) const {
    const mlp_weights &weights = *call.weights;
    auto *const panel = reinterpret_cast<code_panel_block *>(own);
    float *const sums = own + panel_floats_;
    const coded_tokens input = tiles(by.inputs, by.input, call.tokens);
    constexpr size_t stride = size_t{2} * CODE_ROWS;
    multiply_code_panel(weights.gate, first, CODE_ROWS, input, start_of(weights.gate_bias, first),
                        /*add=*/false, {sums, stride}, panel);
    multiply_code_panel(weights.up, first, CODE_ROWS, input, start_of(weights.up_bias, first),
                        /*add=*/false, {sums + CODE_ROWS, stride}, panel);
    const coded_tokens inner = tiles(by.inners, by.inner, call.tokens);
    for (uint32_t tile = 0; tile < inner.tiles.count(); ++tile)
        for (uint32_t t = 0; t < inner.tiles.size(tile); ++t) {
            float *const gate = sums + (inner.tiles.begin(tile) + t) * stride;
            vector_elements().activate(call.activation, call.limit, CODE_ROWS, gate,
                                       gate + CODE_ROWS);
            inner.put(tile, t, first, gate);
        }
}

void mlp_codes::block_down(const mlp_call &call, const call_plan &by, uint32_t first,
                           float *own) const {
    const matrix &down = call.weights->down;
    multiply_code_panel(down, first, std::min(CODE_ROWS, down.rows - first),
                        tiles(by.inners, by.inner, call.tokens), down_start(call, first), call.add,
                        {call.output.data + first, call.output.stride},
                        reinterpret_cast<code_panel_block *>(own));
}

void mlp_codes::run(thread_pool &pool, float_buffer &memory, std::span<const mlp_call> calls) {
    const work all = plan(pool, calls);
    panel_floats_ = all.panel_floats;
    const size_t of_thread = all.panel_floats + floats_of_bytes(all.sums_floats * sizeof(float));
    base_ = memory.get(all.floats + of_thread * pool.threads());
    const auto own = [&](uint32_t thread) { return base_ + all.floats + thread * of_thread; };
    pool.each(all.packs.count(), [&](uint32_t item) {
        const auto [job, tile] = all.packs.find(item);
        round_inputs(calls[job], plans_[job], tile);
    });
    pool.each(all.gates.count(), [&](uint32_t item, uint32_t thread) {
        const auto [job, index] = all.gates.find(item);
        const call_plan &by = plans_[job];
        if (streams(calls[job]))
            stream_gate_up(calls[job], by, index * by.rows);
        else
            block_gate_up(calls[job], by, index * by.rows, own(thread));
    });
    pool.each(all.downs.count(), [&](uint32_t item, uint32_t thread) {
        const auto [job, index] = all.downs.find(item);
        const call_plan &by = plans_[job];
        if (streams(calls[job]))
            stream_down(calls[job], by, index * by.down_rows);
        else
            block_down(calls[job], by, index * by.down_rows, own(thread));
    });
}

}  // namespace moorage::core
