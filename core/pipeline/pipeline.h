// pipeline.h - one run, step by step: source through report, over any executor.
//
// Read pipeline.cpp from course() down: a run, then one layer step top to bottom, a stage a line.
// The course is a flow (flow.h): next_pass() drives it over the run's own executor; in a cluster
// the emulator of the whole resumes many of them, each when something of its own has completed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/budget/budget_stage.h"
#include "core/cache/cache_stage.h"
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
#include "core/pipeline/remote_calls.h"
#include "core/pipeline/run_account.h"
#include "core/prefetch/prefetch_stage.h"
#include "core/report/report.h"
#include "core/router/router_stage.h"
#include "core/source/layer_step.h"
#include "core/source/source.h"
#include "core/store/arena.h"
#include "core/store/ledger.h"
#include "core/transport/transport_stage.h"

namespace moorage::core {

// The policies of the stages; one instance may stand in several places. All active.
struct stages {
    instance *router, *cache, *budget, *prefetch, *dispatch, *transport;
    instance *host_cache = nullptr;  // where host memory does not hold everything
};

class pipeline {
public:
    struct parts {
        source *from;
        executor *where;
        cost_model *costs;     // a real executor's times correct it ...
        moorage_costs *shown;  // ... and what policies see of it
        ledger *truth;
        ledger *host = nullptr;  // of host memory, with policies.host_cache
        fault_log *faults;
        stages policies;
        uint32_t slots, buffer_slots, transfers_max, needs;
        // Splits that a budget chooses are multiples of it; 0: it chooses none.
        uint32_t part_rows = 0;
        // Loads read from disk: what has no slot passes through, and is computed by the device,
        // too.
        bool from_disk = false;
        bool per_layer = false;
        step_watcher *watcher = nullptr;  // may be null
        routing_rules routing = {};
        guard_rules guard = {};
        peers *others = nullptr;  // null: there are none
    };
    // All borrowed, and as large as the source demands.
    explicit pipeline(const parts &of);
    pipeline(const pipeline &) = delete;

    // Takes the next pass through all layers. False at the end of the source, or when a fault ended
    // the run (fault_log::fatal() says why). [step]
    bool next_pass();

    // Where the course stands.
    enum class stand : uint8_t {
        waiting,  // for a completion
        idle,     // the source has no pass yet (source::wakes_ns())
        passed,   // a pass has ended
        ended     // for good
    };
    // In place of next_pass(), where somebody else keeps the clock: goes on until the course stands
    // again. Requires: what it waited for has happened, or may have; it looks for itself.
    stand go_on();
    // Takes in a completion of this run's executor, or of a call to others. go_on() comes after.
    void handle(const completion &done);
    // Computes an expert for another home; it completes on the executor (gpu_expert) with the
    // work's tag, which handle() must not be given. What is not resident is brought for it alone.
    // False: the transport has no room for that now.
    bool serve(expert_work work);
    // For whoever decides in place of the cache policy what is resident: a page comes or goes.
    // keep() requires that it is absent and that a slot is free; forget() does nothing and says no
    // while the page is in use.
    void keep(uint32_t page);
    bool forget(uint32_t page);
    // Accounts what is left in the buffer and fills in all figures but those of the configuration.
    void finish(run_report &report);

    uint64_t tokens_done() const { return account_.tokens; }
    // From the routing of a layer until the last output of its experts, summed over the tokens.
    uint64_t experts_ns() const { return account_.experts_ns; }
    const guard &guarding() const { return guard_; }
    // Loads for which the cache had room and its policy wanted none of it.
    uint64_t refused() const { return cache_.refused(); }
    // The prefetch policy asks for predictions that the executor does not make.
    bool lacks_predictions() const { return prefetch_.from_resident() && !executor_.predicts(); }

    // Bound on the live transfers of a run with these sizes: each expert of a step and of the
    // buffer in two segments, and as many again that were cut off and still end.
    // `from_disk`: each may need a read, too.
    static uint32_t transfers_for(uint32_t experts, uint32_t buffer_slots, bool from_disk) {
        return (4 * (experts + buffer_slots) + 2 * load_behind::loads_max + 16) *
               (from_disk ? 2 : 1);
    }
    // Slots of either kind beside cache and buffer, for experts that a step needs and the cache has
    // no room for: one loads while another computes.
    static constexpr uint32_t staging_slots = 2;

private:
    flow course();
    flow arrange();
    flow divide();
    flow fill();
    flow fill_host();
    void end_run() { over_ = true; }
    bool arrangement_due() {
        return !arranged_ || (per_layer_ && account_.tokens >= budget_.due());
    }
    void begin_pass();
    bool decide(layer_report &account);
    bool choose(layer_report &account);
    // Does work that decides; on a real machine its time counts (time_ms::policy).
    template <class Work>
    bool timed(Work &&work) {
        if (virtual_time_) return work();
        const auto begin = std::chrono::steady_clock::now();
        const bool done = work();
        account_.decisions += std::chrono::steady_clock::now() - begin;
        return done;
    }
    bool computing();
    void observe();
    void find_items(layer_report &account);
    void join_transfers();
    void give_up_prefetch(step_item &item);
    void compute_all_here();
    bool load_missing();
    void load_no_more();
    bool find_room();
    bool load_later();
    void start_compute();
    void start_segment(uint32_t index, uint8_t segments);
    void start_on_cpu(uint32_t index);
    [[gnu::cold]] void page_read(uint32_t page);
    [[gnu::cold]] void used_on_cpu(const completion &done);
    void predict();
    void plan_prefetch();
    void start_waiting();
    void segment_done(step_item &item, uint8_t segments);
    void room_freed();
    void move_top(step_item &item);
    uint32_t held_frames() const;
    uint64_t load_backlog_ns() const;
    uint64_t window_ns() const;
    void learn(const completion &done);
    void await(event_kind kind) {
        awaiting_ = kind;
        awaited_ = false;
    }
    bool running() const {
        return !over_ && faults_.fatal().empty() && transport_.running() && prefetch_.running() &&
               !executor_.failed();
    }
    uint32_t layer() const { return step_.view().layer; }
    bool prefetches() const { return prefetch_.active() && guard_.on(guard::prefetch); }
    // Segments that a slot of the cache holds in the layer under way.
    uint8_t cached_segments() const { return truth_.rows().cached_segments(layer()); }
    double share(uint8_t segments) const { return truth_.rows().share(layer(), segments); }
    // Pages that lost their place in the cache.
    void land(uint32_t transfer);
    void piece_crossed(const completion &done);
    void release(std::span<const uint32_t> pages) {
        for (const uint32_t page : pages) behind_.release(page);
    }
    void end_step(layer_report &account);
    void end_pass();
    void charge_to(size_t layer) { account_.charge(executor_, layer, pass_.phase); }
    void compare_pass();
    uint64_t now_ns() const { return *executor_.clock(); }
    // Of a layer of the pass. In virtual time nothing changes it while the pass lasts.
    uint64_t attention_ns() const {
        return virtual_time_ ? attention_ns_
                             : costs_.attention_ns(pass_.tokens.size(), pass_.context());
    }

    source &source_;
    executor &executor_;
    cost_model &costs_;
    moorage_costs &shown_;
    ledger &truth_;
    fault_log &faults_;
    std::vector<instance *> observers_;
    router_stage router_;
    cache_stage cache_;
    budget_stage budget_;
    transport_stage transport_;
    std::unique_ptr<host_store> host_;  // null: host memory holds everything
    load_behind behind_;
    prefetch_stage prefetch_;
    remote_calls remote_;
    dispatch_stage dispatch_;
    guard guard_;
    bool per_layer_, virtual_time_, from_disk_;
    bool predicts_;  // executor::predict() comes before prefetches are planned

    pass pass_;
    layer_step step_;
    std::vector<step_item> items_;
    std::vector<uint32_t> places_of_items_;  // [distinct experts of the step] in items_
    std::vector<prefetch_stage::taken> taken_;
    std::vector<uint32_t> to_cache_, to_cache_items_;
    std::vector<placement_in_cache> placed_;
    std::vector<uint8_t> started_;
    // Segments that wait for room in the arena, in order: item, segments; next_waiting_ goes first.
    std::vector<std::pair<uint32_t, uint8_t>> waiting_;
    size_t next_waiting_ = 0;
    std::vector<uint32_t> read_first_;  // items of the CPU whose pages come from disk
    std::vector<uint32_t> predict_from_;
    bool predicting_ = false;  // under way
    bool foretold_ = false;    // the step before made predictions for this one
    uint32_t open_ = 0;        // computations of the step under way
    bool awaited_ = false;     // the event waited for has come
    event_kind awaiting_ = event_kind::gate;

    flow course_;
    waiting_room event_;
    stand stand_ = stand::waiting;
    bool over_ = false;  // wrong advice ended the run

    bool arranged_ = false;  // the caches have had their first content
    uint32_t filling_ = 0;   // transfers of it under way
    std::vector<uint32_t> filled_;

    uint64_t decided_ns_ = 0;
    uint64_t attention_ns_ = 0;
    uint64_t pass_begun_ns_ = 0, prefetched_before_ = 0, substituted_before_ = 0;
    run_account account_;
    step_watcher *watcher_;
};

}  // namespace moorage::core
