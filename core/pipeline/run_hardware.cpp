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
    for (hardware_profile &one : profiles_) {
        device_profile &device = one.device;
        if (config.temperature == 0 && device.greedy_logits_per_s != 0)
            device.logits_per_s = device.greedy_logits_per_s;
        speed_up(one, config.faster);
    }
    return success();
}

void run_hardware::price(const model_shape &shape, uint64_t context) {
    shown_.resize(profiles_.size());
    for (size_t i = 0; i < profiles_.size(); ++i) {
        costs_.emplace_back(profiles_[i], shape);
        *shown_[i] = costs_[i].summary(context);
    }
}

std::vector<environment> run_hardware::environments(const environment &of_all,
                                                    const memories &truth) const {
    std::vector<environment> each;
    for (uint32_t device = 0; several() && device < profiles_.size(); ++device) {
        each.push_back(of_all);
        each.back().residency = truth.at(device).view();
        each.back().costs = shown_[device].lent();
    }
    return each;
}

std::string run_hardware::ids() const {
    std::string all;
    for (const hardware_profile &one : profiles_) all += (all.empty() ? "" : " + ") + one.id;
    return all;
}

std::string run_hardware::device_names() const {
    std::string names;
    for (const hardware_profile &one : profiles_)
        names += (names.empty() ? "" : " + ") + one.device.name;
    return names;
}

}  // namespace moorage::core
