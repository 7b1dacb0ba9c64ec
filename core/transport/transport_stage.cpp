// transport_stage.cpp - keeps the links busy with the pieces that the policy picks.
#include "core/transport/transport_stage.h"

#include "core/base/invariant.h"
#include "core/base/text.h"

namespace moorage::core {

int32_t cause_of(owner owned_by) {
    switch (owned_by) {
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
static bool is_ahead(owner owned_by) {
    return owned_by == owner::prefetch || owned_by == owner::slot_prefetch ||
           owned_by == owner::behind;
}

transport_stage::transport_stage(instance &policy, executor &executor, fault_log &faults,
                                 uint32_t transfers_max, uint32_t layers, uint32_t experts)
    : policy_(policy),
      executor_(executor),
      faults_(faults),
      records_(transfers_max),
      release_states_(transfers_max, 0),
      experts_(experts),
      sent_bytes_by_layer_(layers, 0) {
    for (uint32_t id = transfers_max; id-- > 0;) free_ids_.push_back(id);
    for (uint32_t link = 0; link < links_max; ++link)
        lanes_[link].pieces_max = executor.pieces_at_once(link);
}

uint32_t transport_stage::add_record(owner owned_by, uint32_t link, uint32_t page, uint8_t segments,
                                     uint64_t bytes, uint8_t version) {
    MOORAGE_INVARIANT(bytes > 0 && link < links_max);
    if (free_ids_.empty()) return MOORAGE_NONE;
    const uint32_t id = free_ids_.back();
    free_ids_.pop_back();
    transfer_record &record = records_[id];
    record.live = true;
    record.held = record.cancelled = false;
    record.segments = segments;
    record.version = version;
    record.owned_by = owned_by;
    record.link = link;
    record.page = page;
    record.bytes = record.unsent_bytes = bytes;
    record.moved_bytes = record.prefetch_bytes = record.busy_ns = 0;
    release_states_[id] = 0;
    if (!is_ahead(owned_by)) lanes_[link].backlog_bytes += bytes;
    executor_.expect(id);
    return id;
}

// Tells the policy what there is to send. It does not read the record: a copy of freshly stored
// fields, in wider pieces, would wait for the stores.
void transport_stage::offer(uint32_t id, owner owned_by, uint32_t link, uint32_t page,
                            uint64_t bytes) {
    const moorage_transfer transfer{sizeof(transfer), 0, id, link, cause_of(owned_by), page, bytes};
    policy_.call(entry_point::transport_submit, policy_.transport->submit, &transfer);
    fill_link(link);
}

uint32_t transport_stage::submit(owner owned_by, uint32_t link, uint32_t page, uint8_t segments,
                                 uint64_t bytes, uint8_t version) {
    const uint32_t id = add_record(owned_by, link, page, segments, bytes, version);
    if (id == MOORAGE_NONE) return id;
    if (supply_ && is_h2d(link) && !supply_->use(page, owned_by)) {
        records_[id].held = true;
        held_.push_back(id);
    } else {
        offer(id, owned_by, link, page, bytes);
    }
    return id;
}

uint32_t transport_stage::prepare(owner owned_by, uint32_t link, uint32_t page, uint8_t segments,
                                  uint64_t bytes) {
    const uint32_t id = add_record(owned_by, link, page, segments, bytes, /*version=*/0);
    if (id != MOORAGE_NONE) records_[id].held = true;
    return id;
}

void transport_stage::start(uint32_t id) {
    transfer_record &record = records_[id];
    record.held = false;
    offer(id, record.owned_by, record.link, record.page, record.bytes);
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
    if (!record.live || record.owned_by == owner::demand) return;
    if (is_ahead(record.owned_by))
        lanes_[record.link].backlog_bytes += record.bytes - record.moved_bytes;
    record.owned_by = owner::demand;
    if (!record.held)
        policy_.call(entry_point::transport_promote, policy_.transport->promote, id,
                     int32_t{MOORAGE_DEMAND});
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
        policy_.call(entry_point::transport_cancel, policy_.transport->cancel, id);
    if (!is_ahead(record.owned_by))
        lanes_[record.link].backlog_bytes -= record.bytes - record.moved_bytes;
    record.live = record.under_way_bytes() != 0;
    if (!record.live) notify_supply(record);
}

void transport_stage::release(uint32_t id) {
    release_states_[id] = 1;
    if (!records_[id].live) free_id(id);
}

uint64_t transport_stage::loaded_bytes() const {
    uint64_t total = 0;
    for (uint32_t device = 0; device < devices_max; ++device) total += moved_bytes(h2d_of(device));
    return total;
}

bool transport_stage::are_loads_idle() const {
    for (uint32_t device = 0; device < devices_max; ++device)
        if (!is_idle(h2d_of(device))) return false;
    return true;
}

void transport_stage::free_id(uint32_t id) {
    if (release_states_[id] == 1) free_ids_.push_back(id);
    release_states_[id] = 2;
}

bool transport_stage::is_valid_piece(uint32_t link, const moorage_piece &piece) const {
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
        if (best.id == MOORAGE_NONE ||
            cause_of(record.owned_by) < cause_of(records_[best.id].owned_by))
            best = {sizeof(best), id, record.unsent_bytes};
    }
    return best;
}

bool transport_stage::send_one(uint32_t link) {
    if (faults_.ended()) return false;
    lane &lane = lanes_[link];
    moorage_piece piece{sizeof(piece), MOORAGE_NONE, 0};
    if (!policy_.call(entry_point::transport_next, policy_.transport->next, link, &piece)) {
        // Nothing may wait while the link idles, or the run would never end.
        if (lane.backlog_bytes == 0 || lane.count != 0) return false;
        piece = replacement(link);
        if (piece.id == MOORAGE_NONE) return false;
        faults_.report(policy_.name(),
                       format("link {} is idle while transfer {} waits", link, piece.id));
    } else if (!is_valid_piece(link, piece)) {
        const std::string error = format(
            "piece of {} bytes of transfer {} on link {} is not one of "
            "what is left to send",
            piece.bytes, piece.id, link);
        faults_.report(policy_.name(), error);
        piece = replacement(link);
        if (piece.id == MOORAGE_NONE) return false;
    }
    if (faults_.ended()) return false;
    transfer_record &record = records_[piece.id];
    const uint64_t offset_bytes = record.bytes - record.unsent_bytes;
    record.unsent_bytes -= piece.bytes;
    lane.push({piece.id, piece.bytes});
    if (is_h2d(link)) {
        sent_bytes_by_owner_[static_cast<size_t>(record.owned_by)] += piece.bytes;
        if (record.owned_by != owner::fill && record.page != MOORAGE_NONE) {
            sent_bytes_by_layer_[record.page / experts_] += piece.bytes;
            lane.sent_bytes += piece.bytes;
        }
    }
    executor_.send({link, record.page, record.segments, offset_bytes, piece.bytes, record.version});
    return true;
}

uint32_t transport_stage::piece_done(uint32_t link, uint64_t duration_ns) {
    lane &lane = lanes_[link];
    const auto [id, bytes] = lane.oldest();
    lane.pop();
    transfer_record &record = records_[id];
    record.moved_bytes += bytes;
    record.busy_ns += duration_ns;
    lane.moved_bytes += bytes;
    if (is_ahead(record.owned_by))
        record.prefetch_bytes += bytes;
    else if (!record.cancelled)
        lane.backlog_bytes -= bytes;
    uint32_t ended = MOORAGE_NONE;
    if (record.cancelled ? record.under_way_bytes() == 0 : record.moved_bytes == record.bytes) {
        record.live = false;
        if (!record.cancelled) {
            ended = id;
            executor_.arrived(id);
        }
        notify_supply(record);
        if (release_states_[id] == 1) free_id(id);
    }
    fill_link(link);
    return ended;
}

}  // namespace moorage::core
