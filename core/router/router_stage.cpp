// router_stage.cpp - one call, the check of its result, and the account of it.
#include "core/router/router_stage.h"

#include <algorithm>
#include <cmath>

#include "core/base/invariant.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr uint64_t millionths = 1'000'000;

}  // namespace

router_stage::router_stage(instance &policy, fault_log &faults, const routing_rules &rules,
                           uint32_t streams)
    : policy_(policy),
      faults_(faults),
      rules_(rules),
      max_millionths_(static_cast<uint64_t>(std::llround(rules.substitution_max * 1e6))),
      requests_(streams) {
    MOORAGE_INVARIANT(rules.substitution_max >= 0 && rules.substitution_max <= 1);
    MOORAGE_INVARIANT(std::is_sorted(rules.exact_requests.begin(), rules.exact_requests.end()));
}

std::string router_stage::route_error(const layer_step &step, uint32_t routed_count) const {
    const moorage_step &view = step.view();
    if (routed_count != view.token_count)
        return format("{} of {} tokens routed", routed_count, view.token_count);
    for (uint32_t token = 0; token < view.token_count; ++token) {
        const uint32_t *experts = step.routed.data() + size_t{token} * view.top_k;
        for (uint32_t rank = 0; rank < view.top_k; ++rank) {
            if (experts[rank] >= view.experts)
                return format("layer {}: expert {} of token {} is beyond the {} experts of a layer",
                              view.layer, experts[rank], token, view.experts);
            if (std::find(experts, experts + rank, experts[rank]) != experts + rank)
                return format("layer {}: expert {} is chosen twice for token {}", view.layer,
                              experts[rank], token);
        }
        const uint8_t *classes = step.routed_classes.data() + size_t{token} * view.top_k;
        const auto unknown = std::find_if(classes, classes + view.top_k, [](uint8_t expert_class) {
            return expert_class > MOORAGE_CLASS_SMALL;
        });
        if (unknown != classes + view.top_k)
            return format("layer {}: token {} has an expert of class {}, and {} is the last one",
                          view.layer, token, *unknown, int{MOORAGE_CLASS_SMALL});
        if (std::count(classes, classes + view.top_k, MOORAGE_CLASS_DROPPED) == view.top_k)
            return format("layer {}: all {} experts of token {} are dropped; one has to stay",
                          view.layer, view.top_k, token);
    }
    if (rules_.lossy) return "";
    return format(
        "layer {}: the route is not the model's own, and the policy does not declare "
        "MOORAGE_POLICY_LOSSY",
        view.layer);
}

// Where the source has no weights nothing is computed with any.
std::string router_stage::weights_error(const layer_step &step) const {
    const moorage_step &view = step.view();
    const bool may_differ = rules_.lossy || !step.knows_weights();
    for (uint32_t token = 0; token < view.token_count; ++token) {
        for (size_t i = size_t{token} * view.top_k; i < size_t{token + 1} * view.top_k; ++i)
            if (std::isinf(step.routed_weights[i]))
                return format(
                    "layer {}: the weight of expert {} for token {} is {}; it must be finite, or "
                    "NaN for the model's own",
                    view.layer, step.routed[i], token, step.routed_weights[i]);
        if (!may_differ && step.count_changes(token).total() != 0)
            return format(
                "layer {}: weights of token {} are not those of the model's own rule, and the "
                "policy does not declare MOORAGE_POLICY_LOSSY",
                view.layer, token);
    }
    return "";
}

bool router_stage::is_exact(uint64_t request) const {
    return std::binary_search(rules_.exact_requests.begin(), rules_.exact_requests.end(), request);
}

// One token: its route stands, or the model's own where the rules want that.
void router_stage::limit_row_changes(layer_step &step, uint32_t row, layer_report &report) {
    const moorage_step &view = step.view();
    request_account &request = requests_[view.host_streams[row]];
    if (request.id != view.host_requests[row]) request = {view.host_requests[row]};
    request.choices += view.top_k;
    layer_step::changes changed = step.count_changes(row);
    const bool exact = is_exact(request.id);
    const bool over_limit =
        (request.substituted + changed.total()) * millionths > request.choices * max_millionths_;
    if (exact || (changed.total() != 0 && over_limit)) {
        step.restore_row(row);
        (exact ? report.routing.held_exact : report.routing.held_cap) += changed.total();
        changed = {};
    }
    request.substituted += changed.total();
    report.experts.substituted += changed.total();
    report.routing.reweighted += changed.reweighted;
    report.routing.dropped += changed.dropped;
    report.routing.small += changed.small;
    report.routing.rows_unchanged += changed.total() == 0;
}

void router_stage::limit_changes(layer_step &step, layer_report &report) {
    const uint32_t rows = step.view().token_count;
    report.routing.choices += step.chosen().size();
    report.routing.rows += rows;
    if (!rules_.lossy) {
        report.routing.rows_unchanged += rows;  // route_error() saw to it
        return;
    }
    for (uint32_t row = 0; row < rows; ++row) limit_row_changes(step, row, report);
}

bool router_stage::select(layer_step &step, source &source, const pass &tokens,
                          layer_report &report, bool ask_policy) {
    const moorage_step &view = step.view();
    step.clear_route();
    moorage_route route{sizeof(route), 0, step.routed.data(), step.routed_weights.data(),
                        step.routed_classes.data()};
    const uint32_t routed_count =
        ask_policy
            ? policy_.call(entry_point::router_select, policy_.router->select, step.lent(), &route)
            : 0;
    // One check finds the usual result of a step.
    const bool known_flags = (route.flags & ~uint32_t{MOORAGE_ROUTE_RENORMALISE}) == 0;
    const bool repeats_model =
        routed_count == view.token_count && known_flags && step.repeats_own();
    if (repeats_model && !step.gives_weights()) {
        limit_changes(step, report);
        step.adopt_route(false, false);
        return true;
    }
    if (ask_policy && routed_count == 0) faults_.note_no_advice(policy_.name());
    std::string error;
    if (routed_count != 0) {
        if (!known_flags)
            error = format("layer {}: the route has flags {:#x}, which nobody knows", view.layer,
                           route.flags);
        else if (!repeats_model)
            error = route_error(step, routed_count);
        if (error.empty()) step.weigh_route(source, tokens);
        if (error.empty() && step.gives_weights()) error = weights_error(step);
    }
    const bool accepted = routed_count != 0 && error.empty();
    if (!accepted)
        for (uint32_t row = 0; row < view.token_count; ++row) step.restore_row(row);
    limit_changes(step, report);
    if (accepted) step.adopt_route(!repeats_model, (route.flags & MOORAGE_ROUTE_RENORMALISE) != 0);
    return error.empty() || faults_.report(policy_.name(), error);
}

}  // namespace moorage::core
