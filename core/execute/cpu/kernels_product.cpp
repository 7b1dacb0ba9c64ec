// kernels_product.cpp - products of activations with weight matrices: streamed
// for few tokens, blocked for many.
#include "core/execute/cpu/kernels.h"

#include "core/execute/cpu/activation_form.h"
#include "core/execute/cpu/kernels_code_panels.h"

namespace moorage::core {
namespace {

void stream(thread_pool &pool, uint32_t tokens, std::span<const product> all) {
    const row_kernels &kernels = vector_rows();
    uint64_t total_bytes = 0;
    for (const product &one : all) total_bytes += one.weights->rows * one.weights->row_bytes;
    work_list work;
    uint32_t chunks[work_list::JOBS_MAX];
    for (size_t job = 0; job < all.size(); ++job) {
        const matrix &weights = *all[job].weights;
        chunks[job] = rows_of_item(weights.row_bytes, total_bytes, pool.threads());
        work.add(divide_up(weights.rows, chunks[job]));
    }
    pool.each(work.count(), [&](uint32_t item) {
        const auto [job, chunk] = work.find(item);
        const product &one = all[job];
        row_task task{};
        task.weights = one.weights;
        task.first = chunk * chunks[job];
        task.count = std::min(chunks[job], one.weights->rows - task.first);
        task.part = one.weights->columns;
        task.tokens = tokens;
        for (uint32_t t = 0; t < tokens; ++t)
            task.inputs[t] = one.input.data + t * one.input.stride;
        task.start = one.bias.empty() ? nullptr : one.bias.data() + task.first;
        task.output = one.output.data + task.first;
        task.output_stride = one.output.stride;
        kernels.multiply(task);
    });
}

// The first product with the same input, which is packed once.
size_t first_with_input(std::span<const product> all, size_t job) {
    size_t other = 0;
    while (!same_input(all[other], all[job])) ++other;
    return other;
}

void block(thread_pool &pool, const panel_kernels &kernels, uint32_t tokens,
           std::span<const product> all) {
    const token_tiles tiles(tokens, kernels);
    size_t floats = 0;
    size_t places[work_list::JOBS_MAX];
    uint32_t packed[work_list::JOBS_MAX], packed_count = 0;
    for (uint32_t job = 0; job < all.size(); ++job) {
        const size_t other = first_with_input(all, job);
        places[job] = other == job ? floats : places[other];
        if (other != job) continue;
        packed[packed_count++] = job;
        // Whole cache lines, so that no two inputs share one.
        floats += (size_t{tokens} * all[job].weights->columns + 15) / 16 * 16;
    }
    float *const scratch = pool.scratch(floats);
    pool.each(packed_count * tiles.count(), [&](uint32_t item) {
        const uint32_t job = packed[item / tiles.count()], tile = item % tiles.count();
        const product &one = all[job];
        const float *inputs[PANEL_WIDTH_MAX];
        const uint32_t begin = tiles.begin(tile), count = tiles.size(tile);
        for (uint32_t t = 0; t < count; ++t)
            inputs[t] = one.input.data + (begin + t) * one.input.stride;
        kernels.pack_input(inputs, count, one.weights->columns,
                           scratch + places[job] + size_t{begin} * one.weights->columns);
    });
    work_list work;
    for (const product &one : all) work.add(divide_up(one.weights->rows, kernels.width));
    pool.each(work.count(), [&](uint32_t item) {
        const auto [job, index] = work.find(item);
        const product &one = all[job];
        const uint32_t first = index * kernels.width;
        panel_source panel;
        point_at_rows(*one.weights, first, panel);
        multiply_panel(kernels, panel, {scratch + places[job], one.weights->columns, tiles},
                       std::min(kernels.width, one.weights->rows - first),
                       one.bias.empty() ? nullptr : one.bias.data() + first,
                       /*add=*/false, {one.output.data + first, one.output.stride});
    });
}

}  // namespace

void multiply_panel(const panel_kernels &kernels, const panel_source &panel,
                    const packed_tokens &input, uint32_t lanes, const float *start, bool add,
                    rows output) {
    alignas(64) float turned[PANEL_WIDTH_MAX * PANEL_COLUMNS_MAX];
    for (uint32_t column = 0, columns; column < input.columns; column += columns) {
        columns = std::min(kernels.columns, input.columns - column);
        kernels.pack(panel, column, columns, turned);
        for (uint32_t tile = 0; tile < input.tiles.count(); ++tile) {
            const size_t begin = input.tiles.begin(tile);
            tile_task task;
            task.panel = turned;
            task.tokens = input.tiles.size(tile);
            task.input = input.data + begin * input.columns + size_t{column} * task.tokens;
            task.columns = columns;
            task.output = output.data + begin * output.stride;
            task.output_stride = output.stride;
            task.lanes = lanes;
            task.add = add || column != 0;
            task.start = column == 0 ? start : nullptr;
            kernels.tile(task);
        }
    }
    if (kernels.leave) kernels.leave();
}

namespace {

activation_form form_of(const thread_pool &pool, const product &of) {
    return of.rounds ? form_of(pool.mode(), of.weights->type) : activation_form::floats;
}

// As many of the first as go through the same loops.
size_t alike(const thread_pool &pool, std::span<const product> all) {
    size_t count = 1;
    while (count < std::min<size_t>(all.size(), work_list::JOBS_MAX) &&
           form_of(pool, all[count]) == form_of(pool, all.front()))
        ++count;
    return count;
}

}  // namespace

void multiply(thread_pool &pool, uint32_t tokens, std::span<const product> all) {
    while (!all.empty() && tokens != 0) {
        const auto some = all.first(alike(pool, all));
        const activation_form form = form_of(pool, all.front());
        const panel_kernels *const pairs =
            form == activation_form::bfloats ? vector_pair_panels() : nullptr;
        if (form == activation_form::codes) {
            multiply_codes(pool, tokens, some);
        } else if (tokens <= STREAM_TOKENS_MAX) {
            stream(pool, tokens, some);
        } else {
            block(pool, pairs ? *pairs : vector_panels(), tokens, some);
        }
        all = all.subspan(some.size());
    }
}

void widen(const matrix &from, uint32_t row, float *out) { vector_rows().widen(from, row, out); }

}  // namespace moorage::core
