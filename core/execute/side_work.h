// side_work.h - what goes on beside a device of this process and completes on its executor: experts
// that other processes compute.
#pragma once

#include <string>

#include "core/execute/executor.h"

namespace moorage::core {

class side_work {
public:
    virtual ~side_work() = default;
    // Something that has ended, if there is anything, without waiting.
    virtual bool take(completion &out) = 0;
    // Until something may have ended. Requires: the device has nothing to do.
    virtual void wait() = 0;
    // As executor::failure(): what will never end has been handed out as if it had.
    virtual std::string failure() const = 0;
};

}  // namespace moorage::core
