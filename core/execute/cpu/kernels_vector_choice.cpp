// kernels_vector_choice.cpp - the vector instruction sets of this processor, and the one in use.
#include "core/execute/cpu/kernels_targets.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <atomic>
#include <cstdint>

#include "hwy/highway.h"

#include "core/execute/cpu/kernels_vector.h"
#include "core/execute/cpu/kernels_vector_choice.h"

namespace moorage::core {
namespace {

// Lists of functions have the best set first; what runs everywhere comes last.
constexpr size_t LAST_PLACE = HWY_MAX_DYNAMIC_TARGETS;
constexpr int64_t FALLBACKS = HWY_SCALAR | HWY_EMU128;

int64_t target_at(size_t place) {
    if (place == LAST_PLACE) return HWY_TARGETS & FALLBACKS;
    return int64_t{1} << (HWY_HIGHEST_TARGET_BIT + 1 - HWY_MAX_DYNAMIC_TARGETS + place);
}

// Highway compiles a set for processors that have everything asked for here, not only the features
// in the set's name. __builtin_cpu_supports() also knows whether the system saves the wider
// registers.
int64_t processor_targets() {
    int64_t targets = HWY_STATIC_TARGET | FALLBACKS;
#if HWY_ARCH_X86_64
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("ssse3") || !__builtin_cpu_supports("sse4.1") ||
        !__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul") ||
        !__builtin_cpu_supports("aes"))
        return targets;
    targets |= HWY_SSE4;
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool has_halves = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
    if (!has_halves || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2"))
        return targets;
    targets |= HWY_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd"))
        targets |= HWY_AVX3;
#endif
    return targets;
}

bool can_use(size_t place) {
    static const int64_t usable = processor_targets() & HWY_TARGETS;
    return (usable & target_at(place)) != 0;
}

size_t best_place() {
    for (size_t place = 0; place < LAST_PLACE; ++place)
        if (can_use(place)) return place;
    return LAST_PLACE;
}

std::atomic<size_t> &chosen_place() {
    static std::atomic<size_t> place = best_place();
    return place;
}

}  // namespace

size_t chosen_vector_target() { return chosen_place().load(std::memory_order_relaxed); }

std::string vector_target() { return hwy::TargetName(target_at(chosen_vector_target())); }

std::vector<std::string> vector_targets() {
    std::vector<std::string> names;
    for (size_t place = 0; place <= LAST_PLACE; ++place)
        if (can_use(place)) names.emplace_back(hwy::TargetName(target_at(place)));
    return names;
}

void choose_vector_target(const std::string &name) {
    size_t place = best_place();
    for (size_t candidate = 0; candidate <= LAST_PLACE; ++candidate)
        if (can_use(candidate) && name == hwy::TargetName(target_at(candidate))) place = candidate;
    chosen_place().store(place, std::memory_order_relaxed);
}

}  // namespace moorage::core
