// csv_table.h - a table of texts whose first line names its columns, checked before it is used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

// As RFC 4180 has it: a cell in quotes may hold commas, and "" for a quote, but no line break.
class csv_table {
public:
    // Cells are valid as long as the table. `name` stands for the file in messages.
    static result<csv_table> parse(std::string_view text, std::string name);

    size_t rows() const { return lines_.size(); }
    bool has(std::string_view column) const;
    // Empty where the file has no such column.
    std::string_view cell(size_t row, std::string_view column) const;
    // Finite, 0 or from `min` to `max`; `absent` where the cell is empty.
    result<double> number(size_t row, std::string_view column, double absent, double max,
                          double min = 0) const;
    // "measurements.csv:12"
    std::string place(size_t row) const;
    const std::string &name() const { return name_; }

private:
    status parse_line(std::string_view line, uint32_t number);
    size_t column_of(std::string_view column) const;

    std::string name_;
    std::vector<std::string> columns_;
    std::vector<std::vector<std::string>> cells_;
    std::vector<uint32_t> lines_;  // of each row, from 1
};

}  // namespace moorage::core
