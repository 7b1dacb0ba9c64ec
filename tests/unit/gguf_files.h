// gguf_files.h - GGUF files made in memory, for tests: keys and tensors one by one, any part wrong
// on purpose.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace moorage::test {

class gguf_bytes {
public:
    template <class Value>
    gguf_bytes &put(Value value) {
        const size_t end = bytes.size();
        bytes.resize(end + sizeof value);
        std::memcpy(bytes.data() + end, &value, sizeof value);
        return *this;
    }
    gguf_bytes &text(const std::string &value) {
        put(uint64_t{value.size()});
        const auto *source = reinterpret_cast<const std::byte *>(value.data());
        bytes.insert(bytes.end(), source, source + value.size());
        return *this;
    }
    std::vector<std::byte> bytes;
};

struct gguf_maker {
    struct tensor {
        std::string name;
        std::vector<uint64_t> shape;  // the length of a row first, as the file has it
        uint32_t type;
        uint64_t offset, bytes;
    };
    uint32_t version = 3;
    uint64_t alignment = 32;
    gguf_bytes keys;
    uint64_t key_count = 0;
    std::vector<tensor> tensors;
    uint64_t data_bytes = 0;
    std::vector<std::byte> data;  // the front of it; zeros behind

    gguf_maker &number(const std::string &key, uint32_t value) {
        ++key_count;
        keys.text(key).put(uint32_t{4}).put(value);
        return *this;
    }
    gguf_maker &real(const std::string &key, float value) {
        ++key_count;
        keys.text(key).put(uint32_t{6}).put(value);
        return *this;
    }
    gguf_maker &flag(const std::string &key, bool value) {
        ++key_count;
        keys.text(key).put(uint32_t{7}).put(static_cast<uint8_t>(value));
        return *this;
    }
    gguf_maker &text(const std::string &key, const std::string &value) {
        ++key_count;
        keys.text(key).put(uint32_t{8}).text(value);
        return *this;
    }
    gguf_maker &texts(const std::string &key, const std::vector<std::string> &values) {
        ++key_count;
        keys.text(key).put(uint32_t{9}).put(uint32_t{8}).put(uint64_t{values.size()});
        for (const std::string &value : values) keys.text(value);
        return *this;
    }
    gguf_maker &reals(const std::string &key, const std::vector<float> &values) {
        ++key_count;
        keys.text(key).put(uint32_t{9}).put(uint32_t{6}).put(uint64_t{values.size()});
        for (const float value : values) keys.put(value);
        return *this;
    }
    gguf_maker &numbers(const std::string &key, const std::vector<int32_t> &values) {
        ++key_count;
        keys.text(key).put(uint32_t{9}).put(uint32_t{5}).put(uint64_t{values.size()});
        for (const int32_t value : values) keys.put(value);
        return *this;
    }
    // Adds a float32 tensor behind the earlier ones.
    gguf_maker &floats(const std::string &name, const std::vector<uint64_t> &shape) {
        uint64_t bytes = 4;
        for (const uint64_t extent : shape) bytes *= extent;
        tensors.push_back({name, shape, 0, data_bytes, bytes});
        data_bytes += (bytes + alignment - 1) / alignment * alignment;
        return *this;
    }
    gguf_maker &floats(const std::string &name, const std::vector<uint64_t> &shape,
                       const std::vector<float> &values) {
        data.resize(data_bytes);
        const auto *source = reinterpret_cast<const std::byte *>(values.data());
        data.insert(data.end(), source, source + values.size() * sizeof(float));
        return floats(name, shape);
    }
    std::vector<std::byte> make() const {
        gguf_bytes file;
        for (const char letter : {'G', 'G', 'U', 'F'}) file.put(letter);
        file.put(version).put(uint64_t{tensors.size()}).put(key_count);
        file.bytes.insert(file.bytes.end(), keys.bytes.begin(), keys.bytes.end());
        for (const tensor &tensor : tensors) {
            file.text(tensor.name).put(static_cast<uint32_t>(tensor.shape.size()));
            for (const uint64_t extent : tensor.shape) file.put(extent);
            file.put(tensor.type).put(tensor.offset);
        }
        const uint64_t begin = (file.bytes.size() + alignment - 1) / alignment * alignment;
        file.bytes.resize(begin);
        file.bytes.insert(file.bytes.end(), data.begin(), data.end());
        file.bytes.resize(begin + data_bytes);
        return std::move(file.bytes);
    }
};

// A file with further keys before its own. One more key fills them up to whole alignments, so that
// the data keep their places.
inline std::string with_keys(std::string file, gguf_maker further) {
    constexpr size_t key_count_at = 16, keys_at = 24, alignment = 32;
    constexpr size_t bytes_of_text_key = 8 + 7 + 4 + 8;
    const size_t past = (further.keys.bytes.size() + bytes_of_text_key) % alignment;
    further.text("padding", std::string((alignment - past) % alignment, ' '));
    uint64_t count;
    std::memcpy(&count, file.data() + key_count_at, sizeof count);
    count += further.key_count;
    std::memcpy(file.data() + key_count_at, &count, sizeof count);
    return file.insert(keys_at, reinterpret_cast<const char *>(further.keys.bytes.data()),
                       further.keys.bytes.size());
}

// A file whose key of that name, of 32 bits, has another value, of that type (4: u32).
inline std::string with_value(std::string file, const std::string &key, uint32_t value,
                              uint32_t type = 4) {
    const uint32_t type_and_value[] = {type, value};
    return file.replace(file.find(key) + key.size(), sizeof type_and_value,
                        reinterpret_cast<const char *>(type_and_value), sizeof type_and_value);
}

}  // namespace moorage::test
