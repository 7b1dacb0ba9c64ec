// validation_text.cpp - validations as JSON and as text for a terminal.
#include <cmath>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "tools/comparison/text_table.h"
#include "tools/validate/validation.h"

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
    const bool prompt = figure.prompt || row.kind == figure_class::prompt;
    json entry = {{"id", figure.id},
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
    if (figure.unreadable.empty()) entry[against] = stable(own_unit(row, figure.time_ms()));
    if (!row.is_emulated()) {
        entry["reason"] = row.reason;
        return entry;
    }
    entry["class"] = figure_class_names[static_cast<size_t>(row.kind)];
    entry["emulated"] = stable(own_unit(row, row.emulated_ms));
    entry["ratio"] = stable(row.ratio());
    entry["assumed"] = row.assumed;
    return entry;
}

json json_of(const validated_pair &pair) {
    json entry = {
        {"pair", pair.pair.pair}, {"effect", pair.pair.effect}, {"strength", pair.pair.strength},
        {"published", nullptr},   {"emulated", nullptr},        {"ratio", nullptr},
        {"reason", nullptr}};
    if (pair.pair.unreadable.empty()) entry["published"] = stable(pair.pair.slowdown);
    if (!pair.is_emulated()) {
        entry["reason"] = pair.reason;
        return entry;
    }
    entry["emulated"] = stable(pair.emulated);
    entry["ratio"] = stable(pair.ratio());
    return entry;
}

std::string table_of(const std::vector<table_column> &columns) {
    const std::vector<size_t> widths = fitted_widths(columns, text_columns);
    std::string text = heading_line(columns, widths);
    for (size_t row = 0; row < columns.front().cells.size(); ++row)
        text += row_line(columns, widths, row);
    return text;
}

std::string rows_text(const validation &report, figure_class kind) {
    std::vector<table_column> columns = {{"row", {}, true},    {"group", {}, true},
                                         {report.against, {}}, {"emulated", {}},
                                         {"unit", {}},         {"ratio", {}}};
    for (const validated_row &row : report.rows) {
        if (!row.is_emulated() || row.kind != kind) continue;
        columns[0].cells.push_back(row.figure.id);
        columns[1].cells.push_back(row.figure.group);
        columns[2].cells.push_back(three_digits(own_unit(row, row.figure.time_ms())));
        columns[3].cells.push_back(three_digits(own_unit(row, row.emulated_ms)));
        columns[4].cells.push_back(row.figure.prompt ? "tokens/s" : "ms");
        columns[5].cells.push_back(format("{:.2f}", row.ratio()));
    }
    if (columns[0].cells.empty()) return "";
    return format("{}\n", figure_class_names[static_cast<size_t>(kind)]) + table_of(columns) + "\n";
}

std::string pairs_text(const validation &report) {
    if (report.pairs.empty()) return "";
    std::vector<table_column> columns = {{"pair", {}, true},
                                         {"effect", {}, true},
                                         {"published", {}},
                                         {"emulated", {}},
                                         {"ratio", {}}};
    for (const validated_pair &pair : report.pairs) {
        if (!pair.is_emulated()) continue;
        columns[0].cells.push_back(pair.pair.pair);
        columns[1].cells.push_back(pair.pair.effect);
        columns[2].cells.push_back(three_digits(pair.pair.slowdown));
        columns[3].cells.push_back(three_digits(pair.emulated));
        columns[4].cells.push_back(format("{:.2f}", pair.ratio()));
    }
    const error_summary sum = report.pair_summary();
    return "slowdowns of pairs\n" + table_of(columns) +
           format(
               "{} of {} pairs: off by a factor of {:.2f} (median), {:.2f} (nine tenths within), "
               "{:.2f} at worst{}\n\n",
               sum.rows, report.pairs.size(), 1 + sum.median, 1 + sum.ninth_tenth, 1 + sum.worst,
               sum.worst_id.empty() ? "" : " (" + sum.worst_id + ")");
}

std::string reasons_text(const validation &report) {
    std::string text;
    for (const validated_row &row : report.rows)
        if (!row.is_emulated()) text += labelled(row.figure.id, row.reason);
    if (!text.empty()) text = "not emulated\n" + text + "\n";
    std::string pairs;
    for (const validated_pair &pair : report.pairs)
        if (!pair.is_emulated()) pairs += labelled(pair.pair.pair, pair.reason);
    return pairs.empty() ? text : text + "pairs not compared\n" + pairs + "\n";
}

}  // namespace

json to_json(const validation &report) {
    json rows = json::array(), pairs = json::array(), classes = json::object();
    for (const validated_row &row : report.rows) rows.push_back(json_of(row, report.against));
    for (const validated_pair &pair : report.pairs) pairs.push_back(json_of(pair));
    for (const error_summary &sum : report.summaries())
        if (sum.name != "all") classes[sum.name] = json_of(sum);
    json summary = {{"rows", report.rows.size()}, {"emulated", report.emulated_count()}};
    summary["classes"] = classes;
    if (report.emulated_count() != 0) summary.update(json_of(report.summaries().back()));
    summary["rows"] = report.rows.size();
    if (!report.pairs.empty()) summary["pairs"] = json_of(report.pair_summary());
    return {{"file", report.file}, {"rows", rows}, {"pairs", pairs}, {"summary", summary}};
}

std::string to_text(const validation &report) {
    std::string text =
        format("{}: {} of {} rows emulated; ratio: emulated speed over {}\n\n", report.file,
               report.emulated_count(), report.rows.size(), report.against);
    for (size_t kind = 0; kind < std::size(figure_class_names); ++kind)
        text += rows_text(report, static_cast<figure_class>(kind));
    text += pairs_text(report) + reasons_text(report);
    std::vector<table_column> columns = {{"class", {}, true},  {"rows", {}},
                                         {"median error", {}}, {"9 of 10 within", {}},
                                         {"worst", {}},        {"median ratio", {}}};
    for (const error_summary &sum : report.summaries()) {
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
