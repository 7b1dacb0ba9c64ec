// kernels_product_codes.cpp - products with activations rounded to codes: streamed for few tokens,
// panels for many.
#include <bit>
#include <cstring>

#include "core/execute/cpu/kernels_code_panels.h"

namespace moorage::core {

namespace {

code_layout layout_of(const product &operands) {
    return {operands.weights->columns, operands.weights->columns,
            operands.finely ? CODE_BLOCK : shared_columns(operands.weights->type)};
}
// The first product with the same input, rounded alike.
size_t first_rounded_alike(std::span<const product> products, size_t job) {
    const uint32_t shared = layout_of(products[job]).shared;
    for (size_t match = 0; match < job; ++match)
        if (same_input(products[match], products[job]) &&
            layout_of(products[match]).shared == shared)
            return match;
    return job;
}

// Where the input of each product lies once it is rounded; the same input is there once.
struct placed_inputs {
    size_t places[work_list::JOBS_MAX];  // in floats
    uint32_t distinct[work_list::JOBS_MAX], distinct_count = 0;
    size_t floats = 0;

    template <class Size>
    placed_inputs(std::span<const product> products, Size &&floats_of) {
        for (uint32_t job = 0; job < products.size(); ++job) {
            const size_t match = first_rounded_alike(products, job);
            places[job] = match == job ? floats : places[match];
            if (match != job) continue;
            distinct[distinct_count++] = job;
            floats += floats_of(products[job]);
        }
    }
};

void stream(thread_pool &pool, uint32_t tokens, std::span<const product> products) {
    const auto chunks_of = [&](const product &operands) { return layout_of(operands).chunks(); };
    const placed_inputs placed(products, [&](const product &operands) {
        return floats_of_bytes(sizeof(activation_chunk) * chunks_of(operands) * tokens);
    });
    float *const scratch = pool.scratch(placed.floats);
    const auto chunks = [&](size_t job, uint32_t token) {
        return reinterpret_cast<activation_chunk *>(scratch + placed.places[job]) +
               size_t{token} * chunks_of(products[job]);
    };
    // Little work; a loop of the pool would take longer.
    for (uint32_t i = 0; i < placed.distinct_count; ++i) {
        const product &operands = products[placed.distinct[i]];
        for (uint32_t t = 0; t < tokens; ++t)
            round_row(operands.input.data + t * operands.input.stride, layout_of(operands),
                      chunks(placed.distinct[i], t));
    }
    uint64_t total_bytes = 0;
    for (const product &operands : products)
        total_bytes += operands.weights->rows * operands.weights->row_bytes;
    work_list work;
    uint32_t rows_each[work_list::JOBS_MAX];
    for (size_t job = 0; job < products.size(); ++job) {
        const matrix &weights = *products[job].weights;
        rows_each[job] = code_rows_of_item(weights.row_bytes, total_bytes, pool.threads());
        work.add(divide_up(weights.rows, rows_each[job]));
    }
    pool.parallel_for(work.count(), [&](uint32_t item) {
        const auto [job, chunk] = work.find(item);
        const product &operands = products[job];
        code_task task{};
        task.weights = operands.weights;
        task.first = chunk * rows_each[job];
        task.count = std::min(rows_each[job], operands.weights->rows - task.first);
        task.part = operands.weights->columns;
        task.tokens = tokens;
        for (uint32_t t = 0; t < tokens; ++t) task.inputs[t] = chunks(job, t);
        task.start = operands.bias.empty() ? nullptr : operands.bias.data() + task.first;
        task.output = operands.output.data + task.first;
        task.output_stride = operands.output.stride;
        vector_codes().multiply(task);
    });
}

void block(thread_pool &pool, uint32_t tokens, std::span<const product> products) {
    const token_tiles tiles(tokens, vector_codes().tokens);
    const placed_inputs placed(products, [&](const product &operands) {
        return floats_of_bytes(coded_tokens::words_of(layout_of(operands)) * sizeof(uint32_t) *
                               tokens);
    });
    size_t blocks = 0;
    for (const product &operands : products)
        blocks = std::max(blocks, panel_blocks(layout_of(operands)));
    const size_t panel_floats = floats_of_bytes(blocks * sizeof(code_panel_block));
    float *const scratch = pool.scratch(placed.floats + panel_floats * pool.threads());
    const auto input_of = [&](size_t job) {
        return coded_tokens{reinterpret_cast<uint32_t *>(scratch + placed.places[job]),
                            layout_of(products[job]), tiles};
    };
    pool.parallel_for(placed.distinct_count * tiles.count(), [&](uint32_t item) {
        const uint32_t job = placed.distinct[item / tiles.count()], tile = item % tiles.count();
        const product &operands = products[job];
        const coded_tokens input = input_of(job);
        for (uint32_t t = 0; t < tiles.size(tile); ++t) {
            const float *const source =
                operands.input.data + (tiles.begin(tile) + t) * operands.input.stride;
            for (uint32_t column = 0; column < input.cut.columns; column += input.cut.shared)
                input.put(tile, t, column, source + column);
        }
    });
    work_list work;
    for (const product &operands : products) work.add(divide_up(operands.weights->rows, CODE_ROWS));
    pool.parallel_for(work.count(), [&](uint32_t item, uint32_t thread) {
        const auto [job, index] = work.find(item);
        const product &operands = products[job];
        const uint32_t first = index * CODE_ROWS;
        multiply_code_panel(
            *operands.weights, first, std::min(CODE_ROWS, operands.weights->rows - first),
            input_of(job), operands.bias.empty() ? nullptr : operands.bias.data() + first,
            /*add=*/false, {operands.output.data + first, operands.output.stride},
            reinterpret_cast<code_panel_block *>(scratch + placed.floats + thread * panel_floats));
    });
}

}  // namespace

void coded_tokens::put(uint32_t tile, uint32_t token, uint32_t column, const float *values) const {
    const uint32_t tokens = tiles.size(tile), part = column / cut.part,
                   part_column = column % cut.part;
    const uint32_t chunk = part_column / CHUNK_COLUMNS,
                   k = part_column % CHUNK_COLUMNS / CODE_BLOCK;
    const uint32_t chunks = divide_up(cut.columns_of(part), CHUNK_COLUMNS);
    activation_chunk rounded;
    vector_codes().round(values, cut.shared, &rounded, 0);
    for (uint32_t i = 0; i < cut.shared / CODE_BLOCK; ++i) {
        uint32_t *const target = part_blocks(tile, part) +
                                 (size_t{k + i} * chunks + chunk) * TILE_WORDS * tokens + token;
        for (uint32_t word = 0; word < 4; ++word) {
            uint32_t codes;
            std::memcpy(&codes, rounded.codes + CODE_BLOCK * i + 4 * word, sizeof codes);
            target[word * tokens] = codes ^ 0x80808080;  // 128 more
        }
        target[4 * tokens] = std::bit_cast<uint32_t>(rounded.scales[i]);
        target[5 * tokens] = std::bit_cast<uint32_t>(rounded.sums[i]);
    }
}

void multiply_code_panel(const matrix &weights, uint32_t first, uint32_t lanes,
                         const coded_tokens &input, const float *start, bool add, rows output,
                         code_panel_block *panel) {
    const code_kernels &kernels = vector_codes();
    const code_layout &cut = input.cut;
    // Fewer rows than a panel has work on a copy of their outputs.
    alignas(64) float narrow[CODE_TOKENS_MAX * CODE_ROWS] = {}, starts[CODE_ROWS] = {};
    if (start) std::copy_n(start, lanes, starts);
    for (uint32_t part = 0; part < cut.parts(); ++part) {
        kernels.pack(weights, first, part * cut.part, cut.columns_of(part), panel);
        for (uint32_t tile = 0; tile < input.tiles.count(); ++tile) {
            code_tile_task task{};
            const uint32_t tokens = input.tiles.size(tile);
            float *const target = output.data + input.tiles.begin(tile) * output.stride;
            task.panel = panel;
            task.input = input.part_blocks(tile, part);
            task.columns = cut.columns_of(part);
            task.tokens = tokens;
            task.offsets = code_format_of(weights.type).offsets;
            task.add = add || part != 0;
            task.start = start && part == 0 ? starts : nullptr;
            task.output = lanes == CODE_ROWS ? target : narrow;
            task.output_stride = lanes == CODE_ROWS ? output.stride : CODE_ROWS;
            if (lanes != CODE_ROWS && task.add)
                for (uint32_t t = 0; t < tokens; ++t)
                    std::copy_n(target + t * output.stride, lanes, narrow + t * CODE_ROWS);
            kernels.tile(task);
            if (lanes != CODE_ROWS)
                for (uint32_t t = 0; t < tokens; ++t)
                    std::copy_n(narrow + t * CODE_ROWS, lanes, target + t * output.stride);
        }
    }
}

void multiply_codes(thread_pool &pool, uint32_t tokens, std::span<const product> products) {
    if (tokens <= STREAM_TOKENS_MAX)
        stream(pool, tokens, products);
    else
        block(pool, tokens, products);
}

}  // namespace moorage::core
