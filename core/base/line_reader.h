// line_reader.h - the lines of a text, one by one, with their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace moorage::core {

// Spaces and tabs are blanks.
constexpr bool is_blank(char letter) { return letter == ' ' || letter == '\t'; }
std::string_view without_blanks(std::string_view text);  // at both ends

class line_reader {
public:
    // Longest accepted line. One token of a routing log of the largest models needs far less.
    static constexpr size_t line_bytes_max = 16 * 1024 * 1024;

    explicit line_reader(std::istream &input) : input_(input) {}
    // False: at the end. Lines end with \n or \r\n. Lines of blanks alone are skipped, but counted.
    // A byte order mark before the first line is left out.
    result<bool> next(std::string &line);
    uint64_t number() const { return number_; }  // of the latest line, from 1

private:
    result<bool> read_line(std::string &line);

    std::istream &input_;
    uint64_t number_ = 0;
};

}  // namespace moorage::core
