// routing.h - a model's own routing rule: from router logits to scores, chosen experts and weights.
//
// Pure functions of one token's logits, so every executor routes on the host with the same bits. If
// several experts are equal, the one with the smaller index is chosen.
#pragma once

#include <cstdint>
#include <span>

#include "core/model/model_config.h"

namespace moorage::core {

class routing_rule {
public:
    // Copies `experts`, `top_k` and the rule.
    explicit routing_rule(const model_config &config);

    // scores [experts]: the probability of every expert, as gate_scores of a trace. For sigmoid:
    // the sigmoids. For softmax_of_chosen and sparsemixer: the softmax over all. `logits` [experts]
    // already contain the router's bias.
    void scores(std::span<const float> logits, std::span<float> gate_scores) const;
    // The model's choice, best first: chosen [top_k], weights [top_k]. `correction`: [experts], or
    // empty.
    void choose(std::span<const float> logits, std::span<const float> correction,
                std::span<uint32_t> chosen, std::span<float> weights) const;
    // The weights that the model's rule gives to another choice, in the order of `chosen`.
    void weigh(std::span<const float> logits, std::span<const uint32_t> chosen,
               std::span<float> weights) const;

private:
    router_config rule_;
    uint32_t experts_, top_k_;
};

}  // namespace moorage::core
