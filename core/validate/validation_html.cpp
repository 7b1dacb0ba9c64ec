// validation_html.cpp - a validation as one page that needs nothing else.
#include "core/base/text.h"
#include "core/report/chart.h"
#include "core/report/figures.h"
#include "core/report/html_parts.h"
#include "core/report/svg.h"
#include "core/validate/validation.h"

namespace moorage::core {

namespace {

std::string row_of(const std::vector<std::string> &cells, const std::string &name) {
    std::string html = "<tr>";
    for (const std::string &cell : cells) html += element(name, cell);
    return html + "</tr>\n";
}

std::string table_of(const std::vector<std::string> &heading, const std::string &body) {
    if (body.empty()) return "";
    return "<div class=\"scroll\"><table>\n<thead>" + row_of(heading, "th") + "</thead>\n<tbody>" +
           body + "</tbody></table></div>\n";
}

std::string ms_text(double ms) { return three_digits(ms) + " ms"; }

std::string summary_table(const validation &found) {
    std::string body;
    for (const error_summary &sum : found.summaries())
        body += row_of(
            {sum.name, format("{}", sum.rows), percent(sum.median, 1), percent(sum.ninth_tenth, 1),
             percent(sum.worst, 1) + ", " + sum.worst_id, format("{:.2f}", sum.median_ratio)},
            "td");
    return table_of(
        {"class", "rows", "median error", "nine of ten within", "worst", "median ratio"}, body);
}

std::string rows_table(const validation &found) {
    std::string body;
    for (const validated_row &row : found.rows) {
        if (!row.emulated()) continue;
        body += row_of(
            {row.figure.id, row.figure.group, figure_class_names[static_cast<size_t>(row.of)],
             row.figure.engine, ms_text(row.figure.time_ms()), ms_text(row.emulated_ms),
             format("{:.2f}", row.ratio()), joined(row.assumed)},
            "td");
    }
    return table_of(
        {"row", "group", "class", "engine", "published", "emulated", "ratio", "assumed"}, body);
}

std::string pairs_table(const validation &found) {
    std::string body;
    for (const validated_pair &one : found.pairs) {
        const bool there = one.is_emulated();
        body += row_of({one.pair.pair, one.pair.effect, three_digits(one.pair.slowdown),
                        there ? three_digits(one.emulated) : "-",
                        there ? format("{:.2f}", one.ratio()) : one.reason},
                       "td");
    }
    return table_of({"pair", "effect", "published", "emulated", "ratio"}, body);
}

std::string reasons_table(const validation &found) {
    std::string body;
    for (const validated_row &row : found.rows)
        if (!row.emulated()) body += row_of({row.figure.id, row.figure.group, row.reason}, "td");
    return table_of({"row", "group", "reason"}, body);
}

}  // namespace

std::string scatter_of(const validation &found) {
    scatter_chart chart;
    chart.label = "published against emulated times, by class";
    chart.x_title = "published, ms a step or a token of a prompt";
    chart.y_title = "emulated, ms";
    for (size_t of = 0; of < std::size(figure_class_names); ++of) {
        chart_series series;
        series.name = figure_class_names[of];
        series.look.number = of;
        for (const validated_row &row : found.rows)
            if (row.emulated() && static_cast<size_t>(row.of) == of)
                series.points.push_back(
                    {row.figure.time_ms(), row.emulated_ms,
                     format("{} ({}): {} published, {} emulated", row.figure.id, row.figure.engine,
                            ms_text(row.figure.time_ms()), ms_text(row.emulated_ms))});
        chart.series.push_back(std::move(series));
    }
    return draw(chart);
}

std::string to_html(const validation &found, const std::string &command) {
    const std::string count = format(
        "{} of {} rows emulated. Ratio: emulated speed over published; "
        "error: how far it is from 1.",
        found.emulated(), found.rows.size());
    return page_begin("The emulator against " + found.file) + "<dl class=\"facts\">" +
           fact_line("made by", command) + "</dl>\n" +
           chapter("By class", count, summary_table(found)) +
           chapter("Published against emulated", "Thin lines: a quarter more and less.",
                   maps_of({{"every row that is emulated", scatter_of(found)}})) +
           chapter("Rows", "", rows_table(found)) +
           chapter("Slowdowns of pairs", "", pairs_table(found)) +
           chapter("Not emulated", "", reasons_table(found)) + page_end;
}

}  // namespace moorage::core
