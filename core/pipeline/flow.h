// flow.h - a coroutine that waits for events: the pipeline's course, written from top to bottom.
//
// A flow runs until it waits (co_await waiting_room) and goes on when somebody resumes it. One flow
// may await another. The outer one goes on when the inner one has ended. So many pipelines can
// share one clock without a thread each.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace moorage::core {

class flow {
public:
    struct promise_type {
        std::coroutine_handle<> outer = std::noop_coroutine();

        flow get_return_object() {
            return flow(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        auto final_suspend() noexcept {
            struct resume_outer {
                bool await_ready() noexcept { return false; }
                std::coroutine_handle<> await_suspend(
                    std::coroutine_handle<promise_type> ended) noexcept {
                    return ended.promise().outer;
                }
                void await_resume() noexcept {}
            };
            return resume_outer{};
        }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }  // the core throws nothing
    };

    flow() = default;
    flow(flow &&source) noexcept : handle_(std::exchange(source.handle_, nullptr)) {}
    flow &operator=(flow &&source) noexcept {
        std::swap(handle_, source.handle_);
        return *this;
    }
    ~flow() {
        if (handle_) handle_.destroy();
    }

    bool ended() const { return !handle_ || handle_.done(); }
    std::coroutine_handle<> handle() const { return handle_; }

    // Runs this flow to its end, then the awaiting one.
    auto operator co_await() const {
        struct awaiter {
            std::coroutine_handle<promise_type> inner;
            bool await_ready() { return false; }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<> outer) {
                inner.promise().outer = outer;
                return inner;
            }
            void await_resume() {}
        };
        return awaiter{handle_};
    }

private:
    explicit flow(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
    std::coroutine_handle<promise_type> handle_;
};

// The place where a flow stands while it waits.
class waiting_room {
public:
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> waiter) { waiter_ = waiter; }
    void await_resume() {}
    void enter(std::coroutine_handle<> first) { waiter_ = first; }
    void resume() { waiter_.resume(); }

private:
    std::coroutine_handle<> waiter_;
};

}  // namespace moorage::core
