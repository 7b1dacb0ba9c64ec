// report.hpp - the facts that the joint policy states about its plan; joint.cpp explains them.
#pragma once

#include <algorithm>
#include <vector>

#include "layer_bound.hpp"
#include "planning.hpp"

namespace moorage::joint {

class report {
public:
    // The state has the plan.
    explicit report(planning &run)
        : run_(run),
          fixed_s_(run.latency().fixed_s()),
          latency_s_(run.state.latency_s()),
          objective_s_(fixed_s_ + latency_s_) {
        add("objective_s", objective_s_);
        if (!run_.cover) add("saved_s", run_.latency().empty_s() - objective_s_);
        add("remote_calls", run_.state.remote_calls());
        if (!run_.options.is_remote()) add_latency_bound();
        if (run_.options.is_remote() || run_.options.limits_remote()) add_remote_bound();
        add("steps", static_cast<double>(run_.state.steps()));
        add("start", run_.best_start);
    }
    const std::vector<moorage_fact> &facts() const { return facts_; }

private:
    void add(const char *name, double value) { facts_.push_back({name, value}); }
    void add_latency_bound() {
        if (run_.bound.is_too_large()) return;
        run_.bound.set_weights({1, 0, 0});
        run_.bound.ascend(latency_s_, run_.bound.affordable_steps());
        layer_bound whole_layers(run_.latency(), run_.times(), run_.cover);
        const double least_s = whole_layers.value(latency_s_, /*steps=*/100);
        const double bound_s = fixed_s_ + std::max(run_.bound.value(), least_s);
        add("bound_s", bound_s);
        add("gap", bound_s > 0 ? objective_s_ / bound_s - 1 : 0);
        if (run_.cover) return;
        const double saved_s = run_.latency().empty_s() - objective_s_;
        const double saved_bound_s = run_.latency().empty_s() - bound_s;
        add("saved_bound_s", saved_bound_s);
        add("saved_gap", saved_bound_s > 0 ? 1 - saved_s / saved_bound_s : 0);
    }
    void add_remote_bound() {
        const double remote = run_.state.remote_calls();
        lower_bound bound(run_.latency(), run_.times(), {0, 1, 0}, run_.cover);
        if (bound.is_too_large()) return;
        bound.ascend(remote, bound.affordable_steps());
        const double least = std::max(0.0, bound.value());
        add("remote_bound", least);
        if (run_.options.is_remote()) add("gap", least > 0 ? remote / least - 1 : 0);
    }

    planning &run_;
    const double fixed_s_, latency_s_, objective_s_;
    std::vector<moorage_fact> facts_;
};

}  // namespace moorage::joint
