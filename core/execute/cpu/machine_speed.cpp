// machine_speed.cpp - loops over memory and over registers, timed until the time is up.
#include "core/execute/cpu/machine_speed.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <vector>

#include "core/base/machine_limits.h"
#include "core/execute/cpu/kernels_vector.h"

namespace moorage::core {
namespace {

constexpr uint32_t PASSES_MIN = 16;

// The most that any pass did per second.
template <class Pass>
double best_rate(double seconds, double work_of_pass, Pass &&pass) {
    using clock = std::chrono::steady_clock;
    const auto begin = clock::now();
    double best_seconds = 1e9;
    for (uint32_t passes = 0;; ++passes) {
        const auto pass_begin = clock::now();
        if (passes >= PASSES_MIN &&
            std::chrono::duration<double>(pass_begin - begin).count() >= seconds)
            return work_of_pass / best_seconds;
        pass(passes);
        const double pass_seconds =
            std::chrono::duration<double>(clock::now() - pass_begin).count();
        best_seconds = std::clamp(pass_seconds, 1e-9, best_seconds);
    }
}

}  // namespace

double measure_read_bandwidth(thread_pool &pool, double seconds) {
    constexpr uint32_t CHUNKS = 2048, CHUNKS_OF_PASS = 128;
    constexpr size_t CHUNK_FLOATS = size_t{1} << 16;  // 256 KiB
    const std::unique_ptr<float[]> buffer(new (std::nothrow) float[CHUNKS * CHUNK_FLOATS]);
    if (!buffer) return 0;
    // Written first: untouched pages are all the same one.
    pool.parallel_for(CHUNKS, [&](uint32_t chunk) {
        std::fill_n(buffer.get() + chunk * CHUNK_FLOATS, CHUNK_FLOATS, 1.0f);
    });
    const element_kernels &kernels = vector_elements();
    std::vector<float> sums(CHUNKS);
    const double bytes = double{CHUNKS_OF_PASS} * CHUNK_FLOATS * sizeof(float);
    return best_rate(seconds, bytes, [&](uint32_t pass) {
        const uint32_t first = pass * CHUNKS_OF_PASS % CHUNKS;
        pool.parallel_for(CHUNKS_OF_PASS, [&](uint32_t item) {
            const uint32_t chunk = first + item;
            sums[chunk] = kernels.read(buffer.get() + chunk * CHUNK_FLOATS, CHUNK_FLOATS);
        });
    });
}

double measure_multiply_add_rate(thread_pool &pool, double seconds) {
    constexpr uint64_t ROUNDS = 20000;
    const element_kernels &kernels = vector_elements();
    const uint32_t items = pool.threads();  // one each
    std::vector<float> sinks(size_t{items} * 16, 0.5f);
    const double operations = kernels.multiply_add(ROUNDS, sinks.data()) * items;
    return best_rate(seconds, operations, [&](uint32_t) {
        pool.parallel_for(items, [&](uint32_t item) {
            kernels.multiply_add(ROUNDS, sinks.data() + size_t{item} * 16);
        });
    });
}

uint64_t host_memory_bytes() { return usable_memory_bytes(); }

}  // namespace moorage::core
