// arrivals.cpp - reads a CSV of requests, line by line.
#include "tools/placement/arrivals.h"

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
bool read_number(std::string_view text, Value &value) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

bool read_line(std::string_view line, arrival &request) {
    const size_t first = line.find(','), second = line.find(',', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) return false;
    return read_number(line.substr(0, first), request.at_s) && std::isfinite(request.at_s) &&
           read_number(line.substr(first + 1, second - first - 1), request.input_tokens) &&
           read_number(line.substr(second + 1), request.output_tokens);
}

}  // namespace

void complete_lengths(uint32_t rows, arrival &request) {
    if (request.input_tokens == 0 && request.output_tokens == 0)
        request.input_tokens = std::max(rows, 2u) - 1;
    if (request.input_tokens == 0)
        request.input_tokens = rows > request.output_tokens ? rows - request.output_tokens + 1 : 1;
    if (request.output_tokens == 0)
        request.output_tokens = rows > request.input_tokens ? rows - request.input_tokens + 1 : 1;
}

uint64_t passes_of(const arrival &request, uint32_t tokens_per_pass) {
    return (uint64_t{request.input_tokens} + tokens_per_pass - 1) / tokens_per_pass +
           request.output_tokens - 1;
}

result<std::vector<arrival>> parse_arrivals(std::string_view text, std::string_view name) {
    std::vector<arrival> requests;
    for (size_t row_begin = 0, line = 1; row_begin < text.size(); ++line) {
        const size_t end = std::min(text.find('\n', row_begin), text.size());
        std::string_view row = text.substr(row_begin, end - row_begin);
        row_begin = end + 1;
        if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
        if (row.empty()) continue;
        arrival request;
        if (!read_line(row, request)) {
            if (line == 1) continue;  // names of the columns
            return error{format("{}:{}: arrival_s,input,output are needed, for example 12.5,310,64",
                                name, line)};
        }
        if (request.at_s < 0 || (!requests.empty() && request.at_s < requests.back().at_s))
            return error{format("{}:{}: a request comes at {} s, after one at {} s; sort the lines",
                                name, line, request.at_s,
                                requests.empty() ? 0 : requests.back().at_s)};
        if (request.output_tokens == 0 || request.input_tokens > tokens_max ||
            request.output_tokens > tokens_max)
            return error{
                format("{}:{}: lengths {} and {}; at most {} tokens each, and one of "
                       "output, are needed",
                       name, line, request.input_tokens, request.output_tokens, tokens_max)};
        if (requests.size() == arrivals_max)
            return error{format("{}: more than {} requests", name, arrivals_max)};
        requests.push_back(request);
    }
    if (requests.empty()) return error{format("{}: it holds no request", name)};
    return requests;
}

result<std::vector<arrival>> read_arrivals(const std::filesystem::path &file) {
    const result<mapped_file> opened = mapped_file::open(file);
    if (!opened) return opened.failure();
    const auto bytes = opened->bytes();
    return parse_arrivals({reinterpret_cast<const char *>(bytes.data()), bytes.size()},
                          file.string());
}

}  // namespace moorage::core
