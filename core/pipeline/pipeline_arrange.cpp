// pipeline_arrange.cpp - between passes: budgets that change, and the first content of the caches.
#include <algorithm>
#include <utility>

#include "core/pipeline/pipeline.h"

namespace moorage::core {

// Between passes: what the budget changes, and the content of caches that have none yet.
flow pipeline::arrange() {
    bool empty = !arranged_;
    if (per_layer_ && account_.tokens >= budget_.due()) {
        if (!budget_.plan(account_.tokens, source_.idle())) co_return end_run();
        empty = empty || budget_.divides();
        if (budget_.divides()) {
            co_await divide();
            if (over_) co_return;
        } else {
            if (!budget_.apply()) co_return end_run();
            release(budget_.evicted());
            if (budget_.overfull()) {
                prefetch_.drain(account_.bytes);
                if (!budget_.shrink()) co_return end_run();
                release(budget_.evicted());
            }
        }
        const auto [least, most] = std::ranges::minmax(truth_.slots());
        account_.arrangement.uneven |= most - least > 1 || budget_.divides();
    }
    if (!empty) co_return;
    const uint64_t begin_ns = now_ns(), moved_before = transport_.moved_bytes(link_h2d);
    if (host_ && !arranged_) co_await fill_host();
    co_await fill();
    if (!running()) co_return;
    const uint64_t moved = transport_.moved_bytes(link_h2d) - moved_before;
    const double ms = static_cast<double>(now_ns() - begin_ns) / 1e6;
    if (arranged_) {
        ++account_.arrangement.changes;
        account_.arrangement.bytes += moved;
        account_.arrangement.ms += ms;
    } else {
        account_.arrangement.first_bytes = moved;
        account_.arrangement.first_ms = ms;
        account_.begin(executor_);
    }
    arranged_ = true;
}

// The buffer, the link and the caches are emptied before the arena changes.
flow pipeline::divide() {
    prefetch_.drain(account_.bytes);
    behind_.cancel();
    while (!executor_.idle(link_h2d) && running()) co_await event_;
    if (!running() || !budget_.apply()) co_return end_run();
    release(budget_.evicted());
    truth_.divide(budget_.top_rows());
    executor_.divided();
}

// The same of host memory, from disk.
flow pipeline::fill_host() {
    filled_.clear();
    if (!host_->choose_first(filled_)) co_return end_run();
    for (const uint32_t page : filled_)
        while (!host_->fill(page)) {
            if (!running()) co_return;
            co_await event_;
        }
    while (host_->filling() != 0 && running()) co_await event_;
}

// As the cache policy wishes; what it leaves free waits for demand.
flow pipeline::fill() {
    filled_.clear();
    for (uint32_t pool = 0; pool < truth_.pools(); ++pool)
        if (!cache_.fill(pool, filled_)) co_return end_run();
    for (const uint32_t page : filled_) {
        const uint32_t its_layer = truth_.rows().layer_of(page);
        const uint8_t segments = truth_.rows().cached_segments(its_layer);
        truth_.take_rows(page, segments, true);
        const uint64_t bytes = costs_.expert_bytes(truth_.rows().share(its_layer, segments));
        while (transport_.submit(owner::fill, link_h2d, page, segments, bytes, MOORAGE_NEVER) ==
               MOORAGE_NONE) {
            if (!running()) co_return;
            co_await event_;
        }
        ++filling_;
    }
    while (filling_ != 0 && running()) co_await event_;
}

}  // namespace moorage::core
