// shortage.hpp - handles connections, dials and listeners that find no memory.
//
// Every wait, event and text needs memory, and no call may throw to the host. An object without
// memory is listed here, which needs none. `out_of_memory` is called at each turn until it
// succeeds. Then that connection is lost, or that listener listens again. All others go on.
#pragma once

#include <memory>
#include <new>
#include <utility>

namespace tcp_wire {

class worker {
public:
    virtual ~worker() = default;
    // Ends the object and reports it, or begins again. Called again if it throws bad_alloc.
    virtual void out_of_memory() = 0;
    // Listed: something is half done, and nothing more may be done.
    bool short_of_memory() const { return listed_; }

private:
    friend class memory_shortage;
    std::shared_ptr<worker> next_;
    bool listed_ = false;
};

class memory_shortage {
public:
    // Does `work` of `owner`. Calls for another object from within `work` need no guard of their
    // own: an exception counts for the object whose work it is.
    template <class Work>
    void guard(const std::shared_ptr<worker> &owner, Work &&work) {
        try {
            work();
        } catch (const std::bad_alloc &) {
            list(owner);
        }
    }
    bool has_waiting() const { return first_ != nullptr; }
    void settle() {
        auto rest = std::exchange(first_, nullptr);
        while (rest) {
            const auto current = std::exchange(rest, nullptr);
            rest = std::move(current->next_);
            current->listed_ = false;
            guard(current, [&] { current->out_of_memory(); });
        }
    }
    void clear() {
        while (first_) first_ = std::exchange(first_->next_, nullptr);
    }

private:
    void list(const std::shared_ptr<worker> &worker) {
        if (std::exchange(worker->listed_, true)) return;
        worker->next_ = std::move(first_);
        first_ = worker;
    }
    std::shared_ptr<worker> first_;
};

}  // namespace tcp_wire
