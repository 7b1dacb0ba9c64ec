// thread_pool.cpp - one word says whether a loop is open and how many workers are inside it.
#include "core/execute/thread_pool.h"

#include "core/base/machine_limits.h"
#include "core/execute/float_buffer.h"

#include <atomic>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace moorage::core {
namespace {

// The word holds the loop's number in the upper part, one bit for open, and the count of workers
// inside in the lower part. A worker enters an open loop by adding one to exactly the word that it
// saw. So no worker enters a loop that the caller has closed. The fields of a loop change only
// while nobody is inside.
constexpr uint64_t OPEN = uint64_t{1} << 16;
constexpr uint64_t INSIDE = OPEN - 1;
constexpr uint32_t LOOP_SHIFT = 17;
constexpr uint32_t THREADS_MAX = 1024;

// As long as the time between two steps of decoding. After that a worker sleeps.
constexpr auto SPIN_TIME = std::chrono::microseconds(200);
constexpr uint32_t SPINS_BETWEEN_CLOCKS = 64;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

struct thread_pool::shared {
    alignas(64) std::atomic<uint64_t> word{0};
    // The open loop. Each thread begins with a stretch of its own.
    struct alignas(64) stretch {
        std::atomic<uint32_t> next{0};
        uint32_t end = 0;
    };
    std::vector<stretch> stretches;
    void (*call)(void *, uint32_t, uint32_t) = nullptr;
    void *body = nullptr;

    alignas(64) std::atomic<uint32_t> sleepers{0};
    std::atomic<bool> stop{false};
    std::mutex mutex;
    std::condition_variable wake;

    bool crowded = false;  // more threads than cores: a waiting thread gives its core away
    std::vector<std::thread> workers;
    float_buffer scratch;

    void run_items(uint32_t thread) {
        for (size_t turn = 0; turn < stretches.size(); ++turn) {
            stretch &source = stretches[(thread + turn) % stretches.size()];
            // Looked at first: most stretches of others are used up by the time they are tried.
            while (source.next.load(std::memory_order_relaxed) < source.end) {
                const uint32_t item = source.next.fetch_add(1, std::memory_order_relaxed);
                if (item >= source.end) break;
                call(body, item, thread);
            }
        }
    }

    void divide_items(uint32_t count) {
        const uint64_t threads = stretches.size();
        for (uint64_t thread = 0; thread < threads; ++thread) {
            const auto begin = static_cast<uint32_t>(count * thread / threads);
            stretches[thread].next.store(begin, std::memory_order_relaxed);
            stretches[thread].end = static_cast<uint32_t>(count * (thread + 1) / threads);
        }
    }

    static bool is_new(uint64_t seen, uint64_t last_loop) {
        return (seen & OPEN) && (seen >> LOOP_SHIFT) != last_loop;
    }

    // Returns once there is an open loop that this worker has not been in, or at the end.
    void wait_for_loop(uint64_t last_loop) {
        const auto given_up = std::chrono::steady_clock::now() + SPIN_TIME;
        while (!crowded) {
            for (uint32_t spin = 0; spin < SPINS_BETWEEN_CLOCKS; ++spin) {
                if (is_new(word.load(std::memory_order_relaxed), last_loop)) return;
                relax();
            }
            if (stop.load(std::memory_order_relaxed)) return;
            if (std::chrono::steady_clock::now() > given_up) break;
        }
        std::unique_lock lock(mutex);
        // Sequentially consistent on both sides: either the caller sees this sleeper and wakes it,
        // or the sleeper sees the caller's loop.
        sleepers.fetch_add(1);
        wake.wait(lock, [&] { return stop.load() || is_new(word.load(), last_loop); });
        sleepers.fetch_sub(1);
    }

    void run_worker(uint32_t thread) {
        uint64_t last_loop = 0;
        while (!stop.load(std::memory_order_relaxed)) {
            uint64_t seen = word.load(std::memory_order_acquire);
            if (!is_new(seen, last_loop)) {
                wait_for_loop(last_loop);
                continue;
            }
            if (!word.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel)) continue;
            last_loop = seen >> LOOP_SHIFT;
            run_items(thread);
            word.fetch_sub(1, std::memory_order_release);
        }
    }

    void wake_sleepers() {
        if (sleepers.load() == 0) return;
        { const std::lock_guard lock(mutex); }
        wake.notify_all();
    }
};

thread_pool::thread_pool(uint32_t threads, arithmetic mode)
    : shared_(std::make_unique<shared>()), mode_(mode) {
    const uint32_t cores = usable_processors();
    if (threads == 0) threads = cores;
    if (threads > THREADS_MAX) threads = THREADS_MAX;
    shared_->crowded = threads > cores;
    shared_->stretches = std::vector<shared::stretch>(threads);
    shared_->workers.reserve(threads - 1);
    for (uint32_t worker = 1; worker < threads; ++worker)
        shared_->workers.emplace_back(
            [state = shared_.get(), worker] { state->run_worker(worker); });
}

thread_pool::~thread_pool() {
    {
        const std::lock_guard lock(shared_->mutex);
        shared_->stop.store(true);
    }
    shared_->wake.notify_all();
    for (std::thread &worker : shared_->workers) worker.join();
}

uint32_t thread_pool::threads() const { return static_cast<uint32_t>(shared_->workers.size()) + 1; }

float *thread_pool::scratch(size_t floats) { return shared_->scratch.get(floats); }

void thread_pool::run_loop(uint32_t count, void (*call)(void *, uint32_t, uint32_t), void *body) {
    shared &state = *shared_;
    if (count <= 1 || state.workers.empty()) {
        for (uint32_t item = 0; item < count; ++item) call(body, item, 0);
        return;
    }
    const uint64_t old_word = state.word.load(std::memory_order_relaxed);
    assert((old_word & (OPEN | INSIDE)) == 0);  // not reentrant, one caller at a time
    // Every thread may overshoot by one.
    assert(count <= UINT32_MAX - THREADS_MAX);
    state.divide_items(count);
    state.call = call;
    state.body = body;
    state.word.store((((old_word >> LOOP_SHIFT) + 1) << LOOP_SHIFT) | OPEN);
    state.wake_sleepers();
    state.run_items(0);
    // Closed: workers inside finish their item, and no other worker enters.
    state.word.fetch_and(~OPEN, std::memory_order_acq_rel);
    for (uint32_t spin = 0; state.word.load(std::memory_order_acquire) & INSIDE; ++spin) {
        relax();
        if (state.crowded || spin % SPINS_BETWEEN_CLOCKS == SPINS_BETWEEN_CLOCKS - 1)
            std::this_thread::yield();
    }
}

}  // namespace moorage::core
