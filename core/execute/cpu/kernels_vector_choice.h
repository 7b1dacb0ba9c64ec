// kernels_vector_choice.h - which of the functions that were compiled once per instruction set is
// called. After hwy/highway.h.
//
//     #if HWY_ONCE
//     const row_kernels &vector_rows() { return *MOORAGE_CHOSEN_TARGET(table)(); }
//     #endif
//
// Highway's own choice lies in its shared library. Other parts of that library time the processor
// as it is loaded, in every program, with an instruction that not every machine or emulator has.
#pragma once

#include <cstddef>

namespace moorage::core {

// The place of the set in use in a list of functions as below: the best that the processor has,
// until choose_vector_target() says otherwise.
size_t chosen_vector_target();

}  // namespace moorage::core

// The function of that name of the set in use.
#define MOORAGE_CHOSEN_TARGET(function)                                           \
    [] {                                                                          \
        static constexpr decltype(&HWY_STATIC_DISPATCH(function)) FUNCTIONS[] = { \
            HWY_CHOOSE_TARGET_LIST(function), HWY_CHOOSE_FALLBACK(function)};     \
        return FUNCTIONS[chosen_vector_target()];                                 \
    }()
