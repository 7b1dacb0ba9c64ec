// chart.h - the plots of a report as inline SVG: lines, dots by row, scatters, bars, and
// heat maps.
//
// Each function gives one <svg> element with title texts on everything that can be pointed at, or
// "" when there is nothing to draw. Styles are the page's (html.cpp).
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/report/svg.h"

namespace moorage::core {

// A drawing with its heading.
struct chart_figure {
    std::string heading;
    std::string svg;
};

struct chart_point {
    double x = 0, y = 0;
    std::string hint;  // shown when pointed at
};

struct chart_series {
    std::string name;
    series_look look;
    std::vector<chart_point> points;  // by growing x
    bool markers = true;
};

// A span of the x axis, drawn as a bar on it below a line at its begin.
struct chart_mark {
    double from = 0, to = 0;
    series_look look;
    std::string hint;
};

// Lines over a common axis from zero, each named at its right end, so no legend is needed.
struct line_chart {
    std::string label;             // for readers that do not see
    std::string x_title, y_title;  // with units
    std::vector<chart_series> series;
    std::vector<chart_mark> marks = {};
};
std::string draw(const line_chart &chart);

// One row per name, on it a dot per group: fewer dimensions than a line chart needs.
struct dot_row {
    std::string name;
    series_look look;
    std::vector<chart_point> dots;  // x: the value; y is not used; by group
};
struct dot_chart {
    std::string label, x_title;
    std::string group_title;          // before the groups' names: "cached"
    double x_low = 0;                 // where the axis begins
    std::vector<std::string> groups;  // from small to large: named and drawn in this order
    std::vector<dot_row> rows;
};
std::string draw(const dot_chart &chart);

// Dots on two axes of one unit, both by powers of ten, with the diagonal on which y is x, and lines
// a factor of `band` above and below it.
struct scatter_chart {
    std::string label, x_title, y_title;
    std::vector<chart_series> series;  // markers count, lines are not drawn
    double band = 1.25;
};
std::string draw(const scatter_chart &chart);

// Blocks of bars, one bar a series in each; what is part of a bar is drawn paler at its end.
struct bar_block {
    struct bar {
        double value = 0;  // NaN: no bar
        double pale = 0;   // of the value
        std::string hint;
    };
    std::string name;
    std::vector<bar> bars;  // by series
};
struct bar_chart {
    std::string label, x_title;
    std::vector<std::pair<std::string, series_look>> series;
    std::vector<bar_block> blocks;
};
std::string draw(const bar_chart &chart);

// Rows of cells in colours of one scale.
struct heat_row {
    std::string name;
    std::vector<double> values;
};
struct heat_map {
    std::string label, x_title;
    double low = 0, high = 1;  // ends of the colour scale
    std::vector<heat_row> rows;
    std::vector<std::string> column_names = {};  // where pointed at; none: "layer 0", ...
};
std::string draw(const heat_map &map);
// The colour scale with its ends and middle named in percent.
std::string draw_scale(double low, double high, const std::string &title);

}  // namespace moorage::core
