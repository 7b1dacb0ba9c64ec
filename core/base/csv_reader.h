// csv_reader.h - records of separated values (CSV), one a line.
//
//     line_reader lines(input);
//     csv_reader records(lines);
//     result<bool> has_record = records.read_columns();  // the first line names the columns
//     while (has_record && *has_record) has_record = records.next(cells);
//
// Follows RFC 4180: a cell in double quotes may contain the separator, and "" for a quote. But it
// may not contain line ends. Errors name the cell, counted from 1; lines.number() is their line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/line_reader.h"
#include "core/base/result.h"

namespace moorage::core {

enum class csv_blanks : uint8_t { keep, remove };

struct csv_rules {
    // The separator is the first of these that the first line contains.
    std::string_view separators = ",";
    csv_blanks blanks = csv_blanks::keep;  // around a cell, or around its quotes
    size_t cells_max = SIZE_MAX;           // of a record
    size_t cell_bytes_max = SIZE_MAX;
};

class csv_reader {
public:
    explicit csv_reader(line_reader &lines, const csv_rules &rules = {})
        : lines_(lines), rules_(rules) {}
    // Reads the first line. Each name occurs once. False: there is no line.
    result<bool> read_columns();
    const std::vector<std::string> &columns() const { return columns_; }
    // Reads a record with a cell for each column. False: at the end. Call read_columns() first.
    result<bool> next(std::vector<std::string> &cells);

private:
    status split_line(std::vector<std::string> &cells) const;
    result<size_t> read_cell(size_t begin, std::string &cell) const;
    result<size_t> read_quoted(size_t begin, std::string &cell) const;
    size_t find_separator(size_t begin) const;

    line_reader &lines_;
    csv_rules rules_;
    char separator_ = ',';
    std::string line_;
    std::vector<std::string> columns_;
};

}  // namespace moorage::core
