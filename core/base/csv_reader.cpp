// csv_reader.cpp - splits lines into cells.
#include "core/base/csv_reader.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/base/text.h"
#include "core/base/safetensors.h"

namespace moorage::core {

result<bool> csv_reader::read_columns() {
    const result<bool> has_line = lines_.next(line_);
    if (!has_line || !*has_line) return has_line;
    separator_ = rules_.separators.front();
    const auto occurs = [&](char separator) { return line_.find(separator) != line_.npos; };
    if (const auto found = std::ranges::find_if(rules_.separators, occurs);
        found != rules_.separators.end())
        separator_ = *found;
    if (const status right = split_line(columns_); !right) return right.failure();
    std::unordered_set<std::string_view> names;
    for (const std::string &column : columns_)
        if (!names.insert(column).second)
            return error{format("column {} is named twice", printable(column))};
    return true;
}

result<bool> csv_reader::next(std::vector<std::string> &cells) {
    const result<bool> has_line = lines_.next(line_);
    if (!has_line || !*has_line) return has_line;
    if (const status right = split_line(cells); !right) return right.failure();
    if (cells.size() != columns_.size())
        return error{
            format("{} cells, the first line names {} columns", cells.size(), columns_.size())};
    return true;
}

status csv_reader::split_line(std::vector<std::string> &cells) const {
    cells.clear();
    for (size_t begin = 0;; ++begin) {
        if (cells.size() == rules_.cells_max)
            return error{format("more than {} cells", rules_.cells_max)};
        std::string cell;
        const result<size_t> end = read_cell(begin, cell);
        if (!end) return error{format("cell {}: {}", cells.size() + 1, end.failure().text)};
        if (cell.size() > rules_.cell_bytes_max)
            return error{format("cell {}: {} characters, {} is the limit", cells.size() + 1,
                                cell.size(), rules_.cell_bytes_max)};
        cells.push_back(std::move(cell));
        begin = *end;
        if (begin == line_.size()) return success();
    }
}

// Returns where the cell ends: at a separator, or at the end of the line.
result<size_t> csv_reader::read_cell(size_t begin, std::string &cell) const {
    const size_t end = find_separator(begin);
    const bool removes_blanks = rules_.blanks == csv_blanks::remove;
    size_t quote = begin;
    while (removes_blanks && quote < end && is_blank(line_[quote])) ++quote;
    if (quote < end && line_[quote] == '"') return read_quoted(quote + 1, cell);
    const std::string_view text = std::string_view(line_).substr(begin, end - begin);
    cell = removes_blanks ? without_blanks(text) : text;
    return end;
}

// `begin`: behind the opening quote.
result<size_t> csv_reader::read_quoted(size_t begin, std::string &cell) const {
    size_t position = begin;
    for (;; ++position) {
        if (position >= line_.size()) return error{"the quote is not closed"};
        if (line_[position] != '"') {
            cell += line_[position];
        } else if (position + 1 < line_.size() && line_[position + 1] == '"') {
            cell += line_[++position];
        } else {
            break;
        }
    }
    const size_t end = find_separator(++position);
    std::string_view rest = std::string_view(line_).substr(position, end - position);
    if (rules_.blanks == csv_blanks::remove) rest = without_blanks(rest);
    if (!rest.empty()) return error{"text behind the closing quote"};
    return end;
}

size_t csv_reader::find_separator(size_t begin) const {
    return std::min(line_.find(separator_, begin), line_.size());
}

}  // namespace moorage::core
