// byte_reader.h - reads little-endian values from bytes of another process, and writes them.
//
//   byte_reader reader(body);
//   const auto layer = reader.value<uint32_t>();
//   const std::string_view name = reader.text(64);
//   if (!reader.is_complete()) ...                  // bytes were missing, or left over
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
        if (const auto source = take(sizeof(read)); !source.empty())
            std::memcpy(&read, source.data(), sizeof(read));
        return read;
    }
    // Borrowed from the bytes. Requires: they are aligned to the values.
    template <class Value>
    std::span<const Value> list(uint64_t count) {
        if (count > bytes_.size() / sizeof(Value)) return fail(), std::span<const Value>();
        const auto source = take(static_cast<size_t>(count) * sizeof(Value));
        return {reinterpret_cast<const Value *>(source.data()), static_cast<size_t>(count)};
    }
    // A 16-bit length and as many bytes, at most `max`. Borrowed.
    std::string_view text(size_t max) {
        const auto length = value<uint16_t>();
        if (length > max) return fail(), std::string_view();
        const auto source = take(length);
        return {reinterpret_cast<const char *>(source.data()), source.size()};
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
    bool is_complete() const { return ok_ && bytes_.empty(); }

private:
    std::span<const std::byte> take(size_t count) {
        if (count > bytes_.size()) fail();
        if (!ok_) return {};
        const auto taken = bytes_.first(count);
        bytes_ = bytes_.subspan(count);
        taken_ += count;
        return taken;
    }

    std::span<const std::byte> bytes_;
    size_t taken_ = 0;
    bool ok_ = true;
};

// Appends values.
class byte_writer {
public:
    explicit byte_writer(std::vector<std::byte> &target) : target_(target), begin_(target.size()) {}

    template <class Value>
    requires std::is_arithmetic_v<Value>
    void value(Value number) { bytes(&number, sizeof(number)); }
    template <class Value>
    void list(std::span<const Value> values) {
        bytes(values.data(), values.size_bytes());
    }
    // Writes the text, cut to `max` bytes.
    void text(std::string_view content, size_t max) {
        content = content.substr(0, max);
        value(static_cast<uint16_t>(content.size()));
        bytes(content.data(), content.size());
    }
    void align() {
        while ((target_.size() - begin_) % 4 != 0) target_.push_back(std::byte{0});
    }
    // Appends space for `count` values. Fill it in before appending anything else.
    std::byte *room(size_t count) {
        target_.resize(target_.size() + count);
        return target_.data() + target_.size() - count;
    }

private:
    void bytes(const void *source, size_t count) {
        if (count != 0) std::memcpy(room(count), source, count);
    }

    std::vector<std::byte> &target_;
    size_t begin_;
};

}  // namespace moorage::core
