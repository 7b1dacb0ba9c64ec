// settings.hpp - the parameters of the joint policy, as numbers.
#pragma once

#include <moorage/moorage.hpp>

#include "terms.hpp"

namespace moorage::joint {

enum class objective { latency, both, remote };

// joint.cpp explains each parameter.
struct settings {
    explicit settings(const setup &setup)
        : goal(read_objective(setup)),
          remote_s(setup.real("remote_s")),
          load_weight(setup.real("load_weight")),
          payback_s(setup.real("payback_s")),
          move_cost_s(setup.real("move_cost_s")),
          effort(static_cast<uint64_t>(setup.integer("effort"))),
          kicks(static_cast<uint64_t>(setup.integer("kicks"))) {}

    bool is_remote() const { return goal == objective::remote; }
    bool limits_remote() const { return goal == objective::both; }
    cost_weights weights() const {
        if (is_remote()) return {1e-9, 1, load_weight};
        return {1, remote_s, load_weight};
    }
    // The cost that the bound is for: remote calls alone, or the cost without load and moves.
    cost_weights bound_weights() const {
        if (is_remote()) return {0, 1, 0};
        return {1, remote_s, 0};
    }

    const objective goal;
    const double remote_s, load_weight, payback_s, move_cost_s;
    const uint64_t effort, kicks;

private:
    static objective read_objective(const setup &setup) {
        if (setup.text("objective") == "remote") return objective::remote;
        return setup.text("objective") == "both" ? objective::both : objective::latency;
    }
};

}  // namespace moorage::joint
