// device_config.cpp - reads the list of devices and its related keys.
#include "core/config/device_config.h"

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/config/run_keys.h"

namespace moorage::core {

namespace {

// Slots of each device, at least one expert each.
void read_experts(section_reader &memory, device_config &devices) {
    const config_value *const found = memory.find("device_experts");
    if (!found || memory.failed()) return;
    for (const char *size_key : {"experts", "bytes"})
        if (const config_value *conflict = memory.find(size_key))
            return memory.fail(
                *conflict,
                "it stands beside device_experts, which gives the slots of each device; "
                "keep one of them");
    if (found->value.type == node_type::list)
        for (const node &item : found->value.items)
            if (item.type == node_type::integer && item.integer >= 1 && item.integer <= 1 << 20)
                devices.experts.push_back(static_cast<uint32_t>(item.integer));
    if (devices.experts.size() != devices.profiles.size() ||
        devices.experts.size() != found->value.items.size())
        memory.fail(*found, format("it is a list of {} counts of experts from 1 to {}, one for "
                                   "each of [hardware] devices",
                                   devices.profiles.size(), 1 << 20));
}

}  // namespace

void read_devices(section_reader &hardware, section_reader &memory, const executor_kind &executor,
                  bool in_cluster, device_config &devices) {
    if (const config_value *engine = hardware.find("engine");
        engine && (in_cluster || executor.real))
        return hardware.fail(
            *engine, in_cluster ? "servers of a cluster are emulated with this engine; leave it out"
                                : format("executor {} runs this engine; set [run] executor = "
                                         "\"{}\" to emulate another one, or leave it out",
                                         executor.name, executors[0].name));
    const config_value *const found = hardware.find("devices"), *const profile =
                                                                    hardware.find("profile");
    const bool replaced = found && profile && profile->raw && !found->raw;
    if (replaced) log_info(format("{}: devices is not used, --set gives profile", found->place));
    if (!found || replaced) {
        for (const char *key : {"peer", "spread"})
            if (const config_value *alone = hardware.find(key); alone && !replaced)
                hardware.fail(*alone,
                              "it is of use with several devices only; list their profiles "
                              "in [hardware] devices");
        if (const config_value *alone = memory.find("device_experts"); alone && !replaced)
            memory.fail(*alone,
                        "it is of use with several devices only; list their profiles in "
                        "[hardware] devices");
        return;
    }
    hardware.read_rows(device_rows, devices);
    if (hardware.failed()) return;
    if (devices.profiles.empty() || devices.profiles.size() > gpus_max)
        return hardware.fail(*found, format("list the profiles of 1 to {} devices", gpus_max));
    if (profile && !profile->raw == !found->raw)
        return hardware.fail(*profile,
                             "it stands beside devices, which lists the profile of each; "
                             "keep one of them");
    if (in_cluster)
        return hardware.fail(*found, "servers of a cluster list gpus of their own; leave it out");
    if (executor.real && executor.memory != fast_memory::gpu)
        return hardware.fail(*found,
                             format("executor {} computes on the device that it finds; set [run] "
                                    "executor = \"{}\", or leave it out",
                                    executor.name, executors[0].name));
    read_experts(memory, devices);
}

}  // namespace moorage::core
