// byte_reader.h - reads little-endian values from bytes of another process, and writes them.
//
//   byte_reader from(body);
//   const auto layer = from.value<uint32_t>();
//   const std::string_view name = from.text(64);
//   if (!from.whole()) ...                          // bytes were missing, or left over
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace moorage::core {

static_assert(std::endian::native == std::endian::little,
              "values go over the wire as they lie in memory");

// Once bytes were missing, every value is 0 and every list is empty.
class byte_reader {
public:
    explicit byte_reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

    template <class Value>
    requires std::is_arithmetic_v<Value> Value value() {
        Value read{};
        if (const auto from = take(sizeof(read)); !from.empty())
            std::memcpy(&read, from.data(), sizeof(read));
        return read;
    }
    // Borrowed from the bytes. Requires: they are aligned to the values.
    template <class Value>
    std::span<const Value> list(uint64_t count) {
        if (count > bytes_.size() / sizeof(Value)) return fail(), std::span<const Value>();
        const auto from = take(static_cast<size_t>(count) * sizeof(Value));
        return {reinterpret_cast<const Value *>(from.data()), static_cast<size_t>(count)};
    }
    // A 16-bit length and as many bytes, at most `max`. Borrowed.
    std::string_view text(size_t max) {
        const auto length = value<uint16_t>();
        if (length > max) return fail(), std::string_view();
        const auto from = take(length);
        return {reinterpret_cast<const char *>(from.data()), from.size()};
    }
    // Skips to the next multiple of 4 bytes. The skipped bytes must be 0.
    void align() {
        while (ok_ && taken_ % 4 != 0)
            if (value<uint8_t>() != 0) fail();
    }
    std::span<const std::byte> rest() { return take(bytes_.size()); }
    void fail() { ok_ = false, bytes_ = {}; }
    bool ok() const { return ok_; }
    // Was everything read, with nothing missing and nothing left over?
    bool whole() const { return ok_ && bytes_.empty(); }

private:
    std::span<const std::byte> take(size_t count) {
        if (count > bytes_.size()) fail();
        if (!ok_) return {};
        const auto from = bytes_.first(count);
        bytes_ = bytes_.subspan(count);
        taken_ += count;
        return from;
    }

    std::span<const std::byte> bytes_;
    size_t taken_ = 0;
    bool ok_ = true;
};

// Appends values.
class byte_writer {
public:
    explicit byte_writer(std::vector<std::byte> &to) : to_(to), begin_(to.size()) {}

    template <class Value>
    requires std::is_arithmetic_v<Value>
    void value(Value given) { bytes(&given, sizeof(given)); }
    template <class Value>
    void list(std::span<const Value> values) {
        bytes(values.data(), values.size_bytes());
    }
    // Writes the text, cut to `max` bytes.
    void text(std::string_view of, size_t max) {
        of = of.substr(0, max);
        value(static_cast<uint16_t>(of.size()));
        bytes(of.data(), of.size());
    }
    void align() {
        while ((to_.size() - begin_) % 4 != 0) to_.push_back(std::byte{0});
    }
    // Appends space for `count` values. Fill it in before appending anything else.
    std::byte *room(size_t count) {
        to_.resize(to_.size() + count);
        return to_.data() + to_.size() - count;
    }

private:
    void bytes(const void *from, size_t count) {
        if (count != 0) std::memcpy(room(count), from, count);
    }

    std::vector<std::byte> &to_;
    size_t begin_;
};

}  // namespace moorage::core
