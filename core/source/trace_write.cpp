// trace_write.cpp - orders the tensors by element size, so that each is aligned, and writes them.
#include "core/source/trace_write.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <functional>

#include "core/base/atomic_file.h"
#include "core/base/half.h"
#include "core/base/json.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr uint64_t chunk_elements = 64 * 1024;

// One tensor of the file.
struct column {
    const char *name;
    dtype type;
    std::vector<uint64_t> shape;
    uint64_t elements;
    // Appends elements [first, last), little-endian, to the buffer.
    std::function<void(uint64_t first, uint64_t last, std::vector<std::byte> &)> append;
};

void append_integer(uint64_t value, uint64_t bytes, std::vector<std::byte> &buffer) {
    for (uint64_t i = 0; i < bytes; ++i) buffer.push_back(static_cast<std::byte>(value >> (8 * i)));
}

template <class Integer>
column integers(const char *name, dtype type, std::vector<uint64_t> shape,
                const std::vector<Integer> &values) {
    const uint64_t bytes = bytes_of(type);
    return {name, type, std::move(shape), values.size(),
            [&values, bytes](uint64_t first, uint64_t last, std::vector<std::byte> &buffer) {
                for (uint64_t i = first; i < last; ++i)
                    append_integer(static_cast<uint64_t>(values[i]), bytes, buffer);
            }};
}

column floats(const char *name, std::vector<uint64_t> shape, const score_values &scores) {
    return {name, scores.half ? dtype::f16 : dtype::f32, std::move(shape), scores.values.size(),
            [&scores](uint64_t first, uint64_t last, std::vector<std::byte> &buffer) {
                for (uint64_t i = first; i < last; ++i) {
                    const float value = scores.values[i];
                    if (scores.half)
                        append_integer(half_of_float(value), 2, buffer);
                    else
                        append_integer(std::bit_cast<uint32_t>(value), 4, buffer);
                }
            }};
}

// The tensors that exist, larger elements first.
std::vector<column> columns_of(const trace_data &data) {
    const uint64_t tokens = data.tokens, layers = data.layers;
    const dtype id = data.experts <= 256 ? dtype::u8 : dtype::u16;
    const std::vector<uint64_t> chosen = {tokens, layers, data.top_k};
    const std::vector<uint64_t> predicted = {tokens, layers, data.predictions};
    std::vector<column> columns = {
        integers("request_offsets", dtype::i64, {data.request_offsets.size()},
                 data.request_offsets),
        integers("request_domain", dtype::i32, {data.request_domain.size()}, data.request_domain),
        integers("token_ids", dtype::i32, {tokens}, data.token_ids),
        floats("weights", chosen, data.weights),
        floats("gate_scores", {tokens, layers, data.experts}, data.gate_scores),
        floats("pred_scores", predicted, data.prediction_scores),
        integers("experts", id, chosen, data.chosen),
        integers("pred_experts", id, predicted, data.predicted)};
    std::erase_if(columns, [](const column &empty) { return empty.elements == 0; });
    std::ranges::stable_sort(columns, std::ranges::greater(),
                             [](const column &column) { return bytes_of(column.type); });
    return columns;
}

std::string header_of(const trace_data &data, const std::vector<column> &columns) {
    json header;
    json &metadata = header["__metadata__"];
    for (const auto &[key, value] : data.metadata) metadata[key] = value;
    metadata["format"] = "moorage.trace";
    metadata["version"] = "1";
    metadata["layers"] = format("{}", data.layers);
    metadata["experts"] = format("{}", data.experts);
    metadata["top_k"] = format("{}", data.top_k);
    uint64_t begin = 0;
    for (const column &column : columns) {
        const uint64_t end = begin + column.elements * bytes_of(column.type);
        header[column.name] = {{"dtype", name_of(column.type)}, {"shape", column.shape}};
        header[column.name]["data_offsets"] = {begin, end};
        begin = end;
    }
    // Replaces text that is not UTF-8, where the library would throw.
    std::string text = json_line(header);
    text.append((8 - text.size() % 8) % 8, ' ');
    return text;
}

}  // namespace

status write_trace(const trace_data &data, const std::filesystem::path &path) {
    assert(data.chosen.size() == data.tokens * data.layers * data.top_k);
    assert(data.request_offsets.size() >= 2 && data.request_offsets.back() == data.tokens);
    assert(data.predicted.size() == data.tokens * data.layers * data.predictions);
    result<atomic_file> file = atomic_file::create(path);
    if (!file) return file.failure();
    const std::vector<column> columns = columns_of(data);
    const std::string header = header_of(data, columns);
    std::vector<std::byte> buffer;
    append_integer(header.size(), 8, buffer);
    file->write(buffer);
    file->write(std::as_bytes(std::span(header)));
    for (const column &column : columns) {
        for (uint64_t i = 0; i < column.elements; i += chunk_elements) {
            buffer.clear();
            column.append(i, std::min(i + chunk_elements, column.elements), buffer);
            file->write(buffer);
        }
    }
    return file->commit();
}

}  // namespace moorage::core
