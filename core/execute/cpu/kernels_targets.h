// kernels_targets.h - which vector instruction sets kernels are compiled for;
// before any header of Highway.
#pragma once

// Named are those that are wanted, so that none comes in with a newer Highway. Vectors without a
// length at compile time cannot be kept in arrays; sets below SSE4 are not worth their code, and
// what those above AVX3 add the kernels do not use or look for themselves.
#define MOORAGE_FEWEST_TARGETS (HWY_SCALAR | HWY_EMU128 | HWY_NEON | HWY_AVX2)
// With sanitizers, where each takes a minute to compile: one, and what runs everywhere.
#ifdef MOORAGE_FEW_TARGETS
#define HWY_DISABLED_TARGETS (~MOORAGE_FEWEST_TARGETS)
#else
#define HWY_DISABLED_TARGETS (~(MOORAGE_FEWEST_TARGETS | HWY_SSE4 | HWY_AVX3))
#endif
// All attainable ones of these, so that tests can try each.
#define HWY_COMPILE_ALL_ATTAINABLE
