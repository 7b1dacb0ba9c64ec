// run_account.h - the counts and times of a run, until they become a report.
//
// Counts are written where things happen, so they are plain members. Only counts with a rule have a
// function.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/execute/executor.h"
#include "core/report/report.h"
#include "core/source/source.h"
#include "core/store/memories.h"
#include "core/transport/transport_stage.h"

namespace moorage::core {

class run_account {
public:
    run_account(uint32_t layers, uint32_t streams, bool virtual_time);

    const bool virtual_time;

    uint64_t tokens = 0, requests = 0;
    uint64_t experts_ns = 0;  // from the routing of a layer to its last output, times its tokens
    uint64_t activation_bytes = 0;
    byte_counts bytes;
    std::vector<layer_report> layers;
    std::vector<device_report> devices;  // empty: there is one
    arrangement_report arrangement;
    std::chrono::nanoseconds decision_time{0};  // host time

    // Does work that decides. On a real machine its time counts (time_ms::policy).
    template <class Work>
    bool timed(Work &&work) {
        if (virtual_time) return work();
        const auto begin = std::chrono::steady_clock::now();
        const bool done = work();
        decision_time += std::chrono::steady_clock::now() - begin;
        return done;
    }
    // The first content is there. From now on time counts.
    void begin(executor &executor);
    // From now on time is charged to this layer. The layer beyond the last stands for heads and for
    // the time between passes.
    void charge(executor &executor, size_t layer, uint32_t phase) {
        executor.charge(causes_[layer][phase == MOORAGE_DECODE]);
    }
    // From now on no request is there, so nobody waits.
    void charge_idle(executor &executor) { executor.charge(idle_); }
    // The time of all layers and of the time between them, so far. Requires: charge() was called
    // just now.
    time_causes spent() const {
        time_causes sum = idle_;
        for (const auto &layer : causes_)
            for (const time_causes &phase : layer) sum += phase;
        return sum;
    }
    void step_ended(const executor &executor, uint32_t layer) {
        const uint64_t stall_ns = executor.stall_ns();
        stall_of_layer_ns_[layer] += stall_ns - std::exchange(stall_ns_, stall_ns);
    }
    // Requests that begin with the pass wait from their arrival, or from now on.
    void pass_begins(const pass &pass, uint64_t now_ns);
    void pass_ended(const pass &pass, uint64_t now_ns);

    // Fills in the counts. Requires: charge() was called since the last event, and nothing is in
    // the buffer or loads behind.
    void report(const executor &executor, const memories &memories,
                const transport_stage &transport, bool per_layer, run_report &report);

private:
    void report_times(const executor &executor, run_report &report);
    void report_bytes(const executor &executor, const transport_stage &transport,
                      run_report &report);

    std::vector<uint64_t> stall_of_layer_ns_;
    uint64_t stall_ns_ = 0;  // of the executor when the last step ended
    uint64_t begun_ns_ = 0;  // time of the first content, and what was busy until then
    busy_ns begun_busy_;
    std::vector<busy_ns> begun_busy_of_;              // [devices]
    std::vector<std::array<time_causes, 2>> causes_;  // as in run_report
    time_causes idle_;                                // while no request was there
    time_collection tpot_ns_, ttft_ns_;
    std::vector<uint64_t> emitted_ns_;  // per stream: its last output token, at first its begin
};

}  // namespace moorage::core
