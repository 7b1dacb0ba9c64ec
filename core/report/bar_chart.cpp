// bar_chart.cpp - draws blocks of bars with their legend.
#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "core/report/chart.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

constexpr double width = 560;
constexpr size_t name_columns_max = 26;
constexpr double value_width = 56;  // room for the figure behind a bar

std::string text_at(double x, double y, const char *anchor, const std::string &text,
                    const char *css) {
    return format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" class=\"{}\">{}</text>", pixels(x),
                  pixels(y), anchor, css, escape_markup(text));
}

std::string rect_at(double x, double y, double rect_width, double height, const char *css) {
    return format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{}\"/>", pixels(x),
                  pixels(y), pixels(rect_width), pixels(height), css);
}

// The series with their colours, in as many lines as they need; `bottom` is where they end.
std::string legend_of(const bar_chart &chart, double &bottom) {
    if (chart.series.size() < 2) return "";
    std::string svg;
    double x = 4, y = 14;
    for (const auto &[name, look] : chart.series) {
        const std::string shown = shortened(name, 2 * name_columns_max);
        const double needed = 16 + text_pixels(shown) + 18;
        if (x > 4 && x + needed > width) x = 4, y += 18;
        svg += "<g class=\"" + look.color_class() + "\">" + rect_at(x, y - 9, 10, 10, "bar") +
               "</g>" + text_at(x + 16, y, "start", shown, "name") + "\n";
        x += needed;
    }
    bottom = y + 10;
    return svg;
}

struct area_of_bars {
    double left, right, bar_height;
};

std::string draw_block(const bar_chart &chart, const bar_block &block, const round_axis &axis,
                       const area_of_bars &area, double y) {
    const double height = area.bar_height * double(block.bars.size());
    std::string svg = text_at(area.left - 8, y + height / 2 + 4, "end",
                              shortened(block.name, name_columns_max), "name");
    for (size_t i = 0; i < block.bars.size(); ++i, y += area.bar_height) {
        const bar_block::bar &bar = block.bars[i];
        if (!std::isfinite(bar.value)) continue;
        const double end = axis.place(bar.value, area.left, area.right);
        const double solid = axis.place(bar.value - bar.pale, area.left, area.right);
        const double thick = std::max(2.0, area.bar_height - 1);
        svg += "<g class=\"" + chart.series[i].second.color_class() + "\"><title>" +
               escape_markup(bar.hint) + "</title>" +
               rect_at(area.left, y, std::max(1.0, solid - area.left), thick, "bar");
        if (bar.pale > 0) svg += rect_at(solid, y, end - solid, thick, "pale");
        svg += "</g>";
        if (area.bar_height >= 11)
            svg += text_at(end + 5, y + area.bar_height / 2 + 4, "start", three_digits(bar.value),
                           "tick");
    }
    return svg + "\n";
}

}  // namespace

std::string draw(const bar_chart &chart) {
    double high = 0, widest = 0;
    for (const bar_block &block : chart.blocks) {
        widest = std::max(widest, text_pixels(shortened(block.name, name_columns_max)));
        for (const bar_block::bar &bar : block.bars)
            if (std::isfinite(bar.value)) high = std::max(high, bar.value);
    }
    if (high <= 0) return "";
    const round_axis axis = axis_for(0, high, 5);
    double top = 6;
    std::string body = legend_of(chart, top);
    const double bar_height = chart.series.size() == 1 ? 16 : chart.series.size() <= 4 ? 12 : 7;
    const area_of_bars area{widest + 14, width - value_width, bar_height};
    const double block_height = bar_height * double(chart.series.size()) + 8;
    const double bottom = top + block_height * double(chart.blocks.size());
    for (const double tick : axis.ticks) {
        const double x = axis.place(tick, area.left, area.right);
        body += format("<line x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\" class=\"grid\"/>",
                       pixels(x), pixels(top), pixels(bottom));
        body += text_at(x, bottom + 17, "middle", axis.label(tick), "tick") + "\n";
    }
    for (size_t i = 0; i < chart.blocks.size(); ++i)
        body += draw_block(chart, chart.blocks[i], axis, area, top + 4 + block_height * double(i));
    body += text_at((area.left + area.right) / 2, bottom + 36, "middle", chart.x_title, "name");
    return format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", pixels(width),
                  pixels(bottom + 44), escape_markup(chart.label)) +
           body + "\n</svg>\n";
}

}  // namespace moorage::core
