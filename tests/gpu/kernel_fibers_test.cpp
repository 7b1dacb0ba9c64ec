// kernel_fibers_test.cpp - goal: no kernel depends on the order in which a block's threads reach
// shared data, or reads shared memory that nobody wrote. Method: the cases of cuda_arithmetic_test
// with a fiber for each thread, forwards, backwards and in drawn orders. Kernels with a mistake
// must show it.
#include <doctest/doctest.h>

#include <random>

#include "tests/gpu/fiber_team.h"
#include "tests/gpu/kernel_attention.h"
#include "tests/gpu/kernel_formats.h"
#include "tests/gpu/kernel_products.h"

namespace {

using namespace moorage::core;
using namespace moorage::core::gpu;

using fiber_bench = kernel_bench<fiber_device, host_memory>;

const uint32_t drawn = 2 + std::random_device{}() % 1000000;

template <class Check>
void check_all(Check &&check, std::vector<uint32_t> orders = {0, 1, drawn}) {
    for (const uint32_t order : orders) {
        CAPTURE(order);
        fiber_device device(order);
        host_memory memory;
        fiber_bench bench(device, memory, drawn);
        check(bench);
        CHECK(device.failure == "");
        CHECK(bench.results.size() > 0);
        for (const case_result &result : bench.results) {
            CAPTURE(result.name);
            CHECK(result.error <= result.limit);
        }
    }
}

// Each thread passes its number to the opposite one, through shared memory.
enum class mistake : uint8_t { none, no_barrier, one_unwritten, ends_early, half_a_warp };
struct exchange_kernel {
    static constexpr uint32_t threads = 64;
    mistake planted;
    float *output;

    template <class Team>
    void operator()(Team &team) const {
        auto *shared = reinterpret_cast<float *>(team.shared);
        bool ends = false;
        team.each([&](uint32_t thread) {
            if (planted != mistake::one_unwritten || thread != 5)
                shared[thread] = static_cast<float>(thread);
            ends = planted == mistake::ends_early && thread == 7;
        });
        if (ends) return;
        if (planted != mistake::no_barrier) team.barrier();
        typename Team::template local<float> sum(team);
        team.each([&](uint32_t thread) { sum[thread] = output[thread] = shared[63 - thread]; });
        bool apart = false;
        team.each([&](uint32_t thread) { apart = planted == mistake::half_a_warp && thread < 16; });
        if (!apart) team.warp_sum(0, [&](uint32_t thread) -> float & { return sum[thread]; });
    }
};

// Whether all numbers arrived, in that order.
bool exchanges(mistake planted, uint32_t order, std::string &failure) {
    std::vector<float> output(64, -1);
    fiber_device device(order);
    device.launch(exchange_kernel{planted, output.data()}, 1, 1, 1, 256);
    failure = device.failure;
    bool right = failure.empty();
    for (uint32_t i = 0; i < 64; ++i) right = right && output[i] == static_cast<float>(63 - i);
    return right;
}

}  // namespace

TEST_CASE("products, experts and embeddings") {
    check_all([](fiber_bench &bench) { check_products(bench, false); });
}

TEST_CASE("values and products of every format") {
    const auto check = [](fiber_bench &bench) {
        check_formats(bench, false);
        check_products(bench);
    };
    check_all(check, {drawn});
}

TEST_CASE("attention, norms, rotation and caches") {
    check_all([](fiber_bench &bench) { check_attentions(bench); });
}

TEST_CASE("the host is told that scores are there after all of them") {
    for (const uint32_t order : {0u, 1u, 2u, 3u}) {
        CAPTURE(order);
        const std::vector<float> scores(1000, 1.0f);
        std::vector<float> host_scores(1000);
        uint32_t number = 0, word = 0;
        fiber_device device(order);
        device.launch(
            tell_kernel{
                {{scores.data(), host_scores.data()}, {nullptr, nullptr}}, 1000, &number, &word},
            1, 1, 1, 0);
        REQUIRE(device.told_addresses.size() == 1001);
        CHECK(device.told_addresses.back() == &word);
        CHECK(host_scores == scores);
    }
}

TEST_CASE("a barrier that is missing, a word that nobody wrote, threads that do not come") {
    for (const uint32_t order : {0u, 1u, 2u, 3u}) {
        CAPTURE(order);
        std::string failure;
        CHECK(exchanges(mistake::none, order, failure));
        CHECK_FALSE(exchanges(mistake::no_barrier, order, failure));
        CHECK(failure == "");
        CHECK_FALSE(exchanges(mistake::one_unwritten, order, failure));
        CHECK_FALSE(exchanges(mistake::ends_early, order, failure));
        CHECK(failure == "63 threads wait at a barrier and 0 for their warp, 1 have ended");
        CHECK_FALSE(exchanges(mistake::half_a_warp, order, failure));
        CHECK(failure == "0 threads wait at a barrier and 16 for their warp, 48 have ended");
    }
}
