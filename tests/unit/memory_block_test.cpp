// memory_block_test.cpp - goal: a block is zeroed memory of the requested size. It takes room where
// it is written, and all of it at once when touched. Method: sizes around those of pages, and the
// pages that the system reports as present.
#include "core/base/memory_block.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace memory_block_test {

using namespace moorage::core;

namespace {

size_t pages_there(const memory_block &block) {
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> resident((block.bytes() + page - 1) / page);
    REQUIRE(::mincore(block.data(), block.bytes(), resident.data()) == 0);
    return static_cast<size_t>(
        std::ranges::count_if(resident, [](unsigned char state) { return (state & 1) != 0; }));
}

}  // namespace

TEST_CASE("memory is there when it was touched, and not before") {
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    for (const uint64_t bytes :
         {uint64_t{1}, page, page + 1, (2ul << 20) - 1, 2ul << 20, (2ul << 20) + 1, 7'000'001ul}) {
        CAPTURE(bytes);
        auto block = memory_block::create(bytes, "a test's block");
        REQUIRE(block.ok());
        CHECK(block->bytes() == bytes);
        CHECK(pages_there(*block) == 0);
        block->data()[0] = std::byte{7};
        CHECK(pages_there(*block) >= 1);
        REQUIRE(block->touch("a test's block").ok());
        CHECK(pages_there(*block) == (bytes + page - 1) / page);
        const std::span<const std::byte> content(block->data(), bytes);
        CHECK(content[0] == std::byte{7});  // written data stays
        CHECK(std::ranges::all_of(content.subspan(1),
                                  [](std::byte byte) { return byte == std::byte{}; }));
    }
    const memory_block none;
    CHECK(none.touch("nothing").ok());
    const auto refused = memory_block::create(uint64_t{1} << 60, "far too much");
    CHECK(refused.failure().text.find("far too much takes ") != std::string::npos);
}

}  // namespace memory_block_test
