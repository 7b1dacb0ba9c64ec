// fit.h - a polynomial through measured points by least squares.
//
//   const auto line = fit_polynomial({{0, 10}, {0.5, 8}, {1, 6}}, 1);   // 10 - 4 x
//   (*line)(0.25) == 9
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

struct fit_point {
    double x = 0, y = 0;
};

class polynomial {
public:
    // In u = (x - center) / scale, lowest power first. Requires: scale above 0, one term at least.
    polynomial(std::vector<double> terms, double center, double scale)
        : terms_(std::move(terms)), center_(center), scale_(scale) {}

    double operator()(double x) const;
    // Of the powers of x itself, lowest first: to be shown, not to be computed with.
    std::vector<double> coefficients() const;
    uint32_t degree() const { return static_cast<uint32_t>(terms_.size() - 1); }

private:
    std::vector<double> terms_;
    double center_, scale_;
};

inline constexpr uint32_t fit_degree_max = 8;

// By polynomials that are orthogonal over the points (Forsythe 1957), so that no equations have to
// be solved; points of equal x count each. Errors: a degree above fit_degree_max, not more
// different x than the degree, or a value that is not finite.
result<polynomial> fit_polynomial(std::span<const fit_point> points, uint32_t degree);

// How well it goes through the points.
struct fit_quality {
    double r2 = 1;         // share of the points' variance that it explains; 1 where there is none
    double error_max = 0;  // largest |fitted - y|
};
fit_quality quality_of(const polynomial &fit, std::span<const fit_point> points);

}  // namespace moorage::core
