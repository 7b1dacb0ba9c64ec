// comparison_csv.cpp - a comparison as comma-separated values: a line for each row, a column for
// each setting that differs and for each figure that some row has.
#include <algorithm>

#include "core/base/json.h"
#include "core/base/text.h"
#include "tools/comparison/comparison.h"
#include "core/report/figure_table.h"

namespace moorage::core {

namespace {

// As RFC 4180 has it: quoted where it must be, a quote doubled.
std::string csv_cell(std::string_view text) {
    if (text.find_first_of(",\"\r\n") == text.npos) return std::string(text);
    std::string quoted = "\"";
    for (const char character : text)
        quoted += character == '"' ? "\"\"" : std::string(1, character);
    return quoted + "\"";
}

std::string csv_line(const std::vector<std::string> &cells) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) line += (i == 0 ? "" : ",") + csv_cell(cells[i]);
    return line + "\r\n";
}

std::string number_text(const json &value) {
    if (!value.is_number()) return "";
    return value.is_number_float() ? format("{}", value.get<double>()) : value.dump();
}

struct csv_column {
    std::string heading;
    std::vector<std::string> cells;  // by row
};

// A column for each figure that is one number. Figures that no row has get none.
std::vector<csv_column> figure_columns(const comparison &compared) {
    std::vector<csv_column> columns;
    for (const auto &[path, figure] : all_figures()) {
        if (path.find('*') != path.npos || figure->unit == figure_unit::text ||
            figure->unit == figure_unit::flag || figure->unit == figure_unit::parts)
            continue;
        csv_column column{path, {}};
        for (const comparison_row &row : compared.rows) {
            json value = value_of_figure(row.report, path);
            if (value.is_number() && !row.repeats_ms.empty())
                value = mean_or(row, path, value.get<double>());
            column.cells.push_back(number_text(value));
        }
        if (std::ranges::any_of(column.cells, [](const auto &cell) { return !cell.empty(); }))
            columns.push_back(std::move(column));
    }
    return columns;
}

}  // namespace

std::string to_csv(const comparison &compared) {
    const comparison_view view = view_of(compared);
    std::vector<csv_column> columns{{"row", view.labels}};
    for (const key_column &key : view.columns) columns.push_back({key.heading, key.values});
    csv_column profile{"profile", {}}, slots{"cached_experts", {}}, best{"nothing_beats_it", {}};
    for (size_t i = 0; i < compared.rows.size(); ++i) {
        profile.cells.push_back(compared.rows[i].report.profile);
        slots.cells.push_back(format("{}", view.slots[i]));
        best.cells.push_back(view.pareto[i] ? "1" : "0");
    }
    for (csv_column *column : {&profile, &slots, &best}) columns.push_back(std::move(*column));
    for (csv_column &column : figure_columns(compared)) columns.push_back(std::move(column));
    std::vector<std::string> cells;
    for (const csv_column &column : columns) cells.push_back(column.heading);
    cells.emplace_back("failed");
    std::string text = csv_line(cells);
    for (size_t row = 0; row < compared.rows.size(); ++row) {
        cells.clear();
        for (const csv_column &column : columns) cells.push_back(column.cells[row]);
        cells.emplace_back();
        text += csv_line(cells);
    }
    for (const failed_row &row : compared.failed) {
        cells.assign(columns.size() + 1, "");
        cells.front() = row.label;
        cells.back() = row.reason;
        text += csv_line(cells);
    }
    return text;
}

}  // namespace moorage::core
