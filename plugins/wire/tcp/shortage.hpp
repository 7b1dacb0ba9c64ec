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
    friend class shortage;
    std::shared_ptr<worker> next_;
    bool listed_ = false;
};

class shortage {
public:
    // Does `work` of `whose`. Calls for another object from within `work` need no guard of their
    // own: an exception counts for the object whose work it is.
    template <class Work>
    void guard(const std::shared_ptr<worker> &whose, Work &&work) {
        try {
            work();
        } catch (const std::bad_alloc &) {
            list(whose);
        }
    }
    bool any() const { return first_ != nullptr; }
    void settle() {
        auto rest = std::exchange(first_, nullptr);
        while (rest) {
            const auto one = std::exchange(rest, nullptr);
            rest = std::move(one->next_);
            one->listed_ = false;
            guard(one, [&] { one->out_of_memory(); });
        }
    }
    void clear() {
        while (first_) first_ = std::exchange(first_->next_, nullptr);
    }

private:
    void list(const std::shared_ptr<worker> &one) {
        if (std::exchange(one->listed_, true)) return;
        one->next_ = std::move(first_);
        first_ = one;
    }
    std::shared_ptr<worker> first_;
};

}  // namespace tcp_wire
