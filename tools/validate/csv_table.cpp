// csv_table.cpp - keeps the records of a text and parses numbers.
#include "tools/validate/csv_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <utility>

#include "core/base/csv_reader.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr size_t text_max = size_t{1} << 26, rows_max = 100'000, columns_max = 256;
constexpr size_t cell_max = 4096;

status check_characters(const std::vector<std::string> &cells) {
    const auto is_control = [](char c) { return (c >= 0 && c < 32) || c == 127; };
    for (const std::string &cell : cells)
        if (std::ranges::any_of(cell, is_control))
            return error{"a control character; a table of texts is needed"};
    return success();
}

}  // namespace

result<csv_table> csv_table::parse(std::string_view text, std::string name) {
    csv_table table;
    table.name_ = std::move(name);
    if (text.size() > text_max)
        return error{format("{}: {} bytes, {} is the limit", table.name_, text.size(), text_max),
                     true};
    std::istringstream input{std::string(text)};
    line_reader lines(input);
    csv_reader records(lines, {.cells_max = columns_max, .cell_bytes_max = cell_max});
    const auto line_error = [&](const error &problem) {
        return error{format("{}:{}: {}", table.name_, lines.number(), problem.text), true};
    };
    const result<bool> has_columns = records.read_columns();
    if (!has_columns) return line_error(has_columns.failure());
    if (!*has_columns)
        return error{table.name_ + ": no line; the first one has to name the columns", true};
    table.columns_ = records.columns();
    if (const status right = check_characters(table.columns_); !right)
        return line_error(right.failure());
    for (;;) {
        std::vector<std::string> cells;
        const result<bool> has_record = records.next(cells);
        if (!has_record) return line_error(has_record.failure());
        if (!*has_record) return table;
        if (const status added = table.add_row(std::move(cells), lines.number()); !added)
            return line_error(added.failure());
    }
}

status csv_table::add_row(std::vector<std::string> cells, uint64_t line) {
    if (const status right = check_characters(cells); !right) return right;
    if (lines_.size() == rows_max) return error{format("more than {} rows", rows_max)};
    cells_.push_back(std::move(cells));
    lines_.push_back(line);
    return success();
}

size_t csv_table::column_of(std::string_view column) const {
    return static_cast<size_t>(std::ranges::find(columns_, column) - columns_.begin());
}

bool csv_table::has(std::string_view column) const { return column_of(column) < columns_.size(); }

std::string_view csv_table::cell(size_t row, std::string_view column) const {
    const size_t index = column_of(column);
    return index < columns_.size() ? std::string_view(cells_[row][index]) : std::string_view();
}

result<double> csv_table::number(size_t row, std::string_view column, double absent, double max,
                                 double min) const {
    const std::string_view text = cell(row, column);
    if (text.empty()) return absent;
    double value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
        value < 0 || value > max || (value > 0 && value < min))
        return error{format("{}: {} {}: a number from {:.4g} to {:.4g} is needed, or nothing",
                            row_location(row), column, printable(text), min, max),
                     true};
    return value;
}

std::string csv_table::row_location(size_t row) const {
    return format("{}:{}", name_, lines_[row]);
}

}  // namespace moorage::core
