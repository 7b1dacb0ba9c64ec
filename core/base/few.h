// few.h - loops over a handful of values, as the arrays of a decoded token are.
//
// A call of the C library takes longer to begin than two to eight values take to be stored, and so
// does a loop that the compiler has made wide. Longer copies and fills are left to the library.
#pragma once

#include <algorithm>
#include <cstddef>

namespace moorage::core {

inline constexpr size_t few_max = 16;

// In a loop: the compiler leaves it as it is written.
inline void as_written() { __asm__ volatile(""); }

template <class T>
inline void copy_few(const T *from, size_t count, T *to) {
    if (count > few_max) {
        std::copy_n(from, count, to);
        return;
    }
    for (size_t i = 0; i < count; ++i) {
        to[i] = from[i];
        as_written();
    }
}

template <class T>
inline void fill_few(T *to, size_t count, T value) {
    if (count > few_max) {
        std::fill_n(to, count, value);
        return;
    }
    for (size_t i = 0; i < count; ++i) {
        to[i] = value;
        as_written();
    }
}

}  // namespace moorage::core
