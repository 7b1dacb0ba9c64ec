// flat_caches.h - lru and fifo in flat arrays without the C ABI: the baseline of the replay.
#pragma once

#include <cstdint>
#include <vector>

namespace moorage::perf {

// Both take pages one by one, in serial order, with one shared cache. lru also takes the events of
// token order. Both count misses.
class flat_lru {
public:
    flat_lru(uint32_t pages, uint32_t slots)
        : slots_(slots), head_(pages), links_(pages + 1), resident_(pages, 0) {
        links_[head_] = {head_, head_};
    }
    void request(uint32_t page) {
        if (resident_[page]) {
            unlink(page);
        } else {
            ++misses_;
            if (used_ == slots_) {
                const uint32_t victim = links_[head_].next;
                unlink(victim);
                resident_[victim] = 0;
            } else {
                ++used_;
            }
            resident_[page] = 1;
        }
        append(page);
    }
    // Takes the pages of an event. None of them leaves meanwhile. Requires: slots for all of them.
    void step(const uint32_t *pages, uint32_t count) {
        for (uint32_t i = 0; i < count; ++i) {
            if (resident_[pages[i]]) {
                unlink(pages[i]);
            } else {
                ++misses_;
                ++used_;
                resident_[pages[i]] = 1;
            }
            append(pages[i]);
        }
        for (; used_ > slots_; --used_) {
            const uint32_t victim = links_[head_].next;
            unlink(victim);
            resident_[victim] = 0;
        }
    }
    uint64_t misses() const { return misses_; }

private:
    void append(uint32_t page) {
        const uint32_t last = links_[head_].previous;
        links_[page] = {last, head_};
        links_[last].next = page;
        links_[head_].previous = page;
    }
    struct link {
        uint32_t previous, next;
    };
    void unlink(uint32_t page) {
        const link entry = links_[page];
        links_[entry.previous].next = entry.next;
        links_[entry.next].previous = entry.previous;
    }
    uint32_t slots_, head_, used_ = 0;
    uint64_t misses_ = 0;
    std::vector<link> links_;
    std::vector<uint8_t> resident_;
};

class flat_fifo {
public:
    flat_fifo(uint32_t pages, uint32_t slots) : ring_(slots, pages), resident_(pages + 1, 0) {}
    void request(uint32_t page) {
        if (resident_[page]) return;
        ++misses_;
        resident_[ring_[next_]] = 0;
        resident_[page] = 1;
        ring_[next_] = page;
        if (++next_ == ring_.size()) next_ = 0;
    }
    uint64_t misses() const { return misses_; }

private:
    uint64_t misses_ = 0;
    size_t next_ = 0;
    std::vector<uint32_t> ring_;
    std::vector<uint8_t> resident_;
};

}  // namespace moorage::perf
