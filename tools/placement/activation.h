// activation.h - which experts the tokens of one model choose: frequencies, and sets chosen
// together.
//
// The source is a routing trace, a file of frequencies, or random drawing. Drawn popularity is
// rank^-zipf with the ranks of each layer shuffled. A token of a top-K model takes K distinct
// experts, one after another, by popularity among the remaining ones. If there are at most
// `exact_groups_max` sets of K and K is at most 8, all sets are listed with their exact
// probability. Otherwise a sample of `sample_tokens` tokens represents them. It is the same for all
// layers apart from their shuffles.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/config/cluster_config.h"
#include "core/config/hardware.h"
#include "core/source/trace.h"

namespace moorage::core {

// If there are groups, frequencies are exactly the sums over groups, in their order.
struct activation {
    std::vector<double> frequency;        // [layers, experts] of a token of the model
    std::vector<uint64_t> layer_group;    // [layers + 1] where a layer's groups begin; empty: no
                                          // groups
    std::vector<double> share;            // [groups] share of the tokens
    std::vector<uint32_t> group_experts;  // [groups, top_k] ids in the layer, ascending
    bool has_groups() const { return !layer_group.empty(); }
};

inline constexpr uint32_t exact_groups_max = 2000, exact_top_k_max = 8, sample_tokens = 4096;

// `stream` separates models, and homes that have their own shuffle.
struct draw_options {
    double zipf = 0;
    uint64_t seed = 0, stream = 0;
    uint32_t groups_max = 0;  // per layer; 0: only frequencies
};
activation draw_activation(const model_shape &shape, const draw_options &options);

// The requests of a trace that belong to the workload's domains, and of these every request_step-th
// one.
result<std::vector<uint64_t>> chosen_requests(const trace &trace, const cluster_workload &workload);
// Do the trace's layers, experts and top_k equal the model's?
bool fits(const trace &trace, const model_shape &shape);
// Uses at most `groups_max` tokens, evenly spaced. 0: all tokens, and no groups.
activation trace_activation(const trace &trace, const std::vector<uint64_t> &requests,
                            uint32_t groups_max);

// A file of activation shares. `frequency` [subjects, layers, experts] in f32 sums to 1 in each
// layer. Optional: `requests` [subjects] in i32, the weights of subjects. Metadata: format
// "moorage.frequency", model, layers, experts, top_k and subjects.
class frequency_file {
public:
    static result<frequency_file> open(const std::filesystem::path &path);
    static result<frequency_file> from_bytes(std::span<const std::byte> bytes,
                                             const std::string &name);
    uint32_t layers() const { return layers_; }
    uint32_t experts() const { return experts_; }
    uint32_t top_k() const { return top_k_; }
    const std::vector<std::string> &subjects() const { return subjects_; }
    bool fits(const model_shape &shape) const {
        return layers_ == shape.moe_layers && experts_ == shape.experts && top_k_ == shape.top_k;
    }
    // For the named subjects, or for all if none is named. Has groups if a token chooses a single
    // expert.
    result<activation> read(const std::vector<std::string> &subjects) const;

private:
    std::string name_;
    uint32_t layers_ = 0, experts_ = 0, top_k_ = 0;
    std::vector<std::string> subjects_;
    std::vector<float> shares_;    // [subjects, layers, experts]
    std::vector<double> weights_;  // [subjects]
};

}  // namespace moorage::core
