// step_work.cpp - looks up experts, makes room, queues work, and handles what has ended.
#include "core/pipeline/step_work.h"

#include <algorithm>

#include "core/base/few.h"
#include "core/base/invariant.h"

namespace moorage::core {

step_work::step_work(const parts &parts)
    : executor_(parts.run_executor),
      device_costs_(parts.costs),
      memories_(parts.device_memories),
      cache_(parts.cache),
      transport_(parts.transport),
      behind_(parts.behind),
      prefetch_(parts.prefetch),
      dispatch_(parts.dispatch),
      guard_(parts.guarding),
      account_(parts.account),
      step_(parts.step),
      pass_(parts.current_pass),
      suppliers_(parts.suppliers),
      run_{parts.layers, memories_.devices(), parts.from_disk,
           prefetch_.from_resident() && executor_.predicts()},
      places_(memories_.combined_ledger().experts()) {
    const size_t items = memories_.combined_ledger().experts();
    items_.reserve(items);
    buffer_.taken.reserve(parts.buffer_slots);
    buffer_.held_frames.resize(run_.devices);
    buffer_.none_held.resize(run_.devices);
    slots_.pages.reserve(items);
    slots_.items.reserve(items);
    slots_.placed.resize(items);
    slots_.free_count.resize(run_.devices);
    queue_.waiting.reserve(2 * items);
    next_layer_.backlogs_ns.resize(run_.devices);
    next_layer_.predict_from.reserve(items);
}

// Resident experts come first, each group in the order of the step.
void step_work::look_up(layer_report &report) {
    for (const auto &supplier : suppliers_) supplier->before_look_up();
    const moorage_step &view = step_.view();
    const uint32_t count = view.distinct_count, base = view.layer * view.experts;
    const uint32_t *const distinct = step_.distinct(), *const tokens = step_.distinct_tokens();
    uint32_t whole = 0, partial = 0;
    const ledger &combined = memories_.combined_ledger();
    for (uint32_t i = 0; i < count; ++i) {
        whole += combined.is_whole(base + distinct[i]);
        prevent_vectorising();
    }
    items_.resize(count);
    step_item *const items = items_.data();
    uint32_t *const places = places_.data();
    uint32_t next_whole = 0, next_missing = whole;
    ledger *const single_ledger = memories_.single_ledger();
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t page = base + distinct[i];
        const ledger::pin_result found =
            (single_ledger ? *single_ledger : memories_.ledger_of_page(page)).pin(page);
        const uint32_t place = found.missing == 0 ? next_whole++ : next_missing++;
        places[i] = place;
        step_item &item = items[place];
        item.reset(distinct[i], page, tokens[i]);
        item.missing = found.missing;
        item.residency = found.kept ? item_residency::cached : item_residency::passing;
        partial += found.partly;
    }
    report.experts.requested += count;
    report.experts.hits += whole;
    report.experts.partial_hits += partial;
    report.experts.misses += count - whole - partial;
    for (const auto &supplier : suppliers_) supplier->looked_up(places_, items_);
    if (prefetch_.is_active()) look_up_predicted(report);
}

// How right the step before was about this one.
void step_work::look_up_predicted(layer_report &report) {
    const moorage_step &view = step_.view();
    static const lent_vector<uint32_t> nothing;
    const lent_vector<uint32_t> &predicted =
        std::exchange(next_layer_.predicted, false) ? prefetch_.predicted(view.layer) : nothing;
    step_.predicted(predicted);
    if (predicted.empty()) return;
    report.predicted += view.distinct_count;
    const size_t first = std::min<size_t>(predicted.size(), view.distinct_count);
    for (size_t i = 0; i < first; ++i)
        report.predicted_right += step_.item_of(predicted[i]) != MOORAGE_NONE;
}

// The index of a segment's transfer in step_item; a whole expert goes with its top.
static uint32_t transfer_index(uint8_t segments) { return segments == last_segment ? 1 : 0; }

void step_work::settle() {
    if (prefetch_.is_active()) prefetch_.settle(step_, buffer_.taken, account_.bytes);
    if (behind_.has_unasked())
        for (const step_item &item : items_) behind_.asked(item.page);
    join_transfers();
}

bool step_work::assign() {
    const uint64_t behind_bytes = behind_.left_bytes();
    const uint64_t backlog_ns = load_backlog_ns();
    if (!dispatch_.assign(step_, items_, backlog_ns,
                          behind_bytes == 0 ? 0 : costs().load_ns(behind_bytes),
                          run_.devices == 1 ? std::span<const uint64_t>()
                                            : std::span<const uint64_t>(next_layer_.backlogs_ns)))
        return false;
    if (!guard_.is_on(guard::cache)) limit_loads_to_free_slots();
    if (run_.from_disk) compute_all_on_device();
    return true;
}

// Tells items of transfers under way.
void step_work::join_transfers() {
    for (const prefetch_stage::taken_segments &prefetched : buffer_.taken) {
        const uint32_t expert = prefetched.page - layer() * memories_.combined_ledger().experts();
        step_item &item = items_[places_[step_.item_of(expert)]];
        item.transfers[transfer_index(prefetched.segments)] = prefetched.transfer;
    }
    for (step_item &item : items_) {
        if (item.missing == 0) continue;
        for (const auto &supplier : suppliers_) supplier->estimate(item);
        item.load_left_bytes = costs().expert_bytes(share(item.page, item.missing), item.version) -
                               behind_.moved_bytes(item.page);
        for (const uint32_t id : item.transfers) {
            if (id == MOORAGE_NONE) continue;
            item.load_left_bytes -= transport_.record(id).moved_bytes;
        }
    }
}

void step_work::count_free_slots() {
    for (uint32_t device = 0; device < run_.devices; ++device) {
        const ledger &ledger = memories_.ledger_of_device(device);
        slots_.free_count[device] = ledger.free_slots(ledger.pool_of_layer(layer()));
    }
}

// Without the cache, absent experts are loaded into free slots only. The CPU computes the others in
// decoding. Prefill has many tokens for each expert, so there the dispatch policy decides, and
// experts pass through without a slot. A prefetch that came in time is in fast memory already:
// decoding may keep it.
void step_work::limit_loads_to_free_slots() {
    count_free_slots();
    const bool decodes = step_.view().phase == MOORAGE_DECODE;
    for (step_item &item : items_) {
        if (item.is_cached() || (decodes && item.missing == 0)) continue;
        const bool stays_off =
            item.site != site_device && item.missing != 0 && !item.loads_behind();
        if (stays_off) continue;
        uint32_t &free_slots = slots_.free_count[memories_.device_of(item.page)];
        if (free_slots != 0) {
            --free_slots;
            continue;
        }
        item.residency = item_residency::passing;
        if (decodes) item.site = site_cpu;
    }
}

// Late prefetches of an expert that is computed elsewhere after all: settle() took them for used.
void step_work::give_up_prefetch(step_item &item) {
    for (const uint32_t id : item.transfers) {
        if (id == MOORAGE_NONE) continue;
        transport_.cancel(id);
        const transfer_record &record = transport_.record(id);
        const uint64_t sent = record.bytes - record.unsent_bytes;
        account_.bytes.prefetch_used -= sent;
        account_.bytes.prefetch_wasted += sent;
        account_.bytes.prefetch_cut_off += sent;
        memories_.ledger_of_page(item.page).give_up(item.page, record.segments);
    }
}

// A processor whose experts are on disk has no second place from which to compute them. Experts
// that the dispatch policy leaves to the CPU are read, too, but pass through.
void step_work::compute_all_on_device() {
    for (step_item &item : items_) {
        if (item.site != site_cpu) continue;
        item.site = site_device;
        if (item.loads_behind())
            item.residency = item_residency::passing;
        else if (item.missing != 0 && !item.is_cached())
            item.residency = item_residency::bypassing;
    }
}

bool step_work::assign_slots() {
    slots_.pages.clear();
    slots_.items.clear();
    bool later = false;
    for (uint32_t i = 0, count = static_cast<uint32_t>(items_.size()); i < count; ++i) {
        step_item &item = items_[i];
        if (item.missing == 0 && item.is_cached()) continue;
        if (item.site != site_device && item.missing != 0) {
            give_up_prefetch(item);
            const bool starts = item.loads_behind() && item.missing == MOORAGE_WHOLE;
            later |= starts;
            if (!item.is_cached())
                item.residency = starts || behind_.under_way(item.page)
                                     ? item_residency::loading_behind
                                     : item_residency::passing;
            continue;
        }
        if (item.loads_behind()) item.residency = item_residency::passing;
        if (behind_.under_way(item.page)) item.transfers[0] = behind_.take(item.page);
        memories_.ledger_of_page(item.page).expect_passing(item.page, item.missing, item.version);
        if (item.residency != item_residency::passing) continue;
        slots_.pages.push_back(item.page);
        slots_.items.push_back(i);
    }
    return (slots_.pages.empty() || find_room()) && (!later || start_loads_behind());
}

// Starts the loads that nobody waits for. Those under way already go on.
bool step_work::start_loads_behind() {
    slots_.pages.clear();
    slots_.items.clear();
    for (uint32_t i = 0; i < items_.size(); ++i) {
        if (!items_[i].loads_behind()) continue;
        const uint32_t page = items_[i].page;
        // A prefetch that was given up may have rows.
        memories_.ledger_of_page(page).free_rows(page, MOORAGE_WHOLE);
        slots_.pages.push_back(page);
        slots_.items.push_back(i);
    }
    if (slots_.pages.empty()) return true;
    if (!behind_.start(owner::behind, slots_.pages, slots_.started)) return false;
    for (size_t n = 0; n < slots_.pages.size(); ++n)
        if (!slots_.started[n]) items_[slots_.items[n]].residency = item_residency::passing;
    return true;
}

bool step_work::find_room() {
    if (!guard_.is_on(guard::cache) &&
        step_.view().phase == MOORAGE_PREFILL) {  // displaces nothing
        count_free_slots();
        size_t kept = 0;
        for (size_t n = 0; n < slots_.pages.size(); ++n) {
            uint32_t &free_slots = slots_.free_count[memories_.device_of(slots_.pages[n])];
            if (free_slots == 0) continue;
            --free_slots;
            slots_.pages[kept] = slots_.pages[n];
            slots_.items[kept++] = slots_.items[n];
        }
        slots_.pages.resize(kept);
    }
    const std::span<placement_in_cache> placed(slots_.placed.data(), slots_.pages.size());
    if (!cache_.load(slots_.pages, MOORAGE_DEMAND, false, placed)) return false;
    for (size_t n = 0; n < slots_.pages.size(); ++n) {
        step_item &item = items_[slots_.items[n]];
        if (placed[n].victim != MOORAGE_NONE) behind_.release(placed[n].victim);
        if (placed[n].victim != MOORAGE_NONE || !placed[n].cached) guard_.note_effect(guard::cache);
        if (!placed[n].cached) continue;
        item.residency = item_residency::cached;
        memories_.ledger_of_page(item.page).adopt(item.page);
    }
    return true;
}

// Queues the segments of an item on the GPU, after the transfer that brings them.
void step_work::start_segment(uint32_t index, uint8_t segments) {
    step_item &item = items_[index];
    const bool resident = (item.missing & segments) == 0;
    const uint32_t transfer = resident ? MOORAGE_NONE : item.transfers[transfer_index(segments)];
    const double expert_share = segments == MOORAGE_WHOLE ? 1 : share(item.page, segments);
    executor_.expert_on_device({item.page, item.tokens, expert_share, transfer, index, segments,
                                static_cast<uint8_t>(memories_.device_of(item.page)),
                                item.version});
    ++item.computing_count;
    ++queue_.open_operations;
}

// It reads host memory, where the expert may have to come to first.
void step_work::start_on_cpu(uint32_t index) {
    step_item &item = items_[index];
    account_.activation_bytes += costs().activation_bytes(item.tokens);
    ++item.computing_count;
    ++queue_.open_operations;
    for (const auto &supplier : suppliers_)
        if (supplier->delay_cpu(index, item)) return;
    executor_.expert_on_cpu({item.page, item.tokens, 1, MOORAGE_NONE, index});
}

void step_work::page_read(uint32_t page) {
    for (const auto &supplier : suppliers_) supplier->page_read(page, items_);
}

// The GPU stream runs in order, so work that need not wait goes first: resident experts and
// segments. Then comes what is loaded, in the order of the dispatch policy. Work for which the
// arena has no room waits until a staged expert has been computed.
void step_work::start() {
    queue_.waiting.clear();
    queue_.next = 0;
    for (const auto &supplier : suppliers_) queue_.open_operations += supplier->begin(items_);
    bool splits = memories_.ledger_of_device(0).rows().is_split(
        layer());  // any device the experts of the layer
    for (uint32_t device = 1; device < run_.devices; ++device)
        splits |= memories_.ledger_of_device(device).rows().is_split(layer());
    bool loads = false;
    for (const uint32_t index : dispatch_.order()) {
        step_item &item = items_[index];
        const bool split = splits && is_split(item.page);
        loads |= item.missing != 0;
        if (item.site >= site_remote) {
            for (const auto &supplier : suppliers_)
                if (supplier->take(index, item)) break;
        } else if (item.site == site_cpu) {
            start_on_cpu(index);
        } else if (!split) {
            if (item.missing == 0) start_segment(index, MOORAGE_WHOLE);
        } else if (!(item.missing & first_segment)) {
            start_segment(index, first_segment);
            if (item.missing == 0) start_segment(index, last_segment);
        }
    }
    for (const auto &supplier : suppliers_) queue_.open_operations += supplier->start_taken(items_);
    if (run_.predicts && prefetches() && layer() + 1 < run_.layers) predict();
    if (loads) queue_missing(splits);
    if (loads || !suppliers_.empty()) start_waiting();
    if (prefetches() && !next_layer_.predicting)
        plan_prefetch();  // else as soon as it is predicted
}

// Queues what the GPU computes after its arrival. `splits`: experts of the layer may be split.
void step_work::queue_missing(bool splits) {
    for (const uint32_t index : dispatch_.order()) {
        const step_item &item = items_[index];
        if (item.site != site_device || item.missing == 0) continue;
        if (!splits || !is_split(item.page)) {
            queue_.waiting.emplace_back(index, uint8_t{MOORAGE_WHOLE});
            continue;
        }
        if (item.missing & first_segment) queue_.waiting.emplace_back(index, first_segment);
        queue_.waiting.emplace_back(index, last_segment);
    }
}

// Segments of one expert stay in order because the queue is.
void step_work::start_waiting() {
    while (!queue_.empty() && start_next(queue_.waiting[queue_.next])) ++queue_.next;
    for (const auto &supplier : suppliers_)
        queue_.open_operations += supplier->go_past_waiting(*this);
}

// False: there is no room for it.
bool step_work::start_next(std::pair<uint32_t, uint8_t> waiting) {
    const auto [index, segments] = waiting;
    step_item &item = items_[index];
    uint32_t &transfer = item.transfers[transfer_index(segments)];
    if ((item.missing & segments) != 0 && transfer == MOORAGE_NONE) {
        ledger &ledger = memories_.ledger_of_page(item.page);
        if (!ledger.has_room(item.page, segments, item.is_cached())) return false;
        ledger.take_rows(item.page, segments, item.is_cached());
        transfer = transport_.submit(owner::demand, h2d_to(item.page), item.page, segments,
                                     costs().expert_bytes(share(item.page, segments), item.version),
                                     item.version);
    }
    start_segment(index, segments);
    return true;
}

uint32_t step_work::start_on_free_devices() {
    uint32_t full_devices = 0;  // as a mask
    auto &segments = queue_.waiting;
    const auto starts = [&](const std::pair<uint32_t, uint8_t> &segment) {
        const uint32_t device_bit = 1u << memories_.device_of(items_[segment.first].page);
        if ((full_devices & device_bit) == 0 && start_next(segment)) return true;
        full_devices |= device_bit;
        return false;
    };
    const auto first = segments.begin() + static_cast<ptrdiff_t>(queue_.next);
    segments.erase(std::remove_if(first, segments.end(), starts), segments.end());
    return full_devices;
}

// If nothing under way frees room for waiting work, prefetched segments have taken all of it. Then
// they are given up.
bool step_work::make_progress() {
    if (queue_.open_operations == 0 && !queue_.empty()) {
        prefetch_.drain(account_.bytes);
        start_waiting();
        MOORAGE_INVARIANT(queue_.open_operations != 0 && "the staging slots are for demand alone");
    }
    return queue_.open_operations != 0;
}

// A segment that the cache does not keep leaves the arena as soon as it is computed. The room goes
// first to the waiting work of the step, then to prefetches that found no room.
void step_work::segment_done(step_item &item, uint8_t segments) {
    ledger &ledger = memories_.ledger_of_page(item.page);
    const uint8_t kept = item.is_cached() ? ledger.rows().cached_segments(layer()) : uint8_t{0};
    if (segments & kept) return;
    ledger.free_rows(item.page, segments);
    room_freed();
}

void step_work::room_freed() {
    start_waiting();
    if (prefetch_.has_waiting_orders()) prefetch_.order_again(held_frames());
}

// A top segment that came by way of the buffer, and that the cache keeps, moves to its slot once it
// has been computed.
void step_work::move_top(step_item &item) {
    ledger &ledger = memories_.ledger_of_page(item.page);
    const auto index = static_cast<uint32_t>(&item - items_.data());
    executor_.move_top({item.page, 0, share(item.page, first_segment), MOORAGE_NONE, index,
                        first_segment, 0, item.version},
                       ledger.take_slot(item.page));
    ++item.computing_count;
    ++queue_.open_operations;
}

// Frames of the buffer that experts of the step hold until it ends: the experts that came out of
// the buffer, except whole ones that are cached now.
std::span<const uint32_t> step_work::held_frames() {
    const auto &taken = buffer_.taken;
    if (taken.empty()) return buffer_.none_held;
    buffer_.held_frames = buffer_.none_held;
    for (size_t i = 0; i < taken.size(); ++i) {
        const uint32_t page = taken[i].page;
        const auto same = [&](const prefetch_stage::taken_segments &earlier) {
            return earlier.page == page;
        };
        if (std::any_of(taken.begin(), taken.begin() + static_cast<ptrdiff_t>(i), same)) continue;
        const auto item = std::ranges::find(items_, page, &step_item::page);
        const arena &rows = memories_.ledger_of_page(page).rows();
        buffer_.held_frames[memories_.device_of(page)] +=
            rows.in_frame(page) &&
            (rows.is_split(layer()) || (item != items_.end() && !item->is_cached()));
    }
    return buffer_.held_frames;
}

void step_work::expert_computed(step_item &item, const completion &completion) {
    item.run_ns += completion.duration_ns;
    const bool on_device = completion.kind == event_kind::device_expert;
    for (const auto &supplier : suppliers_) supplier->computed(item, completion);
    const bool has_top = on_device ? (completion.segments & first_segment) != 0 : item.missing == 0;
    if (has_top && item.is_cached() &&
        memories_.ledger_of_page(item.page).rows().must_move(item.page))
        move_top(item);
    // A slot keeps that in any layer.
    const bool kept = item.is_cached() && (completion.segments & first_segment);
    if (on_device && !kept) segment_done(item, completion.segments);
}

void step_work::operation_ended(const completion &completion) {
    --queue_.open_operations;
    if (completion.kind == event_kind::prediction) {
        next_layer_.predicting = false;
        return plan_prefetch();
    }
    if (completion.kind == event_kind::hidden_states) return;
    step_item &item = items_[completion.tag];
    --item.computing_count;
    if (completion.kind != event_kind::moved) return expert_computed(item, completion);
    memories_.ledger_of_page(item.page).moved(item.page);
    room_freed();
}

void step_work::end(layer_report &report) {
    ledger *const single_ledger = memories_.single_ledger();
    for (step_item &item : items_) {
        (single_ledger ? *single_ledger : memories_.ledger_of_page(item.page))
            .unpin(item.page, item.is_cached() || item.loads_behind());
        for (const auto &supplier : suppliers_) supplier->count(item, report);
        report.experts.on_cpu += item.site == site_cpu;
        MOORAGE_INVARIANT(item.missing != 0 || item.transfers[0] == MOORAGE_NONE);
        if (item.missing == 0) continue;  // so nothing has brought it
        report.experts.loaded += item.is_loaded();
        for (const uint32_t id : item.transfers) {
            if (id == MOORAGE_NONE) continue;
            item.load_ns += transport_.record(id).busy_ns;
            transport_.release(id);
        }
    }
    dispatch_.report_outcomes(layer(), items_);
    for (const auto &supplier : suppliers_) supplier->end(layer());
    if (!cache_.gives_up() || !can_load()) return;  // it could not come again
    slots_.given_up.clear();
    cache_.give_up(layer(), slots_.given_up);
    behind_.release(slots_.given_up);
}

void step_work::keep_cached(uint32_t page) {
    const auto item = std::ranges::find(items_, page, &step_item::page);
    if (item != items_.end()) item->residency = item_residency::cached;
}

}  // namespace moorage::core
