// kernels_panels.h - the blocked product of one row panel with many tokens, and the division of
// tokens and work into items. Shared by kernels_product.cpp and kernels_mlp.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>

#include "core/execute/cpu/kernels.h"
#include "core/execute/cpu/kernels_vector.h"

namespace moorage::core {

// Divides tokens into tiles of nearly equal size. No tile exceeds its capacity. All but the last
// hold a multiple of `unit`, which divides the capacity.
class token_tiles {
public:
    token_tiles(uint32_t tokens, uint32_t tile_max, uint32_t unit = 1)
        : tokens_(tokens), count_((tokens + tile_max - 1) / tile_max), unit_(unit) {}
    token_tiles(uint32_t tokens, const panel_kernels &kernels)
        : token_tiles(tokens, kernels.tokens, kernels.tokens_unit) {}
    uint32_t count() const { return count_; }
    uint32_t begin(uint32_t tile) const {
        if (tile == count_) return tokens_;
        const auto even = static_cast<uint32_t>(uint64_t{tile} * tokens_ / count_);
        return (even + unit_ - 1) / unit_ * unit_;
    }
    uint32_t size(uint32_t tile) const { return begin(tile + 1) - begin(tile); }

private:
    uint32_t tokens_, count_, unit_;
};

// Maps an item of one loop to one of several jobs.
class work_list {
public:
    static constexpr uint32_t JOBS_MAX = 64;
    struct place {
        uint32_t job, item;  // number of the item within its job
    };
    void add(uint32_t items) {
        assert(jobs_ < JOBS_MAX);
        ends_[jobs_] = count() + items;
        ++jobs_;
    }
    uint32_t count() const { return jobs_ == 0 ? 0 : ends_[jobs_ - 1]; }
    place find(uint32_t item) const {
        const uint32_t *end = std::upper_bound(ends_.data(), ends_.data() + jobs_, item);
        const uint32_t job = static_cast<uint32_t>(end - ends_.data());
        return {job, item - (job == 0 ? 0 : ends_[job - 1])};
    }

private:
    std::array<uint32_t, JOBS_MAX> ends_;
    uint32_t jobs_ = 0;
};

// Rows of an item of a streaming loop: enough bytes to be worth handing out, but few enough that
// threads end together. Sums do not depend on it.
inline uint32_t rows_of_item(uint64_t row_bytes, uint64_t total_bytes, uint32_t threads) {
    constexpr uint64_t BYTES_MIN = 16 << 10, BYTES_MAX = 64 << 10;
    const uint64_t bytes = std::clamp(total_bytes / (uint64_t{threads} * 4), BYTES_MIN, BYTES_MAX);
    const uint64_t rows = bytes / std::max<uint64_t>(row_bytes, 1);
    return static_cast<uint32_t>(std::clamp<uint64_t>(rows / 4 * 4, 4, 64));
}

inline bool same_input(const product &a, const product &b) {
    return a.input.data == b.input.data && a.input.stride == b.input.stride &&
           a.weights->columns == b.weights->columns;
}

inline uint32_t divide_up(uint32_t value, uint32_t divisor) {
    return (value + divisor - 1) / divisor;
}

// Points one half of a panel at rows from `first` on, as many as the half is wide. The last row of
// the matrix fills up the rest.
inline void point_at_rows(const matrix &weights, uint32_t first, uint32_t side,
                          panel_source &panel) {
    const weight_format &format = format_of(weights.type);
    // The block of columns that is packed next.
    panel.sides[side] = {weights.type, weights.group_of,
                         size_t{PANEL_COLUMNS_MAX} * format.bytes / format.block};
    const uint32_t half = vector_panels().width / 2, lane = side * half;
    for (uint32_t i = 0; i < half; ++i) {
        const uint64_t row = std::min(first + i, weights.rows - 1);
        panel.rows[lane + i] = weights.data + row * weights.row_bytes;
        panel.scales[lane + i] = scales_at(weights, row);
    }
}
// Points both halves at rows of one matrix.
inline void point_at_rows(const matrix &weights, uint32_t first, panel_source &panel) {
    point_at_rows(weights, first, 0, panel);
    point_at_rows(weights, first + vector_panels().width / 2, 1, panel);
}

// Input of all tokens, tile after tile, each [columns, tokens of the tile].
struct packed_tokens {
    const float *data;
    uint32_t columns;
    token_tiles tiles;
};

// output[t, lane] (= or +=) start[lane] + panel row `lane` . token t.
void multiply_panel(const panel_kernels &kernels, const panel_source &panel,
                    const packed_tokens &input, uint32_t lanes, const float *start, bool add,
                    rows output);

}  // namespace moorage::core
