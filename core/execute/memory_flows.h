// memory_flows.h - who reads host memory at one time, in virtual time: copies, the CPU, the disk.
//
// Each user first has a constant part, which uses no bandwidth. Then it reads bytes at a rate of
// its own. If the sum of the rates exceeds the memory's ceiling, all users are slowed by the same
// factor (a DRAM controller serves them alike; measured in FreeToken#444: 110 + 26 alone, 120
// together). An end that falls between two nanoseconds is rounded up.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/execute/cost_model.h"
#include "core/execute/executor.h"

namespace moorage::core {

template <uint32_t Copies>
class basic_memory_flows {
public:
    // Users: copies, links by their numbers first, then the CPU.
    static constexpr uint32_t cpu = Copies, users = Copies + 1;

    // rate: bytes per nanosecond.
    explicit basic_memory_flows(double rate) : memory_rate_(rate) { due_.fill(MOORAGE_NEVER); }

    bool is_under_way(uint32_t user) const { return due_[user] != MOORAGE_NEVER; }
    // The time of the earliest event. Among equal ones, that of the first user. MOORAGE_NEVER:
    // there is none.
    uint64_t due() const { return due_[first_]; }
    void start(uint32_t user, uint64_t now_ns, uint64_t constant_ns, double bytes, double rate) {
        flow &user_flow = flows_[user];
        user_flow.started_ns = user_flow.updated_ns = now_ns;
        user_flow.left_bytes = bytes;
        user_flow.alone_rate = rate;
        due_[user] = now_ns + constant_ns;
        if (constant_ns == 0) start_flowing(user, now_ns);
        if (under_way_++ == 0)
            first_ = user;
        else
            find_first();
    }
    // An expert, or a `share` of one, that takes the CPU `price_ns` alone. `handover_ns` comes in
    // addition.
    void start_cpu(uint64_t now_ns, const cost_model &costs, double share, uint64_t price_ns,
                   uint64_t handover_ns = 0) {
        const uint64_t constant_ns = costs.hardware().node.cpu_issue_ns;
        const double bytes = static_cast<double>(costs.expert_bytes(share));
        const uint64_t alone_ns = price_ns - constant_ns;
        start(cpu, now_ns, constant_ns + handover_ns, bytes,
              bytes / static_cast<double>(std::max<uint64_t>(alone_ns, 1)));
    }
    // Takes the earliest event, which is due now. Returns the user that has ended with it, or
    // `users`.
    uint32_t take(uint64_t now_ns) {
        const uint32_t user = first_;
        flow &user_flow = flows_[user];
        if (!user_flow.flowing) {
            start_flowing(user, now_ns);
            if (under_way_ != 1) find_first();
            return users;
        }
        user_flow.flowing = false;
        --flowing_;
        user_flow.rate = 0;
        due_[user] = MOORAGE_NEVER;
        divide_bandwidth(now_ns);
        if (--under_way_ != 0) find_first();
        return user;
    }
    uint64_t started_ns(uint32_t user) const { return flows_[user].started_ns; }

private:
    struct flow {
        bool flowing = false;
        uint64_t started_ns = 0, updated_ns = 0;
        double left_bytes = 0, alone_rate = 0, rate = 0;  // bytes, bytes per ns
    };

    void find_first() {
        uint32_t first = 0;
        for (uint32_t user = 1; user < users; ++user)
            first = due_[user] < due_[first] ? user : first;
        first_ = first;
    }
    // Most flows are alone. Then a flow goes at its own rate.
    void start_flowing(uint32_t user, uint64_t now_ns) {
        flow &user_flow = flows_[user];
        user_flow.flowing = true;
        user_flow.updated_ns = now_ns;
        if (++flowing_ != 1 || user_flow.alone_rate > memory_rate_) return divide_bandwidth(now_ns);
        user_flow.rate = user_flow.alone_rate;
        due_[user] = now_ns + rounded_up(user_flow.left_bytes / user_flow.rate);
    }
    // Gives every flow its share from now on, and so the time of its end.
    void divide_bandwidth(uint64_t now_ns) {
        if (flowing_ == 0) return;
        double wanted = 0;
        for (const flow &user_flow : flows_) wanted += user_flow.flowing ? user_flow.alone_rate : 0;
        const double factor = wanted > memory_rate_ ? memory_rate_ / wanted : 1;
        for (uint32_t user = 0; user < users; ++user) {
            flow &user_flow = flows_[user];
            if (!user_flow.flowing) continue;
            const double rate = user_flow.alone_rate * factor;
            if (rate == user_flow.rate) continue;
            user_flow.left_bytes -=
                user_flow.rate * static_cast<double>(now_ns - user_flow.updated_ns);
            user_flow.left_bytes = std::max(user_flow.left_bytes, 0.0);
            user_flow.updated_ns = now_ns;
            user_flow.rate = rate;
            due_[user] = now_ns + rounded_up(user_flow.left_bytes / rate);
        }
    }

    const double memory_rate_;
    std::array<uint64_t, users> due_;  // MOORAGE_NEVER: not under way
    std::array<flow, users> flows_;
    uint32_t under_way_ = 0, flowing_ = 0;  // numbers of users
    uint32_t first_ = 0;                    // the user with the earliest event
};
using memory_flows = basic_memory_flows<link_count>;

}  // namespace moorage::core
