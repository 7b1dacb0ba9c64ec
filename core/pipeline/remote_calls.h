// remote_calls.h - the experts of a step that other devices of the cluster compute: one call to
// each.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dispatch/dispatch_stage.h"
#include "core/execute/peers.h"
#include "core/source/layer_step.h"
#include "core/source/step_counts.h"

namespace moorage::core {

class remote_calls {
public:
    // `peers` is borrowed. null: there are none, and nothing may be added.
    remote_calls(peers *peers, uint32_t items_max);

    peers *others() const { return peers_; }
    void clear() { waiting_.clear(); }
    void add(uint32_t item) { waiting_.push_back(item); }
    bool empty() const { return waiting_.empty(); }
    // Calls every server of the added items, in the order in which the policy first named it. Each
    // item has one computation more under way. Returns how many calls began. [step]
    uint32_t start(const layer_step &step, std::vector<step_item> &items);
    // Counts an item that another device computed. It is remote, unless the home's own server has
    // it: then it was found in that server's fast memory like an expert of the home's device.
    void count(const step_item &item, expert_counts &counts) const;

private:
    void count_tokens(const layer_step &step, const std::vector<step_item> &items);

    struct token_count {
        uint32_t count = 0, seen = 0;  // seen: the last token counted, and 1
    };
    peers *peers_;
    std::vector<uint32_t> waiting_;  // items
    std::vector<expert_work> call_;
    std::vector<uint32_t> site_of_;    // [experts] of the step
    std::vector<token_count> tokens_;  // [servers]
    uint32_t tokens_all_ = 0;
};

}  // namespace moorage::core
