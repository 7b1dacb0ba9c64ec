// order.hpp - orders of pages for cache policies: lists and heaps that allocate in activate only.
//
//   moorage::page_lists lists;
//   lists.assign(pages, pools);                // in activate; empty
//   lists.append(page, pool);                  // the youngest of its list
//   for (uint32_t page = lists.first(pool); page != lists.end(pool); page = lists.next(page)) ...
//
// Optional: a policy may keep its order in any way it likes.
#pragma once

#include <utility>
#include <vector>

#include "policy.hpp"

namespace moorage {

// Holds no slot and is not about to get one in the running step: an order may forget such a page.
inline bool departed(uint8_t state) {
    constexpr uint8_t slot = MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT;
    return (state & MOORAGE_STATE_PINNED) == 0 &&
           ((state & slot) == 0 || (state & MOORAGE_STATE_BUFFERED) != 0);
}

// Doubly linked lists over all pages; a page is in one list or in none. Each list is a ring through
// an end node of its own, so nothing here branches.
class page_lists {
public:
    void assign(uint32_t pages, uint32_t lists) {
        pages_ = pages;
        links_.resize(size_t{pages} + lists);
        clear();
    }
    void clear() {
        for (uint32_t i = 0; i < links_.size(); ++i) links_[i] = {i, i};
    }
    // The node before the first and after the last page of a list.
    uint32_t end(uint32_t list) const { return pages_ + list; }
    uint32_t first(uint32_t list) const { return links_[end(list)].next; }
    uint32_t next(uint32_t node) const { return links_[node].next; }
    uint32_t previous(uint32_t node) const { return links_[node].previous; }
    bool contains(uint32_t page) const { return links_[page].next != page; }

    // No effect on a page that is in no list.
    void unlink(uint32_t page) {
        const auto [previous, next] = links_[page];
        links_[previous].next = next;
        links_[next].previous = previous;
        links_[page] = {page, page};
    }
    // Requires: the page is in no list.
    void insert(uint32_t page, uint32_t before) {
        const uint32_t last = links_[before].previous;
        links_[page] = {last, before};
        links_[last].next = page;
        links_[before].previous = page;
    }
    // To the end of the list, from wherever it was.
    void append(uint32_t page, uint32_t list) {
        const auto [previous, next] = links_[page];
        links_[previous].next = next;
        links_[next].previous = previous;
        insert(page, end(list));
    }

private:
    struct link {
        uint32_t previous, next;
    };
    std::vector<link> links_;
    uint32_t pages_ = 0;
};

// Binary heaps over all pages, one per pool (pages / pools consecutive pages each), least key on
// top. Keys are ordered by < and have no ties that matter.
template <class Key>
class page_heaps {
public:
    struct entry {
        Key key;
        uint32_t page;
    };

    void assign(uint32_t pages, uint32_t heaps) {
        room_ = pages / heaps;
        entries_.resize(pages);
        places_.resize(pages);
        sizes_.resize(heaps);
        clear();
    }
    void clear() {
        places_.assign(places_.size(), none);
        sizes_.assign(sizes_.size(), 0);
    }
    uint32_t size(uint32_t heap) const { return sizes_[heap]; }
    bool contains(uint32_t page) const { return places_[page] != none; }
    // Requires: size(heap) > 0.
    const entry &top(uint32_t heap) const { return entries_[size_t{heap} * room_]; }

    void push(uint32_t heap, const entry &what) { rise(heap, sizes_[heap]++, what); }
    void erase(uint32_t heap, uint32_t page) {
        const uint32_t place = places_[page];
        places_[page] = none;
        const entry last = entries_[size_t{heap} * room_ + --sizes_[heap]];
        if (last.page != page) move(heap, place, last);
    }
    // The page is in the heap; gives it another key.
    void change(uint32_t heap, const entry &what) { move(heap, places_[what.page], what); }
    // As change, for a key that can only have grown (raise) or fallen (lower).
    void raise(uint32_t heap, const entry &what) { sink(heap, places_[what.page], what); }
    void lower(uint32_t heap, const entry &what) { rise(heap, places_[what.page], what); }

    // New keys for all pages of all heaps: key_of(page).
    template <class KeyOf>
    void rebuild(KeyOf &&key_of) {
        for (uint32_t heap = 0; heap < sizes_.size(); ++heap) {
            entry *all = entries_.data() + size_t{heap} * room_;
            for (uint32_t i = 0; i < sizes_[heap]; ++i) all[i].key = key_of(all[i].page);
            for (uint32_t i = sizes_[heap] / 2; i-- > 0;) sink(heap, i, entry(all[i]));
        }
    }

private:
    void put(entry *all, uint32_t place, const entry &what) {
        all[place] = what;
        places_[what.page] = place;
    }
    void move(uint32_t heap, uint32_t place, const entry &what) {
        const entry *all = entries_.data() + size_t{heap} * room_;
        if (place > 0 && what.key < all[(place - 1) / 2].key)
            rise(heap, place, what);
        else
            sink(heap, place, what);
    }
    void rise(uint32_t heap, uint32_t place, const entry what) {
        entry *all = entries_.data() + size_t{heap} * room_;
        while (place > 0) {
            const uint32_t parent = (place - 1) / 2;
            if (!(what.key < all[parent].key)) break;
            put(all, place, all[parent]);
            place = parent;
        }
        put(all, place, what);
    }
    void sink(uint32_t heap, uint32_t place, const entry what) {
        entry *all = entries_.data() + size_t{heap} * room_;
        const uint32_t size = sizes_[heap];
        for (uint32_t child; (child = 2 * place + 1) < size; place = child) {
            if (child + 1 < size && all[child + 1].key < all[child].key) ++child;
            if (!(all[child].key < what.key)) break;
            put(all, place, all[child]);
        }
        put(all, place, what);
    }

    std::vector<entry> entries_;
    std::vector<uint32_t> places_, sizes_;
    uint32_t room_ = 0;
};

}  // namespace moorage
