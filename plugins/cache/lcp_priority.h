// lcp_priority.h - the cache priority mu * rho^(nu / omega) as a key that only activations change.
//
// nu grows by one with every token of the layer, for all experts alike. So all priorities of a
// layer fall by the same factor and keep their order. With nu = now - last, the logarithm is
//     log2(mu) + last * log2(1 / rho) / omega  -  now * log2(1 / rho) / omega.
// The key is the part before the last term. It changes only when the expert is activated. Keys are
// integers with 80 bits behind the point, computed from integers alone, so they are equal on every
// machine. Priorities can be equal by the formula: (mu, nu) = (2, 64) and (1, 0) for rho = 1/4,
// omega = 128. Their keys differ by a few of the last bits. Other priorities with counts and
// intervals below 2^20 differ by at least 2^-60. So keys within 2^-64 are the same priority.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace lcp {

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 unsigned_wide;

inline constexpr int key_bits = 80;    // behind the point
inline constexpr int fine_bits = 112;  // behind the point of log2(1 / rho), because it is
                                       // multiplied
inline constexpr wide same = wide{1} << (key_bits - 64);
inline constexpr wide never_activated = -(wide{1} << 125);  // priority 0, below all others

// log2(number), number >= 1, with `bits` (up to 112) behind the point: one squaring per bit.
inline unsigned_wide log2_of(uint64_t number, int bits) {
    const int whole = 63 - std::countl_zero(number);
    unsigned_wide rest = static_cast<unsigned_wide>(number) << (127 - whole);  // [1, 2), 127 bits
    unsigned_wide log = static_cast<unsigned_wide>(whole);
    for (int bit = 0; bit < bits; ++bit) {
        const auto high = static_cast<uint64_t>(rest >> 64), low = static_cast<uint64_t>(rest);
        const unsigned_wide square = static_cast<unsigned_wide>(high) * high +
                                     ((static_cast<unsigned_wide>(high) * low) >> 63);
        // The square has 126 bits behind the point. Below 2 it is doubled, without a branch.
        const auto two = static_cast<uint64_t>(square >> 127);
        log = (log << 1) | two;
        rest = square + (square & (static_cast<unsigned_wide>(two) - 1));
    }
    return log;
}

class priority {
public:
    // Requires: omega in 1 .. 2^30, rho in (2^-16, 1).
    priority(uint64_t omega, double rho) : omega_(omega), logs_(log_count, unknown) {
        int exponent = 0;
        const double fraction = std::frexp(rho, &exponent);  // [0.5, 1): 53 bits, taken exactly
        const auto digits = static_cast<uint64_t>(std::ldexp(fraction, 53));
        decay_ =
            (static_cast<unsigned_wide>(53 - exponent) << fine_bits) - log2_of(digits, fine_bits);
    }

    // Key of an expert activated `count` times, last at clock `last` of its layer (< 2^38).
    wide key(uint64_t count, uint64_t last) {
        return count == 0 ? never_activated : log2(count) + decay(last);
    }
    // The amount that `clock` tokens take off a priority's logarithm. Compares keys of two layers.
    wide decay(uint64_t clock) const {
        const uint64_t windows = clock / omega_, rest = clock % omega_;
        const unsigned_wide high = decay_ >> 32, low = decay_ & 0xffffffffu;
        return static_cast<wide>(windows * high + ((windows * low) >> 32) + rest * high / omega_);
    }

private:
    static constexpr uint64_t log_count = 1 << 16;
    static constexpr wide unknown = -1;
    wide log2(uint64_t count) {
        if (count >= log_count) return static_cast<wide>(log2_of(count, key_bits));
        wide &known = logs_[count];
        if (known == unknown) known = static_cast<wide>(log2_of(count, key_bits));
        return known;
    }

    const uint64_t omega_;
    unsigned_wide decay_ = 0;  // log2(1 / rho), fine_bits behind the point
    std::vector<wide> logs_;   // log2 of small counts, as far as they were needed
};

// Whether an expert of key `a` is evicted before one of key `b`: lowest priority, then smallest id.
inline bool goes_before(wide a, uint32_t id_a, wide b, uint32_t id_b) {
    const wide difference = a - b;
    if (difference < -same) return true;
    return difference <= same && id_a < id_b;
}

// The best first: highest priority, then smallest id.
inline bool better(wide a, uint32_t id_a, wide b, uint32_t id_b) {
    const wide difference = a - b;
    if (difference > same) return true;
    return difference >= -same && id_a < id_b;
}

}  // namespace lcp
