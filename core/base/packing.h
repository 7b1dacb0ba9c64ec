// packing.h - turns values into bytes and back, for a pipe between two processes of the same
// program.
//
//   std::string bytes = packed(report);             // there
//   auto report = unpacked<run_report>(bytes);      // here; nothing if bytes are missing
//
// Values without pointers are copied as they lie in memory, so new fields are included
// automatically. A struct that owns memory names its fields once, in a function of its namespace:
//
//   void each_field(auto &value, auto &&visit) requires packed_as<decltype(value), person> {
//       auto &[name, age] = value;  // does not compile if the number of fields differs
//       visit(name, age);
//   }
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/json_fwd.h"

namespace moorage::core {

template <class Reference, class Struct>
concept packed_as = std::same_as<std::remove_cvref_t<Reference>, Struct>;

class packer {
public:
    std::string bytes;

    template <class... Values>
    void operator()(const Values &...values) {
        (put(values), ...);
    }

private:
    void put_bytes(const void *source, size_t count) {
        bytes.append(static_cast<const char *>(source), count);
    }
    template <class Value>
    void put(const Value &value) {
        if constexpr (std::is_trivially_copyable_v<Value>)
            put_bytes(&value, sizeof(value));
        else
            each_field(value, *this);
    }
    void put(const std::string &text) {
        put(uint64_t{text.size()});
        put_bytes(text.data(), text.size());
    }
    void put(const std::filesystem::path &path) { put(path.string()); }
    void put(const json_box &value) { put(value.cbor()); }
    template <class Value>
    void put(const std::vector<Value> &values) {
        put(uint64_t{values.size()});
        for (const Value &value : values) put(value);
    }
    template <class Key, class Value>
    void put(const std::map<Key, Value> &values) {
        put(uint64_t{values.size()});
        for (const auto &[key, value] : values) put(key), put(value);
    }
    template <class First, class Second>
    void put(const std::pair<First, Second> &value) {
        put(value.first), put(value.second);
    }
    template <class Value>
    void put(const std::optional<Value> &value) {
        put(value.has_value());
        if (value) put(*value);
    }
    template <class... Values>
    void put(const std::variant<Values...> &value) {
        put(uint64_t{value.index()});
        std::visit([&](const auto &held) { put(held); }, value);
    }
};

class unpacker {
public:
    explicit unpacker(std::string_view bytes) : bytes_(bytes) {}
    // Was everything read, with nothing missing and nothing left over?
    bool is_complete() const { return complete_ && bytes_.empty(); }

    template <class... Values>
    void operator()(Values &...values) {
        (get(values), ...);
    }

private:
    // Null if fewer bytes are left.
    const char *take(uint64_t count) {
        if (count > bytes_.size()) complete_ = false;
        if (!complete_) return nullptr;
        const char *start = bytes_.data();
        bytes_.remove_prefix(static_cast<size_t>(count));
        return start;
    }
    // The length of a list. Every element has at least one byte.
    uint64_t count() {
        uint64_t elements = 0;
        get(elements);
        if (elements > bytes_.size()) complete_ = false;
        return complete_ ? elements : 0;
    }
    template <class Value>
    void get(Value &value) {
        if constexpr (std::is_trivially_copyable_v<Value>) {
            if (const char *source = take(sizeof(value)))
                std::memcpy(&value, source, sizeof(value));
        } else {
            each_field(value, *this);
        }
    }
    void get(std::string &text) {
        const uint64_t bytes = count();
        if (const char *source = take(bytes)) text.assign(source, static_cast<size_t>(bytes));
    }
    void get(std::filesystem::path &path) {
        std::string text;
        get(text);
        path = text;
    }
    void get(json_box &value) {
        std::vector<uint8_t> cbor;
        get(cbor);
        if (!value.read_cbor(cbor)) complete_ = false;
    }
    template <class Value>
    void get(std::vector<Value> &values) {
        values.clear();
        for (uint64_t left = count(); left > 0 && complete_; --left) get(values.emplace_back());
    }
    template <class Key, class Value>
    void get(std::map<Key, Value> &values) {
        values.clear();
        for (uint64_t left = count(); left > 0 && complete_; --left) {
            Key key{};
            get(key);
            get(values[key]);
        }
    }
    template <class First, class Second>
    void get(std::pair<First, Second> &value) {
        get(value.first), get(value.second);
    }
    template <class Value>
    void get(std::optional<Value> &value) {
        bool has_value = false;
        get(has_value);
        if (has_value) get(value.emplace());
    }
    template <class... Values>
    void get(std::variant<Values...> &value) {
        uint64_t index = 0, alternative = 0;
        get(index);
        ((alternative++ == index ? get(value.template emplace<Values>()) : void()), ...);
    }

    std::string_view bytes_;
    bool complete_ = true;
};

template <class... Values>
std::string packed(const Values &...values) {
    packer writer;
    writer(values...);
    return std::move(writer.bytes);
}

// False: bytes are missing. The values are then undefined.
template <class... Values>
bool unpack(std::string_view bytes, Values &...values) {
    unpacker reader(bytes);
    reader(values...);
    return reader.is_complete();
}

}  // namespace moorage::core
