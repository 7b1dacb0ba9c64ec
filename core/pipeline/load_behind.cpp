// load_behind.cpp - starts, hands over and gives up loads that nobody waits for.
#include "core/pipeline/load_behind.h"

#include <algorithm>

#include "core/execute/links.h"

namespace moorage::core {

load_behind::load_behind(const memories &truth, caches &cache, transport_stage &transport,
                         const cost_model &costs)
    : truth_(truth),
      cache_(cache),
      transport_(transport),
      costs_(costs),
      transfers_(truth.all().page_count(), MOORAGE_NONE) {
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

bool load_behind::start(std::span<const uint32_t> pages, std::vector<uint8_t> &started) {
    started.assign(pages.size(), 0);
    const size_t count = std::min(pages.size(), size_t{loads_max} - active_.size());
    if (count == 0) return true;
    placed_.resize(count);
    if (!cache_.load(pages.first(count), MOORAGE_PREFETCH, false, placed_)) return false;
    for (size_t i = 0; i < count; ++i) {
        const auto &[page, victim, cached] = placed_[i];
        if (victim != MOORAGE_NONE) release(victim);
        if (!cached) continue;
        ledger &book = truth_.of(page);
        const uint32_t layer = book.rows().layer_of(page);
        const uint8_t segments = book.rows().cached_segments(layer);
        book.take_rows(page, segments, true);
        book.expect_kept(page, segments);
        transfers_[page] =
            transport_.submit(owner::behind, h2d_of(truth_.device_of(page)), page, segments,
                              costs_.expert_bytes(book.rows().share(layer, segments)));
        active_.push_back(page);
        started[i] = 1;
    }
    return true;
}

void load_behind::forget(uint32_t page) {
    transfers_[page] = MOORAGE_NONE;
    std::erase(active_, page);
}

uint32_t load_behind::take(uint32_t page) {
    const uint32_t id = transfers_[page];
    if (id == MOORAGE_NONE) return id;
    ++loads_;
    forget(page);
    transport_.promote(id);
    return id;
}

void load_behind::arrived(uint32_t transfer) {
    ++loads_;
    forget(transport_.record(transfer).page);
    transport_.release(transfer);
}

void load_behind::release(uint32_t page) {
    const uint32_t id = transfers_[page];
    if (id == MOORAGE_NONE) return;
    transport_.cancel(id);
    forget(page);
    transport_.release(id);
}

void load_behind::cancel() {
    while (!active_.empty()) {
        const uint32_t page = active_.back(), id = transfers_[page];
        transport_.cancel(id);
        forget(page);
        transport_.release(id);
    }
}

}  // namespace moorage::core
