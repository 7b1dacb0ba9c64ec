// host_team.h - a block of GPU threads on the CPU: loops instead of threads, for tests of kernels.
//
// A kernel is a struct whose operator() is the work of a block with a Team; device_team.cuh is the
// one on the GPU. Shared memory begins poisoned, so that reads before a write show.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "core/execute/gpu/arithmetic/host_device.h"

namespace moorage::core::gpu {

class host_team {
public:
    uint32_t block_x = 0, block_y = 0, block_z = 0;
    std::byte *shared = nullptr;

    host_team(uint32_t threads, uint32_t shared_bytes)
        : threads_(threads), memory_(shared_bytes / sizeof(float) + 64) {
        void *aligned = memory_.data();
        size_t room = memory_.size() * sizeof(float);
        shared = static_cast<std::byte *>(std::align(16, shared_bytes, aligned, room));
    }
    void poison() { std::memset(memory_.data(), 0xff, memory_.size() * sizeof(float)); }

    template <class Value>
    struct local {
        std::vector<Value> values;
        explicit local(const host_team &team) : values(team.threads_) {}
        Value &operator[](uint32_t thread) { return values[thread]; }
    };
    template <class Value>
    struct local_of_warp {
        std::vector<Value> values;
        explicit local_of_warp(const host_team &team) : values(team.threads_ / lanes) {}
        Value &operator[](uint32_t warp) { return values[warp]; }
    };

    template <class Body>
    void each(Body &&body) {
        for (uint32_t thread = 0; thread < threads_; ++thread) body(thread);
    }
    template <class Body>
    void phase(Body &&body) {
        each(body);
    }
    template <class Body>
    void each_warp(Body &&body) {
        for (uint32_t warp = 0; warp < threads_ / lanes; ++warp) body(warp);
    }
    template <class Body>
    void each_lane(uint32_t warp, Body &&body) {
        for (uint32_t lane = 0; lane < lanes; ++lane) body(warp * lanes + lane);
    }
    template <class Body>
    void first_lane(uint32_t warp, Body &&body) {
        body(warp * lanes);
    }
    void barrier() {}
    template <class Value>
    void tell(Value *target, Value value) {
        *target = value;
    }
    void fence() {}
    void copy16(std::byte *target, const std::byte *source, uint32_t count) {
        std::memset(target, 0, 16);
        std::memcpy(target, source, count);
    }
    void copied(uint32_t) {}

    // Like shuffles: every lane adds the value of the lane whose number differs in one bit.
    template <class Of>
    void warp_sum(uint32_t warp, Of &&value_of) {
        butterfly(warp, value_of, [](float a, float b) { return a + b; });
    }
    template <class Of>
    void warp_most(uint32_t warp, Of &&value_of) {
        butterfly(warp, value_of, [](float a, float b) { return larger(a, b); });
    }
    template <class Of>
    float block_sum(Of &&value_of) {
        float total = 0;
        for (uint32_t warp = 0; warp < threads_ / lanes; ++warp) {
            warp_sum(warp, value_of);
            total += value_of(warp * lanes);
        }
        return total;
    }

    using tile = std::array<float, 256>;
    void tile_load(tile &target, const float *source, uint32_t stride) {
        for (uint32_t i = 0; i < 256; ++i) target[i] = source[i / 16 * stride + i % 16];
    }
    void tile_store(const tile &source, float *target, uint32_t stride) {
        for (uint32_t i = 0; i < 256; ++i) target[i / 16 * stride + i % 16] = source[i];
    }
    // Columns of 16 rows, or of 16 tokens.
    struct rows_tile : std::array<float, 256> {};
    struct tokens_tile : std::array<float, 256> {};
    template <class Tile, class Place>
    void tile_load(Tile &target, const uint16_t *source, uint32_t line, uint32_t column,
                   Place &&place) {
        for (uint32_t i = 0; i < 256; ++i)
            target[i] = float_of_bf16(source[place(line + i / 16, column + i % 16)]);
    }
    // sums[r, t] += sum over k of rows[r, k] tokens[t, k]
    void tile_multiply(tile &sums, const rows_tile &rows, const tokens_tile &tokens) {
        for (uint32_t i = 0; i < 256; ++i)
            for (uint32_t k = 0; k < 16; ++k)
                sums[i] += rows[i / 16 * 16 + k] * tokens[i % 16 * 16 + k];
    }

private:
    template <class Of, class Join>
    void butterfly(uint32_t warp, Of &&value_of, Join &&join) {
        for (uint32_t bit = lanes / 2; bit != 0; bit /= 2) {
            std::array<float, lanes> old_values;
            for (uint32_t lane = 0; lane < lanes; ++lane)
                old_values[lane] = value_of(warp * lanes + lane);
            for (uint32_t lane = 0; lane < lanes; ++lane)
                value_of(warp * lanes + lane) = join(old_values[lane], old_values[lane ^ bit]);
        }
    }

    uint32_t threads_;
    std::vector<float> memory_;
};

}  // namespace moorage::core::gpu
