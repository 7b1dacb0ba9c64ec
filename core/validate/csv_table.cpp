// csv_table.cpp - splits lines into cells and parses numbers.
#include "core/validate/csv_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/base/foreign_file.h"
#include "core/base/text.h"
#include "core/base/safetensors.h"

namespace moorage::core {

namespace {

constexpr size_t text_max = size_t{1} << 26, rows_max = 100'000, columns_max = 256;
constexpr size_t cell_max = 4096;

result<std::vector<std::string>> split_cells(std::string_view line) {
    std::vector<std::string> cells;
    for (size_t position = 0;; ++position) {
        std::string cell;
        if (position < line.size() && line[position] == '"') {
            for (++position;; ++position) {
                if (position >= line.size())
                    return error{format("cell {}: the quote is not closed", cells.size() + 1)};
                if (line[position] != '"')
                    cell += line[position];
                else if (position + 1 < line.size() && line[position + 1] == '"')
                    cell += line[++position];
                else
                    break;
            }
            if (++position < line.size() && line[position] != ',')
                return error{format("cell {}: text behind the closing quote", cells.size() + 1)};
        } else {
            const size_t end = std::min(line.find(',', position), line.size());
            cell = line.substr(position, end - position);
            position = end;
        }
        if (cell.size() > cell_max)
            return error{format("cell {}: {} characters, {} is the limit", cells.size() + 1,
                                cell.size(), cell_max)};
        cells.push_back(std::move(cell));
        if (cells.size() > columns_max) return error{format("more than {} cells", columns_max)};
        if (position >= line.size()) return cells;
    }
}

}  // namespace

result<csv_table> csv_table::parse(std::string_view text, std::string name) {
    csv_table table;
    table.name_ = std::move(name);
    const auto line_error = [&](uint32_t line, const std::string &problem) {
        return error{format("{}:{}: {}", table.name_, line, problem), true};
    };
    if (text.size() > text_max)
        return error{format("{}: {} bytes, {} is the limit", table.name_, text.size(), text_max),
                     true};
    text = without_byte_order_mark(text);
    for (uint32_t line = 1; !text.empty(); ++line) {
        const size_t end = std::min(text.find('\n'), text.size());
        std::string_view line_text = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line_text.ends_with('\r')) line_text.remove_suffix(1);
        if (line_text.empty()) continue;
        const auto control = [](char c) { return (c >= 0 && c < 32) || c == 127; };
        if (std::ranges::any_of(line_text, control))
            return line_error(line, "a control character; a table of texts is needed");
        if (const status done = table.parse_line(line_text, line); !done)
            return line_error(line, done.failure().text);
    }
    if (table.columns_.empty())
        return error{table.name_ + ": no line; the first one has to name the columns", true};
    return table;
}

status csv_table::parse_line(std::string_view line, uint32_t number) {
    auto cells = split_cells(line);
    if (!cells) return cells.failure();
    if (columns_.empty()) {
        columns_ = std::move(cells).value();
        for (auto column = columns_.begin(); column != columns_.end(); ++column)
            if (std::find(columns_.begin(), column, *column) != column)
                return error{format("column {} is there twice", printable(*column))};
        return success();
    }
    if (cells->size() != columns_.size())
        return error{format("{} cells, but the first line names {} columns", cells->size(),
                            columns_.size())};
    if (lines_.size() == rows_max) return error{format("more than {} rows", rows_max)};
    cells_.push_back(std::move(cells).value());
    lines_.push_back(number);
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
