// surroundings.h - what a policy must leave as it found it: how numbers are rounded, locale,
// working directory, signals, umask.
//
// The floating-point environment is looked at after every call, which costs a nanosecond or two;
// the rest, some twenty microseconds, after calls outside of steps, and in `[plugins] guard =
// "full"` after every call.
#pragma once

#include <cstdint>
#include <string>

namespace moorage::core {

#if defined(__x86_64__)
// As every process begins with: control bits of SSE (rounding, exceptions, subnormals) and x87,
// without the flags of what has happened.
inline constexpr uint32_t usual_sse = 0x1f80;
inline constexpr uint16_t usual_x87 = 0x037f;
inline bool arithmetic_is_usual() {
    uint32_t sse;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0" : "=m"(sse));
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return (sse & 0xffc0) == usual_sse && x87 == usual_x87;
}
#elif defined(__aarch64__)
inline bool arithmetic_is_usual() {
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control == 0;
}
#else
inline bool arithmetic_is_usual() { return true; }
#endif

// The process's surroundings as they are now become those that must be kept.
void remember_surroundings();
// Puts back what is otherwise than it was remembered; says what that was, "" for nothing: "the
// rounding mode, the working directory". `all`: not only the arithmetic.
std::string restore_surroundings(bool all);

}  // namespace moorage::core
