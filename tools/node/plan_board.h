// plan_board.h - the exchange between the thread that follows a registry and a node's loop. One
// way: the newest plan. The other way: what the node has made of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "tools/node/plan_record.h"

namespace moorage::core {

class plan_board {
public:
    // False: that epoch or a later one is there already, so this one is outdated.
    bool post(plan_record next) {
        const std::lock_guard lock(guard_);
        if (next.epoch <= plan_.epoch) return false;
        plan_ = std::move(next);
        version_.fetch_add(1, std::memory_order_release);
        return true;
    }
    // Changes each time that there is a newer plan. 0: there is none.
    uint64_t version() const { return version_.load(std::memory_order_acquire); }
    plan_record plan() const {
        const std::lock_guard lock(guard_);
        return plan_;
    }
    void report(member_record record) {
        const std::lock_guard lock(guard_);
        reported_ = std::move(record);
    }
    member_record reported() const {
        const std::lock_guard lock(guard_);
        return reported_;
    }
    // The server that decides on plans and is told the demand of homes. no_server: nobody.
    void set_leader(uint32_t server) { leader_.store(server, std::memory_order_relaxed); }
    uint32_t leader() const { return leader_.load(std::memory_order_relaxed); }
    // Tokens that the home of a server has requested of each page since its last report.
    void add_demand(uint32_t home, std::span<const uint64_t> page_counts) {
        const std::lock_guard lock(guard_);
        std::vector<uint64_t> &totals = demand_[home];
        totals.resize(page_counts.size());
        for (size_t page = 0; page < totals.size(); ++page) totals[page] += page_counts[page];
    }
    std::map<uint32_t, std::vector<uint64_t>> take_demand() {
        const std::lock_guard lock(guard_);
        return std::exchange(demand_, {});
    }

private:
    mutable std::mutex guard_;
    plan_record plan_;
    member_record reported_;
    std::map<uint32_t, std::vector<uint64_t>> demand_;  // by home, below the number of servers
    std::atomic<uint32_t> leader_ = no_server;
    std::atomic<uint64_t> version_ = 0;
};

}  // namespace moorage::core
