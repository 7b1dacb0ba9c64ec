// router_stage.h - the router stage: asks the policy and checks that its choice can be computed.
#pragma once

#include "core/host/faults.h"
#include "core/host/instance.h"
#include "core/pipeline/layer_step.h"

namespace moorage::core {

class router_stage {
public:
    router_stage(instance &policy, fault_log &faults) : policy_(policy), faults_(faults) {}

    // Routes the step; a wrong choice is reported and replaced by the model's own. Adds the experts
    // that the model would not have chosen to `substituted`. False: the run has to end. [step]
    bool select(layer_step &step, uint64_t &substituted);

private:
    bool valid(const layer_step &step, std::string &why) const;

    instance &policy_;
    fault_log &faults_;
};

}  // namespace moorage::core
