// portable_math.cpp - series for logarithm and exponential, after reducing their arguments.
#include "core/base/portable_math.h"

#include <cassert>
#include <cmath>

namespace moorage::core {

double portable_log(double value) {
    assert(value > 0);
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);  // in [0.5, 1), exact
    const double ratio = (fraction - 1) / (fraction + 1), square = ratio * ratio;
    double sum = 0, term = ratio;
    for (int n = 1; n < 60; n += 2, term *= square) sum += term / n;
    return 2 * sum + exponent * 0.69314718055994530942;
}

double portable_exp(double power) {
    // exp(p) = exp(p / 2^k)^(2^k), with p / 2^k small.
    int halvings = 0;
    while (std::fabs(power) > 0.5) power /= 2, ++halvings;
    double sum = 1, term = 1;
    for (int n = 1; n < 20; ++n) sum += term *= power / n;
    for (; halvings > 0; --halvings) sum *= sum;
    return sum;
}

double portable_pow(double base, double power) {
    assert(base > 0);
    // Whole powers, such as path losses, are products: fewer roundings.
    if (power == std::floor(power) && std::fabs(power) <= 16) {
        double product = 1;
        for (int n = 0; n < static_cast<int>(std::fabs(power)); ++n) product *= base;
        return power < 0 ? 1 / product : product;
    }
    return portable_exp(power * portable_log(base));
}

}  // namespace moorage::core
