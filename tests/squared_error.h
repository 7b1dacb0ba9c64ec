// squared_error.h - the distance of computed logits from a reference.
#pragma once

#include <cstddef>
#include <span>

namespace moorage::test {

// The mean square of the difference, over the variance of the reference. Both have the same number
// of values.
inline double squared_error(std::span<const float> is, std::span<const float> expected) {
    double apart = 0, sum = 0, squares = 0;
    for (size_t i = 0; i < is.size(); ++i) {
        apart += (double{is[i]} - expected[i]) * (double{is[i]} - expected[i]);
        sum += expected[i];
        squares += double{expected[i]} * expected[i];
    }
    return apart / (squares - sum * sum / static_cast<double>(is.size()));
}

}  // namespace moorage::test
