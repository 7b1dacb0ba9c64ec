// kernels_mlp.cpp - gate, up, activation and down of experts: two loops for any number of them.
//
// For few tokens, weights are streamed. For many, panels have gate and up rows side by side. So the
// activation follows at once and goes straight into the packed input of down.
#include "core/execute/cpu/kernels.h"

#include "core/execute/cpu/activation_form.h"
#include "core/execute/float_buffer.h"
#include "core/execute/cpu/kernels_code_panels.h"
#include "core/execute/cpu/kernels_mlp_codes.h"

namespace moorage::core {
namespace {

// Whether all three matrices meet activations in codes.
bool in_codes(arithmetic mode, const mlp_call &call) {
    const auto is = [&](const matrix &weights) {
        return form_of(mode, weights.type) == activation_form::codes;
    };
    const mlp_weights &matrices = *call.weights;
    return is(matrices.gate) && is(matrices.up) && is(matrices.down);
}

// The kernels of panels with many tokens.
const panel_kernels &panels_of(arithmetic mode, const mlp_call &call) {
    const auto is = [&](const matrix &weights) {
        return form_of(mode, weights.type) == activation_form::bfloats;
    };
    const mlp_weights &matrices = *call.weights;
    const panel_kernels *const pairs =
        is(matrices.gate) && is(matrices.up) && is(matrices.down) ? vector_pair_panels() : nullptr;
    return pairs ? *pairs : vector_panels();
}

bool streams(const mlp_call &call) { return call.tokens <= STREAM_TOKENS_MAX; }

const float *input_of(const mlp_call &call, uint32_t token) {
    const size_t row = call.gathered ? call.gathered[token] : token;
    return call.input.data + row * call.input.stride;
}

size_t round_to_lines(size_t floats) { return (floats + 15) / 16 * 16; }

struct call_plan {
    const panel_kernels *panels;
    size_t packed;       // input of many tokens, tile after tile
    size_t activations;  // streams: [tokens, count]; many: tile after tile [count,
                         // tokens of tile]
    uint32_t rows;       // of an item: of gate and of up
    uint32_t down_rows;
};

void stream_gate_up(const mlp_call &call, uint32_t first, uint32_t count, float *activations) {
    const row_kernels &kernels = vector_rows();
    const mlp_weights &weights = *call.weights;
    float ups[STREAM_TOKENS_MAX][64];
    row_task task{};
    task.weights = &weights.gate;
    task.first = first;
    task.count = count;
    task.part = weights.gate.columns;
    task.tokens = call.tokens;
    for (uint32_t t = 0; t < call.tokens; ++t) task.inputs[t] = input_of(call, t);
    task.start = weights.gate_bias.empty() ? nullptr : weights.gate_bias.data() + first;
    task.output = activations + first;
    task.output_stride = call.count;
    kernels.multiply(task);
    task.weights = &weights.up;
    task.start = weights.up_bias.empty() ? nullptr : weights.up_bias.data() + first;
    task.output = ups[0];
    task.output_stride = 64;
    kernels.multiply(task);
    for (uint32_t t = 0; t < call.tokens; ++t)
        vector_elements().activate(call.activation, call.limit, count,
                                   activations + size_t{t} * call.count + first, ups[t]);
}

const float *down_start(const mlp_call &call, uint32_t first) {
    const auto &bias = call.weights->down_bias;
    return call.first == 0 && !bias.empty() ? bias.data() + first : nullptr;
}

void stream_down(const mlp_call &call, uint32_t first, uint32_t count, const float *activations) {
    row_task task{};
    task.weights = &call.weights->down;
    task.first = first;
    task.count = count;
    task.part = parts_of(call.intermediate, call.unit).part;
    task.tokens = call.tokens;
    for (uint32_t t = 0; t < call.tokens; ++t)
        task.inputs[t] = activations + size_t{t} * call.count;
    task.start = down_start(call, first);
    task.add = call.add;
    task.output = call.output.data + first;
    task.output_stride = call.output.stride;
    vector_rows().multiply(task);
}

void pack_tile(const mlp_call &call, const panel_kernels &panels, const token_tiles &tiles,
               uint32_t tile, float *packed) {
    const float *inputs[PANEL_WIDTH_MAX];
    const uint32_t begin = tiles.begin(tile), count = tiles.size(tile);
    for (uint32_t t = 0; t < count; ++t) inputs[t] = input_of(call, begin + t);
    const uint32_t columns = call.weights->gate.columns;
    panels.pack_input(inputs, count, columns, packed + size_t{begin} * columns);
}

// `sums`: [tokens, width], this thread's.
void block_gate_up(const mlp_call &call, const panel_kernels &panels, const packed_tokens &input,
                   uint32_t first, float *sums, float *activations) {
    const mlp_weights &weights = *call.weights;
    const uint32_t width = panels.width, half = width / 2;
    const bool pairs = &panels == vector_pair_panels();
    const uint32_t count = std::min(half, call.count - first);
    panel_source panel;
    point_at_rows(weights.gate, first, 0, panel);
    point_at_rows(weights.up, first, 1, panel);
    float start[PANEL_WIDTH_MAX] = {};
    for (uint32_t i = 0; i < count; ++i) {
        if (!weights.gate_bias.empty()) start[i] = weights.gate_bias[first + i];
        if (!weights.up_bias.empty()) start[half + i] = weights.up_bias[first + i];
    }
    multiply_panel(panels, panel, input, width, start, /*add=*/false, {sums, width});
    for (uint32_t tile = 0; tile < input.tiles.count(); ++tile) {
        const uint32_t begin = input.tiles.begin(tile), tokens = input.tiles.size(tile);
        float *const target = activations + size_t{begin} * call.count + size_t{first} * tokens;
        for (uint32_t t = 0; t < tokens; ++t) {
            float *const gate = sums + size_t{begin + t} * width;
            vector_elements().activate(call.activation, call.limit, half, gate, gate + half);
            if (pairs) {
                if (count % 2 != 0) gate[count] = 0;
                for (uint32_t i = 0; i < count; i += 2)
                    target[size_t{i} * tokens + t] = pair_of_floats(gate[i], gate[i + 1]);
            } else {
                for (uint32_t i = 0; i < count; ++i) target[size_t{i} * tokens + t] = gate[i];
            }
        }
    }
}

void block_down(const mlp_call &call, const panel_kernels &panels, const packed_tokens &input,
                uint32_t first) {
    const matrix &down = call.weights->down;
    const uint32_t width = panels.width;
    panel_source panel;
    point_at_rows(down, first, panel);
    multiply_panel(panels, panel, input, std::min(width, down.rows - first),
                   down_start(call, first), call.add,
                   {call.output.data + first, call.output.stride});
}

}  // namespace

struct mlp_kernel::scratch {
    float_buffer floats;
    mlp_codes codes;
    call_plan plans[work_list::JOBS_MAX];
    // The loops of a run, and the floats that it needs.
    struct mlp_loops {
        work_list packs, gates, downs;
        size_t floats = 0;
        uint32_t tokens_max = 0;  // of those that meet panels
    };

    mlp_loops plan(thread_pool &pool, std::span<const mlp_call> calls);
    void run(thread_pool &pool, std::span<const mlp_call> calls);
};

mlp_kernel::mlp_kernel(thread_pool &pool) : pool_(pool), scratch_(new scratch) {}
mlp_kernel::~mlp_kernel() { delete scratch_; }

void mlp_kernel::operator()(const mlp_call &call) { (*this)({&call, 1}); }

void mlp_kernel::operator()(std::span<const mlp_call> calls) {
    while (!calls.empty()) {
        const bool codes = in_codes(pool_.mode(), calls.front());
        size_t count = 1;
        while (count < std::min<size_t>(calls.size(), work_list::JOBS_MAX) &&
               in_codes(pool_.mode(), calls[count]) == codes)
            ++count;
        const auto group = calls.first(count);
        if (codes)
            scratch_->codes.run(pool_, scratch_->floats, group);
        else
            scratch_->run(pool_, group);
        calls = calls.subspan(count);
    }
}

mlp_kernel::scratch::mlp_loops mlp_kernel::scratch::plan(thread_pool &pool,
                                                         std::span<const mlp_call> calls) {
    const panel_kernels &panels = vector_panels();
    uint64_t total_bytes = 0;
    for (const mlp_call &call : calls)
        if (streams(call)) total_bytes += call.count * call.weights->gate.row_bytes;
    mlp_loops loops;
    for (size_t job = 0; job < calls.size(); ++job) {
        const mlp_call &call = calls[job];
        const mlp_weights &weights = *call.weights;
        assert(call.first % parts_of(call.intermediate, call.unit).part == 0);
        call_plan &plan = plans[job];
        plan.panels = &panels_of(pool.mode(), call);
        plan.packed = loops.floats;
        if (!streams(call)) {
            loops.floats += round_to_lines(size_t{call.tokens} * weights.gate.columns);
            loops.tokens_max = std::max(loops.tokens_max, call.tokens);
        }
        plan.activations = loops.floats;
        loops.floats += round_to_lines(size_t{call.tokens} * call.count);
        plan.rows = streams(call)
                        ? rows_of_item(weights.gate.row_bytes, total_bytes, pool.threads())
                        : panels.width / 2;
        plan.down_rows = streams(call) ? rows_of_item(weights.down.columns * size_t{2}, total_bytes,
                                                      pool.threads())
                                       : panels.width;
        if (call.tokens == 0) {
            loops.packs.add(0), loops.gates.add(0), loops.downs.add(0);
            continue;
        }
        loops.packs.add(streams(call) ? 0 : token_tiles(call.tokens, *plan.panels).count());
        loops.gates.add(divide_up(call.count, plan.rows));
        loops.downs.add(divide_up(weights.down.rows, plan.down_rows));
    }
    return loops;
}

void mlp_kernel::scratch::run(thread_pool &pool, std::span<const mlp_call> calls) {
    const panel_kernels &panels = vector_panels();
    const mlp_loops loops = plan(pool, calls);
    const size_t sums = loops.floats,
                 sums_of_thread = round_to_lines(size_t{loops.tokens_max} * panels.width);
    float *const base = floats.get(sums + sums_of_thread * pool.threads());
    const auto tiles = [&](uint32_t job) {
        return token_tiles(calls[job].tokens, *plans[job].panels);
    };

    pool.parallel_for(loops.packs.count(), [&](uint32_t item) {
        const auto [job, tile] = loops.packs.find(item);
        pack_tile(calls[job], *plans[job].panels, tiles(job), tile, base + plans[job].packed);
    });
    pool.parallel_for(loops.gates.count(), [&](uint32_t item, uint32_t thread) {
        const auto [job, chunk] = loops.gates.find(item);
        const mlp_call &call = calls[job];
        const uint32_t first = chunk * plans[job].rows;
        float *const activations = base + plans[job].activations;
        if (streams(call))
            return stream_gate_up(call, first, std::min(plans[job].rows, call.count - first),
                                  activations);
        block_gate_up(call, *plans[job].panels,
                      {base + plans[job].packed, call.weights->gate.columns, tiles(job)}, first,
                      base + sums + thread * sums_of_thread, activations);
    });
    pool.parallel_for(loops.downs.count(), [&](uint32_t item) {
        const auto [job, chunk] = loops.downs.find(item);
        const mlp_call &call = calls[job];
        const uint32_t first = chunk * plans[job].down_rows;
        const float *const activations = base + plans[job].activations;
        if (streams(call))
            return stream_down(call, first,
                               std::min(plans[job].down_rows, call.weights->down.rows - first),
                               activations);
        block_down(call, *plans[job].panels, {activations, call.count, tiles(job)}, first);
    });
}

}  // namespace moorage::core
