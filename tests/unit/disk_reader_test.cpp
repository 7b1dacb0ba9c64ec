// disk_reader_test.cpp - goal: reads from disk equal the mapping, wherever they begin and end. A
// failed read is an error that names file and place. Method: a file of random bytes with an odd
// end, random ranges in random blocks, each byte counted once; files cut off and replaced while
// they are mapped.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/base/mapped_file.h"
#include "core/base/random.h"
#include "core/store/disk_reader.h"
#include "tests/unit/toy_machine.h"

namespace disk_reader_test {

using namespace moorage::core;

namespace {

void write_random(const std::filesystem::path &path, uint64_t bytes, uint64_t seed) {
    random_stream draws(seed, 0);
    std::vector<char> data(bytes);
    for (char &byte : data) byte = static_cast<char>(draws.next());
    std::ofstream(path, std::ios::binary).write(data.data(), static_cast<std::streamsize>(bytes));
}

std::unique_ptr<disk_reader> reader_of(const disk_reader_options &options = {}) {
    auto reader = disk_reader::create(options);
    REQUIRE(reader.ok());
    return std::move(*reader);
}

// Each byte of the ranges, once, as it is in memory.
void check_equal(disk_reader &reader, const std::vector<disk_range> &ranges) {
    std::vector<std::vector<std::byte>> got;
    std::vector<std::vector<uint8_t>> times;
    for (const disk_range &range : ranges) {
        got.emplace_back(range.bytes);
        times.emplace_back(range.bytes, uint8_t{0});
    }
    const status done =
        reader.read(ranges, [&](size_t number, uint64_t offset, std::span<const std::byte> bytes) {
            REQUIRE(offset + bytes.size() <= got[number].size());
            std::memcpy(got[number].data() + offset, bytes.data(), bytes.size());
            for (size_t i = 0; i < bytes.size(); ++i) ++times[number][offset + i];
        });
    REQUIRE(done.ok());
    for (size_t i = 0; i < ranges.size(); ++i) {
        CHECK(std::equal(got[i].begin(), got[i].end(), ranges[i].mapped));
        CHECK(std::ranges::all_of(times[i], [](uint8_t count) { return count == 1; }));
    }
}

void check_file(const std::filesystem::path &path) {
    constexpr uint64_t size = 3'000'001;
    write_random(path, size, 1);
    const auto mapped = mapped_file::open(path);
    REQUIRE(mapped.ok());
    const std::byte *const data = mapped->bytes().data();
    random_stream draws(2, 0);
    for (const uint32_t block_bytes : {4096u, 65536u, 524288u}) {
        for (const uint32_t depth : {1u, 3u, 32u}) {
            const auto reader = reader_of({block_bytes, depth});
            check_equal(*reader, {{data, size}});
            check_equal(*reader, {{data, 0}, {data + size - 1, 1}, {data + 4095, 2}});
            for (int round = 0; round < 20; ++round) {
                std::vector<disk_range> ranges;
                for (uint64_t i = draws.below(5); i-- > 0;) {
                    const uint64_t begin = draws.below(size);
                    ranges.push_back({data + begin, draws.below(size - begin + 1)});
                }
                check_equal(*reader, ranges);
            }
        }
    }
}

std::string failure_of(disk_reader &reader, const disk_range &range) {
    const status done = reader.read({&range, 1}, [](size_t, uint64_t, auto) {});
    REQUIRE_FALSE(done.ok());
    return done.failure().text;
}

bool holds(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("ranges of a file are read as they are") {
    const toy::folder folder;
    check_file(folder / "weights.bin");
}

TEST_CASE("also where a file system has no direct reads") {
    const std::filesystem::path memory = "/dev/shm";
    std::error_code code;
    if (!std::filesystem::is_directory(memory, code)) return;
    const std::filesystem::path path =
        memory / ("moorage-disk-reader-" + std::to_string(::getpid()));
    check_file(path);
    std::filesystem::remove(path);
}

TEST_CASE("several files at one time") {
    const toy::folder folder;
    std::vector<mapped_file> files;
    std::vector<disk_range> ranges;
    for (uint64_t i = 0; i < 5; ++i) {
        const auto path = folder / std::to_string(i);
        write_random(path, 100'000 + i, i);
        auto mapped = mapped_file::open(path);
        REQUIRE(mapped.ok());
        files.push_back(std::move(*mapped));
        ranges.push_back({files.back().bytes().data() + i, 99'000});
    }
    const auto reader = reader_of({4096, 7});
    check_equal(*reader, ranges);
}

TEST_CASE("a file that was cut off is an error, not a signal") {
    const toy::folder folder;
    const auto path = folder / "weights.bin";
    write_random(path, 1'000'000, 1);
    const auto mapped = mapped_file::open(path);
    REQUIRE(mapped.ok());
    std::filesystem::resize_file(path, 500'000);
    const auto reader = reader_of();
    const std::string said = failure_of(*reader, {mapped->bytes().data() + 400'000, 200'000});
    CHECK(holds(said, "weights.bin: cannot read 200000 bytes at 400000: the file ends there"));
    // And it goes on.
    const disk_range rest{mapped->bytes().data(), 500'000};
    check_equal(*reader, {rest});
}

TEST_CASE("a file of the same name is not read in place of the one that is mapped") {
    const toy::folder folder;
    const auto path = folder / "weights.bin";
    write_random(path, 100'000, 1);
    const auto mapped = mapped_file::open(path);
    REQUIRE(mapped.ok());
    write_random(folder / "other.bin", 100'000, 2);
    std::filesystem::rename(folder / "other.bin", path);
    const auto reader = reader_of();
    check_equal(*reader, {{mapped->bytes().data(), 100'000}});  // of the old one
}

TEST_CASE("memory that no file is mapped to cannot be read from disk") {
    const std::vector<std::byte> owned(5000);
    const auto reader = reader_of();
    CHECK(holds(failure_of(*reader, {owned.data(), owned.size()}), "no file is mapped there"));
}

}  // namespace disk_reader_test
