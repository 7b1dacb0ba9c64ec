// fiber_team.h - a block of GPU threads as fibers. It works thread by thread like device_team.cuh,
// while host_team.h is one loop after the other.
//
// Shared memory begins poisoned, the sums of warps too. A tile of the matrix units is distributed
// over the lanes, eight values each.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "core/execute/gpu/arithmetic/host_device.h"
#include "tests/gpu/fibers.h"

namespace moorage::core::gpu {

class fiber_team {
public:
    uint32_t block_x = 0, block_y = 0, block_z = 0;
    std::byte *shared = nullptr;

    // State that the threads of a block share.
    struct block {
        test::fiber_block fibers;
        std::vector<float> memory, sums;           // shared
        std::vector<float *> values;               // of the threads that come together
        std::vector<const void *> told_addresses;  // where the host was told something, in order
        block(uint32_t threads, uint32_t shared_bytes, uint32_t order)
            : fibers(threads, order),
              memory(shared_bytes / sizeof(float) + 64),
              sums(threads / lanes),
              values(threads) {}
        void poison() {
            std::memset(memory.data(), 0xff, memory.size() * sizeof(float));
            std::memset(sums.data(), 0xff, sums.size() * sizeof(float));
        }
    };
    fiber_team(block &thread_block, uint32_t thread) : block_(thread_block), thread_(thread) {
        void *aligned = thread_block.memory.data();
        size_t room = thread_block.memory.size() * sizeof(float);
        shared = static_cast<std::byte *>(std::align(128, room - 128, aligned, room));
    }

    template <class Value>
    struct local {
        Value value;
        explicit local(const fiber_team &) {
            std::memset(static_cast<void *>(&value), 0xff, sizeof(value));
        }
        Value &operator[](uint32_t) { return value; }
    };
    template <class Value>
    using local_of_warp = local<Value>;

    template <class Body>
    void each(Body &&body) {
        body(thread_);
    }
    template <class Body>
    void phase(Body &&body) {
        body(thread_);
        barrier();
    }
    template <class Body>
    void each_warp(Body &&body) {
        body(thread_ / lanes);
    }
    template <class Body>
    void each_lane(uint32_t, Body &&body) {
        body(thread_);
    }
    template <class Body>
    void first_lane(uint32_t, Body &&body) {
        if (thread_ % lanes == 0) body(thread_);
    }
    void barrier() { block_.fibers.barrier(); }
    template <class Value>
    void tell(Value *target, Value value) {
        *target = value;
        block_.told_addresses.push_back(target);
    }
    void fence() {}
    void copy16(std::byte *target, const std::byte *source, uint32_t count) {
        std::memset(target, 0, 16);
        std::memcpy(target, source, count);
    }
    void copied(uint32_t) {
        block_.fibers.warp([](uint32_t) {});
    }

    template <class ValueOf>
    void warp_sum(uint32_t, ValueOf &&value_of) {
        butterfly(value_of(thread_), [](float a, float b) { return a + b; });
    }
    template <class ValueOf>
    void warp_most(uint32_t, ValueOf &&value_of) {
        butterfly(value_of(thread_), [](float a, float b) { return larger(a, b); });
    }
    template <class ValueOf>
    float block_sum(ValueOf &&value_of) {
        warp_sum(0, value_of);
        barrier();
        if (thread_ % lanes == 0) block_.sums[thread_ / lanes] = value_of(thread_);
        barrier();
        float total = 0;
        for (const float warp_sum : block_.sums) total += warp_sum;
        return total;
    }

    using tile = std::array<float, 256 / lanes>;
    void tile_load(tile &target, const float *source, uint32_t stride) {
        for_lane_values([&](uint32_t j, uint32_t row, uint32_t column) {
            target[j] = source[row * stride + column];
        });
    }
    void tile_store(const tile &source, float *target, uint32_t stride) {
        for_lane_values([&](uint32_t j, uint32_t row, uint32_t column) {
            target[row * stride + column] = source[j];
        });
    }
    // Columns of 16 rows, or of 16 tokens, with each lane's values at the time of its read.
    struct rows_tile : std::array<float, 256> {};
    struct tokens_tile : std::array<float, 256> {};
    template <class Tile, class Place>
    void tile_load(Tile &target, const uint16_t *source, uint32_t line, uint32_t column,
                   Place &&place) {
        for (uint32_t i = 0; i < 256; ++i)
            target[i] = float_of_bf16(source[place(line + i / 16, column + i % 16)]);
    }
    void tile_multiply(tile &sums, const rows_tile &rows, const tokens_tile &tokens) {
        for_lane_values([&](uint32_t j, uint32_t row, uint32_t column) {
            for (uint32_t k = 0; k < 16; ++k)
                sums[j] += rows[row * 16 + k] * tokens[column * 16 + k];
        });
    }

private:
    template <class Body>
    void for_lane_values(Body &&body) const {
        constexpr uint32_t lane_values = 256 / lanes;
        for (uint32_t j = 0; j < lane_values; ++j) {
            const uint32_t index = thread_ % lanes * lane_values + j;
            body(j, index / 16, index % 16);
        }
    }
    template <class Join>
    void butterfly(float &value, Join &&join) {
        block_.values[thread_] = &value;
        block_.fibers.warp([&](uint32_t first) {
            for (uint32_t bit = lanes / 2; bit != 0; bit /= 2) {
                std::array<float, lanes> old_values;
                for (uint32_t lane = 0; lane < lanes; ++lane)
                    old_values[lane] = *block_.values[first + lane];
                for (uint32_t lane = 0; lane < lanes; ++lane)
                    *block_.values[first + lane] = join(old_values[lane], old_values[lane ^ bit]);
            }
        });
    }

    block &block_;
    uint32_t thread_;
};

// A Device of kernel_bench.h that runs launches at once, block by block.
class fiber_device {
public:
    explicit fiber_device(uint32_t order) : order_(order) {}

    template <class Kernel>
    void launch(const Kernel &kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t shared_bytes) {
        fiber_team::block block(Kernel::threads, shared_bytes, order_);
        for (uint32_t block_index = 0; block_index < x * y * z && failure.empty(); ++block_index) {
            block.poison();
            failure = block.fibers.run([&](uint32_t thread) {
                fiber_team team(block, thread);
                team.block_x = block_index % x;
                team.block_y = block_index / x % y;
                team.block_z = block_index / x / y;
                kernel(team);
            });
        }
        told_addresses = block.told_addresses;
    }

    std::string failure;                       // why a block did not come to its end
    std::vector<const void *> told_addresses;  // by the last launch

private:
    uint32_t order_;
};

}  // namespace moorage::core::gpu
