// side_work.h - work beside a device of this process that completes on its executor: experts that
// other processes compute.
#pragma once

#include <string>

#include "core/execute/executor.h"

namespace moorage::core {

class side_work {
public:
    virtual ~side_work() = default;
    // Takes one completion, if there is any, without waiting.
    virtual bool take(completion &done) = 0;
    // Waits until something may have ended. Requires: the device has nothing to do.
    virtual void wait() = 0;
    // As executor::failure(). Work that will never end has been handed out as if it had ended.
    virtual std::string failure() const = 0;
};

}  // namespace moorage::core
