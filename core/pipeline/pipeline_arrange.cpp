// pipeline_arrange.cpp - between passes: budgets that change, and the first content of the caches.
#include <algorithm>
#include <utility>

#include "core/pipeline/pipeline.h"

namespace moorage::core {

// Between passes: changes by the budget, and the content of caches that have none yet.
flow pipeline::arrange() {
    bool empty = !initial_fill_.done;
    if (account_.tokens >= budget_.due_tokens()) {
        if (!budget_.plan(account_.tokens, source_.idle())) co_return;
        empty = empty || budget_.must_divide();
        if (budget_.must_divide()) {
            co_await divide();
            if (!running()) co_return;
        } else {
            if (!budget_.apply()) co_return;
            behind_.release(budget_.evicted());
            if (budget_.is_overfull()) {
                prefetch_.drain(account_.bytes);
                if (!budget_.shrink()) co_return;
                behind_.release(budget_.evicted());
            }
        }
        for (uint32_t device = 0; device < memories_.devices(); ++device) {
            const auto [least, most] =
                std::ranges::minmax(memories_.ledger_of_device(device).slots());
            account_.arrangement.uneven |= most - least > 1 || budget_.must_divide();
        }
    }
    if (!empty) co_return;
    const uint64_t begin_ns = now_ns(), moved_before = transport_.loaded_bytes();
    if (host_ && !initial_fill_.done) co_await fill_host();
    co_await fill_caches();
    if (!running()) co_return;
    const uint64_t moved = transport_.loaded_bytes() - moved_before;
    const double ms = static_cast<double>(now_ns() - begin_ns) / 1e6;
    if (initial_fill_.done) {
        ++account_.arrangement.changes;
        account_.arrangement.bytes += moved;
        account_.arrangement.ms += ms;
    } else {
        account_.arrangement.first_bytes = moved;
        account_.arrangement.first_ms = ms;
        account_.begin(executor_);
    }
    initial_fill_.done = true;
}

// The buffer, the link and the caches are emptied before the arena changes.
flow pipeline::divide() {
    prefetch_.drain(account_.bytes);
    behind_.cancel();
    while (!transport_.are_loads_idle() && running()) co_await progress_.next_event;
    if (!running() || !budget_.apply()) co_return;
    behind_.release(budget_.evicted());
    budget_.divide();
    executor_.divided();
}

// The same of host memory, from disk.
flow pipeline::fill_host() {
    initial_fill_.pages.clear();
    if (!host_->choose_first(initial_fill_.pages)) co_return;
    for (const uint32_t page : initial_fill_.pages)
        while (!host_->fill(page)) {
            if (!running()) co_return;
            co_await progress_.next_event;
        }
    while (host_->filling() != 0 && running()) co_await progress_.next_event;
}

// Fills as the cache policy wishes. The slots that it leaves free wait for demand.
flow pipeline::fill_caches() {
    if (!work_.can_load()) co_return;
    initial_fill_.pages.clear();
    for (uint32_t device = 0; device < memories_.devices(); ++device)
        for (uint32_t pool = 0; pool < memories_.ledger_of_device(device).pools(); ++pool)
            if (!cache_.of_device(device).fill(pool, initial_fill_.pages)) co_return;
    for (const uint32_t page : initial_fill_.pages) {
        ledger &ledger = memories_.ledger_of_page(page);
        const uint32_t layer = ledger.rows().layer_of(page);
        const uint32_t link = h2d_of(memories_.device_of(page));
        const uint8_t segments = ledger.rows().cached_segments(layer);
        ledger.take_rows(page, segments, true);
        const uint64_t bytes = costs_.expert_bytes(ledger.rows().share(layer, segments));
        while (transport_.submit(owner::fill, link, page, segments, bytes) == MOORAGE_NONE) {
            if (!running()) co_return;
            co_await progress_.next_event;
        }
        ++initial_fill_.under_way;
    }
    while (initial_fill_.under_way != 0 && running()) co_await progress_.next_event;
}

}  // namespace moorage::core
