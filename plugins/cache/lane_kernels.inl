// lane_kernels.inl - the arithmetic of the learning caches over LANES values at a time.
//
// lanes.hpp includes it once per instruction set, each time in a namespace of its own, with
//   LANES        floats in a vector: 4, 8 or 16
//   LANES_CODE   the attribute that allows the instruction set
// Every form gives the same bits. Operations are element by element in single precision, in one
// order, each rounded once: no fused multiply-add (`-ffp-contract=off`), square roots and divisions
// as IEEE rounds them. Logarithm and exponential are the polynomials below, not a library's. Sums
// over elements are taken in 16 strided parts for every LANES. g++ and clang, -O0 to -O3, sanitized
// or not, gave equal replays.
//
// Arrays are aligned to 64 bytes and padded to a multiple of 16 elements.

#define LANES_INLINE static inline __attribute__((always_inline)) LANES_CODE

using vf = float __attribute__((vector_size(4 * LANES)));
using vi = int32_t __attribute__((vector_size(4 * LANES)));
using vu = uint32_t __attribute__((vector_size(4 * LANES)));

LANES_INLINE vf load(const float *floats) {
    vf v;
    __builtin_memcpy(&v, floats, sizeof(v));
    return v;
}
LANES_INLINE vu load(const uint32_t *words) {
    vu v;
    __builtin_memcpy(&v, words, sizeof(v));
    return v;
}
LANES_INLINE void store(float *target, vf v) { __builtin_memcpy(target, &v, sizeof(v)); }
LANES_INLINE vf splat(float x) { return x - vf{}; }
LANES_INLINE vu splat(uint32_t x) { return x - vu{}; }
LANES_INLINE vf least(vf a, vf b) { return a < b ? a : b; }
LANES_INLINE vf most(vf a, vf b) { return a > b ? a : b; }

// Natural logarithm of normal positive numbers: x = m 2^e with m in [sqrt(1/2), sqrt(2)), then the
// minimax polynomial of Cephes' logf.
LANES_INLINE vf logarithm(vf x) {
    const vi bits = (vi)x;
    const vi e = (bits - 0x3f3504f3) >> 23;
    const vf m = (vf)(bits - (e << 23)) - 1.0f;
    vf p = splat(7.0376836292e-2f);
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    const vf exponent = __builtin_convertvector(e, vf), square = m * m;
    p = p * m * square + exponent * -2.12194440e-4f;
    return m + (p - 0.5f * square) + exponent * 0.693359375f;
}

// e^x for |x| <= 80: x = n ln 2 + r, then the minimax polynomial of Cephes' expf.
LANES_INLINE vf exponential(vf x) {
    x = most(least(x, splat(80.0f)), splat(-80.0f));
    const vf n = (x * 1.44269504088896341f + 12582912.0f) - 12582912.0f;  // nearest whole number
    const vf r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    vf p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (vf)((__builtin_convertvector(n, vi) + 127) << 23);
}

LANES_INLINE vf log_odds(vf p) {
    p = most(least(p, splat(1 - odds_floor)), splat(odds_floor));
    return logarithm(p / (1.0f - p));
}

// Loads LANES bytes. __builtin_convertvector would take them apart one by one.
LANES_INLINE vu widened(const uint8_t *bytes) {
#if LANES == 16
    return (vu)_mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128((const __m128i *)bytes));
#elif LANES == 8
    return (vu)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)bytes));
#else
    return vu{bytes[0], bytes[1], bytes[2], bytes[3]};
#endif
}

// The same four words, repeated.
LANES_INLINE vu repeated(const uint32_t *four) {
#if LANES == 16
    return (vu)_mm512_maskz_broadcast_i32x4(0xffff, _mm_loadu_si128((const __m128i *)four));
#elif LANES == 8
    return (vu)_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)four));
#else
    return load(four);
#endif
}

// One bit for each of 16 elements: whether it is greater than `bar`.
LANES_INLINE uint32_t above(const float *values, float bar) {
#if LANES == 16
    return _mm512_cmp_ps_mask((__m512)load(values), _mm512_set1_ps(bar), _CMP_GT_OQ);
#elif LANES == 8
    const __m256 bars = _mm256_set1_ps(bar);
    const auto above_mask = [&](const float *block) LANES_CODE {
        return static_cast<uint32_t>(
            _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(block), bars, _CMP_GT_OQ)));
    };
    return above_mask(values) | above_mask(values + 8) << 8;
#elif defined(__SSE2__)
    const __m128 bars = _mm_set1_ps(bar);
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 16; i += 4)
        bits |= static_cast<uint32_t>(_mm_movemask_ps(_mm_cmpgt_ps(_mm_loadu_ps(values + i), bars)))
                << i;
    return bits;
#else
    uint32_t bits = 0;
    for (uint32_t lane = 0; lane < 16; ++lane) bits |= uint32_t{values[lane] > bar} << lane;
    return bits;
#endif
}

// For LANES * 32 rows: the number of columns that contain each row. Bit p of the count of row 32 w
// + b is bit b of planes[p][w].
template <uint32_t Planes>
LANES_INLINE void add_columns(vu *planes, const uint32_t *columns, size_t stride,
                              const uint32_t *chosen, uint32_t count) {
    for (uint32_t p = 0; p < Planes; ++p) planes[p] = vu{};
    for (uint32_t i = 0; i < count; ++i) {
        vu carry = load(columns + chosen[i] * stride);
        for (uint32_t p = 0; p < Planes; ++p) {
            const vu next_carry = planes[p] & carry;
            planes[p] ^= carry;
            carry = next_carry;
        }
    }
}

// For up to 15 columns. The counts are packed to nibbles: rows 4 n + q of a word go into word q of
// four. One shift then moves them into their lanes.
LANES_INLINE void count_few(float *scores, uint32_t rows, const uint32_t *columns, size_t stride,
                            const uint32_t *chosen, uint32_t count) {
    vu place;
    for (uint32_t lane = 0; lane < LANES; ++lane) place[lane] = lane / 4 * 4;
    for (uint32_t word = 0; 32 * word < rows; word += LANES) {
        vu planes[4];
        add_columns<4>(planes, columns + word, stride, chosen, count);
        uint32_t packed[4][LANES];
        for (uint32_t q = 0; q < 4; ++q) {
            vu nibbles = vu{};
            for (uint32_t p = 0; p < 4; ++p) nibbles |= (planes[p] >> q & 0x11111111u) << p;
            __builtin_memcpy(packed[q], &nibbles, sizeof(nibbles));
        }
        for (uint32_t w = 0; w < LANES && 32 * (word + w) < rows; ++w) {
            const uint32_t four[4] = {packed[0][w], packed[1][w], packed[2][w], packed[3][w]};
            const vu nibbles = repeated(four);
            float *block_scores = scores + 32 * (word + w);
            const uint32_t end = rows - 32 * (word + w);
            for (uint32_t i = 0; i < 32 && i < end; i += LANES) {
                const vu common = nibbles >> (place + i) & 15u;
                store(block_scores + i,
                      load(block_scores + i) + __builtin_convertvector((vi)common, vf));
            }
        }
    }
}

LANES_INLINE void count_many(float *scores, uint32_t rows, const uint32_t *columns, size_t stride,
                             const uint32_t *chosen, uint32_t count) {
    constexpr uint32_t planes_max = 16;
    for (uint32_t word = 0; 32 * word < rows; word += LANES) {
        vu planes[planes_max];
        add_columns<planes_max>(planes, columns + word, stride, chosen, count);
        for (uint32_t row = 32 * word; row < rows && row < 32 * (word + LANES); ++row) {
            uint32_t common = 0;
            for (uint32_t p = 0; p < planes_max; ++p)
                common |= (planes[p][row / 32 - word] >> row % 32 & 1u) << p;
            scores[row] += static_cast<float>(common);
        }
    }
}

// scores[row] += number of chosen columns that have the row, added at once; columns are [stride].
LANES_CODE static void count_common(float *scores, uint32_t rows, const uint32_t *columns,
                                    size_t stride, const uint32_t *chosen, uint32_t count) {
    if (count < 16)
        count_few(scores, rows, columns, stride, chosen, count);
    else
        count_many(scores, rows, columns, stride, chosen, count);
}

// target[row] = factor * source[row - 1]; source[-1] can be read.
LANES_CODE static void shift(float *target, const float *source, float factor, uint32_t count) {
    for (uint32_t i = 0; i < count; i += LANES) store(target + i, factor * load(source + i - 1));
}

// Looks through the rows [first, last) from the last down for scores greater than the bar.
LANES_CODE static void find_best(const float *scores, uint32_t first, uint32_t last,
                                 best_rows &best) {
    for (uint32_t end = last; end > first;) {
        const uint32_t begin = (end - 1) & ~15u;
        uint32_t bits = above(scores + begin, best.bar);
        if (bits) [[unlikely]] {
            if (begin + 16 > end) bits &= (1u << (end - begin)) - 1;
            if (begin < first) bits &= ~0u << (first - begin);
            while (bits) {
                const auto lane = static_cast<uint32_t>(std::bit_width(bits)) - 1;
                bits &= ~(1u << lane);
                const float score = scores[begin + lane];
                if (score > best.bar) best.insert(score, begin + lane);
            }
        }
        end = begin;
    }
}

// weights[i] = e^((scores[i] - scores[0]) * sharpness), 16 of them.
LANES_CODE static void match_weights(float *weights, const float *scores, float sharpness) {
    for (uint32_t i = 0; i < 16; i += LANES)
        store(weights + i, exponential((load(scores + i) - scores[0]) * sharpness));
}

LANES_CODE static void log_odds_of(float *log_odds_out, const float *chances, uint32_t count) {
    for (uint32_t i = 0; i < count; i += LANES)
        store(log_odds_out + i, log_odds(load(chances + i)));
}
LANES_CODE static void chances_of(float *chances, const float *log_odds, uint32_t count) {
    for (uint32_t i = 0; i < count; i += LANES)
        store(chances + i, 1.0f / (1.0f + exponential(-load(log_odds + i))));
}

// values += rate * (target - values)
LANES_CODE static void approach(float *values, const float *target, float rate, uint32_t count) {
    for (uint32_t i = 0; i < count; i += LANES) {
        const vf v = load(values + i);
        store(values + i, v + rate * (load(target + i) - v));
    }
}

// target += factor * source
LANES_CODE static void add_scaled(float *target, const float *source, float factor,
                                  uint32_t count) {
    for (uint32_t i = 0; i < count; i += LANES)
        store(target + i, load(target + i) + factor * load(source + i));
}

// chances = chance that at least one of two happens. For the first stream: that stream's chance
// alone. Each chance is (part + prior * min(most, gain * rate)) / whole.
LANES_CODE static void join(float *chances, const float *part, const float *rate,
                            const blend &blend, uint32_t count) {
    for (uint32_t i = 0; i < count; i += LANES) {
        const vf prior = least(splat(blend.most), blend.gain * load(rate + i));
        const vf p = (load(part + i) + blend.prior * prior) * blend.inverse;
        const vf previous = load(chances + i);
        store(chances + i, blend.first ? p : previous + p * (1.0f - previous));
    }
}

// rates = (counts + mass * base) / (visits + mass). counts is already updated.
LANES_CODE static void mean_rates(float *rates, const float *counts, float prior, float inverse,
                                  uint32_t count) {
    for (uint32_t i = 0; i < count; i += LANES)
        store(rates + i, (load(counts + i) + prior) * inverse);
}

// Features, values and the gradient of one visit; see use_values.hpp.
template <uint32_t Extras>
LANES_INLINE void value_step_of(const value_step &step) {
    constexpr uint32_t features = 6 + Extras;
    const uint32_t n = step.padded;
    for (uint32_t f = 0; f < 16 * features; ++f) step.gradient[f] = 0;
    for (uint32_t i = 0; i < n; i += LANES) {
        const vf r2 = log_odds(load(step.rates + i)), r8 = log_odds(load(step.rates + n + i));
        const vf r32 = log_odds(load(step.rates + 2 * n + i));
        const vf r128 = log_odds(load(step.rates + 3 * n + i));
        const vf cumulative = log_odds(load(step.cumulative + i));
        vf x[features];
        x[0] = splat(1.0f);
        x[1] = r2 - r8;
        x[2] = r8 - r32;
        x[3] = r32 - r128;
        x[4] = r128 - cumulative;
        x[5] = cumulative - step.base;
        for (uint32_t j = 0; j < Extras; ++j) x[6 + j] = log_odds(load(step.extra[j] + i)) - r32;
        vf z = splat(step.weights[0]);
        for (uint32_t f = 1; f < features; ++f) z += step.weights[f] * x[f];
        const vf value = 1.0f / (1.0f + exponential(-z));
        const vf used = load(step.used + i);
        const vf target = used + (1.0f - used) * (step.discount * value);
        const vf error = (load(step.values + i) - target) * load(step.real + i);
        store(step.values + i, value);
        float *sum = step.gradient + i % 16;
        store(sum, load(sum) + error);
        store(step.features + i, x[0]);
        for (uint32_t f = 1; f < features; ++f) {
            float *feature = step.features + size_t{f} * n + i;
            store(sum + 16 * f, load(sum + 16 * f) + error * load(feature));
            store(feature, x[f]);
        }
    }
}

LANES_CODE static void run_value_step(const value_step &step) {
    switch (step.extras) {
        case 0:
            return value_step_of<0>(step);
        case 1:
            return value_step_of<1>(step);
        case 2:
            return value_step_of<2>(step);
        default:
            return value_step_of<3>(step);
    }
}

// next += worth[1] if the first follower used an expert. soon += worth[h] for the first h >= 2 of
// the followers that did. Looks at bits one by one, or at all bits at once if there are masks.
LANES_CODE static void add_followers(float *next, float *soon, const followers &followers) {
#if LANES == 16
    for (uint32_t i = 0; i < followers.padded; i += LANES) {
        const auto used = [&](uint32_t h) LANES_CODE {
            __mmask16 mask;
            __builtin_memcpy(&mask,
                             reinterpret_cast<const char *>(followers.rows) +
                                 size_t{followers.chain[h]} * followers.words * 8 + i / 8,
                             2);
            return mask;
        };
        __m512 first = _mm512_setzero_ps();
        for (uint32_t h = followers.length; h >= 2; --h)
            first = _mm512_mask_mov_ps(first, used(h), _mm512_set1_ps(followers.worth[h]));
        store(soon + i, load(soon + i) + (vf)first);
        const __m512 at_once = _mm512_maskz_mov_ps(used(1), _mm512_set1_ps(followers.worth[1]));
        store(next + i, load(next + i) + (vf)at_once);
    }
#else
    const auto spread = [](uint64_t bits, float value, float *sums) {
        for (; bits; bits &= bits - 1) sums[std::countr_zero(bits)] += value;
    };
    for (uint32_t word = 0; word < followers.words; ++word) {
        const uint64_t *line = followers.rows + word;
        spread(line[size_t{followers.chain[1]} * followers.words], followers.worth[1],
               next + 64 * word);
        uint64_t seen = 0;
        for (uint32_t h = 2; h <= followers.length; ++h) {
            const uint64_t bits = line[size_t{followers.chain[h]} * followers.words] & ~seen;
            seen |= bits;
            spread(bits, followers.worth[h], soon + 64 * word);
        }
    }
#endif
}

// The first of the least values among a layer's experts that may be evicted: in a slot, not pinned,
// not buffered, not taken.
LANES_CODE static uint32_t find_least(const float *values, const uint32_t *state,
                                      const uint8_t *taken, uint32_t count) {
    constexpr uint32_t slot_bits = MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT;
    constexpr uint32_t busy = MOORAGE_STATE_PINNED | MOORAGE_STATE_BUFFERED;
    uint32_t least = 0xffffffffu, best = none_found, i = 0;
    const auto consider = [&](uint32_t expert, uint32_t key) {
        if (key < least || (key == least && key != 0xffffffffu && expert < best))
            least = key, best = expert;
    };
    if (count >= LANES) {
        vu keys = splat(0xffffffffu), places = splat(none_found);
        vu place;
        for (uint32_t lane = 0; lane < LANES; ++lane) place[lane] = lane;
        for (; i + LANES <= count; i += LANES, place += LANES) {
            const vu states = load(state + i);
            const vu held = (states & busy) | widened(taken + i);
            const vu value = (vu)load(values + i);  // positive floats have the order of their bits
            const vu key =
                ((held == 0u) & ((states & slot_bits) != 0u)) ? value : splat(0xffffffffu);
            places = key < keys ? place : places;
            keys = key < keys ? key : keys;
        }
        for (uint32_t lane = 0; lane < LANES; ++lane) consider(places[lane], keys[lane]);
    }
    for (; i < count; ++i)
        if ((state[i] & slot_bits) != 0 && (state[i] & busy) == 0 && !taken[i])
            consider(i, std::bit_cast<uint32_t>(values[i]));
    return best;
}

static constexpr lane_kernels table{
    count_common, shift, find_best,  match_weights,  log_odds_of,   chances_of, approach,
    add_scaled,   join,  mean_rates, run_value_step, add_followers, find_least};

#undef LANES_INLINE
#undef LANES
#undef LANES_CODE
