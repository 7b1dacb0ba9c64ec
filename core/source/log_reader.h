// log_reader.h - the two text formats of routing logs, read line by line.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/base/safetensors.h"
#include "core/source/log_builder.h"

namespace moorage::core {

// Longest accepted line. One token of the largest models needs far less.
inline constexpr size_t line_bytes_max = 16 * 1024 * 1024;

class line_reader {
public:
    explicit line_reader(std::istream &input) : input_(input) {}
    // False: at the end. Lines end with \n or \r\n. Blank lines are skipped.
    result<bool> next(std::string &line);
    uint64_t number() const { return number_; }  // of the latest line, from 1

private:
    std::istream &input_;
    uint64_t number_ = 0;
};

status read_csv(line_reader &lines, log_builder &builder);
status read_json_lines(line_reader &lines, log_builder &builder);

}  // namespace moorage::core
