// surroundings.h - the process state that a policy must not change: rounding of numbers, locale,
// working directory, signals, umask, limits (ulimit).
//
// The floating-point environment is checked after every call, which costs a nanosecond. The rest
// costs some twenty microseconds. It is checked after calls outside steps, and after every call
// with `[plugins] guard = "full"`.
#pragma once

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <array>
#include <cstdint>
#include <string>

#include "core/base/result.h"

namespace moorage::core {

#if defined(__x86_64__)
// The initial state of every process: control bits of SSE (rounding, exceptions, subnormals) and
// x87, without status flags.
inline constexpr uint32_t usual_sse = 0x1f80;
inline constexpr uint16_t usual_x87 = 0x037f;
inline bool arithmetic_is_usual() {
    uint32_t sse;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0" : "=m"(sse));
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return (sse & 0xffc0) == usual_sse && x87 == usual_x87;
}
// Checks the same state by results of arithmetic. Reading the control bits of SSE takes some
// processors 7 ns (an EPYC of family 26, 2026-11), which was a tenth of an emulated step. Four sums
// show how SSE rounds, that it does not flush subnormal results to zero, and that it does not treat
// subnormal inputs as zero. The sums and the quotients raise every exception. An unmasked one is
// SIGFPE here, within the call. No sum of normal numbers is subnormal, because that takes other
// processors 70 ns (a Xeon of family 6, 2026-11). A sum of a subnormal number and zero costs them
// nothing.
inline bool arithmetic_shows_usual() {
    uint16_t x87;
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    if (x87 != usual_x87) return false;
    using four = float __attribute__((vector_size(16)));
    static constexpr four added{0x1.8p-24f, 0x1p-25f, 0, 0};
    static constexpr four divisors{0, 0, 0x1p-126f, 1};
    four sums{1, 1, 0x1p-127f, -0x1p-127f}, quotients{1, 0, 0x1p127f, 1};
    __asm__ volatile("addps %1, %0" : "+x"(sums) : "m"(added));
    __asm__ volatile("divps %1, %0" : "+x"(quotients) : "m"(divisors));
    const __m128i right = _mm_castps_si128(_mm_setr_ps(1 + 0x1p-23f, 1, 0x1p-127f, -0x1p-127f));
    return _mm_movemask_epi8(_mm_cmpeq_epi32(_mm_castps_si128(sums), right)) == 0xffff;
}
#elif defined(__aarch64__)
inline bool arithmetic_is_usual() {
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control == 0;
}
inline bool arithmetic_shows_usual() { return arithmetic_is_usual(); }
#else
inline bool arithmetic_is_usual() { return true; }
inline bool arithmetic_shows_usual() { return true; }
#endif

// Remembers the current surroundings as those that must be kept.
void remember_surroundings();
// Restores what has changed since, and names it: "the rounding mode, the working directory"; "":
// nothing changed. `whole_state`: not only the arithmetic.
std::string restore_surroundings(bool whole_state);

// Surroundings that belong to no thread and no call. A policy that changes them within a step,
// where they are not checked, is discovered at the end.
class lasting_surroundings {
public:
    lasting_surroundings();  // remembers the current ones
    // Restores what has changed, and names it as restore_surroundings() does.
    std::string restore() const;
    // The same at the end of a run, as a warning.
    std::string restore_at_end() const;
    // A failure whose reason may be such a change, with that text added.
    error explained(error failure) const;

private:
    std::string directory_, locale_;
    uint32_t umask_;
    struct limit {
        uint64_t current, max;
        bool operator==(const limit &) const = default;
    };
    static constexpr size_t limit_count = 4;
    std::array<limit, limit_count> limits_;
};

}  // namespace moorage::core
