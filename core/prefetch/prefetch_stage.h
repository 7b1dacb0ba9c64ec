// prefetch_stage.h - the prefetch stage: forecasts, the transfer buffer, and the fate of its
// content.
//
// A prefetched page waits in the transfer buffer (state bits BUFFERED), its segments one by one.
// When its layer is routed, settle() takes it out: used (arrived), late (still in flight: it
// becomes a demand load) or not asked for (cut off, or dropped). Every byte counts as used or
// wasted at that moment. Wasted bytes that had not arrived count as cut off, too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/execute/cost_model.h"
#include "core/host/faults.h"
#include "core/host/fenced_memory.h"
#include "core/host/instance.h"
#include "core/source/layer_step.h"
#include "core/source/step_counts.h"
#include "core/store/memories.h"

namespace moorage::core {

class transport_stage;

class prefetch_stage {
public:
    // All borrowed. `capacity` experts fit in the buffer of each device.
    prefetch_stage(instance &policy, fault_log &faults, const memories &memories,
                   transport_stage &transport, const cost_model &costs, source &source,
                   uint32_t capacity);

    bool is_active() const { return horizon_ != 0; }
    // Whether forecasts have to wait for executor::predict(): the policy wants predictions from
    // shared and resident experts, and the source has what the executor computes.
    bool from_resident() const { return from_resident_; }
    // The last prediction for the layer, best first.
    const lent_vector<uint32_t> &predicted(uint32_t layer) const { return predicted_[layer]; }

    struct taken_segments {
        uint32_t page;
        uint32_t transfer;  // still in flight, now a demand load; MOORAGE_NONE: arrived
        uint8_t segments;
    };
    // Whether something is still under way for a layer that has to wait for all of it.
    bool awaits(uint32_t layer) const { return layer == complete_layer_ && has_incoming(layer); }
    // The true routing of `layer` is known. Requested pages leave the buffer into `taken_pages`,
    // still with their state bits. All other pages of the layer are cut off. Requires:
    // is_active(). [step]
    void settle(const layer_step &step, std::vector<taken_segments> &taken_pages,
                byte_counts &bytes);
    // Asks the policy what to bring for the layers after the step's. `window_ns`: time until the
    // next layer is routed. `backlog_ns`: of the link with demand loads. `step_frames`: frames of
    // the buffer that the step uses. [step]
    void plan(const layer_step &step, const pass &tokens, uint64_t window_ns, uint64_t backlog_ns,
              std::span<const uint32_t> step_frames);
    // Whether orders wait because the buffer had no room. They wait for the step's own segments to
    // leave it, until their layer is routed.
    bool has_waiting_orders() const { return waiting_order_count_ != 0; }
    // Calls visit(page, MOORAGE_PLACE_*) for the pages of the last plan that do not go into the
    // buffer.
    template <class Each>
    void for_each_elsewhere(Each visit) const {
        for (uint32_t i = 0; has_elsewhere_orders_ && i < order_count_; ++i)
            if (order_places_[i] != MOORAGE_PLACE_BUFFER) visit(order_pages_[i], order_places_[i]);
    }
    void order_again(std::span<const uint32_t> step_frames);
    // Everything left in the buffer counts as wasted. [control]
    void drain(byte_counts &bytes);

private:
    struct entry {
        uint32_t page, transfer;
        uint8_t segments;
    };
    bool has_arrived(const entry &entry) const {
        return (memories_.combined_ledger().resident_segments(entry.page) & entry.segments) ==
               entry.segments;
    }
    bool has_incoming(uint32_t layer) const;
    void clear_orders();
    void check_places();
    void forecast(const layer_step &step, const pass &tokens);
    std::string prediction_error(uint32_t layer, uint32_t count);
    // Experts predicted for a layer, best first, and their scores.
    struct layer_prediction {
        const uint32_t *experts = nullptr;
        const float *scores = nullptr;
        uint32_t count = 0;
    };
    layer_prediction predict_from_source(const pass &tokens, uint32_t layer, bool next_pass);
    bool order(uint32_t page, uint8_t segments, uint32_t step_frames);
    bool add(uint32_t page, uint8_t segments, uint32_t step_frames);  // false: no room
    uint32_t free_frames(uint32_t device, uint32_t step_frames) const;
    void remove(const entry &entry);
    uint64_t sent_bytes(const entry &entry) const;
    void drop(const entry &entry, byte_counts &bytes);

    instance &policy_;
    fault_log &faults_;
    bool from_resident_ = false;
    const memories &memories_;
    transport_stage &transport_;
    const cost_model &costs_;
    source &source_;
    uint32_t capacity_, horizon_ = 0, devices_;
    const uint32_t layer_count_, expert_count_, predictions_max_;
    std::vector<entry> entries_;
    std::vector<uint8_t> entry_segments_;           // [pages] segments of each that are entries
    std::vector<uint32_t> entry_pages_;             // [devices] pages that have an entry
    std::vector<lent_vector<uint32_t>> predicted_;  // [layers]
    uint32_t order_count_ = 0, waiting_order_count_ = 0;  // by the last plan; the first
                                                          // waiting_order_count_ wait
    bool has_places_ = false,
         has_elsewhere_orders_ = false;       // some orders name a place; and a valid one
    uint32_t complete_layer_ = MOORAGE_NONE;  // layer of MOORAGE_ORDERS_COMPLETE
    lent_record<moorage_forecast> forecast_;  // of the step; most of it never changes
    const moorage_forecast *forecast_lent_ = nullptr;
    const uint32_t *token_experts_lent_ = nullptr;
    const float *token_scores_lent_ = nullptr;
    lent_vector<uint32_t> layers_, offsets_, experts_;
    lent_vector<uint32_t> token_experts_;  // [tokens, predictions], of target 0
    lent_vector<float> scores_, token_scores_;
    fenced_vector<uint32_t> layer_experts_, order_pages_;
    fenced_vector<float> layer_scores_;
    std::vector<float> best_scores_;
    std::vector<uint64_t>
        last_prediction_;  // [experts] the policy's last prediction with this expert
    uint64_t prediction_count_ = 0;
    uint32_t token_count_ = 0;  // 0: target 0 is the policy's own
    fenced_vector<uint8_t> order_segments_, order_places_, order_versions_;
};

}  // namespace moorage::core
