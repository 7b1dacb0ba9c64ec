// remote_supplier.h - the experts of a step that other servers of the cluster compute: one call to
// each.
#pragma once

#include <cstdint>
#include <vector>

#include "core/execute/peers.h"
#include "core/pipeline/step_supplier.h"
#include "core/source/layer_step.h"

namespace moorage::core {

class remote_supplier final : public step_supplier {
public:
    // Borrowed.
    remote_supplier(peers &peers, const layer_step &step, uint32_t items_max);

    uint32_t begin(std::span<const step_item>) override {
        waiting_.clear();
        return 0;
    }
    bool take(uint32_t index, const step_item &item) override {
        if (item.site < site_remote) return false;
        waiting_.push_back(index);
        return true;
    }
    // Calls every server of the taken items, in the order in which the policy first named it. Each
    // item has one computation more under way. Returns how many.
    uint32_t start_taken(std::span<step_item> items) override;
    // An item that another server computed is remote, unless the home's own server has it: then it
    // was found in that server's fast memory like an expert of the home's device.
    void count(const step_item &item, layer_report &report) override;
    bool can_load() const override { return peers_.can_load(); }

private:
    void count_tokens(std::span<const step_item> items);

    struct token_count {
        uint32_t count = 0, seen = 0;  // seen: the last token counted, and 1
    };
    peers &peers_;
    const layer_step &step_;
    std::vector<uint32_t> waiting_;  // items
    std::vector<expert_work> call_;
    std::vector<uint32_t> site_of_;    // [experts] of the step
    std::vector<token_count> tokens_;  // [servers]
    uint32_t tokens_all_ = 0;
};

}  // namespace moorage::core
