// crc32c.h - the checksum of frames: CRC-32C (Castagnoli), as in iSCSI and SCTP (RFC 3720, B.4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace moorage::core {

// The checksum of `bytes`, continued from `previous`: crc32c(b, crc32c(a)) is that of a followed by
// b.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous = 0);
// The same by a table, for processors without the instruction.
uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t previous = 0);

}  // namespace moorage::core
