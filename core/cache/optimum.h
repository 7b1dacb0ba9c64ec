// optimum.h - the misses of the offline optimum, counted without knowing the future.
//
//   optimum_counter best(layers, experts, slots_of_pools, width);
//   for (...) best.step(layer, experts_of_the_step);
//   best.misses();
//
// A request hits if its page has stayed since the last step that used it. So a hit is an interval
// of steps in which the page holds a slot that the steps within do not need for themselves. Each
// step needs `width` slots. The task is to choose as many intervals as possible, with at most slots
// - width of them at any step. A greedy rule solves it as intervals end. Among the servers (a slot
// each) that are free when the interval begins, take the one that was busy until last. Without one,
// the request misses. Belady's rule gives the same count (tests/unit/optimum_test.cpp compares
// them). The greedy rule needs neither the next uses nor an order of the pages, only the last use
// of each.
//
// The servers' ends are bits over time. The server to take is the last bit below a bound. Time is
// counted anew whenever the bits are full, so memory does not grow with the trace. Cost: O(1) a
// request, a few instructions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace moorage::core {

class optimum_counter {
public:
    // `pool_slots`: slots of each pool; one pool, or one a layer. Steps have `width` distinct
    // experts of one layer.
    optimum_counter(uint32_t layers, uint32_t experts, std::span<const uint32_t> pool_slots,
                    uint32_t width);

    void step(uint32_t layer, const uint32_t *experts);
    uint64_t misses() const { return misses_; }

private:
    // The timeline of one pool. Times count requests. Bit t: a server was last busy with request t.
    struct timeline {
        uint32_t slots = 0, now = 0;
        std::vector<uint64_t> ends, filled;  // filled: which words of `ends` are not 0
        std::vector<uint32_t> bounds;   // [pages of the pool] servers free for it ended before this
        std::vector<uint32_t> content;  // for a pool smaller than a step: its content
    };
    bool take_server(timeline &pool, uint32_t bound, uint32_t end);
    void renumber_times(timeline &pool);
    void step_small_pool(timeline &pool, const uint32_t *pages);

    uint32_t experts_, width_;
    bool shared_;
    uint64_t misses_ = 0;
    std::vector<timeline> pools_;
    std::vector<uint32_t> step_pages_;
};

}  // namespace moorage::core
