// kernels_targets.h - which vector instruction sets kernels are compiled for;
// before any header of Highway.
#pragma once

// Vectors without a length at compile time cannot be kept in arrays; SSSE3
// alone is not worth its code. All attainable ones otherwise, so that tests can
// try each.
#define MOORAGE_UNWANTED_TARGETS \
    (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
// With sanitizers, where each takes a minute to compile: one, and what runs everywhere.
#ifdef MOORAGE_FEW_TARGETS
#define HWY_DISABLED_TARGETS (MOORAGE_UNWANTED_TARGETS | HWY_SSE4 | HWY_AVX3 | HWY_AVX3_DL)
#else
#define HWY_DISABLED_TARGETS MOORAGE_UNWANTED_TARGETS
#endif
#define HWY_COMPILE_ALL_ATTAINABLE
