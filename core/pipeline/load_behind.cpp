// load_behind.cpp - starts, hands over and gives up loads that nobody waits for.
#include "core/pipeline/load_behind.h"

#include <algorithm>
#include <utility>

#include "core/base/invariant.h"
#include "core/execute/links.h"

namespace moorage::core {

load_behind::load_behind(const memories &memories, caches &cache, transport_stage &transport,
                         const cost_model &costs, byte_counts &bytes)
    : memories_(memories),
      cache_(cache),
      transport_(transport),
      costs_(costs),
      bytes_(bytes),
      transfers_(memories.combined_ledger().page_count(), MOORAGE_NONE),
      unasked_bytes_(memories.combined_ledger().page_count(), 0) {
    active_.reserve(loads_max);
    placed_.reserve(loads_max);
}

uint64_t load_behind::left_bytes() const {
    uint64_t left = 0;
    for (const uint32_t page : active_) {
        const transfer_record &record = transport_.record(transfers_[page]);
        left += record.bytes - record.moved_bytes;
    }
    return left;
}

bool load_behind::start(owner purpose, std::span<const uint32_t> pages,
                        std::vector<uint8_t> &started) {
    MOORAGE_INVARIANT(purpose == owner::behind || purpose == owner::slot_prefetch);
    started.assign(pages.size(), 0);
    const size_t count = std::min(pages.size(), size_t{loads_max} - active_.size());
    if (count == 0) return true;
    placed_.resize(count);
    if (!cache_.load(pages.first(count), MOORAGE_PREFETCH, false, placed_)) return false;
    for (size_t i = 0; i < count; ++i) {
        const auto &[page, victim, cached] = placed_[i];
        if (victim != MOORAGE_NONE) release(victim);
        if (!cached) continue;
        ledger &ledger = memories_.ledger_of_page(page);
        const uint32_t layer = ledger.rows().layer_of(page);
        const uint8_t segments = ledger.rows().cached_segments(layer);
        ledger.take_rows(page, segments, true);
        ledger.expect_kept(page, segments);
        transfers_[page] =
            transport_.submit(purpose, h2d_of(memories_.device_of(page)), page, segments,
                              costs_.expert_bytes(ledger.rows().share(layer, segments)));
        active_.push_back(page);
        started[i] = 1;
    }
    return true;
}

void load_behind::forget(uint32_t page) {
    transfers_[page] = MOORAGE_NONE;
    std::erase(active_, page);
}

void load_behind::count_used(uint64_t sent_bytes) {
    bytes_.prefetched += sent_bytes;
    bytes_.prefetch_used += sent_bytes;
}

void load_behind::count_wasted(uint64_t sent_bytes) {
    bytes_.prefetched += sent_bytes;
    bytes_.prefetch_wasted += sent_bytes;
}

void load_behind::asked(uint32_t page) {
    const uint64_t arrived_bytes = std::exchange(unasked_bytes_[page], 0);
    if (arrived_bytes == 0) return;
    --unasked_count_;
    count_used(arrived_bytes);
}

uint32_t load_behind::take(uint32_t page) {
    const uint32_t id = transfers_[page];
    if (id == MOORAGE_NONE) return id;
    ++loads_;
    forget(page);
    const transfer_record &record = transport_.record(id);
    if (record.owned_by == owner::slot_prefetch) {
        const uint64_t sent_bytes = record.bytes - record.unsent_bytes;
        count_used(sent_bytes);
        bytes_.prefetch_late += sent_bytes;
    }
    transport_.promote(id);
    return id;
}

void load_behind::arrived(uint32_t transfer) {
    ++loads_;
    const transfer_record &record = transport_.record(transfer);
    forget(record.page);
    if (record.owned_by == owner::slot_prefetch) {
        unasked_bytes_[record.page] = record.bytes;
        ++unasked_count_;
    }
    transport_.release(transfer);
}

void load_behind::release(uint32_t page) {
    if (const uint64_t arrived_bytes = std::exchange(unasked_bytes_[page], 0)) {
        --unasked_count_;
        count_wasted(arrived_bytes);
    }
    if (under_way(page)) end_early(page);
}

// Its bytes that the link has stay sent.
void load_behind::end_early(uint32_t page) {
    const uint32_t id = transfers_[page];
    transport_.cancel(id);
    const transfer_record &record = transport_.record(id);
    if (record.owned_by == owner::slot_prefetch) {
        const uint64_t sent_bytes = record.bytes - record.unsent_bytes;
        count_wasted(sent_bytes);
        bytes_.prefetch_cut_off += sent_bytes;
    }
    forget(page);
    transport_.release(id);
}

void load_behind::cancel() {
    while (!active_.empty()) end_early(active_.back());
}

void load_behind::drop_unasked() {
    for (uint64_t &arrived_bytes : unasked_bytes_) count_wasted(std::exchange(arrived_bytes, 0));
    unasked_count_ = 0;
}

}  // namespace moorage::core
