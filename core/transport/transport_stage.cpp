// transport_stage.cpp - keeps the links busy with the pieces that the policy picks.
#include "core/transport/transport_stage.h"

#include <cassert>

#include "core/base/text.h"

namespace moorage::core {

int32_t cause_of(owner of) {
    switch (of) {
        case owner::prefetch:
        case owner::slot_prefetch:
        case owner::behind:
            return MOORAGE_PREFETCH;
        case owner::fill:
            return MOORAGE_BUDGET;
        case owner::demand:
        case owner::serve:
            break;
    }
    return MOORAGE_DEMAND;
}

// Nobody waits for bytes of these owners: they are no backlog of demand.
static bool is_ahead(owner of) {
    return of == owner::prefetch || of == owner::slot_prefetch || of == owner::behind;
}

transport_stage::transport_stage(instance &policy, executor &where, fault_log &faults,
                                 uint32_t transfers_max, uint32_t layers, uint32_t experts)
    : policy_(policy),
      executor_(where),
      faults_(faults),
      records_(transfers_max),
      released_(transfers_max, 0),
      experts_(experts),
      sent_of_layer_(layers, 0) {
    for (uint32_t id = transfers_max; id-- > 0;) free_ids_.push_back(id);
    for (uint32_t link = 0; link < links_max; ++link)
        lanes_[link].room = where.pieces_at_once(link);
}

uint32_t transport_stage::enter(owner of, uint32_t link, uint32_t page, uint8_t segments,
                                uint64_t bytes, uint8_t version) {
    assert(bytes > 0 && link < links_max);
    if (free_ids_.empty()) return MOORAGE_NONE;
    const uint32_t id = free_ids_.back();
    free_ids_.pop_back();
    transfer_record &record = records_[id];
    record.live = true;
    record.held = record.cancelled = false;
    record.segments = segments;
    record.version = version;
    record.of = of;
    record.link = link;
    record.page = page;
    record.bytes = record.unsent_bytes = bytes;
    record.moved_bytes = record.prefetch_bytes = record.busy_ns = 0;
    released_[id] = 0;
    if (!is_ahead(of)) lanes_[link].backlog_bytes += bytes;
    executor_.expect(id);
    return id;
}

// Tells the policy what there is to send. It does not read the record: a copy of freshly stored
// fields, in wider pieces, would wait for the stores.
void transport_stage::offer(uint32_t id, owner of, uint32_t link, uint32_t page, uint64_t bytes) {
    const moorage_transfer transfer{sizeof(transfer), 0, id, link, cause_of(of), page, bytes};
    policy_.call(entry_point::submit, policy_.transport->submit, &transfer);
    pump(link);
}

uint32_t transport_stage::submit(owner of, uint32_t link, uint32_t page, uint8_t segments,
                                 uint64_t bytes, uint8_t version) {
    const uint32_t id = enter(of, link, page, segments, bytes, version);
    if (id == MOORAGE_NONE) return id;
    if (supply_ && is_h2d(link) && !supply_->use(page, of)) {
        records_[id].held = true;
        held_.push_back(id);
    } else {
        offer(id, of, link, page, bytes);
    }
    return id;
}

uint32_t transport_stage::prepare(owner of, uint32_t link, uint32_t page, uint8_t segments,
                                  uint64_t bytes) {
    const uint32_t id = enter(of, link, page, segments, bytes, /*version=*/0);
    if (id != MOORAGE_NONE) records_[id].held = true;
    return id;
}

void transport_stage::start(uint32_t id) {
    transfer_record &record = records_[id];
    record.held = false;
    offer(id, record.of, record.link, record.page, record.bytes);
}

void transport_stage::supplied(uint32_t page) {
    // In the order in which they were submitted. Offering one holds no further one.
    std::erase_if(held_, [&](uint32_t id) {
        if (records_[id].page != page) return false;
        start(id);
        return true;
    });
}

void transport_stage::promote(uint32_t id) {
    transfer_record &record = records_[id];
    if (!record.live || record.of == owner::demand) return;
    if (is_ahead(record.of)) lanes_[record.link].backlog_bytes += record.bytes - record.moved_bytes;
    record.of = owner::demand;
    if (!record.held)
        policy_.call(entry_point::promote, policy_.transport->promote, id, int32_t{MOORAGE_DEMAND});
    else if (supply_ && is_h2d(record.link))
        supply_->promote(record.page);
}

void transport_stage::cancel(uint32_t id) {
    transfer_record &record = records_[id];
    if (!record.live || record.cancelled) return;
    record.cancelled = true;
    if (record.held)
        std::erase(held_, id);
    else
        policy_.call(entry_point::cancel, policy_.transport->cancel, id);
    if (!is_ahead(record.of))
        lanes_[record.link].backlog_bytes -= record.bytes - record.moved_bytes;
    record.live = record.under_way_bytes() != 0;
    if (!record.live) over(record);
}

void transport_stage::release(uint32_t id) {
    released_[id] = 1;
    if (!records_[id].live) free_id(id);
}

uint64_t transport_stage::loaded_bytes() const {
    uint64_t all = 0;
    for (uint32_t device = 0; device < devices_max; ++device) all += moved_bytes(h2d_of(device));
    return all;
}

bool transport_stage::loads_idle() const {
    for (uint32_t device = 0; device < devices_max; ++device)
        if (!idle(h2d_of(device))) return false;
    return true;
}

void transport_stage::free_id(uint32_t id) {
    if (released_[id] == 1) free_ids_.push_back(id);
    released_[id] = 2;
}

bool transport_stage::valid(uint32_t link, const moorage_piece &piece) const {
    if (piece.id >= records_.size()) return false;
    const transfer_record &record = records_[piece.id];
    return record.live && !record.cancelled && !record.held && record.link == link &&
           piece.bytes >= 1 && piece.bytes <= record.unsent_bytes;
}

moorage_piece transport_stage::replacement(uint32_t link) const {
    moorage_piece best{sizeof(best), MOORAGE_NONE, 0};
    for (uint32_t id = 0; id < records_.size(); ++id) {
        const transfer_record &record = records_[id];
        if (!record.live || record.cancelled || record.held || record.link != link ||
            record.unsent_bytes == 0)
            continue;
        if (best.id == MOORAGE_NONE || cause_of(record.of) < cause_of(records_[best.id].of))
            best = {sizeof(best), id, record.unsent_bytes};
    }
    return best;
}

bool transport_stage::send_one(uint32_t link) {
    if (faults_.ended()) return false;
    lane &on = lanes_[link];
    moorage_piece piece{sizeof(piece), MOORAGE_NONE, 0};
    if (!policy_.call(entry_point::next, policy_.transport->next, link, &piece)) {
        // Nothing may wait while the link idles, or the run would never end.
        if (on.backlog_bytes == 0 || on.count != 0) return false;
        piece = replacement(link);
        if (piece.id == MOORAGE_NONE) return false;
        faults_.report(policy_.name(),
                       format("link {} is idle while transfer {} waits", link, piece.id));
    } else if (!valid(link, piece)) {
        const std::string what = format(
            "piece of {} bytes of transfer {} on link {} is not one of "
            "what is left to send",
            piece.bytes, piece.id, link);
        faults_.report(policy_.name(), what);
        piece = replacement(link);
        if (piece.id == MOORAGE_NONE) return false;
    }
    if (faults_.ended()) return false;
    transfer_record &record = records_[piece.id];
    const uint64_t offset_bytes = record.bytes - record.unsent_bytes;
    record.unsent_bytes -= piece.bytes;
    on.push({piece.id, piece.bytes});
    if (is_h2d(link)) {
        sent_[static_cast<size_t>(record.of)] += piece.bytes;
        if (record.of != owner::fill && record.page != MOORAGE_NONE) {
            sent_of_layer_[record.page / experts_] += piece.bytes;
            on.sent_bytes += piece.bytes;
        }
    }
    executor_.send({link, record.page, record.segments, offset_bytes, piece.bytes, record.version});
    return true;
}

uint32_t transport_stage::piece_done(uint32_t link, uint64_t duration_ns) {
    lane &on = lanes_[link];
    const auto [id, bytes] = on.oldest();
    on.pop();
    transfer_record &record = records_[id];
    record.moved_bytes += bytes;
    record.busy_ns += duration_ns;
    on.moved_bytes += bytes;
    if (is_ahead(record.of))
        record.prefetch_bytes += bytes;
    else if (!record.cancelled)
        on.backlog_bytes -= bytes;
    uint32_t ended = MOORAGE_NONE;
    if (record.cancelled ? record.under_way_bytes() == 0 : record.moved_bytes == record.bytes) {
        record.live = false;
        if (!record.cancelled) {
            ended = id;
            executor_.arrived(id);
        }
        over(record);
        if (released_[id] == 1) free_id(id);
    }
    pump(link);
    return ended;
}

}  // namespace moorage::core
