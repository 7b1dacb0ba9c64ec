// future.cpp - two passes over a trace: count the bytes of each page's gaps, then write them.
#include "core/source/future.h"

#include <algorithm>
#include <cassert>

#include "moorage/base.h"

namespace moorage::core {

namespace {

constexpr uint64_t chunk_ids = 64 * 1024;

uint32_t gap_bytes(uint64_t gap) {
    uint32_t bytes = 1;
    while (gap >= 128) gap >>= 7, ++bytes;
    return bytes;
}

// Calls visit(page, gap) for every request among the first `tokens`, in token order.
template <class Visit>
void each_gap(const trace &source, uint64_t tokens, const Visit &visit) {
    const uint32_t layers = source.layers(), experts = source.experts(), top_k = source.top_k();
    const uint64_t row = uint64_t{layers} * top_k, step = std::max<uint64_t>(1, chunk_ids / row);
    std::vector<uint32_t> ids(row * std::min(step, tokens));
    // One more than the previous request's number, so that 0 means none.
    std::vector<uint64_t> last(uint64_t{layers} * experts, 0);
    for (uint64_t first = 0; first < tokens; first += step) {
        const uint64_t count = std::min(step, tokens - first);
        source.read_experts(first, count, ids.data());
        const uint32_t *id = ids.data();
        for (uint64_t token = first; token < first + count; ++token)
            for (uint32_t layer = 0; layer < layers; ++layer)
                for (uint32_t rank = 0; rank < top_k; ++rank) {
                    const uint32_t page = layer * experts + *id++;
                    const uint64_t next = token * top_k + rank + 1;
                    visit(page, next - last[page]);
                    last[page] = next;
                }
        source.release_before(first + count);
    }
}

}  // namespace

future::future(const trace &source, uint64_t tokens)
    : layers_(source.layers()), experts_(source.experts()), top_k_(source.top_k()) {
    if (tokens == 0 || tokens > source.tokens()) tokens = source.tokens();
    offsets_.assign(uint64_t{layers_} * experts_ + 1, 0);
    each_gap(source, tokens,
             [this](uint32_t page, uint64_t gap) { offsets_[page + 1] += gap_bytes(gap); });
    for (size_t page = 1; page < offsets_.size(); ++page) offsets_[page] += offsets_[page - 1];

    gaps_.resize(offsets_.back());
    std::vector<uint64_t> write_offsets(offsets_.begin(), offsets_.end() - 1);
    each_gap(source, tokens, [this, &write_offsets](uint32_t page, uint64_t gap) {
        // There are more gaps than were counted, so the file has changed. The figures are refused
        // at the end.
        if (write_offsets[page] + gap_bytes(gap) > offsets_[page + 1]) return;
        for (; gap >= 128; gap >>= 7)
            gaps_[write_offsets[page]++] = static_cast<uint8_t>(gap | 128);
        gaps_[write_offsets[page]++] = static_cast<uint8_t>(gap);
    });
}

future_cursor::future_cursor(const future &future, order requests)
    : future_(future), order_(requests), places_(uint64_t{future.layers_} * future.experts_) {
    rewind();
}

void future_cursor::rewind() {
    for (uint32_t page = 0; page < places_.size(); ++page) {
        // MOORAGE_NEVER is -1, from which the first gap leads to the first request.
        places_[page] = {future_.offsets_[page], MOORAGE_NEVER};
        advance(page);
    }
}

void future_cursor::advance(uint32_t page) {
    place &cursor = places_[page];
    if (cursor.offset == future_.offsets_[page + 1]) {
        cursor.request = MOORAGE_NEVER;
        return;
    }
    uint64_t gap = 0;
    for (uint32_t shift = 0;; shift += 7) {
        const uint8_t part = future_.gaps_[cursor.offset++];
        gap |= static_cast<uint64_t>(part & 127) << shift;
        if (part < 128) break;
    }
    cursor.request += gap;
}

uint64_t future_cursor::step_of(uint32_t page, uint64_t request) const {
    const uint64_t layers = future_.layers_, top_k = future_.top_k_,
                   layer = page / future_.experts_;
    if (order_ == order::rounds) return request * layers + layer;
    const uint64_t token = request / top_k;
    if (order_ == order::token) return token * layers + layer;
    return (token * layers + layer) * top_k + (request - token * top_k);
}

uint64_t future_cursor::next_use(uint32_t page, uint64_t step, uint64_t *token) {
    assert(page < places_.size());
    const place &cursor = places_[page];
    while (cursor.request != MOORAGE_NEVER) {
        const uint64_t next = step_of(page, cursor.request);
        if (next > step) {
            if (token != nullptr) *token = cursor.request / future_.top_k_;
            return next;
        }
        advance(page);
    }
    return MOORAGE_NEVER;
}

}  // namespace moorage::core
