// arrivals.cpp - reads a CSV of requests, line by line.
#include "core/placement/arrivals.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/base/mapped_file.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr size_t arrivals_max = size_t{1} << 24;
constexpr uint32_t tokens_max = 1 << 24;

template <class Value>
bool read_number(std::string_view text, Value &out) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out);
    return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

bool read_line(std::string_view line, arrival &out) {
    const size_t first = line.find(','), second = line.find(',', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) return false;
    return read_number(line.substr(0, first), out.at_s) && std::isfinite(out.at_s) &&
           read_number(line.substr(first + 1, second - first - 1), out.input_tokens) &&
           read_number(line.substr(second + 1), out.output_tokens);
}

}  // namespace

void complete_lengths(uint32_t rows, arrival &of) {
    if (of.input_tokens == 0 && of.output_tokens == 0) of.input_tokens = std::max(rows, 2u) - 1;
    if (of.input_tokens == 0)
        of.input_tokens = rows > of.output_tokens ? rows - of.output_tokens + 1 : 1;
    if (of.output_tokens == 0)
        of.output_tokens = rows > of.input_tokens ? rows - of.input_tokens + 1 : 1;
}

uint64_t passes_of(const arrival &of, uint32_t together) {
    return (uint64_t{of.input_tokens} + together - 1) / together + of.output_tokens - 1;
}

result<std::vector<arrival>> parse_arrivals(std::string_view text, std::string_view name) {
    std::vector<arrival> all;
    for (size_t at = 0, line = 1; at < text.size(); ++line) {
        const size_t end = std::min(text.find('\n', at), text.size());
        std::string_view row = text.substr(at, end - at);
        at = end + 1;
        if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
        if (row.empty()) continue;
        arrival one;
        if (!read_line(row, one)) {
            if (line == 1) continue;  // names of the columns
            return error{format("{}:{}: arrival_s,input,output are needed, for example 12.5,310,64",
                                name, line)};
        }
        if (one.at_s < 0 || (!all.empty() && one.at_s < all.back().at_s))
            return error{format("{}:{}: a request comes at {} s, after one at {} s; sort the lines",
                                name, line, one.at_s, all.empty() ? 0 : all.back().at_s)};
        if (one.output_tokens == 0 || one.input_tokens > tokens_max ||
            one.output_tokens > tokens_max)
            return error{
                format("{}:{}: lengths {} and {}; at most {} tokens each, and one of "
                       "output, are needed",
                       name, line, one.input_tokens, one.output_tokens, tokens_max)};
        if (all.size() == arrivals_max)
            return error{format("{}: more than {} requests", name, arrivals_max)};
        all.push_back(one);
    }
    if (all.empty()) return error{format("{}: it holds no request", name)};
    return all;
}

result<std::vector<arrival>> read_arrivals(const std::filesystem::path &file) {
    const result<mapped_file> opened = mapped_file::open(file);
    if (!opened) return opened.failure();
    const auto bytes = opened->bytes();
    return parse_arrivals({reinterpret_cast<const char *>(bytes.data()), bytes.size()},
                          file.string());
}

}  // namespace moorage::core
