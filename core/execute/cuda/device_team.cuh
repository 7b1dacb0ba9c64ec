// device_team.cuh - a block of GPU threads, as kernels see it; the twin of the tests' host_team.
#pragma once

#include "core/execute/gpu/arithmetic/host_device.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error "the kernels need sm_80 or newer: set CMAKE_CUDA_ARCHITECTURES (or nvcc's -arch) accordingly"
#endif

// A team exists on the GPU alone. Its functions are marked for both sides, because kernels are, and
// these are tested on the CPU.
#if defined(__CUDA_ARCH__)
#define MOORAGE_ON_GPU(...) __VA_ARGS__
#else
#define MOORAGE_ON_GPU(...)
#endif

namespace moorage::core::gpu {

template <uint32_t threads>
class device_team {
public:
    uint32_t block_x = 0, block_y = 0, block_z = 0;
    std::byte *shared = nullptr;
    float *sums = nullptr;  // [warps], for block_sum

    template <class Value>
    struct local {
        Value value;
        MOORAGE_HOST_DEVICE explicit local(const device_team &) {}
        MOORAGE_HOST_DEVICE Value &operator[](uint32_t) { return value; }
    };
    template <class Value>
    using local_of_warp = local<Value>;

    MOORAGE_HOST_DEVICE static uint32_t thread() {
        MOORAGE_ON_GPU(return threadIdx.x;)
        return 0;
    }
    template <class Body>
    MOORAGE_HOST_DEVICE void each(Body &&body) {
        body(thread());
    }
    template <class Body>
    MOORAGE_HOST_DEVICE void phase(Body &&body) {
        body(thread());
        barrier();
    }
    template <class Body>
    MOORAGE_HOST_DEVICE void each_warp(Body &&body) {
        body(thread() / lanes);
    }
    template <class Body>
    MOORAGE_HOST_DEVICE void each_lane(uint32_t, Body &&body) {
        body(thread());
    }
    template <class Body>
    MOORAGE_HOST_DEVICE void first_lane(uint32_t, Body &&body) {
        if (thread() % lanes == 0) body(thread());
    }
    MOORAGE_HOST_DEVICE void barrier() { MOORAGE_ON_GPU(__syncthreads();) }
    // Writes to host memory that the host may see at once. Everything before a fence is visible
    // before everything behind it.
    template <class Value>
    MOORAGE_HOST_DEVICE void tell(Value *target, Value value) {
        *static_cast<volatile Value *>(target) = value;
    }
    MOORAGE_HOST_DEVICE void fence() { MOORAGE_ON_GPU(__threadfence_system();) }

    // Copies the first `count` bytes of 16 from global to shared memory, between borders of 16
    // bytes. They are there once the warp's copies have been waited for. Zeros follow them.
    MOORAGE_HOST_DEVICE void copy16(std::byte *target, const std::byte *source, uint32_t count) {
        (void)target, (void)source, (void)count;
#if defined(__CUDA_ARCH__)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                         static_cast<uint32_t>(__cvta_generic_to_shared(target))),
                     "l"(source), "r"(count)
                     : "memory");
#endif
    }
    MOORAGE_HOST_DEVICE void copied(uint32_t) {
#if defined(__CUDA_ARCH__)
        asm volatile("cp.async.wait_all;" ::: "memory");
#endif
        MOORAGE_ON_GPU(__syncwarp();)
    }

    template <class ValueOf>
    MOORAGE_HOST_DEVICE void warp_sum(uint32_t, ValueOf &&value_of) {
        float &value = value_of(thread());
        (void)value;
        MOORAGE_ON_GPU(MOORAGE_UNROLL for (uint32_t bit = lanes / 2; bit != 0; bit /= 2) value +=
                       __shfl_xor_sync(0xffffffffu, value, bit);)
    }
    template <class ValueOf>
    MOORAGE_HOST_DEVICE void warp_most(uint32_t, ValueOf &&value_of) {
        float &value = value_of(thread());
        (void)value;
        MOORAGE_ON_GPU(MOORAGE_UNROLL for (uint32_t bit = lanes / 2; bit != 0; bit /= 2) value =
                           larger(value, __shfl_xor_sync(0xffffffffu, value, bit));)
    }
    // In every thread. Overwrites the values.
    template <class ValueOf>
    MOORAGE_HOST_DEVICE float block_sum(ValueOf &&value_of) {
        warp_sum(0, value_of);
        barrier();
        if (thread() % lanes == 0) sums[thread() / lanes] = value_of(thread());
        barrier();
        float total = 0;
        for (uint32_t warp = 0; warp < threads / lanes; ++warp) total += sums[warp];
        return total;
    }

    // 16 x 16 sums, of columns of 16 rows and of 16 tokens, in the layout of the units'
    // instructions (PTX ISA, mma.m16n8k16). lane / 4 is the row and lane % 4 a pair of columns, in
    // four quarters.
    struct tile {
        float sums[8];
    };
    struct rows_tile {
        uint32_t parts[4];
    };
    struct tokens_tile {
        uint32_t parts[4];
    };
    MOORAGE_HOST_DEVICE void tile_load(tile &target, const float *source, uint32_t stride) {
        each_pair([&](uint32_t n, uint32_t row, uint32_t column) {
            target.sums[n] = source[row * stride + column];
            target.sums[n + 1] = source[row * stride + column + 1];
        });
    }
    MOORAGE_HOST_DEVICE void tile_store(const tile &source, float *target, uint32_t stride) {
        each_pair([&](uint32_t n, uint32_t row, uint32_t column) {
            target[row * stride + column] = source.sums[n];
            target[row * stride + column + 1] = source.sums[n + 1];
        });
    }
    // Reads from shared memory. `place` says where a line has a column. Eight columns are side by
    // side, at a border of 16 bytes.
    template <class Place>
    MOORAGE_HOST_DEVICE void tile_load(rows_tile &target, const uint16_t *source, uint32_t line,
                                       uint32_t column, Place &&place) {
        const uint32_t lane = thread() % lanes;
        load_quarters(target.parts, source + place(line + lane % 16, column + lane / 16 * 8));
    }
    template <class Place>
    MOORAGE_HOST_DEVICE void tile_load(tokens_tile &target, const uint16_t *source, uint32_t line,
                                       uint32_t column, Place &&place) {
        const uint32_t lane = thread() % lanes;
        load_quarters(target.parts,
                      source + place(line + lane / 16 * 8 + lane % 8, column + lane / 8 % 2 * 8));
    }
    // sums[r, t] += sum over k of rows[r, k] tokens[t, k]
    MOORAGE_HOST_DEVICE void tile_multiply(tile &product, const rows_tile &rows,
                                           const tokens_tile &tokens) {
        (void)product, (void)rows, (void)tokens;
#if defined(__CUDA_ARCH__)
        MOORAGE_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
            float *sum = product.sums + 4 * half;
            asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                : "r"(rows.parts[0]), "r"(rows.parts[1]), "r"(rows.parts[2]), "r"(rows.parts[3]),
                  "r"(tokens.parts[2 * half]), "r"(tokens.parts[2 * half + 1]));
        }
#endif
    }

private:
    // Two neighbouring sums of the calling lane, the first being its n-th.
    template <class Body>
    MOORAGE_HOST_DEVICE static void each_pair(Body &&body) {
        const uint32_t lane = thread() % lanes;
        MOORAGE_UNROLL
        for (uint32_t n = 0; n < 8; n += 2)
            body(n, n / 2 % 2 * 8 + lane / 4, n / 4 * 8 + lane % 4 * 2);
    }
    // Loads four tiles of 8 x 8 values of 16 bits. Each lane names a row of one tile.
    MOORAGE_HOST_DEVICE static void load_quarters(uint32_t (&quarters)[4], const uint16_t *row) {
        (void)quarters, (void)row;
#if defined(__CUDA_ARCH__)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(quarters[0]), "=r"(quarters[1]), "=r"(quarters[2]), "=r"(quarters[3])
                     : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row))));
#endif
    }
};

// Blocks that a multiprocessor has to hold at least. The number of registers follows from it.
template <class Kernel>
constexpr uint32_t blocks_min = [] {
    if constexpr (requires { Kernel::blocks_min; }) return Kernel::blocks_min;
    return 0u;
}();

// Shared memory of a kernel: the amount that it asks for, after the sums of its warps.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, blocks_min<Kernel>)
    run_kernel(const __grid_constant__ Kernel kernel) {
    // Loads of tiles need a border of 32 bytes.
    extern __shared__ __align__(128) std::byte memory[];
    __shared__ float sums[Kernel::threads / lanes];
    device_team<Kernel::threads> team;
    team.block_x = blockIdx.x;
    team.block_y = blockIdx.y;
    team.block_z = blockIdx.z;
    team.shared = memory;
    team.sums = sums;
    kernel(team);
}

}  // namespace moorage::core::gpu
