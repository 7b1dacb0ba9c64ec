// cluster_node.h - one home of a cluster: the pipeline of any run, its calls to others, and the
// work of its device for others.
//
// A node is a device of a server with the requests that enter there. Or it is a home that computes
// side by side (a user, a server of the wireless model) with one of its models.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tools/cluster/call_prices.h"
#include "tools/cluster/home_calls.h"
#include "tools/cluster/server_work.h"
#include "core/execute/timed_executor.h"
#include "core/pipeline/pipeline.h"
#include "core/source/source.h"

namespace moorage::core {

class cluster_emulator;

// Expert activations, one per token and expert chosen.
struct activation_counts {
    uint64_t local = 0;   // on the home's own server
    uint64_t remote = 0;  // on another, or in the cloud
};

class cluster_node final : public peers, public step_watcher {
public:
    // Borrowed. `gpu` is null if experts compute side by side.
    struct parts {
        pipeline *line = nullptr;
        timed_executor *executor = nullptr;
        emulator *gpu = nullptr;
        source *pass_source = nullptr;
        bool loads = false;  // its host memory has every expert
    };
    void attach(const parts &parts);

    const home_place &place() const { return place_; }
    const parts &node_parts() const { return parts_; }
    const server_work &serving() const { return serving_; }
    const call_figures &called() const { return calls_.figures(); }
    // One for each bucket of the options.
    std::span<const activation_counts> activations() const { return activations_; }

    uint32_t servers() const override { return static_cast<uint32_t>(prices_.distances().size()); }
    std::span<const uint8_t> distances() const override { return prices_.distances(); }
    bool is_serial() const override { return state_.serial(); }
    bool can_load() const override { return parts_.loads; }
    void offers(uint32_t page, uint32_t tokens, uint32_t,
                std::vector<remote_offer> &offers) override {
        prices_.offers(page, tokens, offers);
    }
    void call(const call_request &request) override;
    void step(const moorage_step &view, const pass &pass, source &source) override;

private:
    friend class cluster_emulator;
    cluster_node(cluster_emulator &emulator, cluster_state &state, uint32_t number,
                 const home_place &place);

    uint64_t due_ns() const { return std::min(parts_.executor->due(), wakes_ns_); }
    // Continues the course, and sends the calls that it made.
    void settle();
    // Handles what is due on the node's device, or a request that has come. Returns an expert that
    // was computed for another home, if one was.
    std::optional<call_expert> event();
    void serve(const call_expert &called, const expert_work &work);
    uint32_t page_of(const moorage_copy &copy) const {
        return copy.expert - state_.cluster_scene.demand.model_first[place_.model];
    }
    // call_arrived() is called when a call of the home reaches the place where it is to be
    // computed. call_computed() follows once per expert.
    void call_arrived();
    void call_computed(uint32_t call, uint32_t expert);
    // Takes in the outputs of others' experts that are home.
    void take_in();
    activation_counts &bucket();

    cluster_emulator &emulator_;
    cluster_state &state_;
    const home_place place_;
    parts parts_;
    call_prices prices_;
    home_calls calls_;
    server_work serving_;
    uint32_t computing_ = 0;  // calls of the home that have reached the place where they are
                              // computed
    bool ended_ = false;
    uint64_t wakes_ns_ = MOORAGE_NEVER;
    std::vector<activation_counts> activations_;
};

}  // namespace moorage::core
