// fit.cpp - least squares by Forsythe's recurrence of orthogonal polynomials.
#include "core/report/fit.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/text.h"

namespace moorage::core {

namespace {

using terms = std::vector<double>;  // lowest power first

double value_at(const terms &of, double u) {
    double value = 0;
    for (size_t power = of.size(); power-- > 0;) value = value * u + of[power];
    return value;
}

void add_scaled(terms &to, const terms &from, double factor) {
    to.resize(std::max(to.size(), from.size()), 0);
    for (size_t power = 0; power < from.size(); ++power) to[power] += factor * from[power];
}

terms times_u(const terms &of) {
    terms shifted(of.size() + 1, 0);
    std::copy(of.begin(), of.end(), shifted.begin() + 1);
    return shifted;
}

// sum of p(u)^2 u^power over the points
double inner(const terms &p, std::span<const fit_point> points, uint32_t power) {
    double sum = 0;
    for (const fit_point &one : points) {
        const double value = value_at(p, one.x);
        sum += value * value * (power ? one.x : 1);
    }
    return sum;
}

terms fit_scaled(std::span<const fit_point> points, uint32_t degree) {
    terms fitted(1, 0), before, now{1};
    double norm_before = 1;
    for (uint32_t power = 0;; ++power) {
        const double norm = inner(now, points, 0);
        double along = 0;
        for (const fit_point &one : points) along += one.y * value_at(now, one.x);
        add_scaled(fitted, now, along / norm);
        if (power == degree) return fitted;
        terms next = times_u(now);
        add_scaled(next, now, -inner(now, points, 1) / norm);
        if (!before.empty()) add_scaled(next, before, -norm / norm_before);
        before = std::move(now);
        now = std::move(next);
        norm_before = norm;
    }
}

}  // namespace

double polynomial::operator()(double x) const { return value_at(terms_, (x - center_) / scale_); }

std::vector<double> polynomial::coefficients() const {
    // Horner's rule with (x - center) / scale in place of u.
    terms all{0};
    for (size_t power = terms_.size(); power-- > 0;) {
        terms next = times_u(all);
        for (double &term : next) term /= scale_;
        add_scaled(next, all, -center_ / scale_);
        next[0] += terms_[power];
        all = std::move(next);
    }
    all.resize(terms_.size());
    return all;
}

result<polynomial> fit_polynomial(std::span<const fit_point> points, uint32_t degree) {
    if (degree > fit_degree_max)
        return error{
            format("a fit of degree {} is asked for; choose 0 to {}", degree, fit_degree_max),
            true};
    std::set<double> different;
    for (const fit_point &one : points) {
        if (!std::isfinite(one.x) || !std::isfinite(one.y))
            return error{format("a fit needs finite values, and there is ({}, {})", one.x, one.y)};
        different.insert(one.x);
    }
    if (different.size() <= degree)
        return error{format("a fit of degree {} needs {} different values, and there are {}; take "
                            "more samples or a lower degree",
                            degree, degree + 1, different.size()),
                     true};
    const double low = *different.begin(), high = *different.rbegin();
    const double center = (low + high) / 2, scale = high > low ? (high - low) / 2 : 1;
    std::vector<fit_point> scaled(points.begin(), points.end());
    for (fit_point &one : scaled) one.x = (one.x - center) / scale;
    return polynomial(fit_scaled(scaled, degree), center, scale);
}

fit_quality quality_of(const polynomial &fit, std::span<const fit_point> points) {
    double mean = 0, left = 0, all = 0;
    for (const fit_point &one : points) mean += one.y / double(points.size());
    fit_quality quality;
    for (const fit_point &one : points) {
        const double error = fit(one.x) - one.y;
        quality.error_max = std::max(quality.error_max, std::abs(error));
        left += error * error;
        all += (one.y - mean) * (one.y - mean);
    }
    if (all > 0) quality.r2 = 1 - left / all;
    return quality;
}

}  // namespace moorage::core
