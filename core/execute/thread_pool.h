// thread_pool.h - a fixed set of threads that run one loop at a time, for short parallel loops.
//
// The caller works too. Workers spin for a short while before they sleep, so that the loops of one
// decode step follow each other without the kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "core/config/arithmetic.h"

namespace moorage::core {

class thread_pool {
public:
    // threads >= 1, the caller included; 0: one per core this process may use.
    explicit thread_pool(uint32_t threads, arithmetic mode = arithmetic::exact);
    ~thread_pool();
    uint32_t threads() const;
    // The arithmetic of the kernels that run on it.
    arithmetic mode() const { return mode_; }

    // Calls body(item) for every item below `count`, each exactly once, on any thread. Returns when
    // all are done. `body` does not throw. Each thread begins with a stretch of items of its own,
    // in rising order. The stretches are the same for every loop of that count, so the data stays
    // in the thread's cache. A thread that is done takes items from the others. Not reentrant, one
    // caller at a time. `body` may also be body(item, thread): `thread` is below threads(), and no
    // two bodies run at once with the same `thread`.
    template <class Body>
    void parallel_for(uint32_t count, Body &&body) {
        using body_type = std::remove_reference_t<Body>;
        run_loop(
            count,
            [](void *body_pointer, uint32_t item, uint32_t thread) {
                if constexpr (std::is_invocable_v<body_type &, uint32_t, uint32_t>) {
                    (*static_cast<body_type *>(body_pointer))(item, thread);
                } else {
                    (void)thread;
                    (*static_cast<body_type *>(body_pointer))(item);
                }
            },
            const_cast<void *>(static_cast<const void *>(&body)));
    }

    // Memory of the caller for its loops, aligned to 64 bytes. It grows and stays. The next call
    // loses its contents.
    float *scratch(size_t floats);

private:
    void run_loop(uint32_t count, void (*call)(void *, uint32_t, uint32_t), void *body);
    struct shared;
    std::unique_ptr<shared> shared_;
    arithmetic mode_;
};

}  // namespace moorage::core
