// thread_pool_test.cpp - goal: every item of every loop runs exactly once and is over when
// parallel_for() returns, for any number of threads, busy or asleep. Method: counts over many loops
// of random length, with pauses that let workers fall asleep. Run it under the thread sanitizer.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

#include "core/execute/thread_pool.h"

namespace moorage::core::thread_pool_test {
namespace {

TEST_CASE("each item once, and what it wrote is seen after") {
    std::mt19937 random(1);
    for (const uint32_t threads : {1u, 2u, 3u, 9u}) {
        thread_pool pool(threads);
        CHECK(pool.threads() == threads);
        // Plain integers: a loop that returned too early would also be a data race.
        std::vector<uint32_t> counts(300);
        std::vector<uint32_t> expected(300);
        for (uint32_t loop = 0; loop < 2000; ++loop) {
            const uint32_t count = random() % 8 ? random() % 20 : random() % 300;
            pool.parallel_for(count, [&](uint32_t item) { ++counts[item]; });
            for (uint32_t item = 0; item < count; ++item) ++expected[item];
            if (loop % 100 == 0) CHECK(counts == expected);
        }
        CHECK(counts == expected);
    }
}

TEST_CASE("sleeping workers wake") {
    thread_pool pool(2);
    for (uint32_t round = 0; round < 10; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        // Two items that wait for each other: only two threads can finish them.
        std::atomic<uint32_t> arrived{0};
        pool.parallel_for(2, [&](uint32_t) {
            ++arrived;
            while (arrived.load() < 2) std::this_thread::yield();
        });
        CHECK(arrived.load() == 2);
    }
}

TEST_CASE("thread numbers are below threads() and never run two bodies as one") {
    for (const uint32_t threads : {1u, 2u, 4u}) {
        thread_pool pool(threads);
        std::vector<std::atomic<int>> inside(threads);
        std::atomic<uint32_t> clashes{0};
        for (uint32_t loop = 0; loop < 200; ++loop)
            pool.parallel_for(50, [&](uint32_t, uint32_t thread) {
                if (thread >= threads || inside[thread].fetch_add(1) != 0) {
                    ++clashes;
                    return;
                }
                inside[thread].fetch_sub(1);
            });
        CHECK(clashes.load() == 0);
    }
}

TEST_CASE("each thread takes its own stretch first, in rising order, then helps the others") {
    for (const uint32_t threads : {1u, 2u, 3u}) {
        thread_pool pool(threads);
        std::vector<std::vector<uint32_t>> taken(threads, std::vector<uint32_t>{});
        for (auto &items : taken) items.reserve(1000);
        pool.parallel_for(1000,
                          [&](uint32_t item, uint32_t thread) { taken[thread].push_back(item); });
        std::vector<uint32_t> counts(1000, 0);
        for (uint32_t thread = 0; thread < threads; ++thread) {
            const std::vector<uint32_t> &items = taken[thread];
            const auto is_own_item = [&](uint32_t item) {
                return item >= 1000 * thread / threads && item < 1000 * (thread + 1) / threads;
            };
            const auto others = std::find_if_not(items.begin(), items.end(), is_own_item);
            CHECK(std::is_sorted(items.begin(), others));
            CHECK(std::none_of(others, items.end(), is_own_item));
            for (const uint32_t item : items) ++counts[item];
        }
        CHECK(counts == std::vector<uint32_t>(1000, 1));
    }
}

TEST_CASE("a pool of the machine's size, and pools that end at once") {
    CHECK(thread_pool(0).threads() >= 1);
    for (uint32_t round = 0; round < 50; ++round) thread_pool pool(3);
    for (uint32_t round = 0; round < 50; ++round) {
        thread_pool pool(3);
        std::atomic<uint32_t> done{0};
        pool.parallel_for(3, [&](uint32_t) { ++done; });
        CHECK(done.load() == 3);
    }
}

TEST_CASE("scratch is aligned, grows and can be written") {
    thread_pool pool(1);
    for (const size_t floats : {size_t{1}, size_t{1000}, size_t{10}, size_t{100000}}) {
        float *const memory = pool.scratch(floats);
        CHECK(reinterpret_cast<uintptr_t>(memory) % 64 == 0);
        for (size_t i = 0; i < floats; ++i) memory[i] = 1;
    }
}

}  // namespace
}  // namespace moorage::core::thread_pool_test
