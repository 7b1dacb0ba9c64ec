// cluster_plan.h - moorage cluster plan, drain, rebalance: shows the plan in force, and asks the
// leader to change it.
#pragma once

#include <cstdint>
#include <string>

#include "tools/moorage/settings.h"

namespace moorage::tool {

struct plan_arguments {
    std::string cluster, json_file, server;
    setting_options settings;
    bool dry_run = false, undo = false;
    uint32_t within_s = 600;
};

// Each returns the exit code.
int show_plan(const plan_arguments &arguments);
int drain_server(const plan_arguments &arguments);
int rebalance_cluster(const plan_arguments &arguments);

}  // namespace moorage::tool
