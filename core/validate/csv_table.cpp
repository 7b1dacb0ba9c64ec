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

result<std::vector<std::string>> cells_of(std::string_view line) {
    std::vector<std::string> cells;
    for (size_t at = 0;; ++at) {
        std::string cell;
        if (at < line.size() && line[at] == '"') {
            for (++at;; ++at) {
                if (at >= line.size())
                    return error{format("cell {}: the quote is not closed", cells.size() + 1)};
                if (line[at] != '"')
                    cell += line[at];
                else if (at + 1 < line.size() && line[at + 1] == '"')
                    cell += line[++at];
                else
                    break;
            }
            if (++at < line.size() && line[at] != ',')
                return error{format("cell {}: text behind the closing quote", cells.size() + 1)};
        } else {
            const size_t end = std::min(line.find(',', at), line.size());
            cell = line.substr(at, end - at);
            at = end;
        }
        if (cell.size() > cell_max)
            return error{format("cell {}: {} characters, {} is the limit", cells.size() + 1,
                                cell.size(), cell_max)};
        cells.push_back(std::move(cell));
        if (cells.size() > columns_max) return error{format("more than {} cells", columns_max)};
        if (at >= line.size()) return cells;
    }
}

}  // namespace

result<csv_table> csv_table::parse(std::string_view text, std::string name) {
    csv_table table;
    table.name_ = std::move(name);
    const auto refused = [&](uint32_t line, const std::string &what) {
        return error{format("{}:{}: {}", table.name_, line, what), true};
    };
    if (text.size() > text_max)
        return error{format("{}: {} bytes, {} is the limit", table.name_, text.size(), text_max),
                     true};
    text = without_byte_order_mark(text);
    for (uint32_t line = 1; !text.empty(); ++line) {
        const size_t end = std::min(text.find('\n'), text.size());
        std::string_view one = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (one.ends_with('\r')) one.remove_suffix(1);
        if (one.empty()) continue;
        const auto control = [](char c) { return (c >= 0 && c < 32) || c == 127; };
        if (std::ranges::any_of(one, control))
            return refused(line, "a control character; a table of texts is needed");
        if (const status done = table.parse_line(one, line); !done)
            return refused(line, done.failure().text);
    }
    if (table.columns_.empty())
        return error{table.name_ + ": no line; the first one has to name the columns", true};
    return table;
}

status csv_table::parse_line(std::string_view line, uint32_t number) {
    auto cells = cells_of(line);
    if (!cells) return cells.failure();
    if (columns_.empty()) {
        columns_ = std::move(cells).value();
        for (auto column = columns_.begin(); column != columns_.end(); ++column)
            if (std::find(columns_.begin(), column, *column) != column)
                return error{format("column {} is there twice", shown(*column))};
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
    const size_t at = column_of(column);
    return at < columns_.size() ? std::string_view(cells_[row][at]) : std::string_view();
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
                            place(row), column, shown(text), min, max),
                     true};
    return value;
}

std::string csv_table::place(size_t row) const { return format("{}:{}", name_, lines_[row]); }

}  // namespace moorage::core
