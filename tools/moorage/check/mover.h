// mover.h - runs every second piece of work on another thread. Only one runs at a time.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace moorage::check {

class mover {
public:
    mover() : worker_([this] { serve(); }) {}
    ~mover() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        changed_.notify_all();
        worker_.join();
    }
    mover(const mover &) = delete;

    void run(const std::function<void()> &work) {
        if (++count_ % 2 == 0) return work();
        std::unique_lock lock(mutex_);
        work_ = &work;
        changed_.notify_all();
        changed_.wait(lock, [&] { return work_ == nullptr; });
    }

private:
    void serve() {
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return stopping_ || work_; });
            if (stopping_) return;
            (*work_)();
            work_ = nullptr;
            changed_.notify_all();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    const std::function<void()> *work_ = nullptr;
    uint64_t count_ = 0;
    bool stopping_ = false;
    std::thread worker_;  // last: it uses the others
};

}  // namespace moorage::check
