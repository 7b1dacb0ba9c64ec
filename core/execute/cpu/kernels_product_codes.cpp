// kernels_product_codes.cpp - products with activations rounded to codes: streamed for few tokens,
// panels for many.
#include <bit>
#include <cstring>

#include "core/execute/cpu/kernels_code_panels.h"

namespace moorage::core {

namespace {

code_layout layout_of(const product &of) {
    return {of.weights->columns, of.weights->columns,
            of.finely ? CODE_BLOCK : shared_columns(of.weights->type)};
}
// The first product with the same input, rounded alike.
size_t same_rounded(std::span<const product> all, size_t job) {
    const uint32_t shared = layout_of(all[job]).shared;
    for (size_t other = 0; other < job; ++other)
        if (same_input(all[other], all[job]) && layout_of(all[other]).shared == shared)
            return other;
    return job;
}

// Where the input of each product lies once it is rounded; the same input is there once.
struct placed_inputs {
    size_t places[work_list::JOBS_MAX];  // in floats
    uint32_t own[work_list::JOBS_MAX], own_count = 0;
    size_t floats = 0;

    template <class Size>
    placed_inputs(std::span<const product> all, Size &&floats_of) {
        for (uint32_t job = 0; job < all.size(); ++job) {
            const size_t other = same_rounded(all, job);
            places[job] = other == job ? floats : places[other];
            if (other != job) continue;
            own[own_count++] = job;
            floats += floats_of(all[job]);
        }
    }
};

void stream(thread_pool &pool, uint32_t tokens, std::span<const product> all) {
    const auto chunks_of = [&](const product &one) { return layout_of(one).chunks(); };
    const placed_inputs placed(all, [&](const product &one) {
        return floats_of_bytes(sizeof(activation_chunk) * chunks_of(one) * tokens);
    });
    float *const scratch = pool.scratch(placed.floats);
    const auto chunks = [&](size_t job, uint32_t token) {
        return reinterpret_cast<activation_chunk *>(scratch + placed.places[job]) +
               size_t{token} * chunks_of(all[job]);
    };
    // Little work; a loop of the pool would take longer.
    for (uint32_t i = 0; i < placed.own_count; ++i) {
        const product &one = all[placed.own[i]];
        for (uint32_t t = 0; t < tokens; ++t)
            round_row(one.input.data + t * one.input.stride, layout_of(one),
                      chunks(placed.own[i], t));
    }
    uint64_t total_bytes = 0;
    for (const product &one : all) total_bytes += one.weights->rows * one.weights->row_bytes;
    work_list work;
    uint32_t rows_each[work_list::JOBS_MAX];
    for (size_t job = 0; job < all.size(); ++job) {
        const matrix &weights = *all[job].weights;
        rows_each[job] = code_rows_of_item(weights.row_bytes, total_bytes, pool.threads());
        work.add(divide_up(weights.rows, rows_each[job]));
    }
    pool.each(work.count(), [&](uint32_t item) {
        const auto [job, chunk] = work.find(item);
        const product &one = all[job];
        code_task task{};
        task.weights = one.weights;
        task.first = chunk * rows_each[job];
        task.count = std::min(rows_each[job], one.weights->rows - task.first);
        task.part = one.weights->columns;
        task.tokens = tokens;
        for (uint32_t t = 0; t < tokens; ++t) task.inputs[t] = chunks(job, t);
        task.start = one.bias.empty() ? nullptr : one.bias.data() + task.first;
        task.output = one.output.data + task.first;
        task.output_stride = one.output.stride;
        vector_codes().multiply(task);
    });
}

void block(thread_pool &pool, uint32_t tokens, std::span<const product> all) {
    const token_tiles tiles(tokens, vector_codes().tokens);
    const placed_inputs placed(all, [&](const product &one) {
        return floats_of_bytes(coded_tokens::words_of(layout_of(one)) * sizeof(uint32_t) * tokens);
    });
    size_t blocks = 0;
    for (const product &one : all) blocks = std::max(blocks, panel_blocks(layout_of(one)));
    const size_t panel_floats = floats_of_bytes(blocks * sizeof(code_panel_block));
    float *const scratch = pool.scratch(placed.floats + panel_floats * pool.threads());
    const auto input_of = [&](size_t job) {
        return coded_tokens{reinterpret_cast<uint32_t *>(scratch + placed.places[job]),
                            layout_of(all[job]), tiles};
    };
    pool.each(placed.own_count * tiles.count(), [&](uint32_t item) {
        const uint32_t job = placed.own[item / tiles.count()], tile = item % tiles.count();
        const product &one = all[job];
        const coded_tokens input = input_of(job);
        for (uint32_t t = 0; t < tiles.size(tile); ++t) {
            const float *const from = one.input.data + (tiles.begin(tile) + t) * one.input.stride;
            for (uint32_t column = 0; column < input.cut.columns; column += input.cut.shared)
                input.put(tile, t, column, from + column);
        }
    });
    work_list work;
    for (const product &one : all) work.add(divide_up(one.weights->rows, CODE_ROWS));
    pool.each(work.count(), [&](uint32_t item, uint32_t thread) {
        const auto [job, index] = work.find(item);
        const product &one = all[job];
        const uint32_t first = index * CODE_ROWS;
        multiply_code_panel(
            *one.weights, first, std::min(CODE_ROWS, one.weights->rows - first), input_of(job),
            one.bias.empty() ? nullptr : one.bias.data() + first,
            /*add=*/false, {one.output.data + first, one.output.stride},
            reinterpret_cast<code_panel_block *>(scratch + placed.floats + thread * panel_floats));
    });
}

}  // namespace

void coded_tokens::put(uint32_t tile, uint32_t token, uint32_t column, const float *values) const {
    const uint32_t tokens = tiles.size(tile), part = column / cut.part, at = column % cut.part;
    const uint32_t chunk = at / CHUNK_COLUMNS, k = at % CHUNK_COLUMNS / CODE_BLOCK;
    const uint32_t chunks = divide_up(cut.columns_of(part), CHUNK_COLUMNS);
    activation_chunk one;
    vector_codes().round(values, cut.shared, &one, 0);
    for (uint32_t i = 0; i < cut.shared / CODE_BLOCK; ++i) {
        uint32_t *const to =
            of(tile, part) + (size_t{k + i} * chunks + chunk) * TILE_WORDS * tokens + token;
        for (uint32_t word = 0; word < 4; ++word) {
            uint32_t codes;
            std::memcpy(&codes, one.codes + CODE_BLOCK * i + 4 * word, sizeof codes);
            to[word * tokens] = codes ^ 0x80808080;  // 128 more
        }
        to[4 * tokens] = std::bit_cast<uint32_t>(one.scales[i]);
        to[5 * tokens] = std::bit_cast<uint32_t>(one.sums[i]);
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
            float *const to = output.data + input.tiles.begin(tile) * output.stride;
            task.panel = panel;
            task.input = input.of(tile, part);
            task.columns = cut.columns_of(part);
            task.tokens = tokens;
            task.offsets = code_format_of(weights.type).offsets;
            task.add = add || part != 0;
            task.start = start && part == 0 ? starts : nullptr;
            task.output = lanes == CODE_ROWS ? to : narrow;
            task.output_stride = lanes == CODE_ROWS ? output.stride : CODE_ROWS;
            if (lanes != CODE_ROWS && task.add)
                for (uint32_t t = 0; t < tokens; ++t)
                    std::copy_n(to + t * output.stride, lanes, narrow + t * CODE_ROWS);
            kernels.tile(task);
            if (lanes != CODE_ROWS)
                for (uint32_t t = 0; t < tokens; ++t)
                    std::copy_n(narrow + t * CODE_ROWS, lanes, to + t * output.stride);
        }
    }
}

void multiply_codes(thread_pool &pool, uint32_t tokens, std::span<const product> all) {
    if (tokens <= STREAM_TOKENS_MAX)
        stream(pool, tokens, all);
    else
        block(pool, tokens, all);
}

}  // namespace moorage::core
