// policy_clock.h - the host's time inside the policies of a run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/host/call.h"
#include "core/host/instance.h"
#include "core/report/report.h"

namespace moorage::core {

// The host's time inside the policies of a run, as measured or as declared.
class policy_clock {
public:
    // Time that has passed and that the executor has not been told of.
    uint64_t unreported_ns();
    // By policy and function, in the order of the policies.
    void report(std::vector<policy_time> &times) const;

private:
    friend class policy_set;
    struct timed_policy {
        std::string name;
        std::unique_ptr<entry_times> times;
    };
    std::vector<timed_policy> policies_;
    uint64_t reported_ns_ = 0, call_ns_ = 0;
};

}  // namespace moorage::core
