// kernels_vector_choice.h - chooses among functions that were compiled once per instruction set.
// Include after hwy/highway.h.
//
//     #if HWY_ONCE
//     const row_kernels &vector_rows() { return *MOORAGE_CHOSEN_TARGET(table)(); }
//     #endif
//
// Highway's own choice is in its shared library. When that library is loaded, other parts of it
// time the processor in every program. They use an instruction that not every machine or emulator
// has.
#pragma once

#include <cstddef>

namespace moorage::core {

// The index of the set in use, in a list of functions as below. It is the best set that the
// processor has, unless choose_vector_target() says otherwise.
size_t chosen_vector_target();

}  // namespace moorage::core

// The function of that name for the set in use.
#define MOORAGE_CHOSEN_TARGET(function)                                           \
    [] {                                                                          \
        static constexpr decltype(&HWY_STATIC_DISPATCH(function)) FUNCTIONS[] = { \
            HWY_CHOOSE_TARGET_LIST(function), HWY_CHOOSE_FALLBACK(function)};     \
        return FUNCTIONS[chosen_vector_target()];                                 \
    }()
