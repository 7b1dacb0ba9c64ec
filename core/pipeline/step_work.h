// step_work.h - the experts of one layer step, from their look-up to their last output. Decides
// which are missing, which get a slot, where they run, and which still wait for room.
//
// The pipeline calls the functions below in their order, once a step. operation_ended() comes
// between start() and end(), for every operation that was queued. [step]
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/cache/caches.h"
#include "core/dispatch/dispatch_stage.h"
#include "core/execute/cost_model.h"
#include "core/execute/executor.h"
#include "core/execute/links.h"
#include "core/pipeline/guard.h"
#include "core/pipeline/load_behind.h"
#include "core/pipeline/run_account.h"
#include "core/pipeline/suppliers.h"
#include "core/prefetch/prefetch_stage.h"
#include "core/source/layer_step.h"
#include "core/source/source.h"
#include "core/store/memories.h"
#include "core/transport/transport_stage.h"

namespace moorage::core {

class step_work {
public:
    struct parts {
        executor &run_executor;
        device_costs costs;
        const memories &device_memories;
        caches &cache;
        transport_stage &transport;
        load_behind &behind;
        prefetch_stage &prefetch;
        dispatch_stage &dispatch;
        guard &guarding;
        run_account &account;
        layer_step &step;
        const pass &current_pass;
        uint32_t layers;
        uint32_t buffer_slots;
        // Loads read from disk. An expert without a slot passes through, and the device computes
        // it, too.
        bool from_disk;
        const step_suppliers &suppliers;
    };
    // All borrowed.
    explicit step_work(const parts &parts);

    // A pass begins. Its tokens and context are known.
    void begin_pass() {
        next_layer_.attention_ns =
            costs().attention_ns(pass_.tokens.size(), pass_.context(), pass_.sequences());
    }
    // Counts hits by the residency now, and pins every expert of the step.
    void look_up(layer_report &report);
    // Cuts off prefetches that the step did not ask for, and takes over those on their way.
    void settle();
    // Asks who computes which expert, and where. False: the run has to end.
    bool assign();
    // Gives every expert for the GPU a slot in the cache, as far as there are slots. The others
    // pass through the staging slots. Missing experts are marked as in flight. False: the run has
    // to end.
    bool assign_slots();
    // Queues what can run, submits the missing experts, plans the prefetches.
    void start();
    // Whether something of the step is still to come.
    bool make_progress();
    // An operation of the step has ended: an expert, a move, a prediction.
    void operation_ended(const completion &completion);
    // A page has come from disk.
    void page_read(uint32_t page);
    // Unpins, drops experts that got no slot, and tells the dispatch policy the times of its
    // choices.
    void end(layer_report &report);

    bool has_open_operations() const {
        return queue_.open_operations != 0;
    }  // for operations under way
    // Whether absent experts can be loaded. Otherwise the placement decides what is here.
    bool can_load() const {
        return std::ranges::all_of(suppliers_,
                                   [](const auto &supplier) { return supplier->can_load(); });
    }
    // For a supplier: starts waiting segments whose own device has room, past those whose device is
    // full. Returns the full devices as a mask.
    uint32_t start_on_free_devices();
    // Properties of an item, by the tag of its completion.
    uint32_t tokens_of(uint32_t item) const { return items_[item].tokens; }
    uint32_t page_of(uint32_t item) const { return items_[item].page; }
    uint8_t version_of(uint32_t item) const { return items_[item].version; }
    double share_of(uint32_t item, uint8_t segments) const {
        return share(items_[item].page, segments);
    }
    // A placement keeps the page. A step that has it computed elsewhere leaves it when it ends.
    void keep_cached(uint32_t page);

private:
    uint32_t layer() const { return step_.view().layer; }
    const cost_model &costs() const { return device_costs_.first; }
    bool prefetches() const { return prefetch_.is_active() && guard_.is_on(guard::prefetch); }
    void look_up_predicted(layer_report &report);
    void join_transfers();
    void give_up_prefetch(step_item &item);
    void limit_loads_to_free_slots();
    void compute_all_on_device();
    bool find_room();
    bool start_loads_behind();
    void start_segment(uint32_t index, uint8_t segments);
    void start_on_cpu(uint32_t index);
    void queue_missing(bool splits);
    void start_waiting();
    bool start_next(std::pair<uint32_t, uint8_t> waiting);
    void predict();
    void plan_prefetch();
    bool order_outside_buffer();
    bool prefetch_into_slot(uint32_t page);
    void expert_computed(step_item &item, const completion &completion);
    void segment_done(step_item &item, uint8_t segments);
    void room_freed();
    void move_top(step_item &item);
    void count_free_slots();
    std::span<const uint32_t> held_frames();
    uint32_t h2d_to(uint32_t page) const { return h2d_of(memories_.device_of(page)); }
    bool is_split(uint32_t page) const {
        return memories_.ledger_of_page(page).rows().is_split(layer());
    }
    double share(uint32_t page, uint8_t segments) const {
        return memories_.ledger_of_page(page).rows().share(layer(), segments);
    }
    uint64_t load_backlog_ns();
    uint64_t window_ns(uint64_t backlog_ns) const;

    executor &executor_;
    const device_costs device_costs_;
    const memories &memories_;
    caches &cache_;
    transport_stage &transport_;
    load_behind &behind_;
    prefetch_stage &prefetch_;
    dispatch_stage &dispatch_;
    guard &guard_;
    run_account &account_;
    layer_step &step_;
    const pass &pass_;
    const step_suppliers &suppliers_;
    const struct {
        uint32_t layers, devices;
        bool from_disk;
        bool predicts;  // executor::predict() comes before prefetches are planned
    } run_;

    std::vector<step_item> items_;
    std::vector<uint32_t> places_;  // [distinct experts of the step] their place in items_
    struct {                        // the search for slots
        std::vector<uint32_t> pages, items;
        std::vector<placement_in_cache> placed;
        std::vector<uint8_t> started;
        std::vector<uint32_t> given_up;    // pages that the cache policy gave up
        std::vector<uint32_t> free_count;  // [devices] of the layer
    } slots_;
    struct {  // the buffer of prefetched segments
        std::vector<prefetch_stage::taken_segments> taken;
        std::vector<uint32_t> held_frames, none_held;  // [devices]
    } buffer_;
    struct {
        // Segments that wait for room in the arena, in order: item, segments.
        std::vector<std::pair<uint32_t, uint8_t>> waiting;
        size_t next = 0;               // of these, goes first
        uint32_t open_operations = 0;  // under way
        bool empty() const { return next == waiting.size(); }
    } queue_;
    struct {                                // the time until the next layer is routed
        std::vector<uint64_t> backlogs_ns;  // [devices]
        uint64_t attention_ns = 0;
        std::vector<uint32_t> predict_from;  // experts
        bool predicting = false;             // under way
        bool predicted = false;              // the step before made predictions for this one
    } next_layer_;
};

}  // namespace moorage::core
