// timed_executor.h - an executor in virtual time. Several may share a clock. Then the one with the
// earliest event, due(), moves the clock there and calls step().
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>

#include "core/execute/executor.h"

namespace moorage::core {

class timed_executor : public executor {
public:
    // `clock` is borrowed. null: it uses its own.
    explicit timed_executor(uint64_t *clock) : now_(clock ? *clock : own_now_) {}
    timed_executor(const timed_executor &) = delete;

    const uint64_t *clock() const final { return &now_; }
    bool virtual_time() const final { return true; }
    virtual uint64_t due() const = 0;  // MOORAGE_NEVER: nothing is under way
    // The clock was moved for another executor's event. Accounts the time until now with the
    // present state. Call before work is queued.
    virtual void catch_up() = 0;
    // Takes the event that is due now. Most events complete something.
    virtual std::optional<completion> step() = 0;
    completion wait() override {
        for (;;) {
            assert(due() != MOORAGE_NEVER && "something must be under way");
            now_ = due();
            if (const auto done = step()) return *done;
        }
    }

private:
    uint64_t own_now_ = 0;

protected:
    uint64_t &now_;
};

}  // namespace moorage::core
