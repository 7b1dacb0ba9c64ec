// chart.cpp - lays out and draws line charts and dot charts.
#include "core/report/chart.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/text.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

constexpr double chart_width = 560;
constexpr size_t name_columns_max = 26;

struct frame {
    double left, right, top, bottom;  // of the plotting area
};

std::string open_svg(double width, double height, const std::string &label) {
    return format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", pixels(width),
                  pixels(height), escape_markup(label));
}

std::string text_at(double x, double y, const std::string &anchor, const std::string &text,
                    const std::string &css = "") {
    return format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", pixels(x), pixels(y),
                  anchor, css.empty() ? "" : " class=\"" + css + "\"", escape_markup(text));
}

std::string line_from(double x1, double y1, double x2, double y2, const std::string &css) {
    return format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{}\"/>\n", pixels(x1),
                  pixels(y1), pixels(x2), pixels(y2), css);
}

std::string hint_of(const std::string &hint) {
    return hint.empty() ? "" : "<title>" + escape_markup(hint) + "</title>";
}

std::string x_axis(const round_axis &axis, const frame &area, const std::string &title, bool grid) {
    std::string svg;
    for (const double tick : axis.ticks) {
        const double x = axis.place(tick, area.left, area.right);
        svg += grid ? line_from(x, area.top, x, area.bottom, "grid")
                    : line_from(x, area.bottom, x, area.bottom + 4, "axis");
        svg += text_at(x, area.bottom + 17, "middle", axis.label(tick), "tick");
    }
    svg += line_from(area.left, area.bottom, area.right, area.bottom, "axis");
    return svg + text_at((area.left + area.right) / 2, area.bottom + 36, "middle", title);
}

std::string y_axis(const round_axis &axis, const frame &area, const std::string &title) {
    std::string svg;
    for (const double tick : axis.ticks) {
        const double y = axis.place(tick, area.bottom, area.top);
        svg += line_from(area.left, y, area.right, y, "grid");
        svg += text_at(area.left - 7, y + 4, "end", axis.label(tick), "tick");
    }
    return svg + text_at(4, area.top - 14, "start", title);
}

// Moves heights apart until neighbours are `distance` away, and all stay between top and bottom as
// far as there is room. Keeps their order.
std::vector<double> spread(const std::vector<double> &wanted, double distance, double top,
                           double bottom) {
    std::vector<size_t> order(wanted.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return wanted[a] < wanted[b]; });
    std::vector<double> placed = wanted;
    double floor = top;
    for (const size_t i : order) {
        placed[i] = std::max(placed[i], floor);
        floor = placed[i] + distance;
    }
    double ceiling = bottom;
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
        placed[*at] = std::min(placed[*at], ceiling);
        ceiling = placed[*at] - distance;
    }
    return placed;
}

// A line without markers is a border, not a row of runs: drawn through.
std::string dashes_of(const chart_series &series) {
    return series.markers ? series.look.dashes() : "";
}

std::string draw_series(const chart_series &series, const round_axis &x, const round_axis &y,
                        const frame &area) {
    std::string path, dots;
    for (const chart_point &point : series.points) {
        const double px = x.place(point.x, area.left, area.right);
        const double py = y.place(point.y, area.bottom, area.top);
        path += (path.empty() ? "M" : "L") + pixels(px) + " " + pixels(py);
        // The wide invisible circle makes small markers easy to point at.
        dots += "<g>" + hint_of(point.hint) + "<circle cx=\"" + pixels(px) + "\" cy=\"" +
                pixels(py) + "\" r=\"9\" class=\"reach\"/>" +
                (series.markers ? marker(series.look, px, py, 4) : "") + "</g>";
    }
    return format("<g class=\"{}\"><path d=\"{}\" class=\"line\"{}/>{}</g>\n",
                  series.look.color_class(), path, dashes_of(series), dots);
}

std::string draw_names(const std::vector<chart_series> &series, const round_axis &x,
                       const round_axis &y, const frame &area, double bottom) {
    std::vector<double> wanted;
    for (const chart_series &one : series)
        wanted.push_back(y.place(one.points.back().y, area.bottom, area.top));
    const std::vector<double> placed = spread(wanted, 15, area.top, bottom);
    std::string svg;
    for (size_t i = 0; i < series.size(); ++i) {
        const double from = x.place(series[i].points.back().x, area.left, area.right);
        const double to = area.right + 22;
        svg += line_from(from + 6, wanted[i], to - 2, placed[i], "leader");
        svg += format("<g class=\"{}\"><path d=\"M{} {}h18\" class=\"line\"{}/>{}</g>",
                      series[i].look.color_class(), pixels(to), pixels(placed[i]),
                      dashes_of(series[i]),
                      series[i].markers ? marker(series[i].look, to + 9, placed[i], 4) : "");
        svg +=
            text_at(to + 23, placed[i] + 4, "start", shortened(series[i].name, name_columns_max));
    }
    return svg;
}

// `lane`: bars of different looks lie one above the other.
std::string draw_mark(const chart_mark &mark, size_t lane, const round_axis &x, const frame &area) {
    const double from = x.place(std::min(mark.from, x.high), area.left, area.right);
    const double to = x.place(std::min(mark.to, x.high), area.left, area.right);
    const double y = area.bottom - 6 - 6.0 * double(lane);
    return "<g class=\"" + mark.look.color_class() + "\">" + hint_of(mark.hint) +
           line_from(from, area.top, from, area.bottom, "mark") + "<rect x=\"" + pixels(from) +
           "\" y=\"" + pixels(y) + "\" width=\"" + pixels(std::max(3.0, to - from)) +
           "\" height=\"5\" class=\"bar\"/></g>\n";
}

double widest_name(const auto &named) {
    double widest = 0;
    for (const auto &one : named)
        widest = std::max(widest, text_pixels(shortened(one.name, name_columns_max)));
    return widest;
}

// Groups as dots of growing size, in one line.
std::string group_legend(const dot_chart &chart, double left, double width) {
    const std::vector<std::string> &groups = chart.groups;
    const double title_width = chart.group_title.empty() ? 0 : text_pixels(chart.group_title) + 10;
    double needed = title_width;
    for (const std::string &group : groups) needed += text_pixels(group) + 30;
    // Too many to name: the first and the last explain the order.
    std::vector<size_t> shown(groups.size());
    std::iota(shown.begin(), shown.end(), size_t{0});
    if (needed > width) shown = {0, groups.size() - 1};
    std::string svg =
        chart.group_title.empty() ? "" : text_at(left, 18, "start", chart.group_title);
    double x = left + title_width;
    for (const size_t i : shown) {
        const double radius =
            groups.size() == 1 ? 5 : 3 + 4.0 * double(i) / double(groups.size() - 1);
        svg += "<g class=\"plain\"><circle cx=\"" + pixels(x + 7) + "\" cy=\"14\" r=\"" +
               pixels(radius) + "\"/></g>";
        svg += text_at(x + 19, 18, "start", groups[i]);
        x += text_pixels(groups[i]) + 30;
        if (shown.size() < groups.size() && i == 0) {
            svg += text_at(x, 18, "start", "to");
            x += 22;
        }
    }
    return svg;
}

std::string draw_row(const dot_row &row, const round_axis &axis, const frame &area, double y,
                     size_t groups) {
    std::string svg = text_at(area.left - 10, y + 4, "end", shortened(row.name, name_columns_max));
    double low = area.right, high = area.left;
    std::string dots;
    // Largest first, so that none is hidden below another.
    for (size_t i = row.dots.size(); i-- > 0;) {
        if (!std::isfinite(row.dots[i].x)) continue;
        const double x = axis.place(row.dots[i].x, area.left, area.right);
        low = std::min(low, x), high = std::max(high, x);
        const double radius = groups == 1 ? 5 : 3 + 4.0 * double(i) / double(groups - 1);
        dots += "<g class=\"" + row.look.color_class() + " dot\">" + hint_of(row.dots[i].hint) +
                "<circle cx=\"" + pixels(x) + "\" cy=\"" + pixels(y) + "\" r=\"" + pixels(radius) +
                "\"/></g>";
        if (groups == 1)
            dots += text_at(x + 10, y + 4, "start", three_digits(row.dots[i].x), "tick");
    }
    if (groups == 1) low = area.left;  // a single dot: the distance from the axis is what is read
    if (high > low) svg += line_from(low, y, high, y, "rail");
    return svg + dots + "\n";
}

}  // namespace

std::string draw(const line_chart &chart) {
    std::vector<chart_series> series = chart.series;
    for (chart_series &one : series)
        std::erase_if(one.points, [](const chart_point &point) {
            return !std::isfinite(point.x) || !std::isfinite(point.y);
        });
    std::erase_if(series, [](const chart_series &one) { return one.points.empty(); });
    if (series.empty()) return "";
    double x_high = 0, y_high = 0;
    for (const chart_series &one : series) {
        for (const chart_point &point : one.points) {
            x_high = std::max(x_high, point.x);
            y_high = std::max(y_high, point.y);
        }
    }
    round_axis x = axis_for(0, x_high, 6);
    const round_axis y = axis_for(0, y_high, 5);
    // No empty space behind the last size: the axis ends where the data does.
    if (x_high > 0) x.high = x_high;
    std::erase_if(x.ticks, [&](double tick) { return tick > x.high * 1.0001; });
    const double names = double(series.size()) * 15;
    const double height = std::max(340.0, names + 80);
    const frame area{52, chart_width - widest_name(series) - 52, 34, std::max(290.0, height - 50)};
    std::string svg = open_svg(chart_width, height, chart.label);
    svg += y_axis(y, area, chart.y_title) + x_axis(x, area, chart.x_title, false);
    svg += draw_names(series, x, y, area, area.bottom);
    std::vector<size_t> lanes;
    for (const chart_mark &mark : chart.marks) {
        const auto lane = std::find(lanes.begin(), lanes.end(), mark.look.number);
        svg += draw_mark(mark, size_t(lane - lanes.begin()), x, area);
        if (lane == lanes.end()) lanes.push_back(mark.look.number);
    }
    for (const chart_series &one : series) svg += draw_series(one, x, y, area);
    return svg + "</svg>\n";
}

std::string draw(const dot_chart &chart) {
    if (chart.rows.empty() || chart.groups.empty()) return "";
    double high = chart.x_low;
    for (const dot_row &row : chart.rows)
        for (const chart_point &dot : row.dots)
            if (std::isfinite(dot.x)) high = std::max(high, dot.x);
    double low = chart.x_low;
    for (const dot_row &row : chart.rows)
        for (const chart_point &dot : row.dots)
            if (std::isfinite(dot.x)) low = std::min(low, dot.x);
    const round_axis axis = axis_for(low, high, 5);
    constexpr double row_height = 26;
    const bool legend = chart.groups.size() > 1;
    const double top = legend ? 34 : 10;
    const frame area{widest_name(chart.rows) + 20, chart_width - (legend ? 20 : 56), top,
                     top + row_height * double(chart.rows.size())};
    std::string svg = open_svg(chart_width, area.bottom + 48, chart.label);
    svg += x_axis(axis, area, chart.x_title, true);
    if (legend) svg += group_legend(chart, area.left, chart_width - area.left);
    for (size_t i = 0; i < chart.rows.size(); ++i)
        svg += draw_row(chart.rows[i], axis, area, top + row_height * (double(i) + 0.5),
                        chart.groups.size());
    return svg + "</svg>\n";
}

}  // namespace moorage::core
