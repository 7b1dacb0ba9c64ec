// run_hardware.cpp - loads profiles, prices each device.
#include "core/pipeline/run_hardware.h"

#include "core/execute/links.h"

namespace moorage::core {

static_assert(gpus_max == devices_max, "as many devices can be listed as there are links for");

status run_hardware::load(const run_config &config) {
    auto loaded = load_devices({config.profile, config.link, config.node, config.file.parent_path(),
                                config.disk, config.devices.peer, config.engine},
                               config.devices.profiles);
    if (!loaded) return loaded.failure();
    profiles_ = std::move(*loaded);
    const bool on_host = config.runs_on().memory == fast_memory::host || first().device.is_host;
    if (config.reads_disk() && on_host) load_from_disk(profiles_.front());
    for (hardware_profile &profile : profiles_) {
        device_profile &device = profile.device;
        if (config.temperature == 0 && device.greedy_logits_per_s != 0)
            device.logits_per_s = device.greedy_logits_per_s;
        scale_resources(profile, config.speed_factors);
    }
    return success();
}

void run_hardware::price(const model_shape &shape, uint64_t context) {
    policy_costs_.resize(profiles_.size());
    for (size_t i = 0; i < profiles_.size(); ++i) {
        costs_.emplace_back(profiles_[i], shape);
        *policy_costs_[i] = costs_[i].summary(context);
    }
}

std::vector<environment> run_hardware::environments(const environment &common,
                                                    const memories &memories) const {
    std::vector<environment> environments;
    for (uint32_t device = 0; has_several() && device < profiles_.size(); ++device) {
        environments.push_back(common);
        environments.back().residency = memories.ledger_of_device(device).view();
        environments.back().costs = policy_costs_[device].lent();
    }
    return environments;
}

std::string run_hardware::ids() const {
    std::string text;
    for (const hardware_profile &profile : profiles_)
        text += (text.empty() ? "" : " + ") + profile.id;
    return text;
}

std::string run_hardware::device_names() const {
    std::string names;
    for (const hardware_profile &profile : profiles_)
        names += (names.empty() ? "" : " + ") + profile.device.name;
    return names;
}

}  // namespace moorage::core
