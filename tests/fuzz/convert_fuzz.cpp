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

void check(const trace_data &made, const convert_options &how) {
    const uint64_t rows = made.tokens * made.layers;
    require(made.tokens > 0 && made.layers > 0 && made.top_k > 0);
    require(made.chosen.size() == rows * made.top_k);
    require(how.experts == 0 || made.experts == how.experts);
    require(made.weights.values.empty() || made.weights.values.size() == made.chosen.size());
    require(made.token_ids.empty() || made.token_ids.size() == made.tokens);
    require(made.request_offsets.size() >= 2 && made.request_offsets.front() == 0);
    require(made.request_offsets.back() == made.tokens);
    for (size_t i = 1; i < made.request_offsets.size(); ++i)
        require(made.request_offsets[i] > made.request_offsets[i - 1]);
    for (uint64_t row = 0; row < rows; ++row)
        for (uint32_t k = 0; k < made.top_k; ++k) {
            const uint64_t at = row * made.top_k + k;
            require(made.chosen[at] < made.experts);
            for (uint32_t other = 0; other < k; ++other)
                require(made.chosen[at] != made.chosen[at - k + other]);
            if (made.weights.values.empty()) continue;
            const float weight = made.weights.values[at];
            require(
                std::isfinite(made.weights.half ? float_of_half(half_of_float(weight)) : weight));
            require(k == 0 || made.weights.values[at - 1] >= weight);
        }
}

// The trace as a CSV, which gives the same trace again.
std::string csv_of(const trace_data &of) {
    std::string text = "request,token,layer,experts";
    if (!of.weights.values.empty()) text += ",weights";
    if (!of.token_ids.empty()) text += ",token_id";
    text += '\n';
    size_t at = 0, request = 0;
    for (uint64_t token = 0; token < of.tokens; ++token) {
        while (token >= of.request_offsets[request + 1]) ++request;
        for (uint32_t layer = 0; layer < of.layers; ++layer, at += of.top_k) {
            std::string experts, weights;
            for (uint32_t k = 0; k < of.top_k; ++k) {
                experts += format("{}{}", k == 0 ? "" : " ", of.chosen[at + k]);
                if (!of.weights.values.empty())
                    weights += format("{}{}", k == 0 ? "" : " ", of.weights.values[at + k]);
            }
            text += format("{},{},{},{}", request, token, layer, experts);
            if (!of.weights.values.empty()) text += "," + weights;
            if (!of.token_ids.empty()) text += format(",{}", of.token_ids[token]);
            text += '\n';
        }
    }
    return text;
}

void check_round(const trace_data &made) {
    std::istringstream from(csv_of(made));
    convert_options how{.format = "csv", .experts = made.experts, .half = made.weights.half};
    const auto again = convert_stream(from, "log", how);
    require(again.ok());
    require(again->chosen == made.chosen && again->weights.values == made.weights.values);
    require(again->token_ids == made.token_ids && again->tokens == made.tokens);
    require(again->request_offsets == made.request_offsets && again->layers == made.layers);
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
    const size_t at = random() % rows.size();
    std::vector<std::string> &row = rows[at];
    switch (random() % 7) {
        case 0:  // once more, one cell counted up
            rows.insert(rows.begin() + static_cast<ptrdiff_t>(at + 1), std::vector(row));
            [[fallthrough]];
        case 1: {
            std::vector<std::string> &next = rows[std::min(at + 1, rows.size() - 1)];
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
            if (rows.size() > 1) rows.erase(rows.begin() + static_cast<ptrdiff_t>(at));
            return;
        case 5:  // a column for all
            for (size_t i = 0; i < rows.size(); ++i)
                if (!rows[i].empty() && (rows[i].size() > 1 || !rows[i][0].empty()))
                    rows[i].push_back(i == 0 ? cells[random() % std::size(cells)] : "1");
            return;
        default: {
            const size_t column = random() % 8;
            for (std::vector<std::string> &one : rows)
                if (column < one.size()) one.erase(one.begin() + static_cast<ptrdiff_t>(column));
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
    const convert_options how{.format = (data[0] & 1) != 0 ? "jsonl" : "csv",
                              .experts = (data[0] & 2) != 0 ? 8u : 0u,
                              .half = (data[0] & 4) != 0};
    std::istringstream from(std::string(reinterpret_cast<const char *>(data) + 1, size - 1));
    const auto made = convert_stream(from, "log", how);
    if (!made) {
        const std::string &text = made.failure().text;
        require(text.starts_with("log:") && text.find('\n') == text.npos);
        return 0;
    }
    check(*made, how);
    check_round(*made);
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max,
                                          unsigned seed) {
    if (size < 2 || seed % 2 == 0) return LLVMFuzzerMutate(data, size, size_max);
    std::mt19937 random(seed);
    table rows = table_of({reinterpret_cast<const char *>(data) + 1, size - 1});
    for (uint32_t left = 1 + random() % 3; left > 0; --left) change(rows, random);
    const std::string made = text_of(rows);
    if (made.size() + 1 > size_max) return LLVMFuzzerMutate(data, size, size_max);
    std::memcpy(data + 1, made.data(), made.size());
    return made.size() + 1;
}
