// pipeline_arrange.cpp - between passes: budgets that change, and the first content of the caches.
#include <algorithm>
#include <utility>

#include "core/pipeline/pipeline.h"

namespace moorage::core {

// Between passes: changes by the budget, and the content of caches that have none yet.
flow pipeline::arrange() {
    bool empty = !first_.there;
    if (account_.tokens >= budget_.due()) {
        if (!budget_.plan(account_.tokens, source_.idle())) co_return;
        empty = empty || budget_.divides();
        if (budget_.divides()) {
            co_await divide();
            if (!running()) co_return;
        } else {
            if (!budget_.apply()) co_return;
            behind_.release(budget_.evicted());
            if (budget_.overfull()) {
                prefetch_.drain(account_.bytes);
                if (!budget_.shrink()) co_return;
                behind_.release(budget_.evicted());
            }
        }
        for (uint32_t device = 0; device < truth_.devices(); ++device) {
            const auto [least, most] = std::ranges::minmax(truth_.at(device).slots());
            account_.arrangement.uneven |= most - least > 1 || budget_.divides();
        }
    }
    if (!empty) co_return;
    const uint64_t begin_ns = now_ns(), moved_before = transport_.loaded_bytes();
    if (host_ && !first_.there) co_await fill_host();
    co_await fill();
    if (!running()) co_return;
    const uint64_t moved = transport_.loaded_bytes() - moved_before;
    const double ms = static_cast<double>(now_ns() - begin_ns) / 1e6;
    if (first_.there) {
        ++account_.arrangement.changes;
        account_.arrangement.bytes += moved;
        account_.arrangement.ms += ms;
    } else {
        account_.arrangement.first_bytes = moved;
        account_.arrangement.first_ms = ms;
        account_.begin(executor_);
    }
    first_.there = true;
}

// The buffer, the link and the caches are emptied before the arena changes.
flow pipeline::divide() {
    prefetch_.drain(account_.bytes);
    behind_.cancel();
    while (!transport_.loads_idle() && running()) co_await stands_.event;
    if (!running() || !budget_.apply()) co_return;
    behind_.release(budget_.evicted());
    budget_.divide();
    executor_.divided();
}

// The same of host memory, from disk.
flow pipeline::fill_host() {
    first_.pages.clear();
    if (!host_->choose_first(first_.pages)) co_return;
    for (const uint32_t page : first_.pages)
        while (!host_->fill(page)) {
            if (!running()) co_return;
            co_await stands_.event;
        }
    while (host_->filling() != 0 && running()) co_await stands_.event;
}

// Fills as the cache policy wishes. The slots that it leaves free wait for demand.
flow pipeline::fill() {
    if (!work_.loads()) co_return;
    first_.pages.clear();
    for (uint32_t device = 0; device < truth_.devices(); ++device)
        for (uint32_t pool = 0; pool < truth_.at(device).pools(); ++pool)
            if (!cache_.of_device(device).fill(pool, first_.pages)) co_return;
    for (const uint32_t page : first_.pages) {
        ledger &book = truth_.of(page);
        const uint32_t its_layer = book.rows().layer_of(page);
        const uint32_t link = h2d_of(truth_.device_of(page));
        const uint8_t segments = book.rows().cached_segments(its_layer);
        book.take_rows(page, segments, true);
        const uint64_t bytes = costs_.expert_bytes(book.rows().share(its_layer, segments));
        while (transport_.submit(owner::fill, link, page, segments, bytes) == MOORAGE_NONE) {
            if (!running()) co_return;
            co_await stands_.event;
        }
        ++first_.under_way;
    }
    while (first_.under_way != 0 && running()) co_await stands_.event;
}

}  // namespace moorage::core
