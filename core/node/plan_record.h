// plan_record.h - a plan and a member's word as the texts that a registry keeps.
//
// A plan of an epoch says who holds each expert, all of whom have it in memory, and which copies
// are on their way. A copy that has come is a holder from a later epoch on; one that goes is no
// holder from an epoch on, and in memory until nobody calls by an earlier one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/node/node_plan.h"

namespace moorage::core {

struct moving_copy {
    uint32_t page = 0;
    uint32_t from = no_server;  // who has it; no_server: any holder, else the own directory
    uint32_t to = 0;
    bool operator==(const moving_copy &) const = default;
};

struct plan_record {
    uint64_t epoch = 0;
    std::vector<std::vector<uint32_t>> holders;  // [pages] servers, ascending, none twice
    std::vector<moving_copy> coming;             // in the order in which they are to come
    bool operator==(const plan_record &) const = default;
};

// The plan that a node goes by, as a record.
plan_record record_of(const node_plan &of);
// JSON; the servers' names, cluster and model are of `of`.
std::string to_text(const plan_record &plan, const node_plan &of);
// Refused where it is of another cluster or model, names what is not there, leaves an expert
// without a holder.
result<plan_record> read_plan_record(uint64_t epoch, std::string_view text, const node_plan &of);
// Whether it is a plan, and says that it is of another cluster or model.
bool is_of_another(std::string_view text, const node_plan &of);

// The state that a member reports about itself.
struct member_record {
    uint64_t incarnation = 0;
    uint64_t epoch = 0;             // it goes by
    std::vector<uint32_t> arrived;  // pages that came and are not its by the plan yet
    uint64_t leaving = 0;           // pages that are no longer its and still in memory
    uint64_t pair_ns = 0;           // computing an expert for a token, as measured; 0: not yet
    std::vector<uint64_t> round_trip_ns;  // [servers] heartbeat there and back; 0: not known
    uint64_t bytes_per_s = 0;             // at which experts came; 0: not known
    bool operator==(const member_record &) const = default;
};
std::string to_text(const member_record &of);
result<member_record> read_member_record(std::string_view text, const node_plan &of);

}  // namespace moorage::core
