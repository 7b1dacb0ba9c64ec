// validation_html.cpp - a validation as one self-contained page.
#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "core/report/page.h"
#include "core/validate/validation.h"

namespace moorage::core {

namespace {

// A title, a row of column names, and rows of texts.
struct shown_table {
    std::string heading;
    json rows;
    void add_to(json &all) const {
        if (rows.size() > 1) all.push_back({heading, rows});
    }
};

std::string ms_text(double ms) { return three_digits(ms) + " ms"; }

const char *class_of(const validated_row &row) {
    return figure_class_names[static_cast<size_t>(row.of)];
}

json tables(const validation &found) {
    shown_table classes{
        "By class",
        {{"class", "rows", "median error", "nine of ten within", "worst", "median ratio"}}};
    for (const error_summary &sum : found.summaries())
        classes.rows.push_back(
            {sum.name, sum.rows, percent(sum.median, 1), percent(sum.ninth_tenth, 1),
             percent(sum.worst, 1) + ", " + sum.worst_id, format("{:.2f}", sum.median_ratio)});
    shown_table rows{
        "Rows", {{"row", "group", "class", "engine", "published", "emulated", "ratio", "assumed"}}};
    shown_table left_out{"Not emulated", {{"row", "group", "reason"}}};
    for (const validated_row &row : found.rows) {
        if (row.emulated())
            rows.rows.push_back({row.figure.id, row.figure.group, class_of(row), row.figure.engine,
                                 ms_text(row.figure.time_ms()), ms_text(row.emulated_ms),
                                 format("{:.2f}", row.ratio()),
                                 fmt::format("{}", fmt::join(row.assumed, ", "))});
        else
            left_out.rows.push_back({row.figure.id, row.figure.group, row.reason});
    }
    shown_table pairs{"Slowdowns of pairs", {{"pair", "effect", "published", "emulated", "ratio"}}};
    for (const validated_pair &one : found.pairs)
        pairs.rows.push_back({one.pair.pair, one.pair.effect,
                              one.pair.unreadable.empty() ? three_digits(one.pair.slowdown) : "-",
                              one.is_emulated() ? three_digits(one.emulated) : "-",
                              one.is_emulated() ? format("{:.2f}", one.ratio()) : one.reason});
    json all = json::array();
    for (const shown_table *one : {&classes, &rows, &pairs, &left_out}) one->add_to(all);
    return all;
}

}  // namespace

std::string to_html(const validation &found, const std::string &command) {
    json rows = json::array();
    for (const validated_row &row : found.rows)
        if (row.emulated())
            rows.push_back({{"class", class_of(row)},
                            {"published_ms", stable(row.figure.time_ms())},
                            {"emulated_ms", stable(row.emulated_ms)}});
    const std::string count = format(
        "{} of {} rows emulated. Ratio: emulated speed over published; error: how far it is from 1",
        found.emulated(), found.rows.size());
    return to_html({.title = "The emulator against " + found.file,
                    .kind = "validation",
                    .command = command,
                    .reading = {count},
                    .text = to_text(found),
                    .data = json{{"rows", std::move(rows)}, {"tables", tables(found)}}});
}

}  // namespace moorage::core
