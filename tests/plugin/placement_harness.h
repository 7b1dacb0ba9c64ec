// placement_harness.h - a cluster, a demand and a placement policy under a test's control.
//
//   placement_scene scene;                      // arrays that the test fills, and views of them
//   const uint32_t near = scene.add_server();
//   scene.add_device(near, 100);                // bytes
//   ...
//   placement_policy policy("slim_greedy", {{"key", "value"}});
//   std::vector<moorage_copy> copies = policy.plan(scene);  // throws the policy's refusal
//   double curvature = policy.facts().at("curvature");
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <moorage/moorage.hpp>

#include "policy_library.h"

namespace moorage::test {

inline constexpr double infinite = std::numeric_limits<double>::infinity();

// The arrays of placement.h. The add_ functions fill them in the order models, servers and devices,
// links, homes. A test may write into them afterwards. Links start as absent, homes ask for
// nothing.
struct placement_scene {
    uint32_t flags = 0, servers = 0, homes = 0;
    std::vector<uint32_t> device_server;
    std::vector<uint64_t> device_bytes;
    std::vector<double> device_load, device_call_s, device_token_s;
    std::vector<double> link_rate, link_s;
    std::vector<double> cloud_up, cloud_down, cloud_s, cloud_call_s;
    std::vector<uint32_t> home_server;
    std::vector<double> home_up, home_down, home_call_s;

    std::vector<uint32_t> first{0}, layers, experts, top_k, model_groups;
    std::vector<uint64_t> expert_bytes, hidden_bytes;
    std::vector<double> home_tokens_per_s, home_batch, home_model, frequency;
    std::vector<double> home_single_share;  // empty: not known
    std::vector<uint64_t> home_first_call{0};
    std::vector<uint32_t> call_group;
    std::vector<double> call_share;
    std::vector<uint64_t> group_first{0};
    std::vector<uint32_t> group_experts;
    std::vector<uint8_t> home_holds;

    uint32_t models() const { return static_cast<uint32_t>(layers.size()); }
    uint32_t devices() const { return static_cast<uint32_t>(device_server.size()); }
    uint32_t expert_count() const { return first.back(); }  // X

    uint32_t add_model(uint32_t of_layers, uint32_t of_experts, uint32_t k, uint64_t bytes,
                       uint64_t hidden) {
        layers.push_back(of_layers), experts.push_back(of_experts), top_k.push_back(k);
        model_groups.push_back(1);
        expert_bytes.push_back(bytes), hidden_bytes.push_back(hidden);
        first.push_back(first.back() + of_layers * of_experts);
        return models() - 1;
    }
    uint32_t add_server() { return servers++; }
    // Call it in ascending order of servers. `call_s`: for every model.
    uint32_t add_device(uint32_t server, uint64_t bytes, double call_s = 0, double token_s = 0,
                        double load_bytes_per_s = 1e9) {
        device_server.push_back(server), device_bytes.push_back(bytes);
        device_load.push_back(load_bytes_per_s);
        device_call_s.insert(device_call_s.end(), models(), call_s);
        device_token_s.insert(device_token_s.end(), models(), token_s);
        return devices() - 1;
    }
    // One way; both where `symmetric`.
    void add_link(uint32_t source, uint32_t target, double bytes_per_s, double latency_s = 0,
                  bool symmetric = true) {
        link_rate.resize(size_t{servers} * servers), link_s.resize(link_rate.size());
        link_rate[size_t{source} * servers + target] = bytes_per_s;
        link_s[size_t{source} * servers + target] = latency_s;
        if (symmetric) add_link(target, source, bytes_per_s, latency_s, false);
    }
    // The same for every server and model.
    void add_cloud(double bytes_per_s, double latency_s, double call_s) {
        cloud_up.assign(servers, bytes_per_s), cloud_down.assign(servers, bytes_per_s);
        cloud_s.assign(servers, latency_s), cloud_call_s.assign(models(), call_s);
    }
    uint32_t add_home(uint32_t server, double tokens_per_s = 1, double up = infinite,
                      double down = infinite, double call_s = 0) {
        home_server.push_back(server), home_up.push_back(up), home_down.push_back(down);
        home_call_s.insert(home_call_s.end(), models(), call_s);
        home_tokens_per_s.push_back(tokens_per_s), home_batch.push_back(1);
        home_model.resize(home_model.size() + models(), models() == 1 ? 1 : 0);
        frequency.resize(frequency.size() + expert_count());
        home_first_call.push_back(call_group.size());
        return homes++;
    }
    // A token of `home` chooses these together. Adds to its frequencies. Call it in ascending order
    // of homes.
    void add_call(uint32_t home, std::vector<uint32_t> chosen, double share) {
        std::sort(chosen.begin(), chosen.end());
        uint64_t group = 0;
        while (group + 1 < group_first.size() &&
               !std::equal(chosen.begin(), chosen.end(),
                           group_experts.begin() + static_cast<ptrdiff_t>(group_first[group]),
                           group_experts.begin() + static_cast<ptrdiff_t>(group_first[group + 1])))
            ++group;
        if (group + 1 == group_first.size()) {
            group_experts.insert(group_experts.end(), chosen.begin(), chosen.end());
            group_first.push_back(group_experts.size());
        }
        add_call_of_group(home, static_cast<uint32_t>(group), share);
    }
    // The same for an existing group.
    void add_call_of_group(uint32_t home, uint32_t group, double share) {
        call_group.push_back(group), call_share.push_back(share);
        for (uint32_t h = home; h < homes; ++h) home_first_call[h + 1] = call_group.size();
        for (uint64_t i = group_first[group]; i < group_first[group + 1]; ++i)
            frequency[size_t{home} * expert_count() + group_experts[i]] += share;
    }
    void add_held_expert(uint32_t home, uint32_t expert) {
        home_holds.resize(size_t{homes} * expert_count());
        home_holds[size_t{home} * expert_count() + expert] = 1;
    }

    moorage_cluster cluster() {
        link_rate.resize(size_t{servers} * servers), link_s.resize(link_rate.size());
        const bool clouded = !cloud_s.empty();
        return {sizeof(moorage_cluster),
                flags,
                servers,
                devices(),
                homes,
                models(),
                device_server.data(),
                device_bytes.data(),
                device_load.data(),
                device_call_s.data(),
                device_token_s.data(),
                link_rate.data(),
                link_s.data(),
                clouded ? cloud_up.data() : nullptr,
                clouded ? cloud_down.data() : nullptr,
                clouded ? cloud_s.data() : nullptr,
                clouded ? cloud_call_s.data() : nullptr,
                home_server.data(),
                home_up.data(),
                home_down.data(),
                home_call_s.data()};
    }
    moorage_demand demand() {
        if (!home_holds.empty()) home_holds.resize(size_t{homes} * expert_count());
        return {sizeof(moorage_demand),
                0,
                models(),
                homes,
                first.data(),
                layers.data(),
                experts.data(),
                top_k.data(),
                model_groups.data(),
                expert_bytes.data(),
                hidden_bytes.data(),
                home_tokens_per_s.data(),
                home_batch.data(),
                home_model.data(),
                frequency.data(),
                call_group.size(),
                call_group.empty() ? nullptr : home_first_call.data(),
                call_group.empty() ? nullptr : call_group.data(),
                call_group.empty() ? nullptr : call_share.data(),
                call_group.empty() ? 0 : group_first.size() - 1,
                call_group.empty() ? nullptr : group_first.data(),
                call_group.empty() ? nullptr : group_experts.data(),
                home_holds.empty() ? nullptr : home_holds.data(),
                0,
                home_single_share.empty() ? nullptr : home_single_share.data()};
    }
};

// One instance of a bundled placement policy, through the C ABI alone.
class placement_policy {
public:
    // `name`: "slim_greedy", of build/plugins/placement/slim_greedy.so.
    explicit placement_policy(const std::string &name, const parameters &params = {},
                              uint64_t seed = 1)
        : generator_(seed) {
        host_ = {sizeof(host_), 0,        MOORAGE_ABI_MAJOR, MOORAGE_ABI_MINOR, this,
                 find_service,  set_error};
        const moorage_module *module = open_library("placement/" + name);
        const moorage_descriptor *about = module->descriptor(0);
        const std::vector<moorage_value> values = values_of(*about, params);
        if (module->create(about->plugin_name, &host_, values.data(),
                           static_cast<uint32_t>(values.size()), &plugin_) != MOORAGE_OK)
            throw std::runtime_error(name + ": " + error_);
        moorage_limits limits{};
        limits.size = sizeof(limits);
        limits.layers = limits.experts = limits.top_k = limits.tokens_max = 1;
        if (plugin_->activate(plugin_, &limits) != MOORAGE_OK) throw std::runtime_error(error_);
        table_ = static_cast<const moorage_placement *>(
            plugin_->get_interface(plugin_, MOORAGE_INTERFACE_PLACEMENT));
        if (table_ == nullptr) throw std::runtime_error(name + " is no placement policy");
    }
    placement_policy(const placement_policy &) = delete;
    ~placement_policy() {
        plugin_->deactivate(plugin_);
        plugin_->destroy(plugin_);
    }

    std::vector<moorage_copy> plan(const moorage_cluster &cluster, const moorage_demand &demand,
                                   const std::vector<moorage_copy> &current = {}) {
        std::vector<moorage_copy> copies(size_t{demand.host_model_first[demand.models]} *
                                         cluster.devices);
        uint64_t count = 0;
        if (table_->plan(plugin_, &cluster, &demand, current.data(), current.size(), copies.data(),
                         &count) != MOORAGE_OK)
            throw std::runtime_error(error_);
        copies.resize(count);
        return copies;
    }
    std::vector<moorage_copy> plan(placement_scene &scene,
                                   const std::vector<moorage_copy> &current = {}) {
        return plan(scene.cluster(), scene.demand(), current);
    }
    std::map<std::string, double> facts() {
        std::map<std::string, double> stated;
        const auto *table = static_cast<const moorage_facts *>(
            plugin_->get_interface(plugin_, MOORAGE_INTERFACE_FACTS));
        if (table == nullptr) return stated;
        moorage_fact list[64];
        const uint32_t count = table->facts(plugin_, list, 64);
        for (uint32_t i = 0; i < count; ++i) stated[list[i].plugin_name] = list[i].value;
        return stated;
    }
    bool decides() const { return table_->adopt != nullptr; }
    bool adopt(const moorage_move &move) { return table_->adopt(plugin_, &move) != 0; }

private:
    static placement_policy &self(const moorage_host *host) {
        return *static_cast<placement_policy *>(host->host_data);
    }
    static void set_error(const moorage_host *host, const char *text) { self(host).error_ = text; }
    static const void *find_service(const moorage_host *, const char *id) {
        static constexpr moorage_random randoms{
            sizeof(randoms), 0, [](const moorage_host *h) { return self(h).generator_(); }};
        static constexpr moorage_log logs{sizeof(logs), 0,
                                          [](const moorage_host *, int32_t, const char *) {}};
        if (std::string_view(id) == MOORAGE_SERVICE_RANDOM) return &randoms;
        if (std::string_view(id) == MOORAGE_SERVICE_LOG) return &logs;
        return nullptr;
    }

    moorage_host host_{};
    std::string error_;
    std::mt19937_64 generator_;
    moorage_plugin *plugin_ = nullptr;
    const moorage_placement *table_ = nullptr;
};

// The rule that a plan breaks, as a sentence; empty if it breaks none. Rules are those of every
// policy.
inline std::string plan_fault(placement_scene &scene, const std::vector<moorage_copy> &copies) {
    std::vector<uint64_t> used(scene.devices());
    std::vector<uint8_t> placed(size_t{scene.devices()} * scene.expert_count()),
        covered(scene.expert_count());
    for (const moorage_copy &copy : copies) {
        const std::string description =
            "expert " + std::to_string(copy.expert) + " on device " + std::to_string(copy.device);
        if (copy.expert >= scene.expert_count() || copy.device >= scene.devices())
            return description + " does not exist";
        uint8_t &mark = placed[size_t{copy.device} * scene.expert_count() + copy.expert];
        if (mark++ != 0) return description + " is there twice";
        uint32_t model = 0;
        while (scene.first[model + 1] <= copy.expert) ++model;
        used[copy.device] += scene.expert_bytes[model];
        covered[copy.expert] = 1;
        if (used[copy.device] > scene.device_bytes[copy.device])
            return description + " does not fit";
    }
    if (!scene.cloud_s.empty()) return {};
    for (uint32_t m = 0; m < scene.models(); ++m) {
        bool asked = false;
        for (uint32_t h = 0; h < scene.homes; ++h)
            asked = asked || scene.home_model[size_t{h} * scene.models() + m] > 0;
        for (uint32_t x = scene.first[m]; asked && x < scene.first[m + 1]; ++x)
            if (covered[x] == 0) return "expert " + std::to_string(x) + " has no copy";
    }
    return {};
}

}  // namespace moorage::test
