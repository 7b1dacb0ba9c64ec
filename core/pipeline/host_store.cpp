// host_store.cpp - who waits for which read, and where it goes.
#include "core/pipeline/host_store.h"

#include <algorithm>

#include "core/base/invariant.h"

namespace moorage::core {

host_store::host_store(instance &policy, ledger &ledger, fault_log &faults,
                       transport_stage &transport, const cost_model &costs)
    : ledger_(ledger),
      cache_(policy, ledger, faults),
      transport_(transport),
      costs_(costs),
      users_(ledger.page_count(), 0),
      held_(ledger.page_count(), 0),
      transfers_(ledger.page_count(), MOORAGE_NONE) {
    transport_.connect(*this);
}

bool host_store::use(uint32_t page, owner purpose) {
    ++requested_;
    const bool present = claim(page, purpose);
    hits_ += present;
    return present;
}

void host_store::bring(uint32_t page) {
    if (is_present(page) || transfers_[page] != MOORAGE_NONE || ahead_.size() == ahead_max) return;
    ahead_.push_back(page);
    claim(page, owner::prefetch);
}

// One more user of the page, which is read unless it is here.
bool host_store::claim(uint32_t page, owner purpose) {
    ++users_[page];
    ledger_.pin(page);
    if (is_present(page)) return true;
    if (transfers_[page] == MOORAGE_NONE) {
        transfers_[page] =
            transport_.prepare(purpose, link_disk, page, MOORAGE_WHOLE, costs_.expert_bytes(1));
        MOORAGE_INVARIANT(transfers_[page] != MOORAGE_NONE && "there are ids for every use");
        waiting_.push_back(page);
    } else if (purpose == owner::demand) {
        transport_.promote(transfers_[page]);
    }
    read_waiting();
    return false;
}

void host_store::promote(uint32_t page) {
    if (transfers_[page] != MOORAGE_NONE) transport_.promote(transfers_[page]);
}

// A slot of the cache, or else a frame beside it: those of free slots stay theirs.
bool host_store::find_room(uint32_t page, owner purpose) {
    placement_in_cache placed{};
    if (!cache_.load({&page, 1}, cause_of(purpose), false, {&placed, 1})) return false;
    if (placed.cached) {
        if (placed.victim != MOORAGE_NONE) forget(placed.victim);
        ledger_.expect_kept(page, MOORAGE_WHOLE);
    } else if (ledger_.rows().in_frame(page) ||
               ledger_.rows().free_frames() > ledger_.free_slots(0)) {
        ledger_.expect_passing(page, MOORAGE_WHOLE);
    } else {
        return false;
    }
    ledger_.take_rows(page, MOORAGE_WHOLE, placed.cached);
    return true;
}

// The page lost its slot while nobody used it. A read of it that nobody waits for ends.
void host_store::forget(uint32_t page) {
    const uint32_t id = transfers_[page];
    if (id == MOORAGE_NONE) return;
    transfers_[page] = MOORAGE_NONE;
    transport_.cancel(id);
    transport_.release(id);
}

// Those for which there is room set out, demand first.
void host_store::read_waiting() {
    while (!waiting_.empty()) {
        const auto asked = [&](uint32_t page) {
            return transport_.record(transfers_[page]).owned_by == owner::demand;
        };
        auto next = std::find_if(waiting_.begin(), waiting_.end(), asked);
        if (next == waiting_.end()) next = waiting_.begin();
        const uint32_t page = *next;
        if (!find_room(page, transport_.record(transfers_[page]).owned_by)) return;
        waiting_.erase(next);
        transport_.start(transfers_[page]);
    }
}

void host_store::landed(uint32_t page) {
    const uint32_t id = transfers_[page];
    if (transport_.record(id).owned_by == owner::fill) {
        --filling_;
        first_bytes_ += transport_.record(id).bytes;
    }
    transfers_[page] = MOORAGE_NONE;
    ledger_.land(page, MOORAGE_WHOLE);
    transport_.release(id);
    transport_.supplied(page);
    if (std::erase(ahead_, page) != 0) done(page);
}

void host_store::done(uint32_t page) {
    MOORAGE_INVARIANT(users_[page] != 0);
    if (--users_[page] != 0) return;
    const bool keeps = is_kept(page);
    if (const uint32_t id = transfers_[page]; id != MOORAGE_NONE && !keeps) {
        // Nobody wants it any more, and it has no slot to come to.
        if (transport_.record(id).held) std::erase(waiting_, page);
        forget(page);
    }
    if (!held_[page])
        ledger_.unpin(page, keeps);
    else if (!keeps)
        ledger_.drop(page, MOORAGE_WHOLE);
    read_waiting();
}

void host_store::give_up(uint32_t layer) {
    if (!cache_.gives_up()) return;
    given_up_.clear();
    cache_.give_up(layer, given_up_);
    for (const uint32_t page : given_up_) forget(page);
    if (!given_up_.empty()) read_waiting();
}

bool host_store::choose_first(std::vector<uint32_t> &pages) {
    if (!cache_.fill(0, pages)) return false;
    for (const uint32_t page : pages) ledger_.take_rows(page, MOORAGE_WHOLE, true);
    return true;
}

bool host_store::fill(uint32_t page) {
    transfers_[page] =
        transport_.submit(owner::fill, link_disk, page, MOORAGE_WHOLE, costs_.expert_bytes(1));
    if (transfers_[page] == MOORAGE_NONE) return false;
    ++filling_;
    return true;
}

uint64_t host_store::wait_ns(uint32_t page) const {
    if (is_present(page)) return 0;
    const uint32_t id = transfers_[page];
    const uint64_t backlog = transport_.demand_backlog_bytes(link_disk);
    if (id == MOORAGE_NONE) return costs_.read_ns(backlog + costs_.expert_bytes(1));
    const transfer_record &record = transport_.record(id);
    const uint64_t left = record.bytes - record.moved_bytes;
    return costs_.read_ns(record.owned_by == owner::demand ? std::max(backlog, left)
                                                           : backlog + left);
}

}  // namespace moorage::core
