// portable_math.h - logarithm and powers that round alike on every machine.
//
// The library's log and pow differ between machines in the last bit. These functions use only + - *
// / and exact scaling, which do not differ. Relative error below 1e-13.
#pragma once

namespace moorage::core {

// Requires: value > 0, finite.
double portable_log(double value);
// Requires: finite.
double portable_exp(double power);
// Requires: base > 0, both finite.
double portable_pow(double base, double power);

}  // namespace moorage::core
