// line_reader.cpp - reads a stream up to the next line end.
#include "core/base/line_reader.h"

#include "core/base/foreign_file.h"
#include "core/base/text.h"

namespace moorage::core {

std::string_view without_blanks(std::string_view text) {
    while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
    return text;
}

result<bool> line_reader::next(std::string &line) {
    do {
        const result<bool> has_line = read_line(line);
        if (!has_line || !*has_line) return has_line;
    } while (without_blanks(line).empty());
    return true;
}

result<bool> line_reader::read_line(std::string &line) {
    line.clear();
    for (int letter = input_.get(); letter != '\n'; letter = input_.get()) {
        if (letter == std::istream::traits_type::eof()) {
            if (input_.bad()) return error{"reading failed"};
            if (line.empty()) return false;
            break;
        }
        if (line.size() == line_bytes_max) {
            ++number_;
            return error{format("the line is longer than {} bytes", line_bytes_max)};
        }
        line += static_cast<char>(letter);
    }
    if (++number_ == 1) line.erase(0, line.size() - without_byte_order_mark(line).size());
    if (line.ends_with('\r')) line.pop_back();
    return true;
}

}  // namespace moorage::core
