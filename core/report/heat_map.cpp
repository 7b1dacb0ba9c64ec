// heat_map.cpp - draws rows of coloured cells and the scale that explains the colours.
#include <algorithm>

#include "core/base/text.h"
#include "core/report/chart.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

constexpr double map_width = 1120;
constexpr double row_height = 20;
constexpr size_t name_columns_max = 30;

double share_of(double value, double low, double high) {
    return high > low ? (value - low) / (high - low) : 0;
}

// Every column's number where there is room, else every 2nd, 4th, 8th ...
size_t label_step(size_t columns, double cell) {
    size_t step = 1;
    while (double(step) * cell < 24 && step < columns) step *= 2;
    return step;
}

}  // namespace

std::string draw(const heat_map &map) {
    size_t columns = 0;
    double widest = 0;
    for (const heat_row &row : map.rows) {
        columns = std::max(columns, row.values.size());
        widest = std::max(widest, text_pixels(shortened(row.name, name_columns_max)));
    }
    if (columns == 0) return "";
    const double left = widest + 14;
    // A few layers must not become a wall of colour.
    const double cell = std::min(48.0, (map_width - left) / double(columns));
    const double bottom = row_height * double(map.rows.size());
    std::string svg = format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                             pixels(map_width), pixels(bottom + 38), escape_markup(map.label));
    for (size_t r = 0; r < map.rows.size(); ++r) {
        const double y = row_height * double(r);
        svg += format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", pixels(left - 8),
                      pixels(y + row_height / 2 + 4),
                      escape_markup(shortened(map.rows[r].name, name_columns_max)));
        for (size_t c = 0; c < map.rows[r].values.size(); ++c) {
            const double value = map.rows[r].values[c];
            svg += format(
                "<rect x=\"{}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"><title>"
                "{}, {}: {}</title></rect>",
                pixels(left + cell * double(c)), pixels(y), std::max(0.5, cell - 0.6),
                pixels(row_height - 1), scale_color(share_of(value, map.low, map.high)),
                escape_markup(map.rows[r].name),
                c < map.column_names.size() ? escape_markup(map.column_names[c])
                                            : format("layer {}", c),
                percent(value, 1));
        }
        svg += "\n";
    }
    const size_t step = label_step(columns, cell);
    for (size_t c = 0; c < columns; c += step)
        svg += format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" class=\"tick\">{}</text>",
                      pixels(left + cell * (double(c) + 0.5)), pixels(bottom + 14), c);
    svg += format("\n<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n</svg>\n",
                  pixels(left + cell * double(columns) / 2), pixels(bottom + 32),
                  escape_markup(map.x_title));
    return svg;
}

std::string draw_scale(double low, double high, const std::string &title) {
    constexpr size_t steps = 40;
    constexpr double width = 240, left = 10;
    std::string svg = format(
        "<svg class=\"scale\" viewBox=\"0 0 {} 46\" role=\"img\" "
        "aria-label=\"{}\">\n",
        pixels(width + 2 * left + 14), escape_markup(title));
    svg += format("<text x=\"{}\" y=\"11\">{}</text>\n", pixels(left), escape_markup(title));
    for (size_t i = 0; i < steps; ++i)
        svg += format("<rect x=\"{:.2f}\" y=\"17\" width=\"{:.2f}\" height=\"10\" fill=\"{}\"/>",
                      left + width * double(i) / steps, width / steps + 0.3,
                      scale_color((double(i) + 0.5) / steps));
    for (const double share : {0.0, 0.5, 1.0})
        svg += format("\n<text x=\"{}\" y=\"42\" text-anchor=\"{}\" class=\"tick\">{:.0f} %</text>",
                      pixels(left + width * share), share == 0 ? "start" : "middle",
                      100 * (low + (high - low) * share));
    return svg + "\n</svg>\n";
}

}  // namespace moorage::core
