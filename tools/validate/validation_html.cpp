// validation_html.cpp - a validation as one self-contained page.
#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "tools/comparison/page.h"
#include "tools/validate/validation.h"

namespace moorage::core {

namespace {

// A title, a row of column names, and rows of texts.
struct html_table {
    std::string heading;
    json rows;
    void add_to(json &sections) const {
        if (rows.size() > 1) sections.push_back({heading, rows});
    }
};

std::string ms_text(double ms) { return three_digits(ms) + " ms"; }

const char *class_name(const validated_row &row) {
    return figure_class_names[static_cast<size_t>(row.kind)];
}

json tables(const validation &report) {
    html_table classes{
        "By class",
        {{"class", "rows", "median error", "nine of ten within", "worst", "median ratio"}}};
    for (const error_summary &sum : report.summaries())
        classes.rows.push_back(
            {sum.name, sum.rows, percent(sum.median, 1), percent(sum.ninth_tenth, 1),
             percent(sum.worst, 1) + ", " + sum.worst_id, format("{:.2f}", sum.median_ratio)});
    html_table rows{
        "Rows", {{"row", "group", "class", "engine", "published", "emulated", "ratio", "assumed"}}};
    html_table left_out{"Not emulated", {{"row", "group", "reason"}}};
    for (const validated_row &row : report.rows) {
        if (row.is_emulated())
            rows.rows.push_back({row.figure.id, row.figure.group, class_name(row),
                                 row.figure.engine, ms_text(row.figure.time_ms()),
                                 ms_text(row.emulated_ms), format("{:.2f}", row.ratio()),
                                 fmt::format("{}", fmt::join(row.assumed, ", "))});
        else
            left_out.rows.push_back({row.figure.id, row.figure.group, row.reason});
    }
    html_table pairs{"Slowdowns of pairs", {{"pair", "effect", "published", "emulated", "ratio"}}};
    for (const validated_pair &pair : report.pairs)
        pairs.rows.push_back({pair.pair.pair, pair.pair.effect,
                              pair.pair.unreadable.empty() ? three_digits(pair.pair.slowdown) : "-",
                              pair.is_emulated() ? three_digits(pair.emulated) : "-",
                              pair.is_emulated() ? format("{:.2f}", pair.ratio()) : pair.reason});
    json sections = json::array();
    for (const html_table *table : {&classes, &rows, &pairs, &left_out}) table->add_to(sections);
    return sections;
}

}  // namespace

std::string to_html(const validation &report, const std::string &command) {
    json rows = json::array();
    for (const validated_row &row : report.rows)
        if (row.is_emulated())
            rows.push_back({{"class", class_name(row)},
                            {"published_ms", stable(row.figure.time_ms())},
                            {"emulated_ms", stable(row.emulated_ms)}});
    const std::string count = format(
        "{} of {} rows emulated. Ratio: emulated speed over published; error: how far it is from 1",
        report.emulated_count(), report.rows.size());
    return to_html({.title = "The emulator against " + report.file,
                    .kind = "validation",
                    .command = command,
                    .reading = {count},
                    .text = to_text(report),
                    .data = json{{"rows", std::move(rows)}, {"tables", tables(report)}}});
}

}  // namespace moorage::core
