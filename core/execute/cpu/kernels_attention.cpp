// kernels_attention.cpp - attention over caches. Rows of queries that share keys are computed
// together in blocks. Long contexts are computed in stretches, whose partial results are joined at
// the end.
//
// A row is one head of one token. Blocks with few rows stream the keys (span of
// kernels_vector_attention.cpp); the others use the panels of the blocked products.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <tuple>
#include <utility>

#include "core/execute/cpu/kernels.h"
#include "core/execute/cpu/kernels_panels.h"

namespace moorage::core {
namespace {

constexpr uint32_t ROWS_MAX = 96;            // of a block
constexpr uint32_t ROWS_OF_PANELS = 12;      // from here on keys are worth turning round
constexpr uint32_t CHUNK = 128;              // positions scored at once
constexpr uint32_t STRETCH_POSITIONS = 512;  // of one token's context; a multiple of CHUNK
constexpr float LOWEST = -3.0e38f;

// Consecutive tokens of one stream.
struct token_block {
    uint32_t first, count;
    uint32_t stretches;
    uint32_t items_end;  // of this block and all before it
    size_t partials;     // where its partial results begin
};

// How a call is cut. Depends on the call alone, not on the threads.
struct attention_plan {
    const attention_call &call;
    uint32_t group;        // query heads of one key-value head
    uint32_t piece_heads;  // of them, in one item
    uint32_t pieces;
    // A partial result: sums of values, filled up to whole panels; in the last
    // two floats the largest score and the sum of exponents.
    size_t partial_size;

    explicit attention_plan(const attention_call &call)
        : call(call),
          group(call.heads / call.kv_heads),
          piece_heads(std::min(group, ROWS_MAX)),
          pieces(divide_up(group, piece_heads)),
          partial_size(size_t{divide_up(call.value_dim, PANEL_WIDTH_MAX)} * PANEL_WIDTH_MAX + 16) {}

    // The block that begins with token `first`.
    token_block block_at(uint32_t first) const {
        const uint32_t tokens_max = std::max(1u, ROWS_MAX / group);
        uint32_t count = 1;
        while (count < tokens_max && first + count < call.tokens &&
               call.keys[first + count] == call.keys[first] &&
               call.values[first + count] == call.values[first])
            ++count;
        // A single token alone is short of work for all threads.
        uint32_t stretches = 1;
        if (count == 1)
            stretches = call.positions[first] / STRETCH_POSITIONS -
                        call.first_positions[first] / STRETCH_POSITIONS + 1;
        return {first, count, stretches, 0, 0};
    }
    uint32_t items(const token_block &block) const {
        return block.stretches * call.kv_heads * pieces;
    }
    // Partial results that outlive their item.
    size_t partial_floats(const token_block &block) const {
        return block.stretches == 1
                   ? 0
                   : size_t{block.count} * call.heads * block.stretches * partial_size;
    }
    // The results of a row's stretches follow each other.
    float *partial(float *base, const token_block &block, uint32_t token, uint32_t head) const {
        return base + block.partials +
               (size_t{token} * call.heads + head) * block.stretches * partial_size;
    }
};

// A thread's memory for one item.
struct item_scratch {
    float *queries, *scores, *weights, *sums;
    static size_t floats(const attention_plan &plan) {
        return ROWS_MAX * (size_t{plan.call.head_dim} + 2 * CHUNK + plan.partial_size);
    }
    item_scratch(const attention_plan &plan, float *base)
        : queries(base),
          scores(queries + size_t{ROWS_MAX} * plan.call.head_dim),
          weights(scores + size_t{ROWS_MAX} * CHUNK),
          sums(weights + size_t{ROWS_MAX} * CHUNK) {}
};

// One key-value head, a piece of its query heads, the tokens of a block, a
// stretch of positions.
struct attention_item {
    const attention_plan &plan;
    const token_block &block;
    uint32_t kv_head, first_head, heads;
    size_t begin, end;  // positions
    item_scratch scratch;

    uint32_t rows() const { return block.count * heads; }
    uint32_t token(uint32_t row) const { return row / heads; }  // of the block
    uint32_t head(uint32_t row) const { return first_head + row % heads; }
    const float *query(uint32_t row) const {
        const attention_call &call = plan.call;
        return call.query.data + (block.first + token(row)) * call.query.stride +
               size_t{head(row)} * call.head_dim;
    }
    float *sums(uint32_t row) const { return scratch.sums + row * plan.partial_size; }
    const float *keys(size_t position) const {
        return plan.call.keys[block.first] + position * plan.call.key_stride +
               size_t{kv_head} * plan.call.head_dim;
    }
    const float *values(size_t position) const {
        return plan.call.values[block.first] + position * plan.call.value_stride +
               size_t{kv_head} * plan.call.value_dim;
    }
    // The range of positions in [first, last) that a token of the block sees.
    std::pair<size_t, size_t> visible_range(uint32_t token_index, size_t first, size_t last) const {
        const uint32_t index = block.first + token_index;
        return {std::max<size_t>(plan.call.first_positions[index], first),
                std::min(size_t{plan.call.positions[index]} + 1, last)};
    }
};

void attend_stream(const attention_item &item) {
    const attention_call &call = item.plan.call;
    span_task task{};
    task.heads = item.heads;
    task.head_dim = call.head_dim;
    task.value_dim = call.value_dim;
    task.scale = call.scale;
    task.keys = item.keys(0);
    task.values = item.values(0);
    task.key_stride = call.key_stride;
    task.value_stride = call.value_stride;
    task.partial_stride = item.plan.partial_size;
    for (uint32_t token = 0; token < item.block.count; ++token) {
        task.query = item.query(token * item.heads);
        task.partial = item.sums(token * item.heads);
        std::tie(task.begin, task.end) = item.visible_range(token, item.begin, item.end);
        vector_attention().span(task);
    }
}

void pack_rows(const token_tiles &tiles, const float *source, size_t stride, uint32_t columns,
               float *target) {
    for (uint32_t tile = 0; tile < tiles.count(); ++tile) {
        const float *inputs[PANEL_WIDTH_MAX];
        const size_t begin = tiles.begin(tile);
        for (uint32_t i = 0; i < tiles.size(tile); ++i) inputs[i] = source + (begin + i) * stride;
        vector_panels().pack_input(inputs, tiles.size(tile), columns, target + begin * columns);
    }
}

// scores[row, position - begin] for positions [begin, begin + count).
void score_panels(const attention_item &item, const packed_tokens &queries, size_t begin,
                  uint32_t count) {
    const uint32_t width = vector_panels().width;
    for (uint32_t column = 0; column < count; column += width) {
        panel_source panel;
        panel.sides[0] = panel.sides[1] = {weight_type::f32, nullptr,
                                           width * item.plan.call.key_stride * sizeof(float)};
        for (uint32_t lane = 0; lane < width; ++lane) {
            const size_t position = begin + std::min(column + lane, count - 1);
            panel.rows[lane] = reinterpret_cast<const std::byte *>(item.keys(position));
            panel.scales[lane] = nullptr;
        }
        multiply_panel(vector_panels(), panel, queries, width, nullptr, /*add=*/false,
                       {item.scratch.scores + column, CHUNK});
    }
}

// The scores of a row become weights; its sums so far shrink to the new largest
// score.
void apply_softmax(const attention_item &item, uint32_t row, size_t begin, uint32_t count) {
    const attention_kernels &kernels = vector_attention();
    float *const scores = item.scratch.scores + size_t{row} * CHUNK;
    const auto [visible_begin, visible_end] =
        item.visible_range(item.token(row), begin, begin + count);
    if (visible_begin >= visible_end) {
        std::fill_n(scores, count, 0.0f);
        return;
    }
    float *const sums = item.sums(row);
    float &largest = sums[item.plan.partial_size - 2], &total = sums[item.plan.partial_size - 1];
    const uint32_t first = static_cast<uint32_t>(visible_begin - begin);
    const uint32_t last = static_cast<uint32_t>(visible_end - begin);
    const float new_largest = std::max(largest, kernels.largest(scores, first, last));
    const float shrink = std::exp(largest - new_largest);
    if (shrink != 1) kernels.scale(sums, item.plan.call.value_dim, shrink);
    total = total * shrink + kernels.exponents(scores, first, last, count, new_largest);
    largest = new_largest;
}

// sums += weights . values, a panel of value columns at a time.
void add_values(const attention_item &item, const packed_tokens &weights, size_t begin) {
    const attention_call &call = item.plan.call;
    const panel_kernels &kernels = vector_panels();
    alignas(64) float panel[PANEL_WIDTH_MAX * CHUNK];
    for (uint32_t column = 0; column < call.value_dim; column += kernels.width) {
        vector_attention().copy_values(item.values(begin), call.value_stride, weights.columns,
                                       column, call.value_dim, panel);
        for (uint32_t tile = 0; tile < weights.tiles.count(); ++tile) {
            tile_task task{};
            const uint32_t row = weights.tiles.begin(tile);
            task.panel = panel;
            task.input = weights.data + size_t{row} * weights.columns;
            task.columns = weights.columns;
            task.tokens = weights.tiles.size(tile);
            task.output = item.sums(row) + column;
            task.output_stride = item.plan.partial_size;
            task.lanes = kernels.width;
            task.add = true;
            kernels.tile(task);
        }
    }
}

void attend_panels(const attention_item &item) {
    const attention_call &call = item.plan.call;
    const token_tiles tiles(item.rows(), vector_panels().tokens);
    for (uint32_t tile = 0; tile < tiles.count(); ++tile) {
        const float *inputs[PANEL_WIDTH_MAX];
        const uint32_t begin = tiles.begin(tile);
        for (uint32_t i = 0; i < tiles.size(tile); ++i) inputs[i] = item.query(begin + i);
        vector_panels().pack_input(inputs, tiles.size(tile), call.head_dim,
                                   item.scratch.queries + size_t{begin} * call.head_dim);
    }
    vector_attention().scale(item.scratch.queries, item.rows() * call.head_dim, call.scale);
    for (uint32_t row = 0; row < item.rows(); ++row) {
        std::fill_n(item.sums(row), item.plan.partial_size, 0.0f);
        item.sums(row)[item.plan.partial_size - 2] = LOWEST;
    }
    size_t first = item.end, last = item.begin;
    for (uint32_t token = 0; token < item.block.count; ++token) {
        const auto [visible_begin, visible_end] = item.visible_range(token, item.begin, item.end);
        first = std::min(first, visible_begin);
        last = std::max(last, visible_end);
    }
    // Chunks begin at multiples of their length, so that a row's sums do not
    // depend on the other rows of its block.
    for (size_t begin = first / CHUNK * CHUNK; begin < last; begin += CHUNK) {
        const size_t chunk_begin = std::max(begin, first);
        const uint32_t count = static_cast<uint32_t>(std::min(begin + CHUNK, last) - chunk_begin);
        score_panels(item, {item.scratch.queries, call.head_dim, tiles}, chunk_begin, count);
        for (uint32_t row = 0; row < item.rows(); ++row)
            apply_softmax(item, row, chunk_begin, count);
        pack_rows(tiles, item.scratch.scores, CHUNK, count, item.scratch.weights);
        add_values(item, {item.scratch.weights, count, tiles}, chunk_begin);
    }
}

// Joins the partial results of a row's stretches and the sink, and divides.
void merge_stretches(const attention_plan &plan, uint32_t token, uint32_t head,
                     const float *partials, uint32_t stretches) {
    const attention_call &call = plan.call;
    const auto largest_of = [&](uint32_t i) { return partials[(i + 1) * plan.partial_size - 2]; };
    const auto total_of = [&](uint32_t i) { return partials[(i + 1) * plan.partial_size - 1]; };
    float largest = call.sinks.empty() ? LOWEST : call.sinks[head];
    for (uint32_t i = 0; i < stretches; ++i) largest = std::max(largest, largest_of(i));
    float total = call.sinks.empty() ? 0 : std::exp(call.sinks[head] - largest);
    for (uint32_t i = 0; i < stretches; ++i)
        total += std::exp(largest_of(i) - largest) * total_of(i);
    float *const output =
        call.output.data + token * call.output.stride + size_t{head} * call.value_dim;
    std::fill_n(output, call.value_dim, 0.0f);
    for (uint32_t i = 0; i < stretches; ++i) {
        const float weight = std::exp(largest_of(i) - largest) / total;
        const float *const sums = partials + i * plan.partial_size;
        for (uint32_t column = 0; column < call.value_dim; ++column)
            output[column] += weight * sums[column];
    }
}

// Item `index` of a block: stretches outermost, so that threads read
// neighbouring heads.
void run_item(const attention_plan &plan, const token_block &block, uint32_t index,
              const item_scratch &scratch, float *partials) {
    const uint32_t piece = index % plan.pieces, kv_head = index / plan.pieces % plan.call.kv_heads;
    const uint32_t stretch = index / plan.pieces / plan.call.kv_heads;
    const uint32_t first = piece * plan.piece_heads;
    attention_item item{plan,
                        block,
                        kv_head,
                        kv_head * plan.group + first,
                        std::min(plan.piece_heads, plan.group - first),
                        0,
                        SIZE_MAX,
                        scratch};
    if (block.stretches > 1) {
        item.begin = (plan.call.first_positions[block.first] / STRETCH_POSITIONS + stretch) *
                     size_t{STRETCH_POSITIONS};
        item.end = item.begin + STRETCH_POSITIONS;
    }
    if (item.rows() < ROWS_OF_PANELS) {
        attend_stream(item);
    } else {
        attend_panels(item);
    }
    for (uint32_t row = 0; row < item.rows(); ++row) {
        if (block.stretches == 1) {
            merge_stretches(plan, block.first + item.token(row), item.head(row), item.sums(row), 1);
        } else {
            float *const target = plan.partial(partials, block, item.token(row), item.head(row)) +
                                  stretch * plan.partial_size;
            std::memcpy(target, item.sums(row), plan.partial_size * sizeof(float));
        }
    }
}

}  // namespace

void attend(thread_pool &pool, const attention_call &call) {
    if (call.tokens == 0) return;
    const attention_plan plan(call);
    size_t partial_floats = 0;
    uint32_t blocks_count = 0;
    for (uint32_t token = 0; token < call.tokens; ++blocks_count) {
        const token_block block = plan.block_at(token);
        partial_floats += plan.partial_floats(block);
        token += block.count;
    }
    const size_t item_floats = (item_scratch::floats(plan) + 15) / 16 * 16;
    const size_t blocks_floats = (blocks_count * sizeof(token_block) + 63) / 64 * 16;
    float *const base = pool.scratch(blocks_floats + partial_floats + item_floats * pool.threads());
    auto *const blocks = reinterpret_cast<token_block *>(base);
    float *const partials = base + blocks_floats;
    float *const threads = partials + partial_floats;
    uint32_t items = 0, token = 0;
    size_t used = 0;
    for (uint32_t i = 0; i < blocks_count; ++i) {
        token_block &block = *new (blocks + i) token_block(plan.block_at(token));
        items += plan.items(block);
        block.items_end = items;
        block.partials = used;
        used += plan.partial_floats(block);
        token += block.count;
    }
    // The last first: tokens with the most behind them.
    pool.parallel_for(items, [&](uint32_t from_end, uint32_t thread) {
        const uint32_t item = items - 1 - from_end;
        const token_block *const block = std::upper_bound(
            blocks, blocks + blocks_count, item, [](uint32_t value, const token_block &candidate) {
                return value < candidate.items_end;
            });
        run_item(plan, *block, item - (block->items_end - plan.items(*block)),
                 item_scratch(plan, threads + thread * item_floats), partials);
    });
    if (partial_floats == 0) return;
    pool.parallel_for(blocks_count, [&](uint32_t index) {
        const token_block &block = blocks[index];
        if (block.stretches == 1) return;
        for (uint32_t i = 0; i < block.count; ++i)
            for (uint32_t head = 0; head < call.heads; ++head)
                merge_stretches(plan, block.first + i, head, plan.partial(partials, block, i, head),
                                block.stretches);
    });
}

}  // namespace moorage::core
