// shortage.hpp - what becomes of a connection, dial or listener that finds no memory.
//
// Every wait, event and text takes memory, and none of those calls may throw to the host. Whoever
// finds none is listed here, which takes none, and `out_of_memory` is called at each turn until it
// gets through: that connection is lost, a listener listens again, all others go on.
#pragma once

#include <memory>
#include <new>
#include <utility>

namespace tcp_wire {

class worker {
public:
    virtual ~worker() = default;
    // Ends what this is and tells of it, or begins anew. Called again where it throws bad_alloc.
    virtual void out_of_memory() = 0;
    // Listed: half of something is done, and nothing more may be.
    bool short_of_memory() const { return listed_; }

private:
    friend class shortage;
    std::shared_ptr<worker> next_;
    bool listed_ = false;
};

class shortage {
public:
    // Does `work` of `whose`. Whoever calls for another from within `work` needs no guard of its
    // own: what is thrown is whose work it is.
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
