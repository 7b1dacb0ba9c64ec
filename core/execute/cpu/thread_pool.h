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
    // Of the kernels that run on it.
    arithmetic mode() const { return mode_; }

    // Calls body(item) for every item below `count`, each exactly once, on any thread, and returns
    // when all are done. `body` does not throw. Each thread begins with a stretch of the items of
    // its own, in rising order, the same for every loop of that count: what it reads stays in its
    // cache. Who is done takes from the others. Not reentrant, one caller at a time. Or body(item,
    // thread): `thread` is below threads(), and no two bodies run as one.
    template <class Body>
    void each(uint32_t count, Body &&body) {
        using body_type = std::remove_reference_t<Body>;
        run(
            count,
            [](void *of, uint32_t item, uint32_t thread) {
                if constexpr (std::is_invocable_v<body_type &, uint32_t, uint32_t>) {
                    (*static_cast<body_type *>(of))(item, thread);
                } else {
                    (void)thread;
                    (*static_cast<body_type *>(of))(item);
                }
            },
            const_cast<void *>(static_cast<const void *>(&body)));
    }

    // Memory of the caller for its loops, aligned to 64 bytes; grows and stays. What it held is
    // lost with the next call.
    float *scratch(size_t floats);

private:
    void run(uint32_t count, void (*call)(void *, uint32_t, uint32_t), void *body);
    struct shared;
    std::unique_ptr<shared> shared_;
    arithmetic mode_;
};

}  // namespace moorage::core
