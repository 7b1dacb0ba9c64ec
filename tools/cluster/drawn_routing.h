// drawn_routing.h - draws the experts of tokens if only statistics are known. Draws are without
// replacement, by a hash of seed, token and layer, so asking again gives the same.
//
// From groups (which experts a token chooses together, and how often), a whole group is drawn. From
// frequencies alone, systematic sampling is used (Madow 1949). Frequencies that sum to k are laid
// end to end and read at u, u + 1, ... So every expert is chosen exactly as often as stated;
// drawing one after another would not keep that. The order of the experts decides which ones are
// chosen together. Each layer has several shuffled orders.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "tools/placement/scene.h"

namespace moorage::core {

class drawn_routing {
public:
    // frequency [layers, experts]: how often tokens choose each expert, in any unit. Each layer is
    // scaled to sum to top_k. If an expert then exceeds 1, the excess goes to the others. In a
    // layer of zeros all experts are equally frequent.
    static result<drawn_routing> from_frequency(uint32_t layers, uint32_t experts, uint32_t top_k,
                                                std::span<const double> frequency, uint64_t seed);
    // The routing of a home for a model: from its groups if the demand has calls, otherwise from
    // its frequencies.
    static result<drawn_routing> from_demand(const demand_arrays &demand, uint32_t home,
                                             uint32_t model, uint64_t seed);

    uint32_t layers() const { return layers_; }
    uint32_t experts() const { return experts_; }
    uint32_t top_k() const { return top_k_; }
    // The top_k distinct experts of a token. Draws with different seeds are independent.
    void draw(uint64_t seed, uint64_t token, uint32_t layer, uint32_t *chosen) const;

private:
    static constexpr uint32_t orders = 8;  // for each layer, from frequencies
    drawn_routing(uint32_t layers, uint32_t experts, uint32_t top_k)
        : layers_(layers), experts_(experts), top_k_(top_k) {}
    void lay_out(std::span<const double> frequency, uint64_t seed);
    status take_groups(const demand_arrays &demand, uint32_t home, uint32_t model);
    void add_alias_table(std::span<const std::pair<uint32_t, double>> calls);

    uint32_t layers_, experts_, top_k_;
    // From frequencies, [layers, orders, ...]: ends of the experts' stretches in units of 2^-24;
    // the expert of each stretch; and, for equal parts of the length, the stretch in which each
    // part begins.
    std::vector<uint32_t> ends_;
    std::vector<uint16_t> experts_at_, guide_;
    uint32_t guides_ = 0, guide_shift_ = 0;
    // From groups: alias tables over the calls of each layer.
    struct column {
        uint32_t chance;                     // out of 2^32
        uint32_t first_group, second_group;  // groups, top_k experts each
    };
    std::vector<uint64_t> layer_first_;  // [layers + 1] into columns_
    std::vector<column> columns_;
    std::vector<uint16_t> group_experts_;
};

}  // namespace moorage::core
