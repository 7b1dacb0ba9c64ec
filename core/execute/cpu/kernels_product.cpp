// kernels_product.cpp - products of activations with weight matrices: streamed
// for few tokens, blocked for many.
#include "core/execute/cpu/kernels.h"

#include "core/execute/cpu/activation_form.h"
#include "core/execute/cpu/kernels_code_panels.h"

namespace moorage::core {
namespace {

void stream(thread_pool &pool, uint32_t tokens, std::span<const product> products) {
    const row_kernels &kernels = vector_rows();
    uint64_t total_bytes = 0;
    for (const product &operands : products)
        total_bytes += operands.weights->rows * operands.weights->row_bytes;
    work_list work;
    uint32_t chunks[work_list::JOBS_MAX];
    for (size_t job = 0; job < products.size(); ++job) {
        const matrix &weights = *products[job].weights;
        chunks[job] = rows_of_item(weights.row_bytes, total_bytes, pool.threads());
        work.add(divide_up(weights.rows, chunks[job]));
    }
    pool.parallel_for(work.count(), [&](uint32_t item) {
        const auto [job, chunk] = work.find(item);
        const product &operands = products[job];
        row_task task{};
        task.weights = operands.weights;
        task.first = chunk * chunks[job];
        task.count = std::min(chunks[job], operands.weights->rows - task.first);
        task.part = operands.weights->columns;
        task.tokens = tokens;
        for (uint32_t t = 0; t < tokens; ++t)
            task.inputs[t] = operands.input.data + t * operands.input.stride;
        task.start = operands.bias.empty() ? nullptr : operands.bias.data() + task.first;
        task.output = operands.output.data + task.first;
        task.output_stride = operands.output.stride;
        kernels.multiply(task);
    });
}

// The first product with the same input, which is packed once.
size_t first_with_input(std::span<const product> products, size_t job) {
    size_t match = 0;
    while (!same_input(products[match], products[job])) ++match;
    return match;
}

void block(thread_pool &pool, const panel_kernels &kernels, uint32_t tokens,
           std::span<const product> products) {
    const token_tiles tiles(tokens, kernels);
    size_t floats = 0;
    size_t places[work_list::JOBS_MAX];
    uint32_t packed[work_list::JOBS_MAX], packed_count = 0;
    for (uint32_t job = 0; job < products.size(); ++job) {
        const size_t match = first_with_input(products, job);
        places[job] = match == job ? floats : places[match];
        if (match != job) continue;
        packed[packed_count++] = job;
        // Whole cache lines, so that no two inputs share one.
        floats += (size_t{tokens} * products[job].weights->columns + 15) / 16 * 16;
    }
    float *const scratch = pool.scratch(floats);
    pool.parallel_for(packed_count * tiles.count(), [&](uint32_t item) {
        const uint32_t job = packed[item / tiles.count()], tile = item % tiles.count();
        const product &operands = products[job];
        const float *inputs[PANEL_WIDTH_MAX];
        const uint32_t begin = tiles.begin(tile), count = tiles.size(tile);
        for (uint32_t t = 0; t < count; ++t)
            inputs[t] = operands.input.data + (begin + t) * operands.input.stride;
        kernels.pack_input(inputs, count, operands.weights->columns,
                           scratch + places[job] + size_t{begin} * operands.weights->columns);
    });
    work_list work;
    for (const product &operands : products)
        work.add(divide_up(operands.weights->rows, kernels.width));
    pool.parallel_for(work.count(), [&](uint32_t item) {
        const auto [job, index] = work.find(item);
        const product &operands = products[job];
        const uint32_t first = index * kernels.width;
        panel_source panel;
        point_at_rows(*operands.weights, first, panel);
        multiply_panel(kernels, panel, {scratch + places[job], operands.weights->columns, tiles},
                       std::min(kernels.width, operands.weights->rows - first),
                       operands.bias.empty() ? nullptr : operands.bias.data() + first,
                       /*add=*/false, {operands.output.data + first, operands.output.stride});
    });
}

}  // namespace

void multiply_panel(const panel_kernels &kernels, const panel_source &panel,
                    const packed_tokens &input, uint32_t lanes, const float *start, bool add,
                    rows output) {
    alignas(64) float transposed[PANEL_WIDTH_MAX * PANEL_COLUMNS_MAX];
    for (uint32_t column = 0, columns; column < input.columns; column += columns) {
        columns = std::min(kernels.columns, input.columns - column);
        kernels.pack(panel, column, columns, transposed);
        for (uint32_t tile = 0; tile < input.tiles.count(); ++tile) {
            const size_t begin = input.tiles.begin(tile);
            tile_task task;
            task.panel = transposed;
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
    if (kernels.release) kernels.release();
}

namespace {

activation_form form_of(const thread_pool &pool, const product &operands) {
    return operands.rounds ? form_of(pool.mode(), operands.weights->type) : activation_form::floats;
}

// As many of the first as go through the same loops.
size_t count_alike(const thread_pool &pool, std::span<const product> products) {
    size_t count = 1;
    while (count < std::min<size_t>(products.size(), work_list::JOBS_MAX) &&
           form_of(pool, products[count]) == form_of(pool, products.front()))
        ++count;
    return count;
}

}  // namespace

void multiply(thread_pool &pool, uint32_t tokens, std::span<const product> products) {
    while (!products.empty() && tokens != 0) {
        const auto group = products.first(count_alike(pool, products));
        const activation_form form = form_of(pool, products.front());
        const panel_kernels *const pairs =
            form == activation_form::bfloats ? vector_pair_panels() : nullptr;
        if (form == activation_form::codes) {
            multiply_codes(pool, tokens, group);
        } else if (tokens <= STREAM_TOKENS_MAX) {
            stream(pool, tokens, group);
        } else {
            block(pool, pairs ? *pairs : vector_panels(), tokens, group);
        }
        products = products.subspan(group.size());
    }
}

void widen(const matrix &source, uint32_t row, float *target) {
    vector_rows().widen(source, row, target);
}

}  // namespace moorage::core
