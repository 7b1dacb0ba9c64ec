// kernels_targets.h - the vector instruction sets for which kernels are compiled. Include before
// any header of Highway.
#pragma once

// Targets are listed by name, so that a newer Highway adds none. Vectors without a length at
// compile time cannot be kept in arrays. Sets below SSE4 are not worth their code. Sets above AVX3
// add nothing that the kernels use or do not detect themselves.
#define MOORAGE_FEWEST_TARGETS (HWY_SCALAR | HWY_EMU128 | HWY_NEON | HWY_AVX2)
// With sanitizers each target takes a minute to compile. So there is one, and the one that runs
// everywhere.
#ifdef MOORAGE_FEW_TARGETS
#define HWY_DISABLED_TARGETS (~MOORAGE_FEWEST_TARGETS)
#else
#define HWY_DISABLED_TARGETS (~(MOORAGE_FEWEST_TARGETS | HWY_SSE4 | HWY_AVX3))
#endif
// Compiles all attainable targets of these, so that tests can try each.
#define HWY_COMPILE_ALL_ATTAINABLE
