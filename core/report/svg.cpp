// svg.cpp - escaping, axis arithmetic, marker shapes and the colour scale.
#include "core/report/svg.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "core/base/json_fwd.h"
#include "core/base/text.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

constexpr size_t colors = 8;

std::string polygon(double x, double y, double radius,
                    std::initializer_list<std::array<double, 2>> corners) {
    std::string points;
    for (const auto &[dx, dy] : corners)
        points +=
            (points.empty() ? "" : " ") + pixels(x + dx * radius) + "," + pixels(y + dy * radius);
    return "<polygon points=\"" + points + "\"/>";
}

}  // namespace

std::string escape_markup(std::string_view text) {
    std::string out;
    for (const char c : repaired_utf8(text)) {
        if (c == '&')
            out += "&amp;";
        else if (c == '<')
            out += "&lt;";
        else if (c == '>')
            out += "&gt;";
        else if (c == '"')
            out += "&quot;";
        else if (c == '\'')
            out += "&#39;";
        else if (c == '\n' || c == '\t' || static_cast<unsigned char>(c) >= 0x20)
            out += c;
        else
            out += ' ';
    }
    return out;
}

std::string pixels(double value) {
    const double rounded = std::round(value * 10) / 10 + 0.0;
    return rounded == std::floor(rounded) ? format("{:.0f}", rounded) : format("{:.1f}", rounded);
}

std::string round_axis::label(double tick) const { return format("{:.{}f}", tick + 0.0, decimals); }

double round_axis::place(double value, double from, double to) const {
    return from + (value - low) / (high - low) * (to - from);
}

round_axis axis_for(double low, double high, size_t ticks_about) {
    assert(std::isfinite(low) && std::isfinite(high) && ticks_about > 0);
    if (high < low) std::swap(low, high);
    if (high - low <= 1e-9 * std::abs(high)) high = low + (low == 0 ? 1 : std::abs(low));
    const double raw = (high - low) / double(ticks_about);
    const double power = std::pow(10, std::floor(std::log10(raw)));
    const double lead = raw / power;
    const double step = power * (lead <= 1.0001 ? 1 : lead <= 2.0001 ? 2 : lead <= 5.0001 ? 5 : 10);
    round_axis axis;
    // Steps are counted in integers: adding them up would drift and lose the last tick.
    const double slack = 1e-9;
    const int64_t first = int64_t(std::floor(low / step + slack));
    const int64_t last = int64_t(std::ceil(high / step - slack));
    for (int64_t i = first; i <= last; ++i) axis.ticks.push_back(double(i) * step);
    axis.low = double(first) * step;
    axis.high = double(last) * step;
    axis.decimals = std::max(0, -int(std::floor(std::log10(step) + 1e-9)));
    return axis;
}

std::string series_look::color_class() const {
    return bound ? "bound" : format("c{}", number % colors);
}

std::string series_look::dashes() const {
    if (bound) return " stroke-dasharray=\"6 4\"";
    static constexpr const char *patterns[] = {"", " stroke-dasharray=\"7 3\"",
                                               " stroke-dasharray=\"2 3\"",
                                               " stroke-dasharray=\"8 3 2 3\""};
    return patterns[number / colors % std::size(patterns)];
}

std::string marker(const series_look &look, double x, double y, double radius) {
    const double r = radius;
    switch (look.bound ? 0 : look.number % colors) {
        case 1:
            return polygon(x, y, r, {{-.9, -.9}, {.9, -.9}, {.9, .9}, {-.9, .9}});
        case 2:
            return polygon(x, y, r, {{0, -1.2}, {1.1, .85}, {-1.1, .85}});
        case 3:
            return polygon(x, y, r, {{0, -1.3}, {1.3, 0}, {0, 1.3}, {-1.3, 0}});
        case 4:
            return polygon(x, y, r, {{0, 1.2}, {1.1, -.85}, {-1.1, -.85}});
        case 5:
            return polygon(x, y, r,
                           {{-.4, -1.2},
                            {.4, -1.2},
                            {.4, -.4},
                            {1.2, -.4},
                            {1.2, .4},
                            {.4, .4},
                            {.4, 1.2},
                            {-.4, 1.2},
                            {-.4, .4},
                            {-1.2, .4},
                            {-1.2, -.4},
                            {-.4, -.4}});
        case 6:
            return polygon(x, y, r, {{0, -1.2}, {1.15, -.35}, {.7, 1}, {-.7, 1}, {-1.15, -.35}});
        case 7:
            return polygon(x, y, r,
                           {{0, -.5},
                            {.6, -1.1},
                            {1.1, -.6},
                            {.5, 0},
                            {1.1, .6},
                            {.6, 1.1},
                            {0, .5},
                            {-.6, 1.1},
                            {-1.1, .6},
                            {-.5, 0},
                            {-1.1, -.6},
                            {-.6, -1.1}});
        default:
            return "<circle cx=\"" + pixels(x) + "\" cy=\"" + pixels(y) + "\" r=\"" + pixels(r) +
                   "\"/>";
    }
}

double text_pixels(std::string_view text) { return 6.7 * double(columns_of(text)); }

std::string scale_color(double share) {
    // Nine samples of viridis (Smith and van der Walt, matplotlib, CC0), mixed linearly.
    static constexpr std::array<std::array<int, 3>, 9> samples = {{{68, 1, 84},
                                                                   {71, 44, 122},
                                                                   {59, 81, 139},
                                                                   {44, 113, 142},
                                                                   {33, 144, 141},
                                                                   {39, 173, 129},
                                                                   {92, 200, 99},
                                                                   {170, 220, 50},
                                                                   {253, 231, 37}}};
    const double at = std::clamp(share, 0.0, 1.0) * double(samples.size() - 1);
    const size_t below = std::min(size_t(at), samples.size() - 2);
    const double part = at - double(below);
    const auto mixed = [&](size_t channel) {
        return int(
            std::lround(samples[below][channel] * (1 - part) + samples[below + 1][channel] * part));
    };
    return format("#{:02x}{:02x}{:02x}", mixed(0), mixed(1), mixed(2));
}

}  // namespace moorage::core
