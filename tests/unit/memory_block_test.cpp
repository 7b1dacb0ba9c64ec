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

size_t pages_there(const memory_block &of) {
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> there((of.bytes() + page - 1) / page);
    REQUIRE(::mincore(of.data(), of.bytes(), there.data()) == 0);
    return static_cast<size_t>(
        std::ranges::count_if(there, [](unsigned char one) { return (one & 1) != 0; }));
}

}  // namespace

TEST_CASE("memory is there when it was touched, and not before") {
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    for (const uint64_t bytes :
         {uint64_t{1}, page, page + 1, (2ul << 20) - 1, 2ul << 20, (2ul << 20) + 1, 7'000'001ul}) {
        CAPTURE(bytes);
        auto made = memory_block::create(bytes, "a test's block");
        REQUIRE(made.ok());
        CHECK(made->bytes() == bytes);
        CHECK(pages_there(*made) == 0);
        made->data()[0] = std::byte{7};
        CHECK(pages_there(*made) >= 1);
        REQUIRE(made->touch("a test's block").ok());
        CHECK(pages_there(*made) == (bytes + page - 1) / page);
        const std::span<const std::byte> all(made->data(), bytes);
        CHECK(all[0] == std::byte{7});  // written data stays
        CHECK(
            std::ranges::all_of(all.subspan(1), [](std::byte one) { return one == std::byte{}; }));
    }
    const memory_block none;
    CHECK(none.touch("nothing").ok());
    const auto refused = memory_block::create(uint64_t{1} << 60, "far too much");
    CHECK(refused.failure().text.find("far too much takes ") != std::string::npos);
}

}  // namespace memory_block_test
