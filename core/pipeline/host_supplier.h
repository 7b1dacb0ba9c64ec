// host_supplier.h - a step's experts in host memory that does not hold all of them: pages that it
// misses are held, and the CPU waits for those that come from disk.
#pragma once

#include <cstdint>
#include <vector>

#include "core/pipeline/host_store.h"
#include "core/pipeline/step_supplier.h"

namespace moorage::core {

class host_supplier final : public step_supplier {
public:
    // Borrowed.
    host_supplier(host_store &store, executor &executor, uint32_t items_max)
        : store_(store), executor_(executor) {
        awaiting_read_.reserve(items_max);
    }

    void looked_up(std::span<const uint32_t>, std::span<step_item> items) override {
        for (const step_item &item : items)
            if (item.missing != 0) store_.hold(item.page);
    }
    void estimate(step_item &item) override { item.read_ns = store_.wait_ns(item.page); }
    bool delay_cpu(uint32_t index, const step_item &item) override {
        if (store_.use(item.page, owner::demand)) return false;
        awaiting_read_.push_back(index);
        return true;
    }
    void bring(uint32_t page) override { store_.bring(page); }
    void page_read(uint32_t page, std::span<const step_item> items) override;
    void computed(const step_item &item, const completion &completion) override {
        if (completion.kind == event_kind::cpu_expert) store_.done(item.page);
    }
    void count(const step_item &item, layer_report &) override {
        if (item.missing != 0) store_.let_go(item.page);
    }
    void end(uint32_t layer) override { store_.give_up(layer); }

private:
    host_store &store_;
    executor &executor_;
    std::vector<uint32_t> awaiting_read_;  // items of the CPU whose pages come from disk
};

}  // namespace moorage::core
