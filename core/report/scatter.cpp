// scatter.cpp - draws dots on two logarithmic axes of one unit.
#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "core/report/chart.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

constexpr double side = 430, left = 64, top = 34, legend = 150;

// Whole powers of ten around all values.
struct log_axis {
    int low = 0, high = 1;
    double place(double value, double from, double to) const {
        return from + (to - from) * (std::log10(value) - low) / (high - low);
    }
};

bool drawable(const chart_point &point) {
    return std::isfinite(point.x) && std::isfinite(point.y) && point.x > 0 && point.y > 0;
}

log_axis axis_of(const scatter_chart &chart) {
    double low = INFINITY, high = 0;
    for (const chart_series &one : chart.series)
        for (const chart_point &point : one.points) {
            if (!drawable(point)) continue;
            low = std::min({low, point.x, point.y});
            high = std::max({high, point.x, point.y});
        }
    if (!(low <= high)) return {0, 0};
    const int from = static_cast<int>(std::floor(std::log10(low)));
    return {from, std::max(from + 1, static_cast<int>(std::ceil(std::log10(high))))};
}

std::string text_at(double x, double y, const char *anchor, const std::string &text,
                    const char *css = "") {
    return format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", pixels(x),
                  pixels(y), anchor, css, escape_markup(text));
}

std::string line_from(double x1, double y1, double x2, double y2, const char *css) {
    return format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{}\"/>\n", pixels(x1),
                  pixels(y1), pixels(x2), pixels(y2), css);
}

// Parallel to the diagonal, `factor` above it, cut at the frame.
std::string parallel(const log_axis &axis, double factor, const char *css) {
    const double shift = side * std::log10(factor) / (axis.high - axis.low);
    const double begin = std::max(0.0, -shift), end = std::min(side, side - shift);
    return line_from(left + begin, top + side - begin - shift, left + end, top + side - end - shift,
                     css);
}

std::string axes(const log_axis &axis, const scatter_chart &chart) {
    std::string svg;
    for (int power = axis.low; power <= axis.high; ++power) {
        const double at = side * (power - axis.low) / (axis.high - axis.low);
        const std::string name = three_digits(std::pow(10.0, power));
        svg += line_from(left + at, top, left + at, top + side, "grid");
        svg += line_from(left, top + side - at, left + side, top + side - at, "grid");
        svg += text_at(left + at, top + side + 17, "middle", name, "tick");
        svg += text_at(left - 7, top + side - at + 4, "end", name, "tick");
    }
    svg += line_from(left, top + side, left + side, top + side, "axis");
    svg += text_at(left + side / 2, top + side + 36, "middle", chart.x_title);
    return svg + text_at(4, top - 14, "start", chart.y_title);
}

}  // namespace

std::string draw(const scatter_chart &chart) {
    const log_axis axis = axis_of(chart);
    if (axis.low == axis.high) return "";
    std::string svg =
        format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
               pixels(left + side + legend), pixels(top + side + 46), escape_markup(chart.label)) +
        axes(axis, chart) + parallel(axis, 1, "axis") + parallel(axis, chart.band, "leader") +
        parallel(axis, 1 / chart.band, "leader");
    double named = top + 8;
    for (const chart_series &one : chart.series) {
        if (std::ranges::none_of(one.points, drawable)) continue;
        svg += "<g class=\"" + one.look.color_class() + "\">";
        for (const chart_point &point : one.points) {
            if (!drawable(point)) continue;
            svg += "<g><title>" + escape_markup(point.hint) + "</title>" +
                   marker(one.look, axis.place(point.x, left, left + side),
                          axis.place(point.y, top + side, top), 4) +
                   "</g>";
        }
        svg += marker(one.look, left + side + 18, named, 4) + "</g>\n";
        svg += text_at(left + side + 30, named + 4, "start", one.name);
        named += 20;
    }
    return svg + "</svg>\n";
}

}  // namespace moorage::core
