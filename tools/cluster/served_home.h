// served_home.h - the parts of one node of a cluster: costs, source, ledger, executor, policies and
// pipeline.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/cluster/cluster_emulator.h"
#include "tools/cluster/home_requests.h"
#include "core/pipeline/policy_set.h"
#include "core/pipeline/timeline_sink.h"

namespace moorage::core {

class served_home {
public:
    // The inputs of all homes. They are borrowed and must outlive them.
    struct surroundings {
        home_inputs inputs;
        timeline *events;  // may be null
        cluster_emulator &emulator;
        fault_log &faults;
        std::vector<std::string> &warnings;
    };
    explicit served_home(const surroundings &surroundings)
        : surroundings_(surroundings), scene_(surroundings.inputs.cluster_scene) {}
    // Makes a node of the cluster. Errors: those of its parts.
    status make(const home_place &place, const request_share &share);

    const cluster_node &node() const { return *node_; }
    pipeline &line() { return *line_; }
    const arrival_source *requests() const { return requests_; }  // null: no requests enter
    const policy_set &policies() const { return policies_; }

    const std::string &name() const {
        return on_device() ? scene_.device_names[place_.device] : scene_.home_names[place_.home];
    }

private:
    bool on_device() const { return place_.device != MOORAGE_NONE; }
    status take_sizes();
    status make_source(const request_share &share);
    void make_store();
    void make_executor();
    status make_policies();
    moorage_limits limits() const;
    void make_pipeline();
    void keep_held();

    const surroundings surroundings_;
    const scene &scene_;
    home_place place_{};
    cluster_node *node_ = nullptr;
    bool loads_ = false;  // from host memory, which has every expert
    uint32_t pages_ = 0, capacity_ = 0, buffer_ = 0, transfers_ = 0;
    // In the order of construction.
    std::unique_ptr<cost_model> costs_;
    lent_record<moorage_costs> policy_costs_;
    std::unique_ptr<source> source_;
    arrival_source *requests_ = nullptr;
    std::unique_ptr<ledger> ledger_;
    std::unique_ptr<timeline_sink> sink_;
    std::unique_ptr<timed_executor> executor_;
    emulator *gpu_ = nullptr;  // the executor of a device
    policy_set policies_;
    std::unique_ptr<pipeline> line_;
};

}  // namespace moorage::core
