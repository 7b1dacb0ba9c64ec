// kernels_vector_panels.cpp - products of many tokens. Weights are transposed and widened into a
// panel, which stays in the nearest cache while tiles of tokens pass over it.
#include "core/execute/cpu/kernels_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/execute/cpu/kernels_vector_panels.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/execute/cpu/kernels_vector-inl.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/kernels_vector_choice.h"

HWY_BEFORE_NAMESPACE();
namespace moorage::core::HWY_NAMESPACE {
namespace {

constexpr uint32_t WIDTH = 2 * LANES;
static_assert(WIDTH <= PANEL_WIDTH_MAX);
// Sums of a tile: two vectors a token, and room for the panel's two and a
// broadcast.
constexpr uint32_t TILE_TOKENS = LANES == 16 || HWY_TARGET == HWY_NEON ? 12 : 6;

HWY_INLINE void store_transposed(float_vector *v, uint32_t count, float *panel) {
    const float_tag d;
    transpose(d, v);
    for (uint32_t i = 0; i < count; ++i) hn::Store(v[i], d, panel + i * WIDTH);
}

// Pairs of 16-bit values are transposed as words and split afterwards. Returns the number of
// columns done.
template <weight_type type>
HWY_INLINE uint32_t pack_pairs(const std::byte *const *rows, size_t ahead, uint32_t begin,
                               uint32_t count, float *panel) {
#if HWY_TARGET == HWY_SCALAR
    (void)rows, (void)ahead, (void)begin, (void)count, (void)panel;
    return 0;
#else
    const float_tag d;
    const word_tag words;
    uint32_t done = 0;
    for (; done + 2 * LANES <= count; done += 2 * LANES) {
        hn::Vec<word_tag> v[LANES];
        for (uint32_t r = 0; r < LANES; ++r) {
            const std::byte *const source = rows[r] + size_t{begin + done} * 2;
            hwy::Prefetch(reinterpret_cast<const uint8_t *>(source) + ahead);
            v[r] = hn::BitCast(words, load_floats(source));
        }
        transpose(words, v);
        float *target = panel + size_t{done} * WIDTH;
        for (uint32_t i = 0; i < LANES; ++i, target += 2 * WIDTH) {
            float_vector first, second;
            reader<type>::part(v[i], first, second);
            hn::Store(first, d, target);
            hn::Store(second, d, target + WIDTH);
        }
    }
    return done;
#endif
}

// LANES columns at a time, if there is no faster way. Also for the last columns.
template <weight_type type>
HWY_INLINE void pack_floats(const std::byte *const *rows, size_t ahead, uint32_t begin,
                            uint32_t done, uint32_t count, float *panel) {
    constexpr uint32_t BYTES = format_of(type).bytes;
    for (; done < count; done += LANES) {
        const uint32_t columns = HWY_MIN(LANES, count - done);
        float_vector v[LANES];
        for (uint32_t r = 0; r < LANES; ++r) {
            const std::byte *source = rows[r] + size_t{begin + done} * BYTES;
            hwy::Prefetch(reinterpret_cast<const uint8_t *>(source) + ahead);
            if (columns == LANES) {
                v[r] = reader<type>::load(source);
            } else {
                alignas(64) std::byte rest[LANES * 4] = {};
                std::memcpy(rest, source, columns * BYTES);
                v[r] = reader<type>::load(rest);
            }
        }
        store_transposed(v, columns, panel + size_t{done} * WIDTH);
    }
}

template <weight_type type>
HWY_INLINE void pack_blocks(const panel_source &source, uint32_t side, uint32_t begin,
                            uint32_t count, float *panel) {
    const uint32_t first_row = side * LANES;
    const float_tag d;
    for (uint32_t column = begin; column < begin + count; column += 2 * LANES) {
        float_vector even[LANES], odd[LANES];
        for (uint32_t r = 0; r < LANES; ++r) {
            const std::byte *const row = source.rows[first_row + r];
            prefetch_ahead<type, /*nearest=*/true>(row, column, source.sides[side].ahead);
            const auto scale = reader<type>::scale(source.scales[first_row + r], column);
            reader<type>::load_two(row, column, even[r], odd[r]);
            even[r] = hn::Mul(even[r], scale);
            odd[r] = hn::Mul(odd[r], scale);
        }
        transpose(d, even);
        transpose(d, odd);
        float *target = panel + size_t{column - begin} * WIDTH;
        for (uint32_t i = 0; i < LANES; ++i, target += 2 * WIDTH) {
            hn::Store(even[i], d, target);
            hn::Store(odd[i], d, target + WIDTH);
        }
    }
}

template <weight_type type>
void pack_type(const panel_source &source, uint32_t side, uint32_t begin, uint32_t count,
               float *panel) {
    constexpr weight_format FORMAT = format_of(type);
    if constexpr (FORMAT.order == value_order::pairs) {
        pack_blocks<type>(source, side, begin, count, panel);
    } else {
        const std::byte *const *rows = source.rows + side * LANES;
        const size_t ahead = source.sides[side].ahead;
        uint32_t done = 0;
        if constexpr (FORMAT.bytes == 2) done = pack_pairs<type>(rows, ahead, begin, count, panel);
        pack_floats<type>(rows, ahead, begin, done, count, panel);
    }
}

// Through a copy as floats, which stays in the nearest cache.
void pack_groups(const panel_source &source, uint32_t side, uint32_t begin, uint32_t count,
                 float *panel) {
    const auto widen = vector_groups().widen[static_cast<size_t>(source.sides[side].type)];
    alignas(64) float values[LANES][PANEL_COLUMNS_MAX];
    for (uint32_t r = 0; r < LANES; ++r) {
        const uint32_t row = side * LANES + r;
        hwy::Prefetch(reinterpret_cast<const uint8_t *>(source.rows[row]) +
                      source.sides[side].ahead);
        widen({source.rows[row], source.scales[row], source.sides[side].group_of}, begin, count,
              values[r]);
    }
    const float_tag d;
    for (uint32_t column = 0; column < count; column += LANES) {
        float_vector v[LANES];
        for (uint32_t r = 0; r < LANES; ++r) v[r] = hn::Load(d, values[r] + column);
        store_transposed(v, LANES, panel + size_t{column} * WIDTH);
    }
}

void pack(const panel_source &source, uint32_t begin, uint32_t count, float *panel) {
    for (uint32_t side = 0; side < 2; ++side) {
        float *const half = panel + side * LANES;
        if (in_groups(source.sides[side].type))
            pack_groups(source, side, begin, count, half);
        else
            with_type(source.sides[side].type, [&](auto type) HWY_ATTR {
                pack_type<type()>(source, side, begin, count, half);
            });
    }
}

void pack_input(const float *const *inputs, uint32_t tokens, uint32_t columns, float *target) {
    for (uint32_t t = 0; t < tokens; ++t) {
        const float *source = inputs[t];
        for (uint32_t column = 0; column < columns; ++column)
            target[size_t{column} * tokens + t] = source[column];
    }
}

template <uint32_t tokens>
void run_tile(const tile_task &task) {
    const float_tag d;
    float_vector left[tokens], right[tokens];
    for (uint32_t t = 0; t < tokens; ++t) {
        const float *source = task.output + t * task.output_stride;
        left[t] = task.add ? hn::LoadU(d, source) : hn::Zero(d);
        right[t] = task.add ? hn::LoadU(d, source + LANES) : hn::Zero(d);
        if (task.start) {
            left[t] = hn::Add(left[t], hn::LoadU(d, task.start));
            right[t] = hn::Add(right[t], hn::LoadU(d, task.start + LANES));
        }
    }
    const float *panel = task.panel;
    const float *input = task.input;
    for (uint32_t column = 0; column < task.columns; ++column) {
        const auto weights_left = hn::Load(d, panel);
        const auto weights_right = hn::Load(d, panel + LANES);
        for (uint32_t t = 0; t < tokens; ++t) {
            const auto value = hn::Set(d, input[t]);
            left[t] = hn::MulAdd(weights_left, value, left[t]);
            right[t] = hn::MulAdd(weights_right, value, right[t]);
        }
        panel += WIDTH;
        input += tokens;
    }
    for (uint32_t t = 0; t < tokens; ++t) {
        float *target = task.output + t * task.output_stride;
        hn::StoreU(left[t], d, target);
        hn::StoreU(right[t], d, target + LANES);
    }
}

template <uint32_t tokens>
void choose_tile(const tile_task &task) {
    if constexpr (tokens > 1) {
        if (task.tokens < tokens) return choose_tile<tokens - 1>(task);
    }
    if (task.lanes == WIDTH) return run_tile<tokens>(task);
    // A narrow panel works on a copy of its outputs.
    alignas(64) float outputs[tokens * WIDTH] = {};
    alignas(64) float start[WIDTH] = {};
    if (task.add)
        for (uint32_t t = 0; t < tokens; ++t)
            std::memcpy(outputs + t * WIDTH, task.output + t * task.output_stride,
                        task.lanes * sizeof(float));
    if (task.start) std::memcpy(start, task.start, task.lanes * sizeof(float));
    tile_task padded_task = task;
    padded_task.output = outputs;
    padded_task.output_stride = WIDTH;
    padded_task.lanes = WIDTH;
    if (task.start) padded_task.start = start;
    run_tile<tokens>(padded_task);
    for (uint32_t t = 0; t < tokens; ++t)
        std::memcpy(task.output + t * task.output_stride, outputs + t * WIDTH,
                    task.lanes * sizeof(float));
}

void tile(const tile_task &task) { choose_tile<TILE_TOKENS>(task); }

const panel_kernels *table() {
    static constexpr panel_kernels KERNELS = {.width = WIDTH,
                                              .tokens = TILE_TOKENS,
                                              .pack = pack,
                                              .pack_input = pack_input,
                                              .tile = tile};
    return &KERNELS;
}

}  // namespace
}  // namespace moorage::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moorage::core {
const panel_kernels &vector_panels() { return *MOORAGE_CHOSEN_TARGET(table)(); }
}  // namespace moorage::core
#endif
