// text_table.cpp - aligns figures and fits columns into a terminal.
#include "tools/comparison/text_table.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/text.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

// A key column is cut to the first before figures are left out, and never below the second.
constexpr size_t key_columns_wanted = 20, key_columns_min = 8;
constexpr std::string_view gap = "  ";

std::string table_line(const std::vector<table_column> &columns, const std::vector<size_t> &widths,
                       const auto &cell_of) {
    std::string text;
    for (size_t i = 0; i < columns.size(); ++i) {
        if (widths[i] == 0) continue;
        const std::string cell = shortened(cell_of(columns[i]), widths[i]);
        text += gap;
        text += columns[i].is_key ? padded_right(cell, widths[i]) : padded_left(cell, widths[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text + "\n";
}

}  // namespace

size_t table_column::width() const {
    size_t columns = columns_of(heading);
    for (const std::string &cell : cells) columns = std::max(columns, columns_of(cell));
    return columns;
}

std::vector<std::string> aligned(const std::vector<double> &values) {
    double low = 0, high = 0;
    for (const double value : values) {
        if (!std::isfinite(value)) continue;
        if (value > 0 && (low == 0 || value < low)) low = value;
        high = std::max(high, value);
    }
    const auto digits_before_point = [](double value) {
        return value <= 0 ? 1 : int(std::floor(std::log10(value))) + 1;
    };
    const int decimals = std::clamp(3 - digits_before_point(low), 0,
                                    std::max(0, 6 - std::max(1, digits_before_point(high))));
    std::vector<std::string> cells;
    for (const double value : values)
        cells.push_back(std::isfinite(value) ? format("{:.{}f}", value, decimals) : "-");
    return cells;
}

// By the key columns that are shown: what rows are told apart by.
static std::set<std::vector<std::string>> names_of(const std::vector<table_column> &columns,
                                                   const std::vector<size_t> &widths, size_t keys) {
    std::set<std::vector<std::string>> names;
    for (size_t row = 0; keys > 0 && row < columns[0].cells.size(); ++row) {
        std::vector<std::string> name;
        for (size_t i = 0; i < keys; ++i)
            if (widths[i] != 0 && row < columns[i].cells.size())
                name.push_back(columns[i].cells[row]);
        names.insert(std::move(name));
    }
    return names;
}

std::vector<size_t> fitted_widths(const std::vector<table_column> &columns, size_t columns_max) {
    std::vector<size_t> widths;
    for (const table_column &column : columns) widths.push_back(column.width());
    const auto total = [&] {
        size_t sum = 0;
        for (const size_t width : widths) sum += width == 0 ? 0 : width + gap.size();
        return sum;
    };
    const size_t keys = size_t(std::count_if(columns.begin(), columns.end(),
                                             [](const table_column &c) { return c.is_key; }));
    const auto cut_keys = [&](size_t least) {
        const auto keys_end = widths.begin() + std::ptrdiff_t(keys);
        while (total() > columns_max && keys > 0) {
            const auto widest = std::max_element(widths.begin(), keys_end);
            if (*widest <= least) return;
            --*widest;
        }
    };
    cut_keys(key_columns_wanted);
    for (uint8_t priority = UINT8_MAX; priority > 0; --priority)
        for (size_t i = keys; i < columns.size() && total() > columns_max; ++i)
            if (columns[i].drop_priority == priority) widths[i] = 0;
    cut_keys(key_columns_min);
    const size_t told_apart = names_of(columns, widths, keys).size();
    for (size_t i = keys; i-- > 1 && total() > columns_max;) {
        const size_t width = std::exchange(widths[i], 0);
        if (names_of(columns, widths, keys).size() < told_apart) widths[i] = width;
    }
    return widths;
}

std::string left_out(const std::vector<table_column> &columns, const std::vector<size_t> &widths) {
    std::vector<std::string> names;
    for (size_t i = 0; i < columns.size(); ++i)
        if (widths[i] == 0) names.push_back(columns[i].heading);
    return names.empty() ? "" : "hidden, as the table is too narrow: " + listed(names, "and");
}

std::string heading_line(const std::vector<table_column> &columns,
                         const std::vector<size_t> &widths) {
    return table_line(columns, widths, [](const table_column &c) { return c.heading; });
}

std::string row_line(const std::vector<table_column> &columns, const std::vector<size_t> &widths,
                     size_t row) {
    return table_line(columns, widths, [&](const table_column &c) { return c.cells[row]; });
}

}  // namespace moorage::core
