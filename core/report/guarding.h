// guarding.h - the measurements and decisions of a run's guard, for every form of the report.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json_fwd.h"

namespace moorage::core {

// One thing that a run can do without (prefetch, cache, substitution), in one phase.
struct guard_arm {
    std::string name, phase;     // phase: "prefill" or "decode"
    bool enabled = true;         // at the end
    bool as_configured = false;  // the configuration wants it so
    // Times of the last trial, per token. Both 0: there was none, and `reason` says why not.
    double on_ns = 0, off_ns = 0;
    std::string reason;
    uint64_t since_token = 0;  // since when the decision stands
    uint64_t trials = 0, changes = 0;
    uint64_t off_tokens = 0;  // handled without it, trials included
};

// {"name", "phase", "on", "on_ms", "off_ms", "why", "since_token", "trials", "changes",
//  "off_tokens"}; times per token, null where there was no trial.
json to_json(const guard_arm &arm);
// Label and text of the lines of a run's report; none without a guard.
std::vector<std::pair<std::string, std::string>> guard_lines(const std::vector<guard_arm> &arms);
// Says what is off, with figures and the setting that makes it permanent. "": it is on.
std::string guard_warning(const guard_arm &arm);

}  // namespace moorage::core
