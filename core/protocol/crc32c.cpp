// crc32c.cpp - by the processor's own instruction, or by a table.
#include "core/protocol/crc32c.h"

#include <array>
#include <cstring>

namespace moorage::core {

namespace {

constexpr uint32_t polynomial = 0x82f63b78u;  // reflected

constexpr std::array<uint32_t, 256> make_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < table.size(); ++i) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? polynomial : 0);
        table[i] = value;
    }
    return table;
}
constexpr std::array<uint32_t, 256> table = make_table();

#if defined(__x86_64__)
// Three stretches at once would be three times as fast; a frame of a token is 8 KiB, 1 us.
[[gnu::target("sse4.2")]] uint32_t by_instruction(std::span<const std::byte> bytes,
                                                  uint32_t before) {
    uint64_t sum = ~before;
    const std::byte *at = bytes.data();
    size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) {
        uint64_t word;
        std::memcpy(&word, at, sizeof(word));
        sum = __builtin_ia32_crc32di(sum, word);
    }
    auto narrow = static_cast<uint32_t>(sum);
    for (; left != 0; --left, ++at)
        narrow = __builtin_ia32_crc32qi(narrow, std::to_integer<uint8_t>(*at));
    return ~narrow;
}
#endif

}  // namespace

uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t before) {
    uint32_t sum = ~before;
    for (const std::byte one : bytes)
        sum = sum >> 8 ^ table[(sum ^ std::to_integer<uint32_t>(one)) & 0xff];
    return ~sum;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
#if defined(__x86_64__)
    static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
    if (has_instruction) return by_instruction(bytes, before);
#endif
    return crc32c_by_table(bytes, before);
}

}  // namespace moorage::core
