// gguf_writer.cpp - writes numbers and texts in sequence, and places tensors at multiples of 32.
#include "core/convert/gguf_writer.h"

#include <cstring>

#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr uint64_t alignment = 32;
constexpr uint32_t version = 3;

uint64_t aligned(uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

template <class Value>
void append(std::string &to, Value value) {
    to.append(reinterpret_cast<const char *>(&value), sizeof value);
}
void append_text(std::string &to, std::string_view text) {
    append(to, uint64_t{text.size()});
    to.append(text);
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
    for (const std::string &one : values) append_text(bytes_, one);
    return *this;
}
gguf_keys &gguf_keys::reals(std::string_view key, const std::vector<float> &values) {
    begin_array(key, gguf_type::f32, values.size());
    for (const float one : values) append(bytes_, one);
    return *this;
}
gguf_keys &gguf_keys::numbers(std::string_view key, const std::vector<int32_t> &values) {
    begin_array(key, gguf_type::i32, values.size());
    for (const int32_t one : values) append(bytes_, one);
    return *this;
}
gguf_keys &gguf_keys::copy(const gguf_key &from) {
    append_text(bytes_, from.name);
    bytes_.append(reinterpret_cast<const char *>(from.bytes.data()), from.bytes.size());
    ++count_;
    return *this;
}

gguf_keys &gguf_keys::add(const gguf_keys &others) {
    bytes_ += others.bytes_;
    count_ += others.count_;
    return *this;
}

gguf_layout lay_out(const gguf_keys &keys, const std::vector<target_tensor> &tensors) {
    gguf_layout made;
    std::string &out = made.header;
    out = "GGUF";
    append(out, version);
    append(out, uint64_t{tensors.size()});
    append(out, keys.count());
    out += keys.bytes();
    uint64_t data = 0;
    for (const target_tensor &one : tensors) {
        append_text(out, one.name);
        append(out, static_cast<uint32_t>(one.shape.size()));
        for (size_t i = one.shape.size(); i-- > 0;) append(out, one.shape[i]);
        append(out, format_of(one.type).gguf_id);
        append(out, data);
        made.offsets.push_back(data);
        data += aligned(one.bytes());
    }
    out.resize(aligned(out.size()));
    for (uint64_t &offset : made.offsets) offset += out.size();
    made.bytes = out.size() + data;
    return made;
}

}  // namespace moorage::core
