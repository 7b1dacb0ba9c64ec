// ledger.h - the record of what is in fast memory. The only writer of states, counts and rows.
//
// A page is layer * experts + expert. Each segment of it is absent, coming or here. A *kept* page
// has a slot of its pool, which counts as used from the moment its load begins. A page that is not
// kept is *passing*: it lies beside the cache, in the transfer buffer or staged for a step, and is
// dropped when nothing needs it any more. The content of a page has one version (precision).
// Version 0 is the model's own; larger versions have fewer bytes. Absent pages have version 0.
// Stages report events by calling verbs. Policies see the moorage_residency view, in memory that
// they cannot write. [step]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/host/lent_memory.h"
#include "core/store/arena.h"
#include "moorage/base.h"

namespace moorage::core {

// slots of each pool. "shared" has one pool. "per-layer" gives each slots / layers, and the first
// (slots mod layers) one more. In whole experts.
std::vector<uint32_t> divide_slots(uint32_t slots, uint32_t layers, bool per_layer);

class ledger {
public:
    // `rows`: the places of all segments. Null: there are no places (a replay), and functions about
    // rows must not be called.
    ledger(uint32_t layers, uint32_t experts, const std::vector<uint32_t> &pool_slots,
           std::unique_ptr<arena> rows = nullptr);
    ledger(const ledger &) = delete;

    const moorage_residency *view() const { return view_.lent(); }
    // From now on `combined` (borrowed) also shows the pages of this ledger, together with other
    // ledgers that have other pages. A page belongs to this one if `spread` gives `device` for it.
    // Requires: nothing is here, and nothing else writes `combined`.
    void show_in(ledger &combined, std::span<const uint8_t> spread, uint32_t device);
    // Can the page be in this memory at all? Policies do not see this.
    bool owns_all() const { return spread_.empty(); }
    bool owns(uint32_t page) const { return spread_.empty() || spread_[page] == device_; }
    // Pages of `above` are loaded from this memory, which is store `id`. Sets this in both views.
    void lie_below(ledger &above, uint32_t id) {
        view_->store = id;
        view_->host_above = above.view();
        above.view_->host_below = view();
    }
    const arena &rows() const { return *rows_; }
    uint32_t layers() const { return layers_; }
    uint32_t experts() const { return experts_; }
    uint32_t page_count() const { return layers_ * experts_; }
    uint32_t pools() const { return static_cast<uint32_t>(slots_.size()); }
    uint32_t pool_of_layer(uint32_t layer) const { return slots_.size() == 1 ? 0 : layer; }
    uint32_t pool_of_page(uint32_t page) const { return pool_of_layer(page / experts_); }

    uint32_t state(uint32_t page) const { return state_[page]; }
    uint8_t resident_segments(uint32_t page) const { return static_cast<uint8_t>(state_[page]); }
    bool is_whole(uint32_t page) const { return resident_segments(page) == MOORAGE_WHOLE; }
    bool is_pinned(uint32_t page) const { return (state_[page] & MOORAGE_STATE_PINNED) != 0; }
    // The version of what is here or coming; 0 if there is nothing.
    uint8_t version(uint32_t page) const { return version_of(state_[page]); }
    static uint8_t version_of(uint32_t state) {
        return static_cast<uint8_t>((state & MOORAGE_STATE_VERSION) >> MOORAGE_STATE_VERSION_SHIFT);
    }
    // Segments that are here, coming, or beside the cache.
    uint8_t known_segments(uint32_t page) const {
        const uint32_t state = state_[page];
        return static_cast<uint8_t>(state | state >> MOORAGE_STATE_IN_FLIGHT_SHIFT |
                                    state >> MOORAGE_STATE_BUFFERED_SHIFT);
    }
    // May the page lose its slot? True if it has one and no step uses it.
    bool is_evictable(uint32_t page) const {
        return (state_[page] & (MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT)) != 0 &&
               (state_[page] & (MOORAGE_STATE_PINNED | MOORAGE_STATE_BUFFERED)) == 0;
    }
    std::span<const uint32_t> slots() const { return slots_; }
    uint32_t slots(uint32_t pool) const { return slots_[pool]; }
    uint32_t used_slots(uint32_t pool) const { return used_[pool]; }
    uint32_t free_slots(uint32_t pool) const {
        return slots_[pool] > used_[pool] ? slots_[pool] - used_[pool] : 0;
    }
    std::span<const float> split_shares() const { return split_shares_; }

    // Marks the page as used by a step until unpin(). Tells which segments are missing, and whether
    // the page is kept and partly here or coming.
    struct pin_result {
        uint8_t missing;
        bool kept, partly;
    };
    pin_result pin(uint32_t page) {
        const uint32_t state = state_[page];
        set(page, state | MOORAGE_STATE_PINNED);
        const uint32_t known = state | state >> MOORAGE_STATE_IN_FLIGHT_SHIFT;
        const auto missing = static_cast<uint8_t>(~state);
        return {missing,
                (known & ~(state >> MOORAGE_STATE_BUFFERED_SHIFT) & slot_segments(page)) != 0,
                missing != 0 && (known & MOORAGE_WHOLE) != 0};
    }
    // Drops everything that the cache does not keep, with its rows. `keeps`: the cache keeps the
    // page.
    void unpin(uint32_t page, bool keeps) {
        const uint32_t kept = keeps ? slot_segments(page) : 0;
        const uint32_t version = keeps ? MOORAGE_STATE_VERSION : 0;
        set(page, state_[page] & (kept | kept << MOORAGE_STATE_IN_FLIGHT_SHIFT | version));
        if (rows_) rows_->release(page, static_cast<uint8_t>(~kept));
    }

    // The page takes a free slot of its pool. Its bytes are here or coming.
    void admit(uint32_t page) { count(pool_of_page(page), 1); }
    // The page loses its slot and its content. replace(): the slot goes to the page that is loaded
    // in its place.
    void evict(uint32_t page) {
        count(pool_of_page(page), -1);
        replace(page);
    }
    void replace(uint32_t page) {
        set(page, state_[page] &
                      ~(MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT | MOORAGE_STATE_VERSION));
        if (rows_) rows_->release(page, slot_segments(page));
    }

    // Announces segments that will come: into the page's slot, or beside the cache. Requires: the
    // same version as other segments of the page that are here or coming.
    void expect_kept(uint32_t page, uint8_t segments, uint8_t version = 0) {
        set(page, state_[page] | coming(segments) | in_version(version));
    }
    void expect_passing(uint32_t page, uint8_t segments, uint8_t version = 0) {
        set(page, state_[page] | coming(segments) | passing(segments) | in_version(version));
    }
    // A passing page becomes part of the cache. This changes a label, not a place. Requires:
    // admitted.
    void adopt(uint32_t page) { set(page, state_[page] & ~passing(slot_segments(page))); }
    // The segments have arrived.
    void land(uint32_t page, uint8_t segments) {
        set(page, (state_[page] & ~coming(segments)) | segments);
    }
    // The segments will not come. Their rows are freed when the step that uses the page ends.
    void give_up(uint32_t page, uint8_t segments) {
        set_rest(page, state_[page] & ~(coming(segments) | passing(segments)));
    }
    // The segments are no longer needed, whether here or coming. Requires: they are passing.
    void drop(uint32_t page, uint8_t segments) {
        rows_->release(page, segments);
        set_rest(page, state_[page] & ~(segments | coming(segments) | passing(segments)));
    }

    // Rows as in arena.h. `kept`: the page has a slot.
    bool has_room(uint32_t page, uint8_t segments, bool kept) const {
        return rows_->has_room(page, segments, kept);
    }
    void take_rows(uint32_t page, uint8_t segments, bool kept) {
        rows_->take(page, segments, kept);
    }
    void free_rows(uint32_t page, uint8_t segments) { rows_->release(page, segments); }
    uint64_t take_slot(uint32_t page) { return rows_->take_slot(page); }
    void moved(uint32_t page) { rows_->moved(page); }

    // For a budget: sets the pools' sizes and the share of an expert that a slot holds, then
    // divides the rows anew.
    void set_slots(std::span<const uint32_t> slots);
    void set_split(uint32_t layer, float share);
    void divide(std::span<const uint32_t> top_rows) {
        rows_->divide(top_rows, slots_);
        any_split_ = rows_->any_split();
    }

    // For assertions. Do the counts of all pools equal their kept pages, and do absent pages have
    // no version? Looks at all pages.
    bool is_consistent() const;
    // Makes everything absent and unpinned. Slots stay.
    void clear();
    // Makes everything present. Requires: every pool has a slot for each of its pages.
    void fill();
    // For a replay whose policy keeps the record itself (moorage_replay): [pages], [pools].
    struct writable_state {
        uint32_t *state;
        uint32_t *used;
    };
    writable_state hand_over() { return {state_.data(), used_.data()}; }

private:
    static constexpr uint32_t coming(uint32_t segments) {
        return segments << MOORAGE_STATE_IN_FLIGHT_SHIFT;
    }
    static constexpr uint32_t passing(uint32_t segments) {
        return segments << MOORAGE_STATE_BUFFERED_SHIFT;
    }
    static constexpr uint32_t in_version(uint32_t version) {
        return version << MOORAGE_STATE_VERSION_SHIFT;
    }
    // Sets the remaining state. If nothing remains, there is no version.
    void set_rest(uint32_t page, uint32_t state) {
        const bool known = (state & (MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT)) != 0;
        set(page, known ? state : state & ~MOORAGE_STATE_VERSION);
    }
    void set(uint32_t page, uint32_t state) {
        state_[page] = state;
        if (combined_ledger_ != nullptr) [[unlikely]]
            combined_ledger_->state_[page] = state;
    }
    void count(uint32_t pool, int32_t change) {
        used_[pool] += static_cast<uint32_t>(change);
        if (combined_ledger_ != nullptr)
            combined_ledger_->used_[pool] += static_cast<uint32_t>(change);
    }
    uint8_t slot_segments(uint32_t page) const {
        return any_split_ ? rows_->cached_segments(page / experts_) : uint8_t{MOORAGE_WHOLE};
    }

    const uint32_t layers_, experts_;
    const std::unique_ptr<arena> rows_;
    bool any_split_;                     // rows_->any_split()
    ledger *combined_ledger_ = nullptr;  // the ledger that also shows this one's pages
    std::span<const uint8_t> spread_;
    uint32_t device_ = 0;
    lent_vector<uint32_t> state_;
    lent_vector<uint32_t> slots_, used_;
    lent_vector<float> split_shares_;
    lent_record<moorage_residency> view_;
};

}  // namespace moorage::core
