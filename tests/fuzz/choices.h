// choices.h - reads the bytes of a fuzzer as choices. The result is always well formed, and a small
// change of the bytes makes a small change of the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moorage::test {

// After the end of the bytes every choice is the first.
class choices {
public:
    choices(const uint8_t *data, size_t size) : data_(data), size_(size) {}

    bool is_at_end() const { return position_ == size_; }
    uint8_t byte() { return is_at_end() ? uint8_t{0} : data_[position_++]; }
    uint32_t below(uint32_t count) { return byte() % count; }  // count <= 256
    bool flag() { return (byte() & 1) != 0; }
    template <class Value, size_t Count>
    const Value &pick(const Value (&list)[Count]) {
        static_assert(Count <= 256);
        return list[below(Count)];
    }
    std::string_view rest() const {
        return {reinterpret_cast<const char *>(data_) + position_, size_ - position_};
    }

private:
    const uint8_t *data_;
    size_t size_, position_ = 0;
};

}  // namespace moorage::test
