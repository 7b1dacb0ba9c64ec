// fibers.h - the threads of a GPU's block as fibers of one thread. Each runs until it waits for the
// others. The order between the waits is drawn, so that a missing wait shows.
//
//   fiber_block block(256, order);
//   const std::string off = block.run([&](uint32_t thread) { ...; block.barrier(); ... });
//
// Threads of a warp do not run in step here. No kernel may depend on that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace moorage::test {

class fiber_block {
public:
    // order: 0 by number, 1 backwards, otherwise the seed of a drawn order.
    fiber_block(uint32_t threads, uint32_t order);
    ~fiber_block();
    fiber_block(const fiber_block &) = delete;

    // Runs body(thread) as every thread. Returns why some could not finish; empty if all did.
    std::string run(const std::function<void(uint32_t)> &body);

    // The running thread waits for all threads of the block.
    void barrier();
    // Waits for all threads of the warp. The last one calls join(first thread of the warp).
    void warp(const std::function<void(uint32_t)> &join);

private:
    struct fiber;
    enum class state : uint8_t { ready, at_barrier, at_warp, ended };
    static void enter();
    void wait(state new_state);
    bool resume(uint32_t thread);
    std::string describe_stall() const;

    std::vector<std::unique_ptr<fiber>> fibers_;
    std::vector<uint32_t> sequence_;
    uint32_t order_, running_ = 0;
    uint64_t random_;
    const std::function<void(uint32_t)> *body_ = nullptr;
    struct context;
    std::unique_ptr<context> scheduler_;
};

}  // namespace moorage::test
