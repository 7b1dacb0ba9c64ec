// plan_record.h - a plan and a member's state as the texts that a registry keeps.
//
// A plan of an epoch says who holds each expert and which copies are on their way. All holders have
// the expert in memory. A copy that has come is a holder from a later epoch on. A copy that goes is
// no holder from an epoch on, but stays in memory until nobody calls by an earlier one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "tools/node/node_plan.h"

namespace moorage::core {

struct moving_copy {
    uint32_t page = 0;
    uint32_t source = no_server;  // the server that has it; no_server: any holder, otherwise the
                                  // own directory
    uint32_t target = 0;
    bool operator==(const moving_copy &) const = default;
};

struct plan_record {
    uint64_t epoch = 0;
    std::vector<std::vector<uint32_t>> holders;  // [pages] servers, ascending, none twice
    std::vector<moving_copy> coming;             // in the order of their arrival
    bool operator==(const plan_record &) const = default;
};

// The plan that a node uses, as a record.
plan_record record_of(const node_plan &plan);
// As JSON. `plan` gives the servers' names, cluster and model.
std::string to_text(const plan_record &record, const node_plan &plan);
// Refused if it belongs to another cluster or model, names something unknown, or leaves an expert
// without a holder.
result<plan_record> read_plan_record(uint64_t epoch, std::string_view text, const node_plan &plan);
// Whether it is a plan of another cluster or model, and says so.
bool is_of_other_cluster(std::string_view text, const node_plan &plan);

// The state that a member reports about itself.
struct member_record {
    uint64_t incarnation = 0;
    uint64_t epoch = 0;             // epoch that it uses
    std::vector<uint32_t> arrived;  // pages that came and that the plan does not give it yet
    uint64_t leaving = 0;           // pages that are no longer its own but still in memory
    uint64_t pair_ns = 0;           // measured time to compute an expert for a token; 0: not yet
    std::vector<uint64_t> round_trip_ns;  // [servers] heartbeat there and back; 0: not known
    uint64_t bytes_per_s = 0;             // rate at which experts came; 0: not known
    bool operator==(const member_record &) const = default;
};
std::string to_text(const member_record &record);
result<member_record> read_member_record(std::string_view text, const node_plan &plan);

}  // namespace moorage::core
