// crc32c.cpp - uses the processor's own instruction, or a table. Checksums adjacent stretches in
// parallel: Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction",
// Intel 2011.
#include "tools/protocol/crc32c.h"

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
// The instruction takes three cycles, and one can start in each cycle, so three stretches are
// computed in parallel. The sum of a stretch is moved over the next stretch, as if that were zeros.
constexpr size_t stretch_bytes = 512;

// How a stretch of zeros changes a sum, for each of its four bytes, since the sum is linear in
// them.
using moves = std::array<std::array<uint32_t, 256>, 4>;
constexpr moves make_moves() {
    moves effects{};
    for (uint32_t bit = 0; bit < 32; ++bit) {
        uint32_t sum = uint32_t{1} << bit;
        for (size_t i = 0; i < stretch_bytes; ++i) sum = sum >> 8 ^ table[sum & 0xff];
        for (uint32_t value = 0; value < 256; ++value)
            if (value >> bit % 8 & 1) effects[bit / 8][value] ^= sum;
    }
    return effects;
}
constexpr moves over_stretch = make_moves();

uint64_t moved(uint64_t sum) {
    return over_stretch[0][sum & 0xff] ^ over_stretch[1][sum >> 8 & 0xff] ^
           over_stretch[2][sum >> 16 & 0xff] ^ over_stretch[3][sum >> 24 & 0xff];
}

uint64_t word_at(const std::byte *position) {
    uint64_t word;
    std::memcpy(&word, position, sizeof(word));
    return word;
}

[[gnu::target("sse4.2")]] uint32_t by_instruction(std::span<const std::byte> bytes,
                                                  uint32_t previous) {
    uint64_t sum = ~previous;
    const std::byte *position = bytes.data();
    size_t left = bytes.size();
    for (; left >= 3 * stretch_bytes; left -= 3 * stretch_bytes, position += 3 * stretch_bytes) {
        uint64_t second = 0, third = 0;
        for (size_t i = 0; i < stretch_bytes; i += 8) {
            sum = __builtin_ia32_crc32di(sum, word_at(position + i));
            second = __builtin_ia32_crc32di(second, word_at(position + stretch_bytes + i));
            third = __builtin_ia32_crc32di(third, word_at(position + 2 * stretch_bytes + i));
        }
        sum = moved(moved(sum) ^ second) ^ third;
    }
    for (; left >= 8; left -= 8, position += 8)
        sum = __builtin_ia32_crc32di(sum, word_at(position));
    auto narrow = static_cast<uint32_t>(sum);
    for (; left != 0; --left, ++position)
        narrow = __builtin_ia32_crc32qi(narrow, std::to_integer<uint8_t>(*position));
    return ~narrow;
}
#endif

}  // namespace

uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t previous) {
    uint32_t sum = ~previous;
    for (const std::byte byte : bytes)
        sum = sum >> 8 ^ table[(sum ^ std::to_integer<uint32_t>(byte)) & 0xff];
    return ~sum;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous) {
#if defined(__x86_64__)
    static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
    if (has_instruction) return by_instruction(bytes, previous);
#endif
    return crc32c_by_table(bytes, previous);
}

}  // namespace moorage::core
