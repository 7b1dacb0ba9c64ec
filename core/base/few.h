// few.h - loops over a handful of values, such as the arrays of a decoded token.
//
// A call of the C library takes longer to start than storing two to eight values. So does a loop
// that the compiler has vectorised. Longer copies and fills use the library.
#pragma once

#include <algorithm>
#include <cstddef>

namespace moorage::core {

inline constexpr size_t few_max = 16;

// Put this into a loop to keep the compiler from vectorising it.
inline void prevent_vectorising() { __asm__ volatile(""); }

template <class T>
inline void copy_few(const T *source, size_t count, T *target) {
    if (count > few_max) {
        std::copy_n(source, count, target);
        return;
    }
    for (size_t i = 0; i < count; ++i) {
        target[i] = source[i];
        prevent_vectorising();
    }
}

template <class T>
inline void fill_few(T *target, size_t count, T value) {
    if (count > few_max) {
        std::fill_n(target, count, value);
        return;
    }
    for (size_t i = 0; i < count; ++i) {
        target[i] = value;
        prevent_vectorising();
    }
}

}  // namespace moorage::core
