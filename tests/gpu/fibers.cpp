// fibers.cpp - switches between fibers with the C library's contexts.
#include "tests/gpu/fibers.h"

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
    ucontext_t at;
};
struct fiber_block::fiber {
    ucontext_t at;
    std::unique_ptr<std::byte[]> stack{new std::byte[stack_bytes]};
    state in = state::ended;
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
    fiber_block &own = *beginning;
    const uint32_t thread = own.running_;
    (*own.body_)(thread);
    own.wait(state::ended);
}

std::string fiber_block::run(const std::function<void(uint32_t)> &body) {
    body_ = &body;
    beginning = this;
    for (const auto &one : fibers_) {
        getcontext(&one->at);
        one->at.uc_stack.ss_sp = one->stack.get();
        one->at.uc_stack.ss_size = stack_bytes;
        one->at.uc_link = nullptr;
        makecontext(&one->at, &fiber_block::enter, 0);
        one->in = state::ready;
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
        const auto all = [&](state in) {
            return std::ranges::all_of(fibers_, [&](const auto &one) { return one->in == in; });
        };
        if (all(state::ended)) return "";
        if (!all(state::at_barrier)) return stuck();
        for (const auto &one : fibers_) one->in = state::ready;
    }
}

bool fiber_block::resume(uint32_t thread) {
    fiber &one = *fibers_[thread];
    if (one.in != state::ready) return false;
    running_ = thread;
    swapcontext(&scheduler_->at, &one.at);
    return true;
}

void fiber_block::wait(state in) {
    fiber &one = *fibers_[running_];
    one.in = in;
    swapcontext(&one.at, &scheduler_->at);
}

void fiber_block::barrier() { wait(state::at_barrier); }

void fiber_block::warp(const std::function<void(uint32_t)> &join) {
    const uint32_t own = running_, first = own / lanes * lanes;
    bool last = true;
    for (uint32_t i = first; i < first + lanes; ++i)
        last = last && (i == own || fibers_[i]->in == state::at_warp);
    if (!last) return wait(state::at_warp);
    join(first);
    for (uint32_t i = first; i < first + lanes; ++i) fibers_[i]->in = state::ready;
}

std::string fiber_block::stuck() const {
    const auto count = [&](state in) {
        return std::to_string(
            std::ranges::count_if(fibers_, [&](const auto &one) { return one->in == in; }));
    };
    return count(state::at_barrier) + " threads wait at a barrier and " + count(state::at_warp) +
           " for their warp, " + count(state::ended) + " have ended";
}

}  // namespace moorage::test
