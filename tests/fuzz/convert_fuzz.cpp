// convert_fuzz.cpp - fuzz target of the converters of routing logs. Any text gives an error that
// names a line, or a trace. Its tensors keep the format's rules, and it reads back the same.
//
// The first byte chooses format, number of experts and type of weights; the rest is the log. Half
// of the mutations change rows and cells, because few random texts are consistent logs.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/half.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/source/convert.h"

using namespace moorage::core;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max);

namespace {

void require(bool condition) {
    if (!condition) std::abort();
}

void check(const trace_data &trace, const convert_options &options) {
    const uint64_t rows = trace.tokens * trace.layers;
    require(trace.tokens > 0 && trace.layers > 0 && trace.top_k > 0);
    require(trace.chosen.size() == rows * trace.top_k);
    require(options.experts == 0 || trace.experts == options.experts);
    require(trace.weights.values.empty() || trace.weights.values.size() == trace.chosen.size());
    require(trace.token_ids.empty() || trace.token_ids.size() == trace.tokens);
    require(trace.request_offsets.size() >= 2 && trace.request_offsets.front() == 0);
    require(trace.request_offsets.back() == trace.tokens);
    for (size_t i = 1; i < trace.request_offsets.size(); ++i)
        require(trace.request_offsets[i] > trace.request_offsets[i - 1]);
    for (uint64_t row = 0; row < rows; ++row)
        for (uint32_t k = 0; k < trace.top_k; ++k) {
            const uint64_t index = row * trace.top_k + k;
            require(trace.chosen[index] < trace.experts);
            for (uint32_t earlier = 0; earlier < k; ++earlier)
                require(trace.chosen[index] != trace.chosen[index - k + earlier]);
            if (trace.weights.values.empty()) continue;
            const float weight = trace.weights.values[index];
            require(
                std::isfinite(trace.weights.half ? float_of_half(half_of_float(weight)) : weight));
            require(k == 0 || trace.weights.values[index - 1] >= weight);
        }
}

// The trace as a CSV, which gives the same trace again.
std::string csv_of(const trace_data &trace) {
    std::string text = "request,token,layer,experts";
    if (!trace.weights.values.empty()) text += ",weights";
    if (!trace.token_ids.empty()) text += ",token_id";
    text += '\n';
    size_t row_begin = 0, request = 0;
    for (uint64_t token = 0; token < trace.tokens; ++token) {
        while (token >= trace.request_offsets[request + 1]) ++request;
        for (uint32_t layer = 0; layer < trace.layers; ++layer, row_begin += trace.top_k) {
            std::string experts, weights;
            for (uint32_t k = 0; k < trace.top_k; ++k) {
                experts += format("{}{}", k == 0 ? "" : " ", trace.chosen[row_begin + k]);
                if (!trace.weights.values.empty())
                    weights +=
                        format("{}{}", k == 0 ? "" : " ", trace.weights.values[row_begin + k]);
            }
            text += format("{},{},{},{}", request, token, layer, experts);
            if (!trace.weights.values.empty()) text += "," + weights;
            if (!trace.token_ids.empty()) text += format(",{}", trace.token_ids[token]);
            text += '\n';
        }
    }
    return text;
}

void check_round(const trace_data &trace) {
    std::istringstream stream(csv_of(trace));
    convert_options options{.format = "csv", .experts = trace.experts, .half = trace.weights.half};
    const auto again = convert_stream(stream, "log", options);
    require(again.ok());
    require(again->chosen == trace.chosen && again->weights.values == trace.weights.values);
    require(again->token_ids == trace.token_ids && again->tokens == trace.tokens);
    require(again->request_offsets == trace.request_offsets && again->layers == trace.layers);
}

using table = std::vector<std::vector<std::string>>;

table table_of(std::string_view text) {
    table rows;
    for (const std::string &line : split(text, '\n')) rows.push_back(split(line, ','));
    return rows;
}

std::string text_of(const table &rows) {
    std::string text;
    for (size_t i = 0; i < rows.size(); ++i) {
        if (i != 0) text += '\n';
        for (size_t k = 0; k < rows[i].size(); ++k) text += (k == 0 ? "" : ",") + rows[i][k];
    }
    return text;
}

void change(table &rows, std::mt19937 &random) {
    static const char *const cells[] = {
        "0",     "1",          "2",     "65535",   "65536", "4000000000", "0.5",
        "-1",    "nan",        "inf",   "1e39",    "\"1\"", "0 1 2",      "1;3",
        "token", "2147483647", "layer", "weight1", "70000", "",           "expert1"};
    const size_t row_index = random() % rows.size();
    std::vector<std::string> &row = rows[row_index];
    switch (random() % 7) {
        case 0:  // once more, one cell counted up
            rows.insert(rows.begin() + static_cast<ptrdiff_t>(row_index + 1), std::vector(row));
            [[fallthrough]];
        case 1: {
            std::vector<std::string> &next = rows[std::min(row_index + 1, rows.size() - 1)];
            if (next.empty()) return;
            std::string &cell = next[random() % next.size()];
            if (!cell.empty() && cell.back() >= '0' && cell.back() < '9') ++cell.back();
            return;
        }
        case 2:
            if (!row.empty()) row[random() % row.size()] = cells[random() % std::size(cells)];
            return;
        case 3:
            std::swap(row, rows[random() % rows.size()]);
            return;
        case 4:
            if (rows.size() > 1) rows.erase(rows.begin() + static_cast<ptrdiff_t>(row_index));
            return;
        case 5:  // a column for all
            for (size_t i = 0; i < rows.size(); ++i)
                if (!rows[i].empty() && (rows[i].size() > 1 || !rows[i][0].empty()))
                    rows[i].push_back(i == 0 ? cells[random() % std::size(cells)] : "1");
            return;
        default: {
            const size_t column = random() % 8;
            for (std::vector<std::string> &line : rows)
                if (column < line.size()) line.erase(line.begin() + static_cast<ptrdiff_t>(column));
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
    set_log_level(log_level::off);
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const convert_options options{.format = (data[0] & 1) != 0 ? "jsonl" : "csv",
                                  .experts = (data[0] & 2) != 0 ? 8u : 0u,
                                  .half = (data[0] & 4) != 0};
    std::istringstream log(std::string(reinterpret_cast<const char *>(data) + 1, size - 1));
    const auto trace = convert_stream(log, "log", options);
    if (!trace) {
        const std::string &text = trace.failure().text;
        require(text.starts_with("log:") && text.find('\n') == text.npos);
        return 0;
    }
    check(*trace, options);
    check_round(*trace);
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max,
                                          unsigned seed) {
    if (size < 2 || seed % 2 == 0) return LLVMFuzzerMutate(data, size, size_max);
    std::mt19937 random(seed);
    table rows = table_of({reinterpret_cast<const char *>(data) + 1, size - 1});
    for (uint32_t left = 1 + random() % 3; left > 0; --left) change(rows, random);
    const std::string text = text_of(rows);
    if (text.size() + 1 > size_max) return LLVMFuzzerMutate(data, size, size_max);
    std::memcpy(data + 1, text.data(), text.size());
    return text.size() + 1;
}
