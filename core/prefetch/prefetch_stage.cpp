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

prefetch_stage::prefetch_stage(instance &policy, fault_log &faults, const memories &truth,
                               transport_stage &transport, const cost_model &costs, source &from,
                               uint32_t capacity)
    : policy_(policy),
      faults_(faults),
      truth_(truth),
      transport_(transport),
      costs_(costs),
      source_(from),
      capacity_(capacity),
      devices_(truth.devices()),
      layer_count_(from.layers()),
      expert_count_(from.experts()),
      predictions_max_(from.predictions_max()),
      pages_(devices_) {
    const uint32_t wanted =
        policy.prefetch->horizon ? policy.call(entry_point::horizon, policy.prefetch->horizon) : 0;
    horizon_ = capacity == 0 ? 0 : std::min(wanted, from.layers());
    if (horizon_ == 0) return;
    const size_t experts = from.experts();
    if (policy.prefetch->prediction) {
        const uint32_t kind = policy.call(entry_point::prediction, policy.prefetch->prediction);
        from_resident_ = from.predict_from(kind) && kind == MOORAGE_FROM_RESIDENT;
    }
    entries_.reserve(2 * size_t{capacity});
    entries_of_.resize(truth.all().page_count());
    token_experts_.resize(size_t{from.tokens_max()} * from.predictions_max());
    token_scores_.resize(token_experts_.size());
    predicted_.resize(from.layers());
    for (auto &list : predicted_) list.reserve(experts);
    layers_.resize(horizon_);
    offsets_.resize(horizon_ + 1);
    experts_.resize(horizon_ * experts);
    scores_.resize(horizon_ * experts);
    one_experts_.resize(experts);
    one_scores_.resize(experts);
    best_.resize(experts);
    predicted_at_.resize(experts);
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
    tokens_lent_ = lent(token_experts_);
    token_scores_lent_ = source_.scored_predictions() ? lent(token_scores_) : nullptr;
}

uint64_t prefetch_stage::sent_bytes(const entry &one) const {
    const transfer_record &record = transport_.record(one.transfer);
    return record.bytes - record.unsent_bytes;
}

void prefetch_stage::drop(const entry &one, byte_counts &bytes) {
    const bool arrived = here(one);
    if (!arrived) transport_.cancel(one.transfer);
    const uint64_t sent = sent_bytes(one);
    bytes.prefetched += sent;
    bytes.prefetch_wasted += sent;
    if (!arrived) bytes.prefetch_cut_off += sent;
    transport_.release(one.transfer);
    truth_.of(one.page).drop(one.page, one.segments);
}

bool prefetch_stage::any_comes(uint32_t layer) const {
    return std::any_of(entries_.begin(), entries_.end(), [&](const entry &one) {
        return one.page / expert_count_ == layer && !here(one);
    });
}

void prefetch_stage::settle(const layer_step &step, std::vector<taken> &out, byte_counts &bytes) {
    out.clear();
    waiting_orders_ = 0;
    const uint32_t layer = step.view().layer;
    moorage_prefetch_outcome outcome{};
    outcome.size = sizeof(outcome);
    outcome.layer = layer;
    const uint64_t wasted_before = bytes.prefetch_wasted;
    size_t kept = 0;
    for (const entry &one : entries_) {
        if (one.page / expert_count_ != layer) {
            entries_[kept++] = one;
            continue;
        }
        remove(one);
        const bool arrived = here(one);
        if (step.item_of(one.page % expert_count_) == MOORAGE_NONE) {
            ++(arrived ? outcome.wasted : outcome.cut_off);
            drop(one, bytes);
            continue;
        }
        ++(arrived ? outcome.used : outcome.late);
        const uint64_t sent = sent_bytes(one);
        bytes.prefetched += sent;
        bytes.prefetch_used += sent;
        if (!arrived) bytes.prefetch_late += sent;
        if (arrived)
            transport_.release(one.transfer);
        else
            transport_.promote(one.transfer);
        out.push_back({one.page, arrived ? MOORAGE_NONE : one.transfer, one.segments});
    }
    entries_.resize(kept);
    outcome.wasted_bytes = bytes.prefetch_wasted - wasted_before;
    if (policy_.prefetch->outcome)
        policy_.call(entry_point::prefetch_outcome, policy_.prefetch->outcome, &outcome);
}

// The source's predictions for one layer, by token and merged over them: best score of any first.
prefetch_stage::guess prefetch_stage::from_source(const pass &tokens, uint32_t layer,
                                                  bool next_pass) {
    const uint32_t width = predictions_max_;
    if (width == 0) return {};
    token_count_ = static_cast<uint32_t>(tokens.tokens.size());
    if (token_count_ > 1) std::fill(best_.begin(), best_.end(), -1.0f);
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
            best_[experts[rank]] = std::max(best_[experts[rank]], scores[rank]);
    }
    uint32_t count = 0;
    for (uint32_t expert = 0; expert < best_.size(); ++expert)
        if (best_[expert] >= 0) one_experts_[count++] = expert;
    std::stable_sort(one_experts_.begin(), one_experts_.begin() + count,
                     [&](uint32_t a, uint32_t b) { return best_[a] > best_[b]; });
    for (uint32_t i = 0; i < count; ++i) one_scores_[i] = best_[one_experts_[i]];
    return {one_experts_.data(), one_scores_.data(), count};
}

// An error in the first `count` experts that the policy predicts. "": none.
std::string prefetch_stage::wrong_prediction(uint32_t layer, uint32_t count) {
    if (count > expert_count_)
        return format("predicts {} experts of layer {}, there was room for {}", count, layer,
                      expert_count_);
    ++predictions_;
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t expert = one_experts_[i];
        if (expert >= expert_count_)
            return format("predicts an expert of layer {} beyond its {} experts", layer,
                          expert_count_);
        if (std::exchange(predicted_at_[expert], predictions_) == predictions_)
            return format("predicts expert {} of layer {} twice", expert, layer);
        if (std::isnan(one_scores_[i]))
            return format("predicts expert {} of layer {} with the score {}", expert, layer,
                          one_scores_[i]);
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
        const uint32_t at = step.view().layer + distance;
        const uint32_t layer = at < layer_count ? at : at - layer_count;
        guess made{one_experts_.data(), one_scores_.data(), 0};
        if (policy_.prefetch->predict) {
            made.count =
                policy_.call(entry_point::predict, policy_.prefetch->predict, step.lent(), layer,
                             distance, expert_count, one_experts_.data(), one_scores_.data());
            if (const std::string why = wrong_prediction(layer, made.count); !why.empty()) {
                faults_.report(policy_.name(), why);
                made.count = 0;
            }
        }
        if (made.count == 0 && distance == 1) made = from_source(tokens, layer, at >= layer_count);
        const auto [experts, scores, count] = made;
        layers_[distance - 1] = layer;
        std::copy_n(experts, count, experts_.data() + total);
        std::copy_n(scores, count, scores_.data() + total);
        offsets_[distance] = total += count;
        if (distance == 1) predicted_[layer].assign(experts, experts + count);
    }
}

// Experts that the buffer can still take.
uint32_t prefetch_stage::free_frames(uint32_t device, uint32_t held) const {
    return capacity_ - std::min(capacity_, pages_[device] + held);
}

// False when the buffer has no room for it now.
bool prefetch_stage::order(uint32_t page, uint8_t segments, uint32_t held) {
    if (page >= truth_.all().page_count() || segments == 0) {
        faults_.report(policy_.name(), format("orders segments {:#x} of page {}; there are {} "
                                              "pages",
                                              segments, page, truth_.all().page_count()));
        return true;
    }
    const ledger &book = truth_.of(page);
    // Pinned: the page belongs to the running step, whose end would take its place away; looking
    // ahead reached a whole round. Or it is there in part in another version than orders bring.
    if (book.pinned(page) || book.version(page) != 0) return true;
    const auto missing = static_cast<uint8_t>(whole_segments(segments) & ~book.known(page));
    if (!book.rows().split(page / expert_count_)) {
        return missing != MOORAGE_WHOLE || add(page, MOORAGE_WHOLE, held);
    }
    for (const uint8_t segment : {first_segment, last_segment})
        if ((missing & segment) && !add(page, segment, held)) return false;
    return true;
}

bool prefetch_stage::add(uint32_t page, uint8_t segments, uint32_t held) {
    ledger &book = truth_.of(page);
    const uint32_t device = truth_.device_of(page);
    const uint64_t bytes = costs_.expert_bytes(book.rows().share(page / expert_count_, segments));
    if (entries_of_[page] == 0 && free_frames(device, held) == 0) return false;
    if (bytes == 0) return true;
    if (!book.has_room(page, segments, false)) return false;
    book.take_rows(page, segments, false);  // first: its bytes may set out at once
    const uint32_t id = transport_.submit(owner::prefetch, h2d_of(device), page, segments, bytes);
    if (id == MOORAGE_NONE) {
        book.free_rows(page, segments);
        return false;
    }
    entries_.push_back({page, id, segments});
    pages_[device] += entries_of_[page] == 0;
    entries_of_[page] |= segments;
    book.expect_passing(page, segments);
    return true;
}

// The entry leaves the list; what becomes of its bytes is the caller's affair.
void prefetch_stage::remove(const entry &one) {
    entries_of_[one.page] &= static_cast<uint8_t>(~one.segments);
    pages_[truth_.device_of(one.page)] -= entries_of_[one.page] == 0;
}

void prefetch_stage::plan(const layer_step &step, const pass &tokens, uint64_t window_ns,
                          uint64_t backlog_ns, std::span<const uint32_t> held) {
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
    forecast_->host_token_experts = by_token ? tokens_lent_ : nullptr;
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
    const uint32_t given = policy_.call(entry_point::prefetch_plan, policy_.prefetch->plan,
                                        step.lent(), forecast_lent_, &orders);
    const uint32_t count = std::min(given, static_cast<uint32_t>(order_pages_.size()));
    complete_layer_ = orders.flags & MOORAGE_ORDERS_COMPLETE ? layers_[0] : MOORAGE_NONE;
    ordered_ = waiting_orders_ = count;
    check_places();
    order_again(held);
}

// Clears the orders of the last plan, so that policies find the arrays in their usual state. Values
// that a policy wrote beyond these stay.
void prefetch_stage::clear_orders() {
    std::fill_n(order_segments_.begin(), ordered_, uint8_t{MOORAGE_WHOLE});
    if (!marked_) return;
    std::fill_n(order_places_.begin(), ordered_, uint8_t{MOORAGE_PLACE_BUFFER});
    std::fill_n(order_versions_.begin(), ordered_, uint8_t{0});
}

// A wrong order is reported once, and goes nowhere.
void prefetch_stage::check_places() {
    elsewhere_ = marked_ = false;
    for (uint32_t i = 0; i < ordered_; ++i) {
        if ((order_places_[i] | order_versions_[i]) == 0) continue;
        marked_ = true;
        const bool known = order_pages_[i] < truth_.all().page_count() &&
                           order_places_[i] <= MOORAGE_PLACE_HOST && order_versions_[i] == 0;
        elsewhere_ |= known;
        if (known) continue;
        faults_.report(policy_.name(),
                       format("orders page {} to place {} in version {}; there are {} pages, the "
                              "buffer (0), a slot (1) and host memory (2), and version 0",
                              order_pages_[i], order_places_[i], order_versions_[i],
                              truth_.all().page_count()));
        order_places_[i] = nowhere;
    }
}

// Orders that are already under way are skipped. An order that finds no room on its device holds
// back the later ones for that device.
void prefetch_stage::order_again(std::span<const uint32_t> held) {
    if (waiting_orders_ == 0) return;
    uint32_t full = 0;  // devices, as a mask
    const uint32_t all = (1u << devices_) - 1;
    for (uint32_t i = 0; i < waiting_orders_ && full != all; ++i) {
        if (order_places_[i] != MOORAGE_PLACE_BUFFER) continue;
        const uint32_t page = order_pages_[i];
        const uint32_t device = page < entries_of_.size() ? truth_.device_of(page) : 0;
        if ((full >> device & 1) == 0 && !order(page, order_segments_[i], held[device]))
            full |= 1u << device;
    }
    if (full == 0) waiting_orders_ = 0;
}

void prefetch_stage::drain(byte_counts &bytes) {
    for (const entry &one : entries_) {
        remove(one);
        drop(one, bytes);
    }
    waiting_orders_ = 0;
    entries_.clear();
}

}  // namespace moorage::core
