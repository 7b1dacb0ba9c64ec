// router_stage.cpp - one call, and the check of its result.
#include "core/router/router_stage.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/text.h"

namespace moorage::core {

bool router_stage::valid(const layer_step &step, std::string &why) const {
    const moorage_step &view = step.view();
    for (uint32_t token = 0; token < view.token_count; ++token) {
        const uint32_t *experts = step.routed.data() + size_t{token} * view.top_k;
        for (uint32_t rank = 0; rank < view.top_k; ++rank) {
            if (experts[rank] >= view.experts) {
                why = format("layer {}: expert {} of token {} is beyond the {} experts of a layer",
                             view.layer, experts[rank], token, view.experts);
                return false;
            }
            if (std::find(experts, experts + rank, experts[rank]) != experts + rank) {
                why = format("layer {}: expert {} is chosen twice for token {}", view.layer,
                             experts[rank], token);
                return false;
            }
        }
    }
    return true;
}

bool router_stage::select(layer_step &step, uint64_t &substituted) {
    const moorage_step &view = step.view();
    const size_t count = size_t{view.token_count} * view.top_k;
    std::fill_n(step.routed_weights.begin(), count, std::numeric_limits<float>::quiet_NaN());
    std::fill_n(step.routed_classes.begin(), count, uint8_t{MOORAGE_CLASS_TOP});
    moorage_route route{sizeof(route), 0, step.routed.data(), step.routed_weights.data(),
                        step.routed_classes.data()};
    const uint32_t routed = policy_.router->select(policy_.plugin(), &view, &route);
    if (routed == 0) return true;
    std::string why;
    if (routed != view.token_count)
        why = format("{} of {} tokens routed", routed, view.token_count);
    else if (valid(step, why)) {
        substituted += step.adopt_route();
        return true;
    }
    return faults_.report(policy_.name(), why);
}

}  // namespace moorage::core
