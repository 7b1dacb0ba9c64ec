// run_memory_test.cpp - goal: the memory of a run does not grow with its tokens, also with the
// optimum. Method: count all memory from operator new, also of policies, while some tokens and then
// twice as many of one kind are emulated.
#include <doctest/doctest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "core/pipeline/run.h"
#include "tests/perf/perf_trace.h"
#include "tests/sanitizers.h"
#include "tests/skip.h"

namespace {

std::atomic<int64_t> held = 0, most = 0;

}  // namespace

// A build with sanitizers keeps its own operators.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
void *operator new(size_t bytes) {
    void *const memory = std::malloc(bytes);
    if (!memory) throw std::bad_alloc();
    const auto now = held += static_cast<int64_t>(malloc_usable_size(memory));
    if (now > most) most = now;
    return memory;
}
void operator delete(void *memory) noexcept {
    held -= static_cast<int64_t>(malloc_usable_size(memory));
    std::free(memory);
}
void operator delete(void *memory, size_t) noexcept { operator delete(memory); }
#endif

namespace {

using namespace moorage::core;

int64_t most_held(uint64_t tokens) {
    const auto file = moorage::perf::write_perf_trace(
        {.layers = 32, .experts = 8, .top_k = 2, .tokens = tokens, .requests = 20});
    REQUIRE_FALSE(file.empty());
    run_resources shared;
    REQUIRE(shared.scan({}).ok());
    run_config config;
    config.file = "memory.toml";
    config.trace = file;
    config.shape = "Mixtral-8x7B";
    config.profile = "rtx_4090";
    config.experts = 128;
    const int64_t held_before = held;
    most = held_before;
    const auto report = run(config, shared, {});
    std::filesystem::remove(file);
    REQUIRE_MESSAGE(report.ok(), (report ? "" : report.failure().text));
    CHECK(report->tokens == tokens);
    return most - held_before;
}

}  // namespace

// Up to 131,072 times are kept one by one (core/report).
TEST_CASE("twice the tokens take no more memory") {
    if (moorage::test::sanitized) return moorage::test::skip("sanitizers keep books of their own");
    constexpr uint64_t few = 135'000, many = 200'000;
    const int64_t held_by_few = most_held(few), growth = most_held(many) - held_by_few;
    CAPTURE(growth);
    CHECK(held_by_few > 131'072 * 8);
    CHECK(growth < static_cast<int64_t>(many - few));  // less than a byte each
}
