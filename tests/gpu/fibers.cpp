// fibers.cpp - begins fibers with the C library's contexts, and switches between them with
// _setjmp() and _longjmp(): swapcontext() asks the kernel for the signal mask each time, which
// takes longer than the kernels that are tested.
#include "tests/gpu/fibers.h"

#include <csetjmp>

#include <ucontext.h>

#include <algorithm>
#include <numeric>

namespace moorage::test {

namespace {

constexpr uint32_t lanes = 32;
constexpr size_t stack_bytes = 128 << 10;
// The block whose fibers begin, since makecontext() passes no pointer.
thread_local fiber_block *beginning = nullptr;

}  // namespace

struct fiber_block::context {
    jmp_buf saved;
};
struct fiber_block::fiber {
    jmp_buf saved;
    std::unique_ptr<std::byte[]> stack{new std::byte[stack_bytes]};
    state current_state = state::ended;
    bool begun = false;  // `saved` is valid
};

fiber_block::fiber_block(uint32_t threads, uint32_t order)
    : sequence_(threads),
      order_(order),
      random_(order * 0x9e3779b97f4a7c15u + 1),
      scheduler_(std::make_unique<context>()) {
    for (uint32_t i = 0; i < threads; ++i) fibers_.push_back(std::make_unique<fiber>());
    std::iota(sequence_.begin(), sequence_.end(), 0u);
    if (order == 1) std::reverse(sequence_.begin(), sequence_.end());
}

fiber_block::~fiber_block() = default;

void fiber_block::enter() {
    fiber_block &block = *beginning;
    const uint32_t thread = block.running_;
    for (;;) {  // once for each run()
        (*block.body_)(thread);
        block.wait(state::ended);
    }
}

std::string fiber_block::run(const std::function<void(uint32_t)> &body) {
    body_ = &body;
    for (const auto &fiber : fibers_) {
        // One that could not finish has its old body on its stack.
        if (fiber->current_state != state::ended) fiber->begun = false;
        fiber->current_state = state::ready;
    }
    for (;;) {
        if (order_ > 1)
            for (size_t i = sequence_.size(); i > 1; --i) {
                random_ = random_ * 6364136223846793005u + 1442695040888963407u;
                std::swap(sequence_[i - 1], sequence_[(random_ >> 33) % i]);
            }
        bool ran = false;
        for (const uint32_t thread : sequence_) ran = resume(thread) || ran;
        if (ran) continue;
        const auto all_are = [&](state wanted) {
            return std::ranges::all_of(
                fibers_, [&](const auto &fiber) { return fiber->current_state == wanted; });
        };
        if (all_are(state::ended)) return "";
        if (!all_are(state::at_barrier)) return describe_stall();
        for (const auto &fiber : fibers_) fiber->current_state = state::ready;
    }
}

bool fiber_block::resume(uint32_t thread) {
    fiber &resumed = *fibers_[thread];
    if (resumed.current_state != state::ready) return false;
    running_ = thread;
    if (_setjmp(scheduler_->saved) != 0) return true;  // the fiber waits
    if (resumed.begun) _longjmp(resumed.saved, 1);
    resumed.begun = true;
    beginning = this;
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = resumed.stack.get();
    start.uc_stack.ss_size = stack_bytes;
    start.uc_link = nullptr;
    makecontext(&start, &fiber_block::enter, 0);
    setcontext(&start);
    return true;  // never: setcontext() fails only if it is given nothing
}

void fiber_block::wait(state new_state) {
    fiber &waiting = *fibers_[running_];
    waiting.current_state = new_state;
    if (_setjmp(waiting.saved) == 0) _longjmp(scheduler_->saved, 1);
}

void fiber_block::barrier() { wait(state::at_barrier); }

void fiber_block::warp(const std::function<void(uint32_t)> &join) {
    const uint32_t thread = running_, first = thread / lanes * lanes;
    bool last = true;
    for (uint32_t i = first; i < first + lanes; ++i)
        last = last && (i == thread || fibers_[i]->current_state == state::at_warp);
    if (!last) return wait(state::at_warp);
    join(first);
    for (uint32_t i = first; i < first + lanes; ++i) fibers_[i]->current_state = state::ready;
}

std::string fiber_block::describe_stall() const {
    const auto count = [&](state wanted) {
        return std::to_string(std::ranges::count_if(
            fibers_, [&](const auto &fiber) { return fiber->current_state == wanted; }));
    };
    return count(state::at_barrier) + " threads wait at a barrier and " + count(state::at_warp) +
           " for their warp, " + count(state::ended) + " have ended";
}

}  // namespace moorage::test
