// replay_table.h - the results of a replay as a text table and as the contract's JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/cache/replay.h"
#include "tools/comparison/failed_rows.h"

namespace moorage::tool {

// One line of the results, with the label the user gave the policy.
struct replay_row {
    std::string label;
    uint32_t slots = 0;
    core::sharing pools = core::sharing::shared;
    core::replay_result counted;
    std::optional<uint64_t> opt_misses;  // absent without the belady policy
    bool failed = false;                 // not counted; see the report's `failed`
};

struct replay_report {
    std::string trace;  // as given
    std::string model;  // of the trace's metadata; may be empty
    uint64_t tokens = 0;
    uint32_t layers = 0, experts = 0, top_k = 0;
    core::order requests = core::order::token;
    uint64_t seed = 0;
    bool timing = false;           // otherwise seconds are 0, so equal runs give equal bytes
    std::vector<replay_row> rows;  // by sharing, slots, policy
    std::vector<core::failed_row> failed;
    std::vector<std::string> warnings;
};

// "failed" has the failed rows; it is absent without any.
core::json to_json(const replay_report &report);
// Policies down, sizes across, as many sizes side by side as fit in 100 columns.
std::string to_text(const replay_report &report);

}  // namespace moorage::tool
