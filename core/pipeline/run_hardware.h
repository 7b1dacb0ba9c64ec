// run_hardware.h - the hardware of a run and its costs, device by device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/config/run_config.h"
#include "core/execute/cost_model.h"
#include "core/host/instance.h"
#include "core/host/lent_memory.h"
#include "core/store/memories.h"

namespace moorage::core {

class run_hardware {
public:
    // Loads the profiles as configured. A processor's memory may be loaded from disk.
    status load(const run_config &config);
    // `context`: tokens that a token looks back on, in the mean.
    void price(const model_shape &shape, uint64_t context);

    const std::vector<hardware_profile> &profiles() const { return profiles_; }
    const hardware_profile &first() const { return profiles_.front(); }
    bool has_several() const { return profiles_.size() > 1; }
    // The costs of the first device, and of the others. Requires: priced.
    cost_model &costs() { return costs_.front(); }
    const cost_model &costs() const { return costs_.front(); }
    std::span<const cost_model> more_costs() const { return std::span(costs_).subspan(1); }
    lent_record<moorage_costs> &policy_costs() { return policy_costs_.front(); }
    // The environments of the policies of each of several devices. Otherwise they are as `common`.
    // Empty: there is one device.
    std::vector<environment> environments(const environment &common,
                                          const memories &memories) const;
    std::string ids() const;           // "rtx_3060 + rtx_3060"
    std::string device_names() const;  // "NVIDIA RTX 3060 + NVIDIA RTX 3060"

private:
    std::vector<hardware_profile> profiles_;
    std::vector<cost_model> costs_;
    std::vector<lent_record<moorage_costs>> policy_costs_;
};

}  // namespace moorage::core
