// cuda_arithmetic_test.cpp - goal: every GPU kernel computes its definition. Method: the kernels'
// own code, run block by block on the CPU over fresh random inputs and poisoned outputs, compared
// with sums in double. Number formats are compared with values worked by hand.
#include <doctest/doctest.h>

#include <random>

#include "tests/gpu/kernel_attention.h"
#include "tests/gpu/kernel_formats.h"
#include "tests/gpu/kernel_products.h"
#include "tests/unit/emulated_device.h"

namespace moorage::core::gpu {

// For kernels that the executor does not have.
template <weight_type type>
void run_blocks(const widen_kernel<type> &kernel, host_team &team, uint32_t x, uint32_t y,
                uint32_t z) {
    run_each_block(kernel, team, x, y, z);
}

}  // namespace moorage::core::gpu

namespace {

using namespace moorage::core;
using namespace moorage::core::gpu;

using host_bench = kernel_bench<emulated_device, host_memory>;

template <class Check>
void check_all(Check &&check) {
    const uint64_t seed = std::random_device{}();
    MESSAGE("seed ", seed);
    emulated_device device;
    host_memory memory;
    host_bench bench(device, memory, seed);
    check(bench);
    CHECK(bench.results.size() > 0);
    for (const case_result &result : bench.results) {
        CAPTURE(result.name);
        CHECK(result.error <= result.limit);
    }
}

}  // namespace

TEST_CASE("number formats") {
    const float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (uint32_t code = 0; code < 16; ++code)
        CHECK(float_of_fp4(code) == (code & 8 ? -1 : 1) * magnitudes[code & 7]);
    CHECK(float_of_scale(127) == 1);
    CHECK(float_of_scale(0) == 0x1p-127f);
    CHECK(float_of_scale(254) == 0x1p127f);
    CHECK(std::isnan(float_of_scale(255)));
    CHECK(bf16_of_float(1.0f) == 0x3f80);
    CHECK(bf16_of_float(1.00390625f) == 0x3f80);  // half way between two: to the even one
    CHECK(bf16_of_float(1.01171875f) == 0x3f82);
    CHECK(float_of_bf16(0xc040) == -3);
}

TEST_CASE("values of every format, with all their scales") {
    check_all([](host_bench &bench) { check_formats(bench, true); });
}

TEST_CASE("a row's copy ends where the row does, on the next border of 16 bytes") {
    product_item item;
    // 64 of q4_0 are two blocks of 18 bytes, 36 from wherever they begin: up to 64. A row of fp8
    // may end within a block: 130 bytes, up to 160. Eight warps; gate and up are two rows.
    item.weights.columns = 64;
    CHECK(row_kernel<weight_type::q4_0, 1>::shared_bytes_of(item) == 8 * 64);
    item.weights.columns = 130;
    CHECK(row_kernel<weight_type::fp8, 1>::shared_bytes_of(item) == 8 * 160);
    CHECK(row_kernel<weight_type::bf16, 1>::shared_bytes_of(item) == 0);
    const std::byte byte{};
    item.second.data = &byte;
    CHECK(row_kernel<weight_type::fp8, 1>::shared_bytes_of(item) == 16 * 160);
}

TEST_CASE("products, experts and embeddings") {
    check_all([](host_bench &bench) { check_products(bench); });
}

TEST_CASE("attention, norms, rotation and caches") {
    check_all([](host_bench &bench) { check_attentions(bench); });
}
