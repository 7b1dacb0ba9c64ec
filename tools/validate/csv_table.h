// csv_table.h - a checked table of texts. Its first line names the columns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

// Without control characters and within limits (core/base/csv_reader.h has the syntax).
class csv_table {
public:
    // Cells are valid as long as the table. `name` stands for the file in messages.
    static result<csv_table> parse(std::string_view text, std::string name);

    size_t rows() const { return lines_.size(); }
    bool has(std::string_view column) const;
    // Empty: the cell is empty, or the file has no such column.
    std::string_view cell(size_t row, std::string_view column) const;
    // A finite number, either 0 or from `min` to `max`. `absent`: the result for an empty cell.
    result<double> number(size_t row, std::string_view column, double absent, double max,
                          double min = 0) const;
    // "measurements.csv:12"
    std::string row_location(size_t row) const;
    const std::string &name() const { return name_; }

private:
    status add_row(std::vector<std::string> cells, uint64_t line);
    size_t column_of(std::string_view column) const;

    std::string name_;
    std::vector<std::string> columns_;
    std::vector<std::vector<std::string>> cells_;
    std::vector<uint64_t> lines_;  // of each row, counted from 1
};

}  // namespace moorage::core
