// router_stage.h - the router stage: asks the policy, checks that its choice can be computed,
// limits it to what the run allows, and counts the changes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/host/faults.h"
#include "core/host/instance.h"
#include "core/source/layer_step.h"
#include "core/source/step_counts.h"

namespace moorage::core {

// How far a router may deviate from the model's own choice.
struct routing_rules {
    std::vector<uint64_t> exact_requests = {};  // ascending; for these the model's own choice
                                                // stands
    // Share of a request's choices that a router may substitute, reweight, drop or take in a second
    // version. It counts from the request's first token on, in millionths. A token whose route
    // would exceed it keeps the model's choice.
    double substitution_max = 1;
    bool lossy = false;  // the policy declares that it may choose differently
};

class router_stage {
public:
    // `streams`: stream numbers of a step's tokens are below it. policy and faults are borrowed.
    router_stage(instance &policy, fault_log &faults, const routing_rules &rules, uint32_t streams);

    // Routes the step. A wrong choice is reported and replaced by the model's own. Adds the changes
    // to `report`. `source` gives the weights of the model's own rule. Without `ask_policy` the
    // model's own choice stands. False: the run has to end. [step]
    bool select(layer_step &step, source &source, const pass &tokens, layer_report &report,
                bool ask_policy = true);

private:
    // The account of the request that a stream carries.
    struct request_account {
        uint64_t id = UINT64_MAX, choices = 0, substituted = 0;
    };
    // Why the route of `routed_count` tokens cannot be computed. Empty: it can.
    std::string route_error(const layer_step &step, uint32_t routed_count) const;
    std::string weights_error(const layer_step &step) const;
    void limit_changes(layer_step &step, layer_report &report);
    void limit_row_changes(layer_step &step, uint32_t row, layer_report &report);
    bool is_exact(uint64_t request) const;

    instance &policy_;
    fault_log &faults_;
    const routing_rules rules_;
    const uint64_t max_millionths_;
    std::vector<request_account> requests_;  // by stream
};

}  // namespace moorage::core
