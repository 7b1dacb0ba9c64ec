// optimum.h - the misses of the offline optimum, counted without knowing the future.
//
//   optimum_counter best(layers, experts, slots_of_pools, width);
//   for (...) best.step(layer, experts_of_the_step);
//   best.misses();
//
// A request hits when its page has stayed since the step that used it last, so a hit is an interval
// of steps in which the page holds a slot that the steps within do not need for themselves: each
// needs `width`. As many intervals as can be, at no step more than slots - width of them, is a
// problem that the greedy rule solves as intervals end: of the servers (a slot each) that are free
// when the interval begins, take the one that was busy until last; without one the request misses.
// Belady's rule evicts for the same count (tests/unit/optimum_test.cpp compares them); this one
// needs neither the next uses nor an order of the pages, only when each was last used.
//
// The servers' ends are bits over time, and the one to take is the last bit below a bound. Time is
// told anew whenever the bits are full, so memory does not grow with the trace. Cost: O(1) a
// request, a few instructions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moorage::core {

class optimum_counter {
public:
    // `pools`: slots of each, 1 or one a layer. Steps have `width` distinct experts of one layer.
    optimum_counter(uint32_t layers, uint32_t experts, std::span<const uint32_t> pools,
                    uint32_t width);

    void step(uint32_t layer, const uint32_t *experts);
    uint64_t misses() const { return misses_; }

private:
    // Of one pool. Times count requests; bit t: a server was last busy with request t.
    struct timeline {
        uint32_t slots = 0, now = 0;
        std::vector<uint64_t> ends, filled;  // filled: which words of `ends` are not 0
        std::vector<uint32_t> bounds;  // [pages of the pool] servers free for it ended before this
        std::vector<uint32_t> held;    // of a pool smaller than a step: its content
    };
    bool take(timeline &on, uint32_t bound, uint32_t end);
    void tell_anew(timeline &on);
    void small_step(timeline &on, const uint32_t *pages);

    uint32_t experts_, width_;
    bool shared_;
    uint64_t misses_ = 0;
    std::vector<timeline> pools_;
    std::vector<uint32_t> next_;
};

}  // namespace moorage::core
