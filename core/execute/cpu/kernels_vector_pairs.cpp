// kernels_vector_pairs.cpp - products of many tokens with bf16 weights where the processor
// multiplies pairs of bf16 numbers: panels as in kernels_vector_panels.cpp, of pairs of columns; or
// matrix registers, where it has them (kernels_vector_amx-inl.h).
//
// A pair of columns takes the place of two columns, and the second place is left out. So the layout
// code of panels and inputs need not know about pairs.
#include "core/execute/cpu/kernels_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/execute/cpu/kernels_vector_pairs.cpp"
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <atomic>
#include <string_view>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "core/execute/cpu/kernels_vector-inl.h"
#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/kernels_vector_choice.h"

HWY_BEFORE_NAMESPACE();
namespace moorage::core::HWY_NAMESPACE {
namespace {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

constexpr uint32_t WIDTH = 2 * LANES, TILE_TOKENS = 12;

using words = hn::Vec<word_tag>;

void pack_side(const std::byte *const *rows, size_t ahead, uint32_t begin, uint32_t count,
               uint32_t *panel) {
    const word_tag d;
    for (uint32_t done = 0; done < count; done += 2 * LANES) {
        const uint32_t columns = HWY_MIN(2 * LANES, count - done);
        words v[LANES];
        for (uint32_t r = 0; r < LANES; ++r) {
            const std::byte *const source = rows[r] + size_t{begin + done} * 2;
            hwy::Prefetch(reinterpret_cast<const uint8_t *>(source) + ahead);
            if (columns == 2 * LANES) {
                v[r] = hn::BitCast(d, load_floats(source));
            } else {
                alignas(64) uint32_t rest[LANES] = {};
                std::memcpy(rest, source, columns * 2);
                v[r] = hn::Load(d, rest);
            }
        }
        transpose(d, v);
        uint32_t *target = panel + size_t{done} * WIDTH;
        for (uint32_t i = 0; 2 * i < columns; ++i, target += 2 * WIDTH) hn::Store(v[i], d, target);
    }
}

void pack(const panel_source &source, uint32_t begin, uint32_t count, float *panel) {
    for (uint32_t side = 0; side < 2; ++side)
        pack_side(source.rows + side * LANES, source.sides[side].ahead, begin, count,
                  reinterpret_cast<uint32_t *>(panel) + side * LANES);
}

// Two vectors of floats as pairs in their order.
HWY_INLINE words pairs_of(const float *source) {
    const float_tag d;
    const auto low = hn::LoadU(d, source), high = hn::LoadU(d, source + LANES);
    words pairs;
    asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(pairs.raw) : "v"(low.raw), "v"(high.raw));
    return pairs;
}

void pack_input(const float *const *inputs, uint32_t tokens, uint32_t columns, float *target) {
    const word_tag d;
    const uint32_t whole = columns / (2 * LANES) * (2 * LANES);
    for (uint32_t first = 0; first < tokens; first += LANES) {
        const uint32_t count = HWY_MIN(LANES, tokens - first);
        for (uint32_t column = 0; column < whole; column += 2 * LANES) {
            words v[LANES];
            for (uint32_t t = 0; t < LANES; ++t)
                v[t] = t < count ? pairs_of(inputs[first + t] + column) : hn::Zero(d);
            transpose(d, v);
            for (uint32_t pair = 0; pair < LANES; ++pair) {
                alignas(64) uint32_t pair_row[LANES];
                hn::Store(v[pair], d, pair_row);
                std::memcpy(target + size_t{column + 2 * pair} * tokens + first, pair_row,
                            count * sizeof(float));
            }
        }
    }
    for (uint32_t t = 0; t < tokens; ++t)
        for (uint32_t column = whole; column < columns; column += 2) {
            const float second = column + 1 < columns ? inputs[t][column + 1] : 0;
            target[size_t{column} * tokens + t] = pair_of_floats(inputs[t][column], second);
        }
}

// AVX512_BF16, which no target of older Highways names: the processor is asked (table()).
HWY_INLINE float_vector multiply_pairs(float_vector sum, words weights, words inputs) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(weights.raw), "v"(inputs.raw));
    return sum;
}

template <uint32_t tokens>
void run_tile(const tile_task &task) {
    const float_tag d;
    const word_tag pairs;
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
    const auto *panel = reinterpret_cast<const uint32_t *>(task.panel);
    const auto *input = reinterpret_cast<const uint32_t *>(task.input);
    for (uint32_t column = 0; column < task.columns; column += 2) {
        const auto weights_left = hn::Load(pairs, panel);
        const auto weights_right = hn::Load(pairs, panel + LANES);
        for (uint32_t t = 0; t < tokens; ++t) {
            const auto value = hn::Set(pairs, input[t]);
            left[t] = multiply_pairs(left[t], weights_left, value);
            right[t] = multiply_pairs(right[t], weights_right, value);
        }
        panel += 2 * WIDTH;
        input += 2 * tokens;
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
    alignas(64) float outputs[tokens * WIDTH] = {}, start[WIDTH] = {};
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

#if HWY_ARCH_X86_64
#include "core/execute/cpu/kernels_vector_amx-inl.h"

const panel_kernels *register_kernels() {
    static constexpr panel_kernels KERNELS = {.products = "amx",
                                              .width = WIDTH,
                                              .tokens = amx::HALVES * amx::ROWS,
                                              .tokens_unit = amx::ROWS,
                                              .columns = UINT32_MAX,
                                              .pack = amx::store_row_pointers,
                                              .pack_input = pack_input,
                                              .tile = amx::tile,
                                              .release = amx::release_registers};
    static const bool available = amx::is_available();
    return available ? &KERNELS : nullptr;
}
#else
const panel_kernels *register_kernels() { return nullptr; }
#endif

const panel_kernels *table(bool registers_wanted) {
    static constexpr panel_kernels KERNELS = {.products = "vectors",
                                              .width = WIDTH,
                                              .tokens = TILE_TOKENS,
                                              .pack = pack,
                                              .pack_input = pack_input,
                                              .tile = tile};
    if (!__builtin_cpu_supports("avx512bf16")) return nullptr;
    return registers_wanted && register_kernels() ? register_kernels() : &KERNELS;
}

#else

const panel_kernels *table(bool) { return nullptr; }

#endif

}  // namespace
}  // namespace moorage::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moorage::core {
namespace {
std::atomic<bool> registers_wanted = true;
}  // namespace
const panel_kernels *vector_pair_panels() { return MOORAGE_CHOSEN_TARGET(table)(registers_wanted); }
std::string_view pair_kernel_name() {
    const panel_kernels *const pairs = vector_pair_panels();
    return (pairs ? *pairs : vector_panels()).products;
}
void use_matrix_registers(bool enabled) { registers_wanted = enabled; }
}  // namespace moorage::core
#endif
