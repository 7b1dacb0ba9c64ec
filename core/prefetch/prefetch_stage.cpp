// prefetch_stage.cpp - fills the buffer as the policy orders and empties it as the routing comes
// true.
#include "core/prefetch/prefetch_stage.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/text.h"
#include "core/execute/links.h"
#include "core/transport/transport_stage.h"

namespace moorage::core {

// Where an order goes that is passed over.
static constexpr uint8_t nowhere = 255;

prefetch_stage::prefetch_stage(instance &policy, fault_log &faults, const memories &memories,
                               transport_stage &transport, const cost_model &costs, source &source,
                               uint32_t capacity)
    : policy_(policy),
      faults_(faults),
      memories_(memories),
      transport_(transport),
      costs_(costs),
      source_(source),
      capacity_(capacity),
      devices_(memories.devices()),
      layer_count_(source.layers()),
      expert_count_(source.experts()),
      predictions_max_(source.predictions_max()),
      entry_pages_(devices_) {
    const uint32_t wanted_horizon =
        policy.prefetch->horizon
            ? policy.call(entry_point::prefetch_horizon, policy.prefetch->horizon)
            : 0;
    horizon_ = capacity == 0 ? 0 : std::min(wanted_horizon, source.layers());
    if (horizon_ == 0) return;
    const size_t experts = source.experts();
    if (policy.prefetch->prediction) {
        const uint32_t kind =
            policy.call(entry_point::prefetch_prediction, policy.prefetch->prediction);
        from_resident_ = source.predict_from(kind) && kind == MOORAGE_FROM_RESIDENT;
    }
    entries_.reserve(2 * size_t{capacity});
    entry_segments_.resize(memories.combined_ledger().page_count());
    token_experts_.resize(size_t{source.tokens_max()} * source.predictions_max());
    token_scores_.resize(token_experts_.size());
    predicted_.resize(source.layers());
    for (auto &list : predicted_) list.reserve(experts);
    layers_.resize(horizon_);
    offsets_.resize(horizon_ + 1);
    experts_.resize(horizon_ * experts);
    scores_.resize(horizon_ * experts);
    layer_experts_.resize(experts);
    layer_scores_.resize(experts);
    best_scores_.resize(experts);
    last_prediction_.resize(experts);
    order_pages_.resize(horizon_ * experts);
    order_segments_.resize(horizon_ * experts, uint8_t{MOORAGE_WHOLE});
    order_places_.resize(horizon_ * experts, uint8_t{MOORAGE_PLACE_BUFFER});
    order_versions_.resize(horizon_ * experts, uint8_t{0});
    forecast_lent_ = forecast_.lent();
    forecast_->size = sizeof(moorage_forecast);
    forecast_->target_count = horizon_;
    forecast_->host_layers = lent(layers_);
    forecast_->host_offsets = lent(offsets_);
    forecast_->host_experts = lent(experts_);
    forecast_->host_scores = lent(scores_);
    token_experts_lent_ = lent(token_experts_);
    token_scores_lent_ = source_.scored_predictions() ? lent(token_scores_) : nullptr;
}

uint64_t prefetch_stage::sent_bytes(const entry &entry) const {
    const transfer_record &record = transport_.record(entry.transfer);
    return record.bytes - record.unsent_bytes;
}

void prefetch_stage::drop(const entry &entry, byte_counts &bytes) {
    const bool arrived = has_arrived(entry);
    if (!arrived) transport_.cancel(entry.transfer);
    const uint64_t sent = sent_bytes(entry);
    bytes.prefetched += sent;
    bytes.prefetch_wasted += sent;
    if (!arrived) bytes.prefetch_cut_off += sent;
    transport_.release(entry.transfer);
    memories_.ledger_of_page(entry.page).drop(entry.page, entry.segments);
}

bool prefetch_stage::has_incoming(uint32_t layer) const {
    return std::any_of(entries_.begin(), entries_.end(), [&](const entry &entry) {
        return entry.page / expert_count_ == layer && !has_arrived(entry);
    });
}

void prefetch_stage::settle(const layer_step &step, std::vector<taken_segments> &taken_pages,
                            byte_counts &bytes) {
    taken_pages.clear();
    waiting_order_count_ = 0;
    const uint32_t layer = step.view().layer;
    moorage_prefetch_outcome outcome{};
    outcome.size = sizeof(outcome);
    outcome.layer = layer;
    const uint64_t wasted_before = bytes.prefetch_wasted;
    size_t kept = 0;
    for (const entry &entry : entries_) {
        if (entry.page / expert_count_ != layer) {
            entries_[kept++] = entry;
            continue;
        }
        remove(entry);
        const bool arrived = has_arrived(entry);
        if (step.item_of(entry.page % expert_count_) == MOORAGE_NONE) {
            ++(arrived ? outcome.wasted : outcome.cut_off);
            drop(entry, bytes);
            continue;
        }
        ++(arrived ? outcome.used : outcome.late);
        const uint64_t sent = sent_bytes(entry);
        bytes.prefetched += sent;
        bytes.prefetch_used += sent;
        if (!arrived) bytes.prefetch_late += sent;
        if (arrived)
            transport_.release(entry.transfer);
        else
            transport_.promote(entry.transfer);
        taken_pages.push_back(
            {entry.page, arrived ? MOORAGE_NONE : entry.transfer, entry.segments});
    }
    entries_.resize(kept);
    outcome.wasted_bytes = bytes.prefetch_wasted - wasted_before;
    if (policy_.prefetch->outcome)
        policy_.call(entry_point::prefetch_outcome, policy_.prefetch->outcome, &outcome);
}

// The source's predictions for one layer, by token and merged over them: best score of any first.
prefetch_stage::layer_prediction prefetch_stage::predict_from_source(const pass &tokens,
                                                                     uint32_t layer,
                                                                     bool next_pass) {
    const uint32_t width = predictions_max_;
    if (width == 0) return {};
    token_count_ = static_cast<uint32_t>(tokens.tokens.size());
    if (token_count_ > 1) std::fill(best_scores_.begin(), best_scores_.end(), -1.0f);
    for (size_t i = 0; i < token_count_; ++i) {
        const pass_token &token = tokens.tokens[i];
        const uint64_t row = next_pass ? token.next_row : token.row;
        uint32_t *experts = token_experts_.data() + i * width;
        float *scores = token_scores_.data() + i * width;
        const uint32_t count =
            row == MOORAGE_NEVER ? 0 : source_.predict(row, layer, experts, scores);
        if (count < width) experts[count] = MOORAGE_NONE;
        if (token_count_ == 1) return {experts, scores, count};
        for (uint32_t rank = 0; rank < count; ++rank)
            best_scores_[experts[rank]] = std::max(best_scores_[experts[rank]], scores[rank]);
    }
    uint32_t count = 0;
    for (uint32_t expert = 0; expert < best_scores_.size(); ++expert)
        if (best_scores_[expert] >= 0) layer_experts_[count++] = expert;
    std::stable_sort(layer_experts_.begin(), layer_experts_.begin() + count,
                     [&](uint32_t a, uint32_t b) { return best_scores_[a] > best_scores_[b]; });
    for (uint32_t i = 0; i < count; ++i) layer_scores_[i] = best_scores_[layer_experts_[i]];
    return {layer_experts_.data(), layer_scores_.data(), count};
}

// An error in the first `count` experts that the policy predicts. "": none.
std::string prefetch_stage::prediction_error(uint32_t layer, uint32_t count) {
    if (count > expert_count_)
        return format("predicts {} experts of layer {}, there was room for {}", count, layer,
                      expert_count_);
    ++prediction_count_;
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t expert = layer_experts_[i];
        if (expert >= expert_count_)
            return format("predicts an expert of layer {} beyond its {} experts", layer,
                          expert_count_);
        if (std::exchange(last_prediction_[expert], prediction_count_) == prediction_count_)
            return format("predicts expert {} of layer {} twice", expert, layer);
        if (std::isnan(layer_scores_[i]))
            return format("predicts expert {} of layer {} with the score {}", expert, layer,
                          layer_scores_[i]);
    }
    return "";
}

void prefetch_stage::forecast(const layer_step &step, const pass &tokens) {
    const uint32_t layer_count = layer_count_, expert_count = expert_count_;
    uint32_t total = 0;
    token_count_ = 0;
    offsets_[0] = 0;
    for (uint32_t distance = 1; distance <= horizon_; ++distance) {
        // The horizon is at most a round.
        const uint32_t unwrapped_layer = step.view().layer + distance;
        const uint32_t layer =
            unwrapped_layer < layer_count ? unwrapped_layer : unwrapped_layer - layer_count;
        layer_prediction prediction{layer_experts_.data(), layer_scores_.data(), 0};
        if (policy_.prefetch->predict) {
            prediction.count = policy_.call(
                entry_point::prefetch_predict, policy_.prefetch->predict, step.lent(), layer,
                distance, expert_count, layer_experts_.data(), layer_scores_.data());
            if (const std::string error = prediction_error(layer, prediction.count);
                !error.empty()) {
                faults_.report(policy_.name(), error);
                prediction.count = 0;
            }
        }
        if (prediction.count == 0 && distance == 1)
            prediction = predict_from_source(tokens, layer, unwrapped_layer >= layer_count);
        const auto [experts, scores, count] = prediction;
        layers_[distance - 1] = layer;
        std::copy_n(experts, count, experts_.data() + total);
        std::copy_n(scores, count, scores_.data() + total);
        offsets_[distance] = total += count;
        if (distance == 1) predicted_[layer].assign(experts, experts + count);
    }
}

// Experts that the buffer can still take.
uint32_t prefetch_stage::free_frames(uint32_t device, uint32_t step_frames) const {
    return capacity_ - std::min(capacity_, entry_pages_[device] + step_frames);
}

// False when the buffer has no room for it now.
bool prefetch_stage::order(uint32_t page, uint8_t segments, uint32_t step_frames) {
    if (page >= memories_.combined_ledger().page_count() || segments == 0) {
        faults_.report(policy_.name(),
                       format("orders segments {:#x} of page {}; there are {} "
                              "pages",
                              segments, page, memories_.combined_ledger().page_count()));
        return true;
    }
    const ledger &ledger = memories_.ledger_of_page(page);
    // Pinned: the page belongs to the running step, whose end would take its place away; looking
    // ahead reached a whole round. Or it is there in part in another version than orders bring.
    if (ledger.is_pinned(page) || ledger.version(page) != 0) return true;
    const auto missing =
        static_cast<uint8_t>(whole_segments(segments) & ~ledger.known_segments(page));
    if (!ledger.rows().is_split(page / expert_count_)) {
        return missing != MOORAGE_WHOLE || add(page, MOORAGE_WHOLE, step_frames);
    }
    for (const uint8_t segment : {first_segment, last_segment})
        if ((missing & segment) && !add(page, segment, step_frames)) return false;
    return true;
}

bool prefetch_stage::add(uint32_t page, uint8_t segments, uint32_t step_frames) {
    ledger &ledger = memories_.ledger_of_page(page);
    const uint32_t device = memories_.device_of(page);
    const uint64_t bytes = costs_.expert_bytes(ledger.rows().share(page / expert_count_, segments));
    if (entry_segments_[page] == 0 && free_frames(device, step_frames) == 0) return false;
    if (bytes == 0) return true;
    if (!ledger.has_room(page, segments, false)) return false;
    ledger.take_rows(page, segments, false);  // first: its bytes may set out at once
    const uint32_t id = transport_.submit(owner::prefetch, h2d_of(device), page, segments, bytes);
    if (id == MOORAGE_NONE) {
        ledger.free_rows(page, segments);
        return false;
    }
    entries_.push_back({page, id, segments});
    entry_pages_[device] += entry_segments_[page] == 0;
    entry_segments_[page] |= segments;
    ledger.expect_passing(page, segments);
    return true;
}

// The entry leaves the list; what becomes of its bytes is the caller's affair.
void prefetch_stage::remove(const entry &entry) {
    entry_segments_[entry.page] &= static_cast<uint8_t>(~entry.segments);
    entry_pages_[memories_.device_of(entry.page)] -= entry_segments_[entry.page] == 0;
}

void prefetch_stage::plan(const layer_step &step, const pass &tokens, uint64_t window_ns,
                          uint64_t backlog_ns, std::span<const uint32_t> step_frames) {
    if (horizon_ == 0) return;
    forecast(step, tokens);
    const bool by_token = token_count_ != 0;
    forecast_->buffer_free = free_frames(0, 0);
    for (uint32_t device = 1; device < devices_; ++device)
        forecast_->buffer_free += free_frames(device, 0);
    forecast_->window_ns = window_ns;
    forecast_->backlog_ns = backlog_ns;
    forecast_->token_count = token_count_;
    forecast_->token_predictions = by_token ? predictions_max_ : 0;
    forecast_->host_token_experts = by_token ? token_experts_lent_ : nullptr;
    forecast_->host_token_scores = by_token ? token_scores_lent_ : nullptr;
    clear_orders();
    moorage_orders orders{sizeof(orders),
                          0,
                          static_cast<uint32_t>(order_pages_.size()),
                          0,
                          order_pages_.data(),
                          order_segments_.data(),
                          order_places_.data(),
                          order_versions_.data()};
    const uint32_t returned_count = policy_.call(entry_point::prefetch_plan, policy_.prefetch->plan,
                                                 step.lent(), forecast_lent_, &orders);
    const uint32_t count = std::min(returned_count, static_cast<uint32_t>(order_pages_.size()));
    complete_layer_ = orders.flags & MOORAGE_ORDERS_COMPLETE ? layers_[0] : MOORAGE_NONE;
    order_count_ = waiting_order_count_ = count;
    check_places();
    order_again(step_frames);
}

// Clears the orders of the last plan, so that policies find the arrays in their usual state. Values
// that a policy wrote beyond these stay.
void prefetch_stage::clear_orders() {
    std::fill_n(order_segments_.begin(), order_count_, uint8_t{MOORAGE_WHOLE});
    if (!has_places_) return;
    std::fill_n(order_places_.begin(), order_count_, uint8_t{MOORAGE_PLACE_BUFFER});
    std::fill_n(order_versions_.begin(), order_count_, uint8_t{0});
}

// A wrong order is reported once, and goes nowhere.
void prefetch_stage::check_places() {
    has_elsewhere_orders_ = has_places_ = false;
    for (uint32_t i = 0; i < order_count_; ++i) {
        if ((order_places_[i] | order_versions_[i]) == 0) continue;
        has_places_ = true;
        const bool valid = order_pages_[i] < memories_.combined_ledger().page_count() &&
                           order_places_[i] <= MOORAGE_PLACE_HOST && order_versions_[i] == 0;
        has_elsewhere_orders_ |= valid;
        if (valid) continue;
        faults_.report(policy_.name(),
                       format("orders page {} to place {} in version {}; there are {} pages, the "
                              "buffer (0), a slot (1) and host memory (2), and version 0",
                              order_pages_[i], order_places_[i], order_versions_[i],
                              memories_.combined_ledger().page_count()));
        order_places_[i] = nowhere;
    }
}

// Orders that are already under way are skipped. An order that finds no room on its device holds
// back the later ones for that device.
void prefetch_stage::order_again(std::span<const uint32_t> step_frames) {
    if (waiting_order_count_ == 0) return;
    uint32_t full_devices = 0;  // devices, as a mask
    const uint32_t device_mask = (1u << devices_) - 1;
    for (uint32_t i = 0; i < waiting_order_count_ && full_devices != device_mask; ++i) {
        if (order_places_[i] != MOORAGE_PLACE_BUFFER) continue;
        const uint32_t page = order_pages_[i];
        const uint32_t device = page < entry_segments_.size() ? memories_.device_of(page) : 0;
        if ((full_devices >> device & 1) == 0 &&
            !order(page, order_segments_[i], step_frames[device]))
            full_devices |= 1u << device;
    }
    if (full_devices == 0) waiting_order_count_ = 0;
}

void prefetch_stage::drain(byte_counts &bytes) {
    for (const entry &entry : entries_) {
        remove(entry);
        drop(entry, bytes);
    }
    waiting_order_count_ = 0;
    entries_.clear();
}

}  // namespace moorage::core
