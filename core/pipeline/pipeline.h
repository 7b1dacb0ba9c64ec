// pipeline.h - one run, step by step: from source to report, over any executor.
//
// Read pipeline.cpp from course() down: a run, then one layer step from top to bottom, one stage a
// line. The course is a flow (flow.h). next_pass() drives it over the run's own executor. In a
// cluster the emulator of the whole cluster resumes many of them, each when an event of its own has
// completed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/budget/budgets.h"
#include "core/cache/caches.h"
#include "core/dispatch/dispatch_stage.h"
#include "core/execute/cost_model.h"
#include "core/execute/executor.h"
#include "core/execute/peers.h"
#include "core/host/faults.h"
#include "core/host/instance.h"
#include "core/pipeline/flow.h"
#include "core/pipeline/guard.h"
#include "core/pipeline/host_store.h"
#include "core/pipeline/load_behind.h"
#include "core/pipeline/run_account.h"
#include "core/pipeline/run_events.h"
#include "core/pipeline/step_work.h"
#include "core/prefetch/prefetch_stage.h"
#include "core/report/report.h"
#include "core/router/router_stage.h"
#include "core/source/layer_step.h"
#include "core/source/source.h"
#include "core/store/ledger.h"
#include "core/store/memories.h"
#include "core/transport/transport_stage.h"

namespace moorage::core {

class policy_clock;

// The policies of the stages. One instance may serve several stages. All are active.
struct stages {
    instance *router, *cache, *budget, *prefetch, *dispatch, *transport;
    instance *host_cache = nullptr;  // if host memory does not hold everything
    // The policies of each device beyond the first.
    std::vector<instance *> more_caches = {}, more_budgets = {};
};

class pipeline {
public:
    struct parts {
        source *pass_source;
        executor *run_executor;
        cost_model *costs;                            // a real executor's times correct it ...
        std::span<const cost_model> more_costs = {};  // for devices beyond the first
        moorage_costs *policy_costs;                  // the costs as policies see them
        memories device_memories;
        ledger *host_ledger = nullptr;  // of host memory, with policies.host_cache
        fault_log *faults;
        stages policies;
        std::vector<uint32_t> slots;  // whole experts that fit on each device
        uint32_t buffer_slots, transfers_max, needs;
        bool needs_hidden_states = false;  // policies look at hidden states
        // Splits that a budget chooses are multiples of it. 0: the budget chooses none.
        uint32_t part_rows = 0;
        // Loads read from disk. An expert without a slot passes through, and the device computes
        // it, too.
        bool from_disk = false;
        bool per_layer = false;
        step_watcher *watcher = nullptr;  // may be null
        routing_rules routing = {};
        guard_rules guard = {};
        peers *cluster_peers = nullptr;  // null: there are none
        policy_clock *clock = nullptr;   // null: policies take no virtual time
        run_events *events = nullptr;    // null: nobody wants to see
    };
    // All borrowed, and as large as the source demands.
    explicit pipeline(const parts &parts);
    pipeline(const pipeline &) = delete;

    // Takes the next pass through all layers. False: the source has ended, or a fault ended the run
    // (fault_log::fatal() says why). [step]
    bool next_pass();

    // The state of the course.
    enum class course_state : uint8_t {
        waiting,  // for a completion
        idle,     // the source has no pass yet (source::wakes_ns())
        passed,   // a pass has ended
        ended     // for good
    };
    // Replaces next_pass() if somebody else keeps the clock. Goes on until the course stops again.
    // Requires: the awaited event has happened, or may have; this function checks.
    course_state resume();
    // Takes a completion of this run's executor, or of a call to others. Call resume() afterwards.
    void handle(const completion &completion);
    // Computes an expert for another home. It completes on the executor (device_expert) with the
    // work's tag. Do not give this completion to handle(). An expert that is not resident is loaded
    // for this work alone. False: the transport has no room for that now.
    bool serve(expert_work work);
    // For a caller that decides in place of the cache policy what is resident: a page comes or
    // goes. make_resident() requires that the page is absent and a slot is free. evict() does
    // nothing and returns false while the page is in use.
    void make_resident(uint32_t page);
    bool evict(uint32_t page);
    // Accounts the content of the buffer and fills in all figures but those of the configuration.
    void finish(run_report &report);

    uint64_t tokens_done() const { return account_.tokens; }
    // Time from the routing of a layer until the last output of its experts, summed over the
    // tokens.
    uint64_t experts_ns() const { return account_.experts_ns; }
    const guard &guarding() const { return guard_; }
    // Loads for which the cache had room but which its policy refused.
    uint64_t refused() const { return cache_.refused(); }
    // Whether the prefetch policy asks for predictions that the executor does not make.
    bool lacks_predictions() const { return prefetch_.from_resident() && !executor_.predicts(); }

    // Bound on the live transfers of a run with these sizes. Each expert of a step and of the
    // buffer has two segments. As many again may have been cut off and still have to end.
    // `from_disk`: each may need a read, too.
    static uint32_t transfers_for(uint32_t experts, uint32_t buffer_slots, bool from_disk) {
        const uint32_t loads = 4 * (experts + buffer_slots) + 2 * load_behind::loads_max + 16;
        return from_disk ? 2 * loads + host_store::ahead_max : loads;
    }
    // Slots of either kind beside cache and buffer. They serve experts of a step for which the
    // cache has no room: one loads while another computes.
    static constexpr uint32_t staging_slots = 2;

private:
    flow course();
    flow arrange();
    flow divide();
    flow fill_caches();
    flow fill_host();
    bool arrangement_due() {
        return !initial_fill_.done || account_.tokens >= budget_.due_tokens();
    }
    void begin_pass();
    bool decide(layer_report &report);
    bool choose(layer_report &report);
    void observe();
    void learn(const completion &completion);
    void show(const completion &completion);
    void show_pass();
    void await(event_kind kind) {
        progress_.awaiting = kind;
        progress_.awaited = false;
    }
    bool running() const { return !faults_.ended() && !executor_.failed(); }
    uint32_t layer() const { return step_.view().layer; }
    void land(uint32_t transfer);
    void piece_crossed(const completion &completion);
    void end_step(layer_report &report);
    void end_pass();
    void charge_to(size_t layer) { account_.charge(executor_, layer, pass_.phase); }
    void update_guard();
    uint64_t now_ns() const { return now_ns_; }

    source &source_;
    executor &executor_;
    const uint64_t &now_ns_;  // of its clock
    cost_model &costs_;
    moorage_costs &policy_costs_;
    const memories memories_;
    fault_log &faults_;
    std::vector<instance *> observers_;
    router_stage router_;
    caches cache_;
    budgets budget_;
    transport_stage transport_;
    std::unique_ptr<host_store> host_;  // null: host memory holds everything
    load_behind behind_;
    prefetch_stage prefetch_;
    dispatch_stage dispatch_;
    guard guard_;
    run_account account_;
    pass pass_;
    layer_step step_;
    const step_suppliers suppliers_;
    step_work work_;
    const struct {  // null: nobody
        step_watcher *watcher;
        policy_clock *clock;
        run_events *events;
    } listeners_;

    struct {
        flow course;
        waiting_room next_event;
        course_state state = course_state::waiting;
        bool awaited = false;  // the event waited for has come
        event_kind awaiting = event_kind::gate;
    } progress_;
    struct {  // loading the first content of the caches, before any step
        bool done = false;
        uint32_t under_way = 0;  // transfers for it
        std::vector<uint32_t> pages;
    } initial_fill_;
    struct {  // the step, the pass; and the counts at that time
        uint64_t step_ns = 0, pass_ns = 0, prefetched_bytes = 0, substituted = 0;
    } begin_;
};

}  // namespace moorage::core
