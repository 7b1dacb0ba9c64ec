// drive.h - leads a policy of any kind through the steps of a world and judges its advice.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/host/instance.h"
#include "tools/moorage/check/actor.h"
#include "tools/moorage/check/child.h"
#include "tools/moorage/check/hooks.h"
#include "tools/moorage/check/mover.h"
#include "tools/moorage/check/world.h"

namespace moorage::check {

struct cluster_options;
class cluster_world;

enum class fault { range, pinned, capacity, incomplete, canary, input, exception, surroundings };
inline constexpr size_t fault_count = 8;

struct finding {
    uint64_t count = 0;
    std::string first_text;
};

struct drive_options {
    bool watch = false;               // count allocations and clock reads inside steps
    bool check_fences = false;        // look at the margins of every array after each step
    bool check_inputs = false;        // compare lent memory before and after each call
    bool check_surroundings = false;  // check that each call leaves the process unchanged
    mover *threads = nullptr;         // makes every second call from another thread
    bool steps_only = false;          // leave out planning of placements, which may block
    uint32_t rounds = 0;              // stop after so many rounds; 0: all rounds of the world
};

class driver {
public:
    // Both borrowed. Requires: the actor was made with this world's environment.
    driver(actor &policy, world &test_world, const drive_options &options);

    // Runs the whole trace. Requires an active actor and a fresh world.
    void run();

    const finding &found(fault kind) const { return findings_[static_cast<size_t>(kind)]; }
    // Everything the policy decided, in order.
    const std::vector<uint32_t> &decisions() const { return decisions_; }
    const activity &watched() const { return activity_; }
    const std::string &allocating_call() const { return allocating_call_; }
    const std::string &clock_call() const { return clock_call_; }
    uint64_t steps() const { return step_.index; }

private:
    // drive.cpp: one step
    void run_step(uint32_t round, uint32_t layer);
    void fill_step(uint32_t round, uint32_t layer);
    void route();
    void judge_lossless(const uint32_t *experts, const uint8_t *classes);
    void make_distinct();
    void observe();
    void complete_loads();
    void judge_devices(const moorage_items &items, uint32_t got);
    // drive_cache.cpp
    void fill_pools();
    void load_missing();
    void load(uint32_t page, uint32_t victim, bool full);
    void find_victims(uint32_t pool, uint32_t layer, uint32_t count, int32_t cause);
    void give_up();
    void evict(uint32_t page, int32_t cause);
    bool is_held(uint32_t page);
    bool check_victim(uint32_t page, uint32_t pool);
    bool is_evictable(uint32_t page, uint32_t pool) const;
    void resize_pools();
    // drive_stages.cpp
    void plan_budget();
    void prefetch();
    void prefetch_randomly();
    uint32_t forecast(uint32_t target, uint32_t offset);
    void judge_orders(uint32_t count, uint32_t capacity);
    void drop_unused_prefetches();
    uint32_t fill_remote(uint32_t count);
    void dispatch();
    void report_outcomes(const moorage_items &items);
    void transport_events();
    void take_piece(uint32_t link);
    void drain_transfers();

    // drive_placement.cpp
    void plan_placements();
    void plan_on_cluster(const cluster_options &options);
    void judge_refusal(cluster_world &cluster, const std::string &text);
    void judge_plan(cluster_world &cluster, const std::vector<moorage_copy> &plan);
    void collect_facts(fence arrays);
    void ask_adoption(cluster_world &cluster, const std::vector<moorage_copy> &current,
                      const std::vector<moorage_copy> &candidate);

    void blame(fault kind, const std::string &text);
    void record_decision(uint64_t value) {
        decisions_.push_back(static_cast<uint32_t>(value ^ (value >> 32)));
    }
    uint64_t lent_checksum();
    bool has_intact_fences();
    // Calls the policy: marks the thread, watches, and catches exceptions.
    template <class Work>
    void call(core::entry_point which, Work &&work, bool step = true);
    template <class Work>
    void control(core::entry_point which, Work &&work);

    actor &policy_;
    world &world_;
    drive_options options_;
    dice draw_;
    std::array<finding, fault_count> findings_;
    std::vector<uint32_t> decisions_;
    activity activity_;
    std::string allocating_call_, clock_call_;  // the last of each kind

    moorage_step step_{};
    // The arrays of a step, its results, and those of the stages.
    fenced<uint32_t> streams_, chosen_, distinct_, distinct_tokens_, predicted_, route_experts_;
    fenced<uint64_t> requests_;
    fenced<uint32_t> positions_;
    fenced<int32_t> token_ids_;
    fenced<float> weights_, gate_scores_, distinct_scores_, route_weights_;
    fenced<uint8_t> classes_, route_classes_;
    fenced<uint32_t> victims_, budget_slots_, target_layers_, target_offsets_, target_experts_,
        orders_;
    fenced<uint32_t> world_slots_now_, forecast_experts_;
    fenced<float> budget_split_, target_scores_, world_split_now_, forecast_scores_;
    fenced<uint8_t> order_segments_, order_places_, order_versions_;
    fenced<uint32_t> item_experts_, item_tokens_, item_device_, devices_, device_order_;
    fenced<uint8_t> item_missing_;
    fenced<float> item_scores_;
    fenced<uint64_t> item_load_, item_gpu_, item_cpu_, item_remote_, item_once_;
    fenced<uint32_t> item_remote_first_, item_remote_devices_;

    std::vector<uint32_t> valid_victims_, in_flight_, misses_, tokens_of_expert_, remote_entries_;
    std::vector<uint32_t> plan_slots_;
    std::vector<float> plan_split_;
    uint64_t plan_due_ = 0;
    uint32_t horizon_ = 0, buffered_pages_ = 0;
    bool link_idle_ = false;
    struct live_transfer {
        bool live = false, cancelled = false;
        uint32_t link = 0;
        uint64_t left_bytes = 0;
    };
    std::vector<live_transfer> transfers_;
};

// For [control] calls. They may allocate and read the clock, and they come from one thread.
template <class Work>
void driver::control(core::entry_point which, Work &&work) {
    const bool was_watching = std::exchange(options_.watch, false);
    call(which, work, /*step=*/false);
    options_.watch = was_watching;
}

template <class Work>
void driver::call(core::entry_point which, Work &&work, bool step) {
    const uint64_t checksum_before = options_.check_inputs ? lent_checksum() : 0;
    if (options_.check_surroundings) core::remember_surroundings();
    std::optional<core::policy_call> running_call(std::in_place, policy_.owner, which);
    const auto guarded = [&] {
        std::optional<core::instance::stepping> mark;
        if (step) mark.emplace();
        try {
            if (options_.watch) begin_watch();
            work();
        } catch (...) {
            blame(fault::exception, call_text(which) + " threw an exception across the border");
        }
        if (options_.watch) {
            const activity seen = end_watch();
            if (seen.allocations + seen.frees > 0) allocating_call_ = call_text(which);
            if (seen.clock_reads > 0) clock_call_ = call_text(which);
            activity_.allocations += seen.allocations;
            activity_.frees += seen.frees;
            activity_.clock_reads += seen.clock_reads;
        }
    };
    if (options_.threads && step)
        options_.threads->run(guarded);
    else
        guarded();
    running_call.reset();
    // Always restores the rounding mode. Otherwise a later call would be blamed.
    if (const std::string changed = core::restore_surroundings(options_.check_surroundings);
        !changed.empty())
        blame(fault::surroundings, call_text(which) + " changed " + changed);
    if (options_.check_inputs && lent_checksum() != checksum_before)
        blame(fault::input, call_text(which) + " wrote to an array that was lent for reading");
}

}  // namespace moorage::check
