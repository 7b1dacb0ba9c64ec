// rival_plans.hpp - plans of the other policies, from which the joint policy starts.
//
// So no plan of theirs is better than its own, whatever the search does. Policies that draw are
// left out (random, redundance, uniform with order = random), so equal input gives an equal plan.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "../eplb/eplb.hpp"
#include "../lfu.hpp"
#include "../prism/prism.hpp"
#include "../slim/slim_dp.hpp"
#include "../slim/slim_greedy.hpp"
#include "../slim/slim_maxconv.hpp"
#include "../smartmoe.hpp"
#include "../uniform.hpp"
#include "../ushape.hpp"

namespace moorage::joint {

class rival_plans {
public:
    // All are borrowed. `host` is the host of the calling policy.
    rival_plans(const moorage_host *host, const moorage_cluster &cluster,
                const moorage_demand &demand)
        : host_(host),
          cluster_(cluster),
          demand_(demand),
          copies_(size_t{demand.host_model_first[demand.models]} * cluster.devices) {}

    // Calls take(copies) with every plan, as long as has_steps(). A policy that refuses has no
    // plan.
    template <class Take, class HasSteps>
    void for_each_plan(Take take, HasSteps has_steps) {
        if (has_steps()) plan<policies::slim_greedy>(take, {});
        if (has_steps()) plan<policies::slim_greedy>(take, {{"per_byte", integer_value(0)}});
        if (has_steps()) plan<policies::slim_maxconv>(take, {});
        if (has_steps()) plan<policies::slim_dp>(take, {});
        if (has_steps()) plan<policies::lfu>(take, {});
        if (has_steps()) plan<policies::ushape>(take, {});
        if (has_steps()) plan<policies::uniform>(take, {});
        if (has_steps()) plan<policies::smartmoe>(take, {});
        if (has_steps()) plan<policies::eplb>(take, {});
        if (has_steps()) plan<policies::eplb>(take, {{"leftover", text_value("fill")}});
    }
    // Only Prism's plan, which the objective "both" refers to.
    template <class Take>
    void plan_by_prism(Take take) {
        plan<policies::prism>(take, {});
    }

private:
    using parameter_values = std::initializer_list<std::pair<std::string_view, moorage_value>>;
    static moorage_value integer_value(int64_t integer) {
        moorage_value value{};
        value.integer = integer;
        return value;
    }
    static moorage_value text_value(const char *content) {
        moorage_value value{};
        value.host_text = content;
        return value;
    }

    // Uses the policy's defaults, except for the given values.
    template <class Policy, class Take>
    void plan(Take take, parameter_values changed) {
        std::span<const param> declared;
        if constexpr (requires { Policy::params; }) declared = Policy::params;
        std::vector<moorage_value> values;
        for (const param &parameter : declared) {
            moorage_value value{};
            value.integer = parameter.integer_default, value.real = parameter.real_default;
            value.host_text = parameter.plugin_text_default;
            for (const auto &[key, replacement] : changed)
                if (key == parameter.plugin_key) value = replacement;
            values.push_back(value);
        }
        Policy policy(setup(host_, declared, values.data()));
        copies plan_copies(copies_.data(), copies_.size());
        try {
            policy.plan(cluster_, demand_, {}, plan_copies);
        } catch (const std::invalid_argument &) {
            return;
        }
        take(plan_copies.all());
    }

    const moorage_host *host_;
    const moorage_cluster &cluster_;
    const moorage_demand &demand_;
    std::vector<moorage_copy> copies_;
};

}  // namespace moorage::joint
