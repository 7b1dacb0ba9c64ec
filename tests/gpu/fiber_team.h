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
        std::vector<float> memory, sums;  // shared
        std::vector<float *> values;      // of the threads that come together
        std::vector<const void *> told;   // where the host was told something, in order
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
    fiber_team(block &of, uint32_t thread) : of_(of), thread_(thread) {
        void *aligned = of.memory.data();
        size_t room = of.memory.size() * sizeof(float);
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
    void barrier() { of_.fibers.barrier(); }
    template <class Value>
    void tell(Value *to, Value value) {
        *to = value;
        of_.told.push_back(to);
    }
    void fence() {}
    void copy16(std::byte *to, const std::byte *from, uint32_t count) {
        std::memset(to, 0, 16);
        std::memcpy(to, from, count);
    }
    void copied(uint32_t) {
        of_.fibers.warp([](uint32_t) {});
    }

    template <class Of>
    void warp_sum(uint32_t, Of &&of) {
        butterfly(of(thread_), [](float a, float b) { return a + b; });
    }
    template <class Of>
    void warp_most(uint32_t, Of &&of) {
        butterfly(of(thread_), [](float a, float b) { return larger(a, b); });
    }
    template <class Of>
    float block_sum(Of &&of) {
        warp_sum(0, of);
        barrier();
        if (thread_ % lanes == 0) of_.sums[thread_ / lanes] = of(thread_);
        barrier();
        float total = 0;
        for (const float one : of_.sums) total += one;
        return total;
    }

    using tile = std::array<float, 256 / lanes>;
    void tile_load(tile &to, const float *from, uint32_t stride) {
        for_own([&](uint32_t j, uint32_t row, uint32_t column) {
            to[j] = from[row * stride + column];
        });
    }
    void tile_store(const tile &from, float *to, uint32_t stride) {
        for_own([&](uint32_t j, uint32_t row, uint32_t column) {
            to[row * stride + column] = from[j];
        });
    }
    // Columns of 16 rows, or of 16 tokens, with each lane's values at the time of its read.
    struct rows_tile : std::array<float, 256> {};
    struct tokens_tile : std::array<float, 256> {};
    template <class Tile, class Place>
    void tile_load(Tile &to, const uint16_t *from, uint32_t line, uint32_t column, Place &&place) {
        for (uint32_t i = 0; i < 256; ++i)
            to[i] = float_of_bf16(from[place(line + i / 16, column + i % 16)]);
    }
    void tile_multiply(tile &sums, const rows_tile &rows, const tokens_tile &tokens) {
        for_own([&](uint32_t j, uint32_t row, uint32_t column) {
            for (uint32_t k = 0; k < 16; ++k)
                sums[j] += rows[row * 16 + k] * tokens[column * 16 + k];
        });
    }

private:
    template <class Body>
    void for_own(Body &&body) const {
        constexpr uint32_t own = 256 / lanes;
        for (uint32_t j = 0; j < own; ++j) {
            const uint32_t at = thread_ % lanes * own + j;
            body(j, at / 16, at % 16);
        }
    }
    template <class Join>
    void butterfly(float &value, Join &&join) {
        of_.values[thread_] = &value;
        of_.fibers.warp([&](uint32_t first) {
            for (uint32_t bit = lanes / 2; bit != 0; bit /= 2) {
                std::array<float, lanes> before;
                for (uint32_t lane = 0; lane < lanes; ++lane)
                    before[lane] = *of_.values[first + lane];
                for (uint32_t lane = 0; lane < lanes; ++lane)
                    *of_.values[first + lane] = join(before[lane], before[lane ^ bit]);
            }
        });
    }

    block &of_;
    uint32_t thread_;
};

// A Device of kernel_bench.h that runs launches at once, block by block.
class fiber_device {
public:
    explicit fiber_device(uint32_t order) : order_(order) {}

    template <class Kernel>
    void launch(const Kernel &kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t shared_bytes) {
        fiber_team::block block(Kernel::threads, shared_bytes, order_);
        for (uint32_t at = 0; at < x * y * z && off.empty(); ++at) {
            block.poison();
            off = block.fibers.run([&](uint32_t thread) {
                fiber_team team(block, thread);
                team.block_x = at % x;
                team.block_y = at / x % y;
                team.block_z = at / x / y;
                kernel(team);
            });
        }
        told = block.told;
    }

    std::string off;                 // why a block did not come to its end
    std::vector<const void *> told;  // by the last launch

private:
    uint32_t order_;
};

}  // namespace moorage::core::gpu
