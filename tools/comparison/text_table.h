// text_table.h - a table for a terminal: columns of texts, cut to the available width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace moorage::core {

struct table_column {
    std::string heading;
    std::vector<std::string> cells;  // by row
    bool is_key = false;             // left-aligned, and cut if the table is too wide
    uint8_t drop_priority = 0;       // this figure may be left out, the highest first; 0: never
    size_t width() const;
};

// Equal decimals for a whole column, so that the points are below each other: three significant
// digits for the smallest value, but no more than six for the largest. "-" if a value is not
// finite.
std::vector<std::string> aligned(const std::vector<double> &values);

// Widths that fit the table into `columns_max`. 0: the column is left out. Steps, as far as
// necessary:
//   1. The widest key column is cut, down to the need of most names.
//   2. Spare figures are left out.
//   3. Keys are cut to their minimum.
//   4. The last keys are left out, but never the first, and none without which two rows would have
//      one name. Then the table stays too wide.
// Key columns come first.
std::vector<size_t> fitted_widths(const std::vector<table_column> &columns, size_t columns_max);

// "hidden, as the table is too narrow: late, wasted", or nothing.
std::string left_out(const std::vector<table_column> &columns, const std::vector<size_t> &widths);

std::string heading_line(const std::vector<table_column> &columns,
                         const std::vector<size_t> &widths);
std::string row_line(const std::vector<table_column> &columns, const std::vector<size_t> &widths,
                     size_t row);

}  // namespace moorage::core
