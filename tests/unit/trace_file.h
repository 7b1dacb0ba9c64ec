// trace_file.h - builds trace files byte by byte, independently of the writer, for the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace moorage::test {

struct raw_tensor {
    std::string name, dtype, shape;  // shape as JSON: "[3, 2]"
    std::vector<std::byte> bytes;
};

template <class Value>
std::vector<std::byte> raw(const std::vector<Value> &values) {
    std::vector<std::byte> bytes(values.size() * sizeof(Value));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

// A safetensors file as parts; build() puts them together.
struct raw_file {
    std::map<std::string, std::string> metadata;
    std::vector<raw_tensor> tensors;

    raw_tensor &operator[](const std::string &name) {
        for (raw_tensor &tensor : tensors)
            if (tensor.name == name) return tensor;
        return tensors.emplace_back(raw_tensor{name, "U8", "[0]", {}});
    }
    void remove(const std::string &name) {
        std::erase_if(tensors, [&name](const raw_tensor &tensor) { return tensor.name == name; });
    }

    std::string header() const {
        std::string text = "{\"__metadata__\":{";
        for (const auto &[key, value] : metadata)
            text += (text.back() == '{' ? "\"" : ",\"") + key + "\":\"" + value + "\"";
        text += "}";
        size_t offset = 0;
        for (const raw_tensor &tensor : tensors) {
            text += ",\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype +
                    "\",\"shape\":" + tensor.shape + ",\"data_offsets\":[" +
                    std::to_string(offset) + "," + std::to_string(offset + tensor.bytes.size()) +
                    "]}";
            offset += tensor.bytes.size();
        }
        return text + "}";
    }
    std::vector<std::byte> build() const { return build(header()); }
    std::vector<std::byte> build(const std::string &header) const {
        return build(header, header.size());
    }
    std::vector<std::byte> build(const std::string &header, uint64_t length) const {
        std::vector<std::byte> file = raw(std::vector<uint64_t>{length});
        const auto append = [&file](const void *source, size_t count) {
            const auto *bytes = static_cast<const std::byte *>(source);
            file.insert(file.end(), bytes, bytes + count);
        };
        append(header.data(), header.size());
        for (const raw_tensor &tensor : tensors) append(tensor.bytes.data(), tensor.bytes.size());
        return file;
    }
};

// 3 tokens, 2 layers, 4 experts, top-2, 3 predicted, 2 requests; every tensor of the format. The
// f16 values are 0.5, 0.25, 0.125 and 0.0625.
inline raw_file good_file() {
    constexpr uint16_t half = 0x3800, quarter = 0x3400, eighth = 0x3000, sixteenth = 0x2c00;
    raw_file file;
    file.metadata = {{"format", "moorage.trace"},
                     {"version", "1"},
                     {"layers", "2"},
                     {"experts", "4"},
                     {"top_k", "2"},
                     {"model", "hand"},
                     {"domains", "law,code"}};
    file.tensors = {
        {"experts", "U8", "[3, 2, 2]", raw<uint8_t>({0, 1, 2, 3, 1, 0, 3, 2, 0, 2, 1, 3})},
        {"pred_experts", "U8", "[3, 2, 3]",
         raw<uint8_t>({0, 1, 2, 3, 2, 1, 1, 2, 3, 0, 1, 2, 2, 1, 0, 3, 0, 1})},
        {"weights", "F32", "[3, 2, 2]",
         raw<float>({.9f, .1f, .8f, .2f, .7f, .3f, .6f, .4f, .55f, .45f, .51f, .49f})},
        {"gate_scores", "F16", "[3, 2, 4]", {}},
        {"pred_scores", "F16", "[3, 2, 3]", {}},
        {"token_ids", "I32", "[3]", raw<int32_t>({17, -1, 99})},
        {"request_offsets", "I64", "[3]", raw<int64_t>({0, 1, 3})},
        {"request_domain", "I32", "[2]", raw<int32_t>({1, 0})}};
    std::vector<uint16_t> gates, predicted;
    for (int row = 0; row < 6; ++row) {
        for (const uint16_t score : {half, quarter, eighth, sixteenth}) gates.push_back(score);
        for (const uint16_t score : {half, quarter, eighth}) predicted.push_back(score);
    }
    file["gate_scores"].bytes = raw(gates);
    file["pred_scores"].bytes = raw(predicted);
    return file;
}

// A trace of experts alone, one request.
inline raw_file plain_file(uint64_t tokens, uint32_t layers, uint32_t top_k, uint32_t experts,
                           const std::vector<uint8_t> &chosen) {
    raw_file file;
    file.metadata = {
        {"format", "moorage.trace"}, {"version", "1"}, {"experts", std::to_string(experts)}};
    file.tensors = {
        {"experts", "U8",
         "[" + std::to_string(tokens) + "," + std::to_string(layers) + "," + std::to_string(top_k) +
             "]",
         raw(chosen)},
        {"request_offsets", "I64", "[2]", raw<int64_t>({0, static_cast<int64_t>(tokens)})}};
    return file;
}

}  // namespace moorage::test
