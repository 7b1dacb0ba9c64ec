// tuning_text.cpp - the table of a search for a parameter's value, and the sentences below it.
#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "core/report/figures.h"
#include "core/report/substitution.h"
#include "core/report/tuning.h"

namespace moorage::core {

namespace {

constexpr double r2_good = 0.95;
constexpr size_t value_columns = 16, figure_columns = 14, bar_columns = 26;

// Six significant digits, without exponents where they can be avoided.
std::string shown(double value) { return format("{:.6g}", value); }

std::string difference(double fitted, double measured) {
    if (measured == 0) return fitted == 0 ? "no difference" : "measured 0";
    return format("{:+.1f} %", 100 * (fitted - measured) / std::abs(measured) + 0.0);
}

std::string paragraph(std::string_view label, const std::string &said) {
    std::string text;
    for (const std::string &part : wrapped(said, text_columns - 12)) {
        text += "  " + padded_right(label, 10) + part + "\n";
        label = "";
    }
    return text;
}

std::string table_of(const tuning &found) {
    const std::string name = shortened(found.param, value_columns);
    const std::string metric = shortened(found.target.metric, figure_columns);
    std::string text = "  " + padded_left(name, value_columns) + "  " +
                       padded_left(metric, figure_columns) + "  " +
                       padded_left("fitted", figure_columns) + "\n";
    double top = 0;
    for (const fit_point &one : found.samples) top = std::max(top, std::abs(one.y));
    for (const fit_point &one : found.samples) {
        const std::string fitted = found.fit ? shown((*found.fit)(one.x)) : "-";
        std::string row = "  " + padded_left(shown(one.x), value_columns) + "  " +
                          padded_left(shown(one.y), figure_columns) + "  " +
                          padded_left(fitted, figure_columns) + "  ";
        row += block_bar(top > 0 ? std::abs(one.y) / top : 0, bar_columns);
        row.erase(row.find_last_not_of(' ') + 1);
        text += row + (found.target.met_by(one.y) ? " *\n" : "\n");
    }
    return text + "  * meets " + shortened(found.target.text(), text_columns - 10) + "\n";
}

std::string fit_text(const tuning &found) {
    const fit_quality quality = quality_of(*found.fit, found.samples);
    const std::vector<double> terms = found.fit->coefficients();
    std::string text = format("{} = {}", found.target.metric, shown(terms[0]));
    for (size_t power = 1; power < terms.size(); ++power) {
        text += format(" {} {} x", std::signbit(terms[power]) ? "-" : "+",
                       shown(std::abs(terms[power])));
        if (power > 1) text += format("^{}", power);
    }
    text += format(", x = {}; R2 {:.4f}, at most {} off", found.param, quality.r2,
                   shown(quality.error_max));
    if (quality.r2 < r2_good)
        text += "; a poor fit: a higher --degree or a narrower range would foretell more";
    return text;
}

std::string chosen_text(const tuning &found) {
    const value_grid &grid = found.grid;
    const std::string range =
        format("from {} to {} by {}", shown(grid.from), shown(grid.to), shown(grid.step));
    if (!found.fit)
        return format("none: {} values were measured, and a fit of degree {} needs {}",
                      found.samples.size(), found.degree, found.degree + 1);
    if (!found.chosen)
        return format("none: no value {} has a fit that meets {}", range, found.target.text());
    std::string text = format("{} = {}, the {} value {} whose fit ({}) meets {}", found.param,
                              shown(*found.chosen), found.largest ? "largest" : "smallest", range,
                              shown(found.fitted), found.target.text());
    if (found.largest && found.prefer == preference::by_fit)
        text += format("; larger ones make {} worse", found.target.metric);
    return text;
}

}  // namespace

std::string to_text(const tuning &found) {
    std::string text;
    if (!found.samples.empty()) text += table_of(found) + "\n";
    if (!found.failed.empty()) text += failed_text(found.failed, text_columns) + "\n";
    if (found.fit) text += paragraph("fit", fit_text(found));
    text += paragraph("chosen", chosen_text(found));
    if (found.measured)
        text += paragraph(
            "verified",
            format("a run measures {}, the fit said {} ({}): the target is {}",
                   shown(*found.measured), shown(found.fitted),
                   difference(found.fitted, *found.measured), found.met() ? "met" : "missed"));
    if (!found.met() && !found.samples.empty()) {
        const fit_point best = found.best();
        text += paragraph(
            "best seen",
            format("{} at {} = {}{}", shown(best.y), found.param, shown(best.x),
                   found.target.met_by(best.y) ? ", which meets the target: more samples or "
                                                 "another degree would fit it better"
                                               : ""));
    }
    if (found.verified)
        for (const auto &[label, said] : routing_lines(*found.verified))
            text += paragraph(label, said);
    return text;
}

}  // namespace moorage::core
