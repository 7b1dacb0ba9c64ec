// order.hpp - orders of pages for cache policies: lists and heaps that allocate in activate only.
//
//   moorage::page_lists lists;
//   lists.assign(pages, pools);                // in activate; empty
//   lists.append(page, pool);                  // the youngest of its list
//   for (uint32_t page = lists.first(pool); page != lists.end(pool); page = lists.next(page)) ...
//
// Optional: a policy may keep its order in any other way.
#pragma once

#include <vector>

#include "policy.hpp"

namespace moorage {

// The page holds no slot and gets none in the running step. An order may forget it.
inline bool departed(uint32_t state) {
    return (state & (MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT | MOORAGE_STATE_PINNED)) == 0;
}

// Doubly linked lists over all pages. A page is in one list or in none. Each list is a ring through
// its own end node, so the code has no branches.
class page_lists {
public:
    void assign(uint32_t pages, uint32_t lists) {
        pages_ = pages;
        links_.resize(size_t{pages} + lists);
        clear();
    }
    void clear() {
        for (uint32_t i = 0; i < links_.size(); ++i) links_[i].next = links_[i].previous = i;
    }
    // The end node, between the last and the first page of a list.
    uint32_t end(uint32_t list) const { return pages_ + list; }
    uint32_t first(uint32_t list) const { return links_[end(list)].next; }
    uint32_t next(uint32_t node) const { return links_[node].next; }
    uint32_t previous(uint32_t node) const { return links_[node].previous; }
    bool contains(uint32_t page) const { return links_[page].next != page; }

    // Has no effect on a page that is in no list.
    void unlink(uint32_t page) {
        const uint32_t previous = links_[page].previous, next = links_[page].next;
        links_[previous].next = next;
        links_[next].previous = previous;
        links_[page].next = links_[page].previous = page;
    }
    // Requires: the page is in no list.
    void insert(uint32_t page, uint32_t successor) {
        const uint32_t last = links_[successor].previous;
        links_[page].previous = last;
        links_[page].next = successor;
        links_[last].next = page;
        links_[successor].previous = page;
    }
    // Moves the page to the end of the list, from any list or none.
    void append(uint32_t page, uint32_t list) {
        const uint32_t previous = links_[page].previous, next = links_[page].next;
        links_[previous].next = next;
        links_[next].previous = previous;
        insert(page, end(list));
    }

private:
    friend class page_list_run;
    struct link {
        uint32_t previous, next;
    };
    std::vector<link> links_;
    uint32_t pages_ = 0;
};

// One list of at least two pages whose ends stay in registers, for a run of single requests
// (replay.hpp). Through the end node each request would wait for the stores of the one before. Read
// and change the list only through this object until it is destroyed.
class page_list_run {
public:
    page_list_run(page_lists &lists, uint32_t list)
        : links_(lists.links_.data()),
          end_(lists.end(list)),
          first_(links_[end_].next),
          last_(links_[end_].previous) {}
    page_list_run(const page_list_run &) = delete;
    ~page_list_run() {
        links_[end_].next = first_;
        links_[end_].previous = last_;
    }

    // first_goes 1: appends `page`, which is in no list, and takes out the first page. first_goes
    // 0: moves `page` to the end, from its list or from none. Returns the page taken out or moved.
    // No branches.
    uint32_t append(uint32_t page, uint32_t first_goes) {
        const uint32_t removed = select(first_goes, first_, page);
        const uint32_t next = links_[removed].next, previous = links_[removed].previous;
        const uint32_t predecessor = select(removed == last_, previous, last_);
        first_ = select(removed == first_, next, first_);
        links_[previous].next = next;
        links_[next].previous = previous;
        links_[removed].next = links_[removed].previous = removed;
        links_[predecessor].next = page;
        links_[page].previous = predecessor;
        links_[page].next = end_;
        last_ = page;
        return removed;
    }

    // Takes out the first page and returns it. Requires: one page stays.
    uint32_t take_first() {
        const uint32_t first = first_, next = links_[first].next;
        links_[first] = {first, first};
        links_[next].previous = end_;
        first_ = next;
        return first;
    }

private:
    // Arithmetic, because compilers often turn ?: into a branch.
    static uint32_t select(uint32_t yes, uint32_t a, uint32_t b) {
        const uint32_t mask = 0 - yes;
        return (a & mask) | (b & ~mask);
    }
    page_lists::link *links_;
    const uint32_t end_;
    uint32_t first_, last_;
};

// Binary heaps over all pages, least key on top. One heap per pool, of pages / pools consecutive
// pages each. Keys are ordered by < and have no ties that matter.
template <class Key>
class page_heaps {
public:
    struct entry {
        Key key;
        uint32_t page;
    };

    void assign(uint32_t pages, uint32_t heaps) {
        heap_capacity_ = pages / heaps;
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
    const entry &top(uint32_t heap) const { return entries_[size_t{heap} * heap_capacity_]; }

    void push(uint32_t heap, const entry &element) { rise(heap, sizes_[heap]++, element); }
    void erase(uint32_t heap, uint32_t page) {
        const uint32_t place = places_[page];
        places_[page] = none;
        const entry last = entries_[size_t{heap} * heap_capacity_ + --sizes_[heap]];
        if (last.page != page) move(heap, place, last);
    }
    // Changes the key of a page that is in the heap.
    void change(uint32_t heap, const entry &element) { move(heap, places_[element.page], element); }
    // Like change, for a key that has only grown (raise) or fallen (lower).
    void raise(uint32_t heap, const entry &element) { sink(heap, places_[element.page], element); }
    void lower(uint32_t heap, const entry &element) { rise(heap, places_[element.page], element); }

    // Sets new keys for all pages of all heaps: key_of(page).
    template <class KeyOf>
    void rebuild(KeyOf &&key_of) {
        for (uint32_t heap = 0; heap < sizes_.size(); ++heap) {
            entry *entries = entries_.data() + size_t{heap} * heap_capacity_;
            for (uint32_t i = 0; i < sizes_[heap]; ++i) entries[i].key = key_of(entries[i].page);
            for (uint32_t i = sizes_[heap] / 2; i-- > 0;) sink(heap, i, entry(entries[i]));
        }
    }

private:
    void put(entry *entries, uint32_t place, const entry &element) {
        entries[place] = element;
        places_[element.page] = place;
    }
    void move(uint32_t heap, uint32_t place, const entry &element) {
        const entry *entries = entries_.data() + size_t{heap} * heap_capacity_;
        if (place > 0 && element.key < entries[(place - 1) / 2].key)
            rise(heap, place, element);
        else
            sink(heap, place, element);
    }
    void rise(uint32_t heap, uint32_t place, const entry element) {
        entry *entries = entries_.data() + size_t{heap} * heap_capacity_;
        while (place > 0) {
            const uint32_t parent = (place - 1) / 2;
            if (!(element.key < entries[parent].key)) break;
            put(entries, place, entries[parent]);
            place = parent;
        }
        put(entries, place, element);
    }
    void sink(uint32_t heap, uint32_t place, const entry element) {
        entry *entries = entries_.data() + size_t{heap} * heap_capacity_;
        const uint32_t size = sizes_[heap];
        for (uint32_t child; (child = 2 * place + 1) < size; place = child) {
            if (child + 1 < size && entries[child + 1].key < entries[child].key) ++child;
            if (!(entries[child].key < element.key)) break;
            put(entries, place, entries[child]);
        }
        put(entries, place, element);
    }

    std::vector<entry> entries_;
    std::vector<uint32_t> places_, sizes_;
    uint32_t heap_capacity_ = 0;
};

}  // namespace moorage
