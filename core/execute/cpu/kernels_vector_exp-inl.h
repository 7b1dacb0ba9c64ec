// kernels_vector_exp-inl.h - exp for any argument. Included once per
// instruction set.
#if defined(MOORAGE_KERNELS_VECTOR_EXP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOORAGE_KERNELS_VECTOR_EXP_INL_H
#undef MOORAGE_KERNELS_VECTOR_EXP_INL_H
#else
#define MOORAGE_KERNELS_VECTOR_EXP_INL_H
#endif

#include "hwy/contrib/math/math-inl.h"

#include "core/execute/cpu/kernels_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace moorage::core::HWY_NAMESPACE {

// Zero below -104, and no larger than exp(88), which still fits into a float. A NaN stays a NaN:
// Min, Max and Exp would make a number of it.
HWY_INLINE float_vector exponential(float_vector x) {
    const float_tag d;
    const auto bounded = hn::Max(hn::Min(x, hn::Set(d, 88.0f)), hn::Set(d, -105.0f));
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, bounded));
}

}  // namespace moorage::core::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
