// host_store.cpp - who waits for which read, and where it goes.
#include "core/pipeline/host_store.h"

#include <algorithm>
#include <cassert>

namespace moorage::core {

host_store::host_store(instance &policy, ledger &truth, fault_log &faults,
                       transport_stage &transport, const cost_model &costs)
    : truth_(truth),
      cache_(policy, truth, faults),
      transport_(transport),
      costs_(costs),
      users_(truth.page_count(), 0),
      held_(truth.page_count(), 0),
      transfers_(truth.page_count(), MOORAGE_NONE) {
    transport_.connect(*this);
}

bool host_store::use(uint32_t page, owner of) {
    ++requested_;
    const bool there = claim(page, of);
    hits_ += there;
    return there;
}

void host_store::bring(uint32_t page) {
    if (here(page) || transfers_[page] != MOORAGE_NONE || ahead_.size() == ahead_max) return;
    ahead_.push_back(page);
    claim(page, owner::prefetch);
}

// One more user of the page, which is read unless it is here.
bool host_store::claim(uint32_t page, owner of) {
    ++users_[page];
    truth_.pin(page);
    if (here(page)) return true;
    if (transfers_[page] == MOORAGE_NONE) {
        transfers_[page] =
            transport_.prepare(of, link_disk, page, MOORAGE_WHOLE, costs_.expert_bytes(1));
        assert(transfers_[page] != MOORAGE_NONE && "there are ids for every use");
        waiting_.push_back(page);
    } else if (of == owner::demand) {
        transport_.promote(transfers_[page]);
    }
    read_waiting();
    return false;
}

void host_store::promote(uint32_t page) {
    if (transfers_[page] != MOORAGE_NONE) transport_.promote(transfers_[page]);
}

// A slot of the cache, or else a frame beside it: those of free slots stay theirs.
bool host_store::find_room(uint32_t page, owner of) {
    placement_in_cache placed{};
    if (!cache_.load({&page, 1}, cause_of(of), false, {&placed, 1})) return false;
    if (placed.cached) {
        if (placed.victim != MOORAGE_NONE) forget(placed.victim);
        truth_.expect_kept(page, MOORAGE_WHOLE);
    } else if (truth_.rows().in_frame(page) || truth_.rows().free_frames() > truth_.free(0)) {
        truth_.expect_passing(page, MOORAGE_WHOLE);
    } else {
        return false;
    }
    truth_.take_rows(page, MOORAGE_WHOLE, placed.cached);
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
            return transport_.record(transfers_[page]).of == owner::demand;
        };
        auto next = std::find_if(waiting_.begin(), waiting_.end(), asked);
        if (next == waiting_.end()) next = waiting_.begin();
        const uint32_t page = *next;
        if (!find_room(page, transport_.record(transfers_[page]).of)) return;
        waiting_.erase(next);
        transport_.start(transfers_[page]);
    }
}

void host_store::landed(uint32_t page) {
    const uint32_t id = transfers_[page];
    if (transport_.record(id).of == owner::fill) {
        --filling_;
        first_bytes_ += transport_.record(id).bytes;
    }
    transfers_[page] = MOORAGE_NONE;
    truth_.land(page, MOORAGE_WHOLE);
    transport_.release(id);
    transport_.supplied(page);
    if (std::erase(ahead_, page) != 0) done(page);
}

void host_store::done(uint32_t page) {
    assert(users_[page] != 0);
    if (--users_[page] != 0) return;
    const bool keeps = kept(page);
    if (const uint32_t id = transfers_[page]; id != MOORAGE_NONE && !keeps) {
        // Nobody wants it any more, and it has no slot to come to.
        if (transport_.record(id).held) std::erase(waiting_, page);
        forget(page);
    }
    if (!held_[page])
        truth_.unpin(page, keeps);
    else if (!keeps)
        truth_.drop(page, MOORAGE_WHOLE);
    read_waiting();
}

void host_store::give_up(uint32_t layer) {
    if (!cache_.gives_up()) return;
    given_.clear();
    cache_.give_up(layer, given_);
    for (const uint32_t page : given_) forget(page);
    if (!given_.empty()) read_waiting();
}

bool host_store::choose_first(std::vector<uint32_t> &pages) {
    if (!cache_.fill(0, pages)) return false;
    for (const uint32_t page : pages) truth_.take_rows(page, MOORAGE_WHOLE, true);
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
    if (here(page)) return 0;
    const uint32_t id = transfers_[page];
    const uint64_t backlog = transport_.demand_backlog_bytes(link_disk);
    if (id == MOORAGE_NONE) return costs_.read_ns(backlog + costs_.expert_bytes(1));
    const transfer_record &record = transport_.record(id);
    const uint64_t left = record.bytes - record.moved_bytes;
    return costs_.read_ns(record.of == owner::demand ? std::max(backlog, left) : backlog + left);
}

}  // namespace moorage::core
