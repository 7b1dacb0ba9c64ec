// drive_stages.cpp - budget, prefetch, dispatch and transport: asks them and judges their advice.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/text.h"
#include "tools/moorage/check/drive.h"

namespace moorage::check {

using core::format;

void driver::plan_budget() {
    if (step_.token < plan_due_ || (step_.token > 0 && plan_due_ == 0)) return;
    const world_options &o = world_.options;
    std::copy(plan_slots_.begin(), plan_slots_.end(), world_slots_now_.data());
    std::copy(plan_split_.begin(), plan_split_.end(), world_split_now_.data());
    std::copy(plan_slots_.begin(), plan_slots_.end(), budget_slots_.data());
    std::copy(plan_split_.begin(), plan_split_.end(), budget_split_.data());
    const moorage_budget_request request{sizeof(request),
                                         0,
                                         o.layers,
                                         o.experts,
                                         o.slots,
                                         o.two_segments ? 2u : 1u,
                                         step_.token,
                                         world_slots_now_.data(),
                                         world_split_now_.data(),
                                         draw_.below(2),
                                         o.two_segments ? 0.125f : 0.0f};
    moorage_budget_plan plan{sizeof(plan), 0, budget_slots_.data(), budget_split_.data(), 0};
    uint32_t apply = 0;
    control(core::entry_point::budget_plan,
            [&] { apply = policy_.budget->plan(policy_.plugin, &request, &plan); });
    record_decision(apply);
    double cost = 0;
    bool is_sound = true;
    for (uint32_t l = 0; l < o.layers && apply; ++l) {
        const uint32_t slots = budget_slots_[l];
        const float split = budget_split_[l];
        record_decision(slots), record_decision(static_cast<uint64_t>(split * 1e6f));
        if (slots > o.experts)
            blame(fault::range,
                  format("layer {} gets {} slots, of {} experts", l, slots, o.experts)),
                is_sound = false;
        if (!(split > 0 && split <= 1) || (!o.two_segments && split != 1))
            blame(fault::range, format("layer {} gets split {}", l, split)), is_sound = false;
        cost += static_cast<double>(slots) * static_cast<double>(split);
    }
    if (apply && !(cost <= o.slots + 1e-6))
        blame(fault::capacity, format("the plan costs {} experts, {} fit", cost, o.slots)),
            is_sound = false;
    if (apply && is_sound) {
        std::copy_n(budget_slots_.data(), o.layers, plan_slots_.begin());
        std::copy_n(budget_split_.data(), o.layers, plan_split_.begin());
    }
    uint64_t interval = 0;
    if (policy_.budget->interval)
        call(core::entry_point::budget_interval,
             [&] { interval = policy_.budget->interval(policy_.plugin); });
    record_decision(interval);
    plan_due_ = interval > 0 && interval < MOORAGE_NEVER - step_.token ? step_.token + interval : 0;
}

// Prefetches for this layer that are still in the buffer were not used. They are dropped.
void driver::drop_unused_prefetches() {
    if (buffered_pages_ == 0 && !policy_.prefetch) return;
    const uint32_t first = step_.layer * world_.options.experts;
    moorage_prefetch_outcome seen{};
    seen.size = sizeof(seen);
    seen.layer = step_.layer;
    for (uint32_t e = 0; e < world_.options.experts; ++e) {
        uint32_t &state = world_.state[first + e];
        if ((state & MOORAGE_STATE_BUFFERED) == 0) continue;
        ++(tokens_of_expert_[e] ? seen.used : seen.wasted);
        state &= ~MOORAGE_STATE_BUFFERED;
        --buffered_pages_;
    }
    seen.wasted_bytes = seen.wasted * world_.limits.expert_bytes;
    if (policy_.prefetch && policy_.prefetch->outcome)
        call(core::entry_point::prefetch_outcome,
             [&] { policy_.prefetch->outcome(policy_.plugin, &seen); });
}

// Writes the prediction for target number `target` from `offset` on; returns how many.
uint32_t driver::forecast(uint32_t target, uint32_t offset) {
    const uint32_t capacity =
        std::min(world_.options.extras ? world_.options.predictions : 0, world_.options.experts);
    const uint32_t layer = (step_.layer + 1 + target) % world_.options.layers;
    uint32_t *experts = forecast_experts_.last(capacity), got = 0;
    float *scores = forecast_scores_.last(capacity);
    if (policy_.prefetch->predict) {
        call(core::entry_point::prefetch_predict, [&] {
            got = policy_.prefetch->predict(policy_.plugin, &step_, layer, target + 1, capacity,
                                            experts, scores);
        });
        record_decision(got);
        if (got > capacity)
            blame(fault::capacity, format("predict returned {}, room was for {}", got, capacity)),
                got = capacity;
        for (uint32_t i = 0; i < got; ++i) {
            record_decision(experts[i]);
            if (experts[i] < world_.options.experts &&
                std::find(experts, experts + i, experts[i]) == experts + i)
                continue;
            blame(fault::range, format("predict named expert {} (twice, or of {})", experts[i],
                                       world_.options.experts));
            got = i;
        }
    }
    if (got == 0 && capacity > 0) {
        got = capacity;
        draw_.distinct(world_.options.experts, got, experts);
        for (uint32_t i = 0; i < got; ++i) scores[i] = 1.0f / static_cast<float>(i + 2);
    }
    std::copy_n(experts, got, target_experts_.data() + offset);
    std::copy_n(scores, got, target_scores_.data() + offset);
    return got;
}

void driver::prefetch() {
    if (horizon_ == 0) return;
    uint32_t offset = 0;
    target_offsets_.last(horizon_ + 1)[0] = 0;
    for (uint32_t t = 0; t < horizon_; ++t) {
        target_layers_.last(horizon_)[t] = (step_.layer + 1 + t) % world_.options.layers;
        offset += forecast(t, offset);
        target_offsets_.last(horizon_ + 1)[t + 1] = offset;
    }
    const uint32_t room =
        world_.options.buffer_slots - std::min(buffered_pages_, world_.options.buffer_slots);
    const moorage_forecast forecast{sizeof(forecast),
                                    0,
                                    horizon_,
                                    room,
                                    30'000 + draw_.below(90'000),
                                    draw_.below(60'000),
                                    target_layers_.last(horizon_),
                                    target_offsets_.last(horizon_ + 1),
                                    target_experts_.data(),
                                    target_scores_.data(),
                                    0,
                                    0,
                                    nullptr,
                                    nullptr};
    moorage_orders orders{sizeof(orders),
                          0,
                          room,
                          0,
                          orders_.last(room),
                          order_segments_.last(room),
                          order_places_.last(room),
                          order_versions_.last(room)};
    std::fill_n(orders.host_segments, room, uint8_t{MOORAGE_WHOLE});
    std::fill_n(orders.host_places, room, uint8_t{MOORAGE_PLACE_BUFFER});
    std::fill_n(orders.host_versions, room, uint8_t{0});
    uint32_t got = 0;
    call(core::entry_point::prefetch_plan,
         [&] { got = policy_.prefetch->plan(policy_.plugin, &step_, &forecast, &orders); });
    record_decision(got);
    judge_orders(got, room);
}

// Without a prefetch policy the buffer fills at random. A cache policy must leave it alone.
void driver::prefetch_randomly() {
    uint32_t &state = world_.state[draw_.below(world_.page_count())];
    if (state != 0 || buffered_pages_ >= world_.options.buffer_slots) return;
    state = MOORAGE_STATE_BUFFERED;
    ++buffered_pages_;
}

void driver::judge_orders(uint32_t count, uint32_t capacity) {
    if (count > capacity) {
        blame(fault::capacity,
              format("{} prefetches were ordered, room was for {}", count, capacity));
        count = capacity;
    }
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t page = orders_.last(capacity)[i],
                       segments = order_segments_.last(capacity)[i];
        const uint32_t place = order_places_.last(capacity)[i],
                       version = order_versions_.last(capacity)[i];
        record_decision(page), record_decision(segments), record_decision(place);
        if (page >= world_.page_count()) {
            blame(fault::range, format("prefetch of {}, which is no page", page));
            continue;
        }
        if (place > MOORAGE_PLACE_HOST || version != 0) {
            blame(fault::range,
                  format("page {} is ordered to place {} in version {}", page, place, version));
            continue;
        }
        if (place != MOORAGE_PLACE_BUFFER) continue;
        if (segments == 0 || (!world_.options.two_segments && segments != MOORAGE_WHOLE)) {
            blame(fault::range, format("prefetch of segments {} of page {}", segments, page));
            continue;
        }
        uint32_t &state = world_.state[page];
        if (state != 0 || buffered_pages_ >= world_.options.buffer_slots) continue;
        state = MOORAGE_STATE_BUFFERED;
        ++buffered_pages_;
    }
}

// Devices must exist and be able to compute the items. The order must be a permutation of `got`
// items.
void driver::judge_devices(const moorage_items &items, uint32_t got) {
    const uint32_t count = items.count;
    uint32_t *devices = devices_.last(count), *order = device_order_.last(count);
    for (uint32_t i = 0; i < got; ++i) {
        record_decision(devices[i]), record_decision(order[i]);
        if (devices[i] == (items.host_device[i] | MOORAGE_AND_LOAD))
            blame(fault::range, format("item {} is to run on the GPU and to be loaded besides", i));
        const uint32_t device = devices[i] &= ~MOORAGE_AND_LOAD;
        if (device <= items.gpus && items.host_missing[i] && items.host_load_ns[i] == MOORAGE_NEVER)
            blame(fault::range,
                  format("item {} is to run here, where it is absent and cannot be loaded", i));
        if (device >= items.devices)
            blame(fault::range, format("item {} goes to device {}, the last is {}", i, device,
                                       items.devices - 1));
        else if (device > items.gpus &&
                 !std::binary_search(items.host_remote_devices + items.host_remote_first[i],
                                     items.host_remote_devices + items.host_remote_first[i + 1],
                                     device))
            blame(fault::range, format("item {} goes to a server that lacks the expert", i));
        if (order[i] >= count || std::find(order, order + i, order[i]) != order + i)
            blame(fault::range, format("order[{}] = {} makes the order no permutation of {} items",
                                       i, order[i], count));
    }
}

// Draws the servers that have each of the step's items, about every second server. Returns the
// number of entries. Requires: all other data of the items.
uint32_t driver::fill_remote(uint32_t count) {
    const uint32_t servers = world_.options.servers;
    remote_entries_.clear();
    for (uint32_t i = 0; i < count; ++i) {
        item_remote_first_.last(count + 1)[i] = static_cast<uint32_t>(remote_entries_.size());
        for (uint32_t s = 0; s < servers; ++s)
            if (draw_.one_in(2)) remote_entries_.push_back(s + 2);  // after the GPU and the CPU
    }
    const auto entries = static_cast<uint32_t>(remote_entries_.size());
    item_remote_first_.last(count + 1)[count] = entries;
    for (uint32_t r = 0; r < entries; ++r) {
        item_remote_devices_.last(entries)[r] = remote_entries_[r];
        item_once_.last(entries)[r] = 30'000 + draw_.below(30'000);
        item_remote_.last(entries)[r] = item_once_.last(entries)[r] + 10'000;
    }
    // Some experts of other servers cannot be loaded here.
    for (uint32_t i = 0; i < count; ++i)
        if (item_missing_.last(count)[i] && draw_.one_in(3) &&
            item_remote_first_.last(count + 1)[i] < item_remote_first_.last(count + 1)[i + 1])
            item_load_.last(count)[i] = MOORAGE_NEVER;
    return entries;
}

void driver::dispatch() {
    const uint32_t count = step_.distinct_count, servers = world_.options.servers;
    const uint32_t first = step_.layer * world_.options.experts;
    uint32_t n = 0;
    for (const bool resident : {true, false}) {
        for (uint32_t i = 0; i < count; ++i) {
            const uint32_t expert = step_.host_distinct[i];
            const uint32_t state = world_.state[first + expert];
            if (((state & (MOORAGE_STATE_RESIDENT | MOORAGE_STATE_BUFFERED)) != 0) != resident)
                continue;
            const uint32_t tokens = step_.host_distinct_tokens[i];
            item_experts_.last(count)[n] = expert;
            item_tokens_.last(count)[n] = tokens;
            item_device_.last(count)[n] = 0;
            item_missing_.last(count)[n] = resident ? 0 : MOORAGE_WHOLE;
            item_scores_.last(count)[n] = draw_.unit();
            item_load_.last(count)[n] = resident ? 0 : world_.costs.load_ns;
            item_gpu_.last(count)[n] =
                world_.costs.gpu_expert_ns + tokens * world_.costs.gpu_token_ns;
            item_cpu_.last(count)[n] =
                world_.costs.cpu_expert_ns + tokens * world_.costs.cpu_token_ns;
            ++n;
        }
    }
    const uint32_t remote = fill_remote(count);
    moorage_items items{};
    items.size = sizeof(items);
    items.flags = servers && draw_.one_in(2) ? uint32_t{MOORAGE_ITEMS_SERIAL} : 0u;
    items.count = count;
    items.devices = world_.limits.devices, items.gpus = 1;
    items.host_devices = world_.devices.data();
    items.load_backlog_ns = draw_.below(100'000), items.behind_backlog_ns = draw_.below(100'000);
    items.host_experts = item_experts_.last(count), items.host_tokens = item_tokens_.last(count);
    items.host_missing = item_missing_.last(count);
    items.host_scores = world_.options.extras ? item_scores_.last(count) : nullptr;
    items.host_device = item_device_.last(count);
    items.host_load_ns = item_load_.last(count);
    items.host_gpu_ns = item_gpu_.last(count), items.host_cpu_ns = item_cpu_.last(count);
    if (servers) {
        items.host_remote_first = item_remote_first_.last(count + 1);
        items.host_remote_devices = item_remote_devices_.last(remote);
        items.host_remote_ns = item_remote_.last(remote);
        items.host_once_ns = item_once_.last(remote);
    }
    uint32_t *devices = devices_.last(count), *order = device_order_.last(count), got = 0;
    std::fill_n(devices, count, 0u);
    std::iota(order, order + count, 0u);
    call(core::entry_point::dispatch_assign,
         [&] { got = policy_.dispatch->assign(policy_.plugin, &step_, &items, devices, order); });
    record_decision(got);
    if (got != 0 && got != count)
        return blame(fault::capacity, format("assign returned {} for {} items", got, count));
    judge_devices(items, got);
    if (policy_.dispatch->outcome) report_outcomes(items);
}

// Reports outcomes as if remote items ran on their first server, and all others here.
void driver::report_outcomes(const moorage_items &items) {
    for (uint32_t i = 0; i < items.count; ++i) {
        const bool is_remote = items.host_load_ns[i] == MOORAGE_NEVER;
        const uint32_t entry = is_remote ? items.host_remote_first[i] : 0;
        const moorage_dispatched done{
            sizeof(done),
            0,
            step_.layer,
            items.host_experts[i],
            is_remote ? items.host_remote_devices[entry] : 0,
            items.host_tokens[i],
            is_remote ? 0 : items.host_load_ns[i],
            is_remote ? items.host_remote_ns[entry] : items.host_gpu_ns[i]};
        call(core::entry_point::dispatch_outcome,
             [&] { policy_.dispatch->outcome(policy_.plugin, &done); });
    }
}

// Asks one link for a piece and records it.
void driver::take_piece(uint32_t link) {
    moorage_piece piece{sizeof(piece), MOORAGE_NONE, 0};
    uint32_t got = 0;
    call(core::entry_point::transport_next,
         [&] { got = policy_.transport->next(policy_.plugin, link, &piece); });
    record_decision(got);
    link_idle_ = got == 0;
    if (got == 0) return;
    record_decision(piece.id), record_decision(piece.bytes);
    if (got != 1) return blame(fault::capacity, format("next returned {}, expected 0 or 1", got));
    if (piece.id >= transfers_.size() || !transfers_[piece.id].live ||
        transfers_[piece.id].cancelled)
        return blame(fault::range, format("a piece of transfer {}, which is not live", piece.id));
    live_transfer &transfer = transfers_[piece.id];
    if (transfer.link != link)
        return blame(fault::range, format("a piece of transfer {} on link {}, it is for {}",
                                          piece.id, link, transfer.link));
    if (piece.bytes == 0 || piece.bytes > transfer.left_bytes)
        return blame(fault::range,
                     format("a piece of {} bytes, {} are left", piece.bytes, transfer.left_bytes));
    transfer.left_bytes -= piece.bytes;
    transfer.live = transfer.left_bytes > 0;
}

void driver::transport_events() {
    const moorage_transport &transport = *policy_.transport;
    for (uint32_t id = 0; id < transfers_.size(); ++id) {
        live_transfer &transfer = transfers_[id];
        if (!transfer.live && draw_.one_in(3)) {
            transfer = {true, false, draw_.below(world_.options.links), 1 + draw_.below(1u << 20)};
            const int32_t cause = draw_.one_in(2) ? MOORAGE_DEMAND : MOORAGE_PREFETCH;
            const moorage_transfer t{sizeof(t),          0,     id,
                                     transfer.link,      cause, draw_.below(world_.page_count()),
                                     transfer.left_bytes};
            call(core::entry_point::transport_submit,
                 [&] { transport.submit(policy_.plugin, &t); });
        } else if (transfer.live && draw_.one_in(12)) {
            call(core::entry_point::transport_cancel,
                 [&] { transport.cancel(policy_.plugin, id); });
            transfer.live = false;
        } else if (transfer.live && draw_.one_in(8)) {
            call(core::entry_point::transport_promote,
                 [&] { transport.promote(policy_.plugin, id, MOORAGE_DEMAND); });
        }
    }
    for (uint32_t i = 0; i < 3; ++i) take_piece(draw_.below(world_.options.links));
}

// Every transfer that was submitted and not cancelled must arrive in the end.
void driver::drain_transfers() {
    for (uint32_t link = 0; link < world_.options.links; ++link) {
        link_idle_ = false;
        for (uint32_t pieces = 0; pieces < 200'000 && !link_idle_; ++pieces) take_piece(link);
    }
    for (uint32_t id = 0; id < transfers_.size(); ++id)
        if (transfers_[id].live)
            blame(fault::incomplete,
                  format("{} bytes of transfer {} were never sent", transfers_[id].left_bytes, id));
}

}  // namespace moorage::check
