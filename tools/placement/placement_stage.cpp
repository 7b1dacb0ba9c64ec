// placement_stage.cpp - asks policies for plans, and decides whether one replaces another.
#include "tools/placement/placement_stage.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "core/base/text.h"
#include "core/config/stage_policy.h"

namespace moorage::core {

namespace {

bool precedes(const moorage_copy &a, const moorage_copy &b) {
    return a.expert != b.expert ? a.expert < b.expert : a.device < b.device;
}

// Limits for anything that a placement policy of several kinds may ask about a model.
moorage_limits limits_of(const scene &scene) {
    const auto most = [](const std::vector<uint32_t> &values) {
        return values.empty() ? 1 : *std::max_element(values.begin(), values.end());
    };
    moorage_limits limits{};
    limits.size = sizeof(limits);
    limits.layers = most(scene.demand.model_layers);
    limits.experts = most(scene.demand.model_experts);
    limits.top_k = most(scene.demand.model_top_k);
    limits.tokens_max = limits.requests_max = limits.pools = limits.segments = 1;
    limits.transfers_max = 1;
    limits.expert_bytes =
        *std::max_element(scene.demand.expert_bytes.begin(), scene.demand.expert_bytes.end());
    return limits;
}

}  // namespace

weighed_move::weighed_move(const scene &scene, std::span<const moorage_copy> current,
                           std::span<const moorage_copy> candidate, double remote_call_s,
                           double interval_s)
    : scene_(scene), cluster_(scene.cluster.view()), demand_(scene.demand.view()) {
    table_.size = sizeof(table_);
    table_.host_cluster = &cluster_, table_.host_demand = &demand_;
    table_.host_current = current.data(), table_.current_count = current.size();
    table_.host_candidate = candidate.data(), table_.candidate_count = candidate.size();
    // Both are sorted, so one pass finds copies that only one of them has.
    size_t c = 0, n = 0;
    while (c < current.size() || n < candidate.size()) {
        const bool removed =
            n == candidate.size() || (c < current.size() && precedes(current[c], candidate[n]));
        const bool added = !removed && (c == current.size() || precedes(candidate[n], current[c]));
        if (!removed && !added) {
            ++c, ++n;
            continue;
        }
        const moorage_copy &copy = removed ? current[c++] : candidate[n++];
        const uint64_t bytes = scene.demand.expert_bytes[model_of(scene, copy.expert)];
        const double rate = scene.cluster.device_load_bytes_per_s[copy.device];
        const double seconds =
            rate > 0 ? static_cast<double>(bytes) / rate : std::numeric_limits<double>::infinity();
        ++(removed ? table_.removed_copies : table_.added_copies);
        (removed ? table_.removed_s : table_.added_s) += seconds;
        if (added) table_.added_bytes += bytes;
    }
    table_.remote_per_s_current = remote_per_s(scene, current);
    table_.remote_per_s_candidate = remote_per_s(scene, candidate);
    table_.remote_call_s = remote_call_s;
    table_.interval_s = interval_s;
}

bool pays(const moorage_move &move) {
    const double saved_per_s =
        (move.remote_per_s_current - move.remote_per_s_candidate) * move.remote_call_s;
    return saved_per_s * move.interval_s > move.added_s + move.removed_s;
}

double remote_per_s(const scene &scene, std::span<const moorage_copy> copies) {
    const uint32_t experts = scene.demand.experts();
    std::vector<uint8_t> is_on_server(size_t{scene.cluster.servers} * experts);
    for (const moorage_copy &copy : copies)
        is_on_server[size_t{scene.cluster.device_server[copy.device]} * experts + copy.expert] = 1;
    double sum = 0;
    for (uint32_t home = 0; home < scene.demand.homes; ++home) {
        const double *frequency = scene.demand.frequency.data() + size_t{home} * experts;
        const uint8_t *near =
            is_on_server.data() + size_t{scene.cluster.home_server[home]} * experts;
        const uint8_t *held = scene.demand.home_holds.empty()
                                  ? nullptr
                                  : scene.demand.home_holds.data() + size_t{home} * experts;
        double calls = 0;  // of one token
        for (uint32_t e = 0; e < experts; ++e)
            if (!near[e] && !(held && held[e])) calls += frequency[e];
        sum += scene.demand.home_tokens_per_s[home] * calls;
    }
    return sum;
}

// A copy of the scene for the policy. Nothing reads it afterwards. Calls of this kind are few and
// long, so the cost of a copy does not matter.
struct lent_scene {
    cluster_arrays cluster;
    demand_arrays demand;
    std::vector<moorage_copy> current;

    lent_scene(const scene &scene, std::span<const moorage_copy> copies)
        : cluster(scene.cluster), demand(scene.demand), current(copies.begin(), copies.end()) {}
    status check_unchanged(const scene &scene, std::span<const moorage_copy> copies,
                           std::string_view policy_name, std::string_view call) const {
        const char *part = cluster != scene.cluster ? "the cluster" : "the demand";
        const auto same = [](const moorage_copy &a, const moorage_copy &b) {
            return a.expert == b.expert && a.device == b.device;
        };
        if (cluster == scene.cluster && demand == scene.demand) {
            if (std::equal(current.begin(), current.end(), copies.begin(), copies.end(), same))
                return success();
            part = "the current plan";
        }
        return error{format("placement plugin {}: {} wrote to {}, which was lent for reading",
                            policy_name, call, part)};
    }
};

result<std::unique_ptr<placement_stage>> placement_stage::open(const stage_config &config,
                                                               const registry &policies,
                                                               const scene &scene, uint64_t seed) {
    const auto found = find_policy(policies, config, "placement");
    if (!found) return found.failure();
    environment policy_environment;
    policy_environment.seed = seed;
    policy_environment.kind = "placement";
    auto created = instance::create(**found, config.params, policy_environment);
    if (!created) return created.failure();
    std::unique_ptr<placement_stage> stage(new placement_stage);
    stage->policy_ = std::move(created).value();
    if (const status active = stage->policy_->activate(limits_of(scene)); !active)
        return active.failure();
    return stage;
}

result<plan> placement_stage::make(const scene &scene, std::span<const moorage_copy> current) {
    const lent_scene shown(scene, current);
    const moorage_cluster cluster = shown.cluster.view();
    const moorage_demand demand = shown.demand.view();
    const uint64_t room = uint64_t{scene.demand.experts()} * scene.cluster.devices();
    copies_.assign(room, moorage_copy{});
    uint64_t count = 0;
    const auto begin = std::chrono::steady_clock::now();
    const status done = policy_->control(entry_point::placement_plan, [&](moorage_plugin *plugin) {
        return policy_->placement->plan(plugin, &cluster, &demand, shown.current.data(),
                                        shown.current.size(), copies_.data(), &count);
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (!done) return done.failure();
    if (const status kept = shown.check_unchanged(scene, current, name(), "plan"); !kept)
        return kept.failure();
    if (count > room)
        return error{
            format("placement plugin {}: the plan counts {} copies, and there was room "
                   "for {}",
                   name(), count, room)};
    plan advice;
    advice.policy = name();
    advice.seconds = took.count();
    advice.copies.assign(copies_.begin(), copies_.begin() + static_cast<ptrdiff_t>(count));
    if (const status sound = check_plan(scene, advice); !sound)
        return error{format("placement plugin {}: {}", name(), sound.failure().text)};
    auto stated = policy_->state_facts();
    if (!stated) return stated.failure();
    advice.facts = std::move(stated).value();
    return advice;
}

bool placement_stage::adopt(const weighed_move &move) {
    if (!policy_->placement->adopt) return pays(move.table());
    // A copy: the policy may write to it, and nothing else reads it.
    moorage_move table = move.table();
    const lent_scene shown(move.weighed_scene(), {table.host_current, table.current_count});
    const std::vector<moorage_copy> candidate(table.host_candidate,
                                              table.host_candidate + table.candidate_count);
    const moorage_cluster cluster = shown.cluster.view();
    const moorage_demand demand = shown.demand.view();
    table.host_cluster = &cluster, table.host_demand = &demand;
    table.host_current = shown.current.data(), table.host_candidate = candidate.data();
    uint32_t answer = 0;
    const status done = policy_->control(entry_point::placement_adopt, [&](moorage_plugin *plugin) {
        answer = policy_->placement->adopt(plugin, &table);
        return MOORAGE_OK;
    });
    return done.ok() && answer != 0;
}

result<first_plan> make_first_plan(const run_config &config, const registry &policies,
                                   const scene &scene) {
    first_plan first;
    const std::filesystem::path &plan_file = config.cluster->plan;
    if (config.placement.plugin.empty() && plan_file.empty())
        return error{format("{}: no [placement] plugin; name one, for example \"prism\" (moorage "
                            "plugins list), or a plan of moorage place",
                            config.cluster->place),
                     true};
    if (!config.placement.plugin.empty()) {
        auto opened = placement_stage::open(config.placement, policies, scene, config.seed);
        if (!opened) return opened.failure();
        first.policy = std::move(*opened);
    }
    auto plan = plan_file.empty() ? first.policy->make(scene, {}) : read_plan(plan_file, scene);
    if (!plan) return plan.failure();
    first.placement = std::move(*plan);
    return first;
}

}  // namespace moorage::core
