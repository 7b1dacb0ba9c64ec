// lanes.hpp - vector arithmetic of the learning caches, in the widest form of this processor.
//
// `lanes_of("auto")` picks AVX-512 (with VPOPCNTDQ), AVX2 or the portable form at run time. All
// give the same bits (lane_kernels.inl says why), so a replay is the same file on any machine.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace learning {

// Chances are kept this far from 0 and 1, before log-odds are taken.
inline constexpr float odds_floor = 1e-4f;
inline constexpr uint32_t none_found = 0xffffffffu;
inline constexpr uint32_t matches_max = 16;

// The best rows so far, best first. The one found first wins a tie.
struct best_rows {
    alignas(64) float scores[matches_max];
    uint32_t rows[matches_max];
    uint32_t count, capacity;
    float bar;  // only greater scores matter

    void clear(uint32_t keep, float least) { count = 0, capacity = keep, bar = least; }
    void insert(float score, uint32_t row) {
        uint32_t position = count < capacity ? count++ : capacity - 1;
        for (; position > 0 && scores[position - 1] < score; --position) {
            scores[position] = scores[position - 1];
            rows[position] = rows[position - 1];
        }
        scores[position] = score;
        rows[position] = row;
        if (count == capacity) bar = scores[capacity - 1];
    }
};

struct blend {
    float prior, gain, most, inverse;
    bool first;
};

// One visit of a layer. [n] is padded experts, features are [6 + extras][n].
struct value_step {
    uint32_t padded, extras;
    const float *rates;       // [4][n]
    const float *cumulative;  // [n]
    const float *extra[3];    // [n] chances
    const float *used;        // [n] 1 or 0
    const float *real;        // [n] 1, 0 for padding
    const float *weights;
    float base, discount;
    float *values;    // [n] in: of the visit before; out: of this visit
    float *features;  // the same
    float *gradient;  // [6 + extras][16] out, in 16 parts
};

// The uses of one match in the visits after it. [words] are 64 experts each.
struct followers {
    const uint64_t *rows;   // of the layer, [rows][words]
    const uint32_t *chain;  // [1 .. length] the following rows, one visit after the other
    const float *worth;     // [1 .. length] weight of each row
    uint32_t length, words, padded;
};

struct lane_kernels {
    void (*count_common)(float *, uint32_t, const uint32_t *, size_t, const uint32_t *, uint32_t);
    void (*shift)(float *, const float *, float, uint32_t);
    void (*find_best)(const float *, uint32_t, uint32_t, best_rows &);
    void (*match_weights)(float *, const float *, float);
    void (*log_odds)(float *, const float *, uint32_t);
    void (*chances)(float *, const float *, uint32_t);
    void (*approach)(float *, const float *, float, uint32_t);
    void (*add_scaled)(float *, const float *, float, uint32_t);
    void (*join)(float *, const float *, const float *, const blend &, uint32_t);
    void (*mean_rates)(float *, const float *, float, float, uint32_t);
    void (*value_step)(const value_step &);
    void (*add_followers)(float *, float *, const followers &);
    uint32_t (*find_least)(const float *, const uint32_t *, const uint8_t *, uint32_t);
};

namespace portable {
#define LANES 4
#define LANES_CODE
#include "lane_kernels.inl"
}  // namespace portable

#if defined(__x86_64__)
namespace avx2 {
#define LANES 8
#define LANES_CODE __attribute__((target("avx2")))
#include "lane_kernels.inl"
}  // namespace avx2
namespace avx512 {
#define LANES 16
#define LANES_CODE \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq,avx2")))
#include "lane_kernels.inl"
}  // namespace avx512
#endif

inline constexpr const char *lane_choices = "auto|avx512|avx2|portable";

// Throws if the processor lacks the requested instructions.
inline const lane_kernels &lanes_of(std::string_view name) {
#if defined(__x86_64__)
    const bool has_avx2 = __builtin_cpu_supports("avx2");
    const bool has_avx512 =
        has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vpopcntdq");
    if (has_avx512 && (name == "auto" || name == "avx512")) return avx512::table;
    if (has_avx2 && (name == "auto" || name == "avx2")) return avx2::table;
#endif
    if (name == "auto" || name == "portable") return portable::table;
    throw std::invalid_argument("simd: this processor has no " + std::string(name) +
                                "; take auto or portable");
}

inline constexpr uint32_t padded_to_lanes(uint32_t count) { return (count + 15) & ~15u; }

// An array of zeros aligned for vectors; sized in activate only.
template <class T>
class lane_array {
public:
    void assign(size_t count) {
        values_.assign(count + 64 / sizeof(T), T{});
        const auto address = reinterpret_cast<uintptr_t>(values_.data());
        begin_ = values_.data() + ((64 - address % 64) % 64) / sizeof(T);
        count_ = count;
    }
    lane_array() = default;
    lane_array(const lane_array &) = delete;
    lane_array(lane_array &&) = default;
    lane_array &operator=(lane_array &&) = default;
    void fill(T value) {
        for (size_t i = 0; i < count_; ++i) begin_[i] = value;
    }
    T *data() { return begin_; }
    const T *data() const { return begin_; }
    size_t size() const { return count_; }
    T &operator[](size_t i) { return begin_[i]; }
    const T &operator[](size_t i) const { return begin_[i]; }

private:
    std::vector<T> values_;
    T *begin_ = nullptr;
    size_t count_ = 0;
};

}  // namespace learning
