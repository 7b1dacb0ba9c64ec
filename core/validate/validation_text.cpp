// validation_text.cpp - validations as JSON and as text for a terminal.
#include <cmath>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "core/report/text_table.h"
#include "core/validate/validation.h"

namespace moorage::core {

namespace {

// In the row's own unit: milliseconds of a step, or tokens of the prompt per second.
double own_unit(const validated_row &row, double ms) { return row.figure.prompt ? 1000 / ms : ms; }

json json_of(const error_summary &sum) {
    return {{"rows", sum.rows},
            {"median_error", stable(sum.median)},
            {"p90_error", stable(sum.ninth_tenth)},
            {"worst_error", stable(sum.worst)},
            {"worst", sum.worst_id},
            {"median_ratio", stable(sum.median_ratio)}};
}

json json_of(const validated_row &row, const std::string &against) {
    const measurement &figure = row.figure;
    const bool prompt = figure.prompt || row.of == figure_class::prompt;
    json one = {{"id", figure.id},
                {"group", figure.group},
                {"quality", figure.quality},
                {"phase", prompt ? "prefill" : "decode"},
                {"engine", figure.engine},
                {"unit", figure.prompt ? "tokens_per_s"
                         : prompt      ? "ttft_ms"
                                       : "tpot_ms"},
                {against, nullptr},
                {"class", nullptr},
                {"assumed", nullptr},
                {"emulated", nullptr},
                {"ratio", nullptr},
                {"reason", nullptr}};
    if (figure.unreadable.empty()) one[against] = stable(own_unit(row, figure.time_ms()));
    if (!row.emulated()) {
        one["reason"] = row.reason;
        return one;
    }
    one["class"] = figure_class_names[static_cast<size_t>(row.of)];
    one["emulated"] = stable(own_unit(row, row.emulated_ms));
    one["ratio"] = stable(row.ratio());
    one["assumed"] = row.assumed;
    return one;
}

json json_of(const validated_pair &one) {
    json pair = {
        {"pair", one.pair.pair}, {"effect", one.pair.effect}, {"strength", one.pair.strength},
        {"published", nullptr},  {"emulated", nullptr},       {"ratio", nullptr},
        {"reason", nullptr}};
    if (one.pair.unreadable.empty()) pair["published"] = stable(one.pair.slowdown);
    if (!one.is_emulated()) {
        pair["reason"] = one.reason;
        return pair;
    }
    pair["emulated"] = stable(one.emulated);
    pair["ratio"] = stable(one.ratio());
    return pair;
}

std::string table_of(const std::vector<table_column> &columns) {
    const std::vector<size_t> widths = fitted_widths(columns, text_columns);
    std::string text = heading_line(columns, widths);
    for (size_t row = 0; row < columns.front().cells.size(); ++row)
        text += row_line(columns, widths, row);
    return text;
}

std::string rows_text(const validation &found, figure_class of) {
    std::vector<table_column> columns = {{"row", {}, true},   {"group", {}, true},
                                         {found.against, {}}, {"emulated", {}},
                                         {"unit", {}},        {"ratio", {}}};
    for (const validated_row &row : found.rows) {
        if (!row.emulated() || row.of != of) continue;
        columns[0].cells.push_back(row.figure.id);
        columns[1].cells.push_back(row.figure.group);
        columns[2].cells.push_back(three_digits(own_unit(row, row.figure.time_ms())));
        columns[3].cells.push_back(three_digits(own_unit(row, row.emulated_ms)));
        columns[4].cells.push_back(row.figure.prompt ? "tokens/s" : "ms");
        columns[5].cells.push_back(format("{:.2f}", row.ratio()));
    }
    if (columns[0].cells.empty()) return "";
    return format("{}\n", figure_class_names[static_cast<size_t>(of)]) + table_of(columns) + "\n";
}

std::string pairs_text(const validation &found) {
    if (found.pairs.empty()) return "";
    std::vector<table_column> columns = {{"pair", {}, true},
                                         {"effect", {}, true},
                                         {"published", {}},
                                         {"emulated", {}},
                                         {"ratio", {}}};
    for (const validated_pair &one : found.pairs) {
        if (!one.is_emulated()) continue;
        columns[0].cells.push_back(one.pair.pair);
        columns[1].cells.push_back(one.pair.effect);
        columns[2].cells.push_back(three_digits(one.pair.slowdown));
        columns[3].cells.push_back(three_digits(one.emulated));
        columns[4].cells.push_back(format("{:.2f}", one.ratio()));
    }
    const error_summary sum = found.pair_summary();
    return "slowdowns of pairs\n" + table_of(columns) +
           format(
               "{} of {} pairs: off by a factor of {:.2f} (median), {:.2f} (nine tenths within), "
               "{:.2f} at worst{}\n\n",
               sum.rows, found.pairs.size(), 1 + sum.median, 1 + sum.ninth_tenth, 1 + sum.worst,
               sum.worst_id.empty() ? "" : " (" + sum.worst_id + ")");
}

std::string reasons_text(const validation &found) {
    std::string text;
    for (const validated_row &row : found.rows)
        if (!row.emulated()) text += labelled(row.figure.id, row.reason);
    if (!text.empty()) text = "not emulated\n" + text + "\n";
    std::string pairs;
    for (const validated_pair &one : found.pairs)
        if (!one.is_emulated()) pairs += labelled(one.pair.pair, one.reason);
    return pairs.empty() ? text : text + "pairs not compared\n" + pairs + "\n";
}

}  // namespace

json to_json(const validation &found) {
    json rows = json::array(), pairs = json::array(), classes = json::object();
    for (const validated_row &row : found.rows) rows.push_back(json_of(row, found.against));
    for (const validated_pair &one : found.pairs) pairs.push_back(json_of(one));
    for (const error_summary &sum : found.summaries())
        if (sum.name != "all") classes[sum.name] = json_of(sum);
    json summary = {{"rows", found.rows.size()}, {"emulated", found.emulated()}};
    summary["classes"] = classes;
    if (found.emulated() != 0) summary.update(json_of(found.summaries().back()));
    summary["rows"] = found.rows.size();
    if (!found.pairs.empty()) summary["pairs"] = json_of(found.pair_summary());
    return {{"file", found.file}, {"rows", rows}, {"pairs", pairs}, {"summary", summary}};
}

std::string to_text(const validation &found) {
    std::string text = format("{}: {} of {} rows emulated; ratio: emulated speed over {}\n\n",
                              found.file, found.emulated(), found.rows.size(), found.against);
    for (size_t of = 0; of < std::size(figure_class_names); ++of)
        text += rows_text(found, static_cast<figure_class>(of));
    text += pairs_text(found) + reasons_text(found);
    std::vector<table_column> columns = {{"class", {}, true},  {"rows", {}},
                                         {"median error", {}}, {"9 of 10 within", {}},
                                         {"worst", {}},        {"median ratio", {}}};
    for (const error_summary &sum : found.summaries()) {
        columns[0].cells.push_back(sum.name);
        columns[1].cells.push_back(format("{}", sum.rows));
        columns[2].cells.push_back(percent(sum.median, 1));
        columns[3].cells.push_back(percent(sum.ninth_tenth, 1));
        columns[4].cells.push_back(percent(sum.worst, 1));
        columns[5].cells.push_back(format("{:.2f}", sum.median_ratio));
    }
    return columns[0].cells.empty() ? text : text + table_of(columns);
}

}  // namespace moorage::core
