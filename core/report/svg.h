// svg.h - the smallest parts of a drawing: safe text, round axes, markers and colours by number.
//
// Colours are CSS classes, not values, so that the page can hold one set for light and one for
// dark: c0 to c7 are eight that colour-blind readers can tell apart, "bound" is the grey of limits.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::core {

// For text and attribute values of HTML and SVG; control characters and broken UTF-8 are replaced.
std::string escape_markup(std::string_view text);

// A coordinate with one decimal at most: 12, 12.5.
std::string pixels(double value);

// An axis whose ends and ticks are multiples of 1, 2 or 5 times a power of ten.
struct round_axis {
    double low = 0, high = 1;
    std::vector<double> ticks;
    int decimals = 0;  // of a tick's label
    std::string label(double tick) const;
    double place(double value, double from, double to) const;  // value to coordinate
};
// Requires: finite values. Covers low to high in about `ticks_about` steps; an empty range is
// widened.
round_axis axis_for(double low, double high, size_t ticks_about);

// How one line of many looks: told apart by colour, marker and dashes, in this order of change.
struct series_look {
    size_t number = 0;
    bool bound = false;  // grey and dashed: a limit, not a contender
    std::string color_class() const;
    std::string dashes() const;  // attribute text, "" when solid
};

// A filled shape around (x, y): circle, square, triangle, diamond, and so on by `look`.
std::string marker(const series_look &look, double x, double y, double radius);

// Estimated width of a text of 12 pixels in the page's font.
double text_pixels(std::string_view text);

// Colour of `share` (0 to 1) on a scale from dark blue over green to yellow that keeps its order in
// grey and for colour-blind readers: "#rrggbb".
std::string scale_color(double share);

}  // namespace moorage::core
