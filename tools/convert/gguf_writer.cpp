// gguf_writer.cpp - writes numbers and texts in sequence, and places tensors at multiples of 32.
#include "tools/convert/gguf_writer.h"

#include <cstring>

#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr uint64_t alignment = 32;
constexpr uint32_t version = 3;

uint64_t aligned(uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

template <class Value>
void append(std::string &bytes, Value value) {
    bytes.append(reinterpret_cast<const char *>(&value), sizeof value);
}
void append_text(std::string &bytes, std::string_view text) {
    append(bytes, uint64_t{text.size()});
    bytes.append(text);
}

}  // namespace

gguf_keys &gguf_keys::begin(std::string_view key, gguf_type type) {
    append_text(bytes_, key);
    append(bytes_, type);
    ++count_;
    return *this;
}

gguf_keys &gguf_keys::begin_array(std::string_view key, gguf_type type, uint64_t count) {
    begin(key, gguf_type::array);
    append(bytes_, type);
    append(bytes_, count);
    return *this;
}

gguf_keys &gguf_keys::text(std::string_view key, std::string_view value) {
    begin(key, gguf_type::text);
    append_text(bytes_, value);
    return *this;
}
gguf_keys &gguf_keys::number(std::string_view key, uint32_t value) {
    begin(key, gguf_type::u32);
    append(bytes_, value);
    return *this;
}
gguf_keys &gguf_keys::real(std::string_view key, double value) {
    begin(key, gguf_type::f32);
    append(bytes_, static_cast<float>(value));
    return *this;
}
gguf_keys &gguf_keys::flag(std::string_view key, bool value) {
    begin(key, gguf_type::boolean);
    append(bytes_, static_cast<uint8_t>(value));
    return *this;
}
gguf_keys &gguf_keys::texts(std::string_view key, const std::vector<std::string> &values) {
    begin_array(key, gguf_type::text, values.size());
    for (const std::string &value : values) append_text(bytes_, value);
    return *this;
}
gguf_keys &gguf_keys::reals(std::string_view key, const std::vector<float> &values) {
    begin_array(key, gguf_type::f32, values.size());
    for (const float value : values) append(bytes_, value);
    return *this;
}
gguf_keys &gguf_keys::numbers(std::string_view key, const std::vector<int32_t> &values) {
    begin_array(key, gguf_type::i32, values.size());
    for (const int32_t value : values) append(bytes_, value);
    return *this;
}
gguf_keys &gguf_keys::copy(const gguf_key &key) {
    append_text(bytes_, key.name);
    bytes_.append(reinterpret_cast<const char *>(key.bytes.data()), key.bytes.size());
    ++count_;
    return *this;
}

gguf_keys &gguf_keys::append_keys(const gguf_keys &others) {
    bytes_ += others.bytes_;
    count_ += others.count_;
    return *this;
}

gguf_layout lay_out(const gguf_keys &keys, const std::vector<target_tensor> &tensors) {
    gguf_layout layout;
    std::string &header = layout.header;
    header = "GGUF";
    append(header, version);
    append(header, uint64_t{tensors.size()});
    append(header, keys.count());
    header += keys.bytes();
    uint64_t data_bytes = 0;
    for (const target_tensor &tensor : tensors) {
        append_text(header, tensor.name);
        append(header, static_cast<uint32_t>(tensor.shape.size()));
        for (size_t i = tensor.shape.size(); i-- > 0;) append(header, tensor.shape[i]);
        append(header, format_of(tensor.type).gguf_id);
        append(header, data_bytes);
        layout.offsets.push_back(data_bytes);
        data_bytes += aligned(tensor.bytes());
    }
    header.resize(aligned(header.size()));
    for (uint64_t &offset : layout.offsets) offset += header.size();
    layout.bytes = header.size() + data_bytes;
    return layout;
}

}  // namespace moorage::core
