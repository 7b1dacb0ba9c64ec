// thread_pool.h - a fixed set of threads that run one loop at a time, for short parallel loops.
//
// The caller works too. Workers spin for a short while before they sleep, so that the loops of one
// decode step follow each other without the kernel.
#pragma once

#include <cstdint>
#include <memory>

namespace moorage::core {

class thread_pool {
public:
    // threads >= 1, the caller included; 0: one per core this process may use.
    explicit thread_pool(uint32_t threads);
    ~thread_pool();
    uint32_t threads() const;

    // Calls body(item) for every item below `count`, each exactly once, on any thread, and returns
    // when all are done. `body` does not throw. Items are handed out in rising order. Not
    // reentrant, one caller at a time.
    template <class Body>
    void each(uint32_t count, Body &&body) {
        run(
            count, [](void *of, uint32_t item) { (*static_cast<Body *>(of))(item); },
            const_cast<void *>(static_cast<const void *>(&body)));
    }

private:
    void run(uint32_t count, void (*call)(void *, uint32_t), void *body);
    struct shared;
    std::unique_ptr<shared> shared_;
};

}  // namespace moorage::core
