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

mlp_codes::mlp_loops mlp_codes::plan(thread_pool &pool, std::span<const mlp_call> calls) {
    uint64_t total_bytes = 0;
    for (const mlp_call &call : calls)
        if (streams(call)) total_bytes += call.count * call.weights->gate.row_bytes;
    mlp_loops loops;
    for (size_t job = 0; job < calls.size(); ++job) {
        const mlp_call &call = calls[job];
        const mlp_weights &weights = *call.weights;
        call_plan &plan = plans_[job];
        const uint32_t hidden = weights.gate.columns;
        plan.input = {hidden, hidden, CODE_BLOCK};
        plan.inner = {call.count, parts_of(call.intermediate, call.unit).part, CODE_BLOCK};
        assert(call.first % plan.inner.part == 0 && call.count % CODE_BLOCK == 0);
        const auto bytes_of = [&](const code_layout &cut) {
            return call.tokens * (streams(call) ? cut.chunks() * sizeof(activation_chunk)
                                                : coded_tokens::words_of(cut) * sizeof(uint32_t));
        };
        plan.inputs = loops.floats;
        plan.inners = plan.inputs + floats_of_bytes(bytes_of(plan.input));
        loops.floats = plan.inners + floats_of_bytes(bytes_of(plan.inner));
        plan.rows = CODE_ROWS;
        plan.down_rows = CODE_ROWS;
        if (streams(call)) {
            plan.rows = code_rows_of_item(weights.gate.row_bytes, total_bytes, pool.threads());
            plan.down_rows = code_rows_of_item(weights.down.row_bytes, total_bytes, pool.threads());
        } else {
            const size_t blocks = std::max(panel_blocks(plan.input), panel_blocks(plan.inner));
            loops.panel_floats =
                std::max(loops.panel_floats, floats_of_bytes(blocks * sizeof(code_panel_block)));
            loops.sums_floats = std::max(loops.sums_floats, size_t{call.tokens} * 2 * CODE_ROWS);
        }
        const bool has_tokens = call.tokens != 0;
        loops.packs.add(!has_tokens     ? 0
                        : streams(call) ? 1
                                        : token_tiles(call.tokens, vector_codes().tokens).count());
        loops.gates.add(has_tokens ? divide_up(call.count, plan.rows) : 0);
        loops.downs.add(has_tokens ? divide_up(weights.down.rows, plan.down_rows) : 0);
    }
    return loops;
}

void mlp_codes::round_inputs(const mlp_call &call, const call_plan &plan, uint32_t tile) const {
    if (streams(call)) {
        for (uint32_t t = 0; t < call.tokens; ++t)
            round_row(input_of(call, t), plan.input, chunks(plan.inputs, plan.input, t));
        return;
    }
    const coded_tokens target = tiles(plan.inputs, plan.input, call.tokens);
    for (uint32_t t = 0; t < target.tiles.size(tile); ++t) {
        const float *const source = input_of(call, target.tiles.begin(tile) + t);
        for (uint32_t column = 0; column < plan.input.columns; column += plan.input.shared)
            target.put(tile, t, column, source + column);
    }
}

void mlp_codes::stream_gate_up(const mlp_call &call, const call_plan &plan, uint32_t first) const {
    constexpr uint32_t rows_max = 64;
    const mlp_weights &weights = *call.weights;
    float gates[STREAM_TOKENS_MAX][rows_max], ups[STREAM_TOKENS_MAX][rows_max];
    code_task task{};
    task.first = first;
    task.count = std::min(plan.rows, call.count - first);
    task.part = plan.input.part;
    task.tokens = call.tokens;
    for (uint32_t t = 0; t < call.tokens; ++t) task.inputs[t] = chunks(plan.inputs, plan.input, t);
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
            round_at(gates[t] + row, plan.inner, first + row, chunks(plan.inners, plan.inner, t));
    }
}

void mlp_codes::stream_down(const mlp_call &call, const call_plan &plan, uint32_t first) const {
    code_task task{};
    task.weights = &call.weights->down;
    task.first = first;
    task.count = std::min(plan.down_rows, call.weights->down.rows - first);
    task.part = plan.inner.part;
    task.tokens = call.tokens;
    for (uint32_t t = 0; t < call.tokens; ++t) task.inputs[t] = chunks(plan.inners, plan.inner, t);
    task.start = down_start(call, first);
    task.add = call.add;
    task.output = call.output.data + first;
    task.output_stride = call.output.stride;
    vector_codes().multiply(task);
}

// thread_memory: the thread's panel, then its sums [tokens, gate rows and up rows].
void mlp_codes::block_gate_up(const mlp_call &call, const call_plan &plan, uint32_t first,
                              float *thread_memory) const {
    const mlp_weights &weights = *call.weights;
    auto *const panel = reinterpret_cast<code_panel_block *>(thread_memory);
    float *const sums = thread_memory + panel_floats_;
    const coded_tokens input = tiles(plan.inputs, plan.input, call.tokens);
    constexpr size_t stride = size_t{2} * CODE_ROWS;
    multiply_code_panel(weights.gate, first, CODE_ROWS, input, start_of(weights.gate_bias, first),
                        /*add=*/false, {sums, stride}, panel);
    multiply_code_panel(weights.up, first, CODE_ROWS, input, start_of(weights.up_bias, first),
                        /*add=*/false, {sums + CODE_ROWS, stride}, panel);
    const coded_tokens inner = tiles(plan.inners, plan.inner, call.tokens);
    for (uint32_t tile = 0; tile < inner.tiles.count(); ++tile)
        for (uint32_t t = 0; t < inner.tiles.size(tile); ++t) {
            float *const gate = sums + (inner.tiles.begin(tile) + t) * stride;
            vector_elements().activate(call.activation, call.limit, CODE_ROWS, gate,
                                       gate + CODE_ROWS);
            inner.put(tile, t, first, gate);
        }
}

void mlp_codes::block_down(const mlp_call &call, const call_plan &plan, uint32_t first,
                           float *thread_memory) const {
    const matrix &down = call.weights->down;
    multiply_code_panel(down, first, std::min(CODE_ROWS, down.rows - first),
                        tiles(plan.inners, plan.inner, call.tokens), down_start(call, first),
                        call.add, {call.output.data + first, call.output.stride},
                        reinterpret_cast<code_panel_block *>(thread_memory));
}

void mlp_codes::run(thread_pool &pool, float_buffer &memory, std::span<const mlp_call> calls) {
    const mlp_loops loops = plan(pool, calls);
    panel_floats_ = loops.panel_floats;
    const size_t thread_floats =
        loops.panel_floats + floats_of_bytes(loops.sums_floats * sizeof(float));
    base_ = memory.get(loops.floats + thread_floats * pool.threads());
    const auto thread_memory = [&](uint32_t thread) {
        return base_ + loops.floats + thread * thread_floats;
    };
    pool.parallel_for(loops.packs.count(), [&](uint32_t item) {
        const auto [job, tile] = loops.packs.find(item);
        round_inputs(calls[job], plans_[job], tile);
    });
    pool.parallel_for(loops.gates.count(), [&](uint32_t item, uint32_t thread) {
        const auto [job, index] = loops.gates.find(item);
        const call_plan &plan = plans_[job];
        if (streams(calls[job]))
            stream_gate_up(calls[job], plan, index * plan.rows);
        else
            block_gate_up(calls[job], plan, index * plan.rows, thread_memory(thread));
    });
    pool.parallel_for(loops.downs.count(), [&](uint32_t item, uint32_t thread) {
        const auto [job, index] = loops.downs.find(item);
        const call_plan &plan = plans_[job];
        if (streams(calls[job]))
            stream_down(calls[job], plan, index * plan.down_rows);
        else
            block_down(calls[job], plan, index * plan.down_rows, thread_memory(thread));
    });
}

}  // namespace moorage::core
