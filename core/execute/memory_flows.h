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

    bool under_way(uint32_t which) const { return due_[which] != MOORAGE_NEVER; }
    // The time of the earliest event. Among equal ones, that of the first user. MOORAGE_NEVER:
    // there is none.
    uint64_t due() const { return due_[first_]; }
    void start(uint32_t which, uint64_t now_ns, uint64_t constant_ns, double bytes, double rate) {
        flow &one = flows_[which];
        one.started_ns = one.updated_ns = now_ns;
        one.left_bytes = bytes;
        one.alone_rate = rate;
        due_[which] = now_ns + constant_ns;
        if (constant_ns == 0) begin_to_flow(which, now_ns);
        if (under_way_++ == 0)
            first_ = which;
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
        const uint32_t which = first_;
        flow &one = flows_[which];
        if (!one.flowing) {
            begin_to_flow(which, now_ns);
            if (under_way_ != 1) find_first();
            return users;
        }
        one.flowing = false;
        --flowing_;
        one.rate = 0;
        due_[which] = MOORAGE_NEVER;
        share(now_ns);
        if (--under_way_ != 0) find_first();
        return which;
    }
    uint64_t started_ns(uint32_t which) const { return flows_[which].started_ns; }

private:
    struct flow {
        bool flowing = false;
        uint64_t started_ns = 0, updated_ns = 0;
        double left_bytes = 0, alone_rate = 0, rate = 0;  // bytes, bytes per ns
    };

    void find_first() {
        uint32_t first = 0;
        for (uint32_t which = 1; which < users; ++which)
            first = due_[which] < due_[first] ? which : first;
        first_ = first;
    }
    // Most flows are alone. Then a flow goes at its own rate.
    void begin_to_flow(uint32_t which, uint64_t now_ns) {
        flow &one = flows_[which];
        one.flowing = true;
        one.updated_ns = now_ns;
        if (++flowing_ != 1 || one.alone_rate > memory_rate_) return share(now_ns);
        one.rate = one.alone_rate;
        due_[which] = now_ns + rounded_up(one.left_bytes / one.rate);
    }
    // Gives every flow its share from now on, and so the time of its end.
    void share(uint64_t now_ns) {
        if (flowing_ == 0) return;
        double wanted = 0;
        for (const flow &one : flows_) wanted += one.flowing ? one.alone_rate : 0;
        const double factor = wanted > memory_rate_ ? memory_rate_ / wanted : 1;
        for (uint32_t which = 0; which < users; ++which) {
            flow &one = flows_[which];
            if (!one.flowing) continue;
            const double rate = one.alone_rate * factor;
            if (rate == one.rate) continue;
            one.left_bytes -= one.rate * static_cast<double>(now_ns - one.updated_ns);
            one.left_bytes = std::max(one.left_bytes, 0.0);
            one.updated_ns = now_ns;
            one.rate = rate;
            due_[which] = now_ns + rounded_up(one.left_bytes / rate);
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
