// activation.h - which experts tokens of one model choose: frequencies, and sets chosen together.
//
// From a routing trace, from a file of frequencies, or drawn. The drawn ones: popularity rank^-zipf
// with the ranks of each layer shuffled; a token of a top-K model takes K distinct experts, one
// after another by popularity among those left. All sets of K are listed with their exact
// probability where there are at most `exact_groups_max` of them and K is at most 8; else a sample
// of `sample_tokens` tokens stands for them, the same for all layers but for their shuffles.
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

// Frequencies are exactly the sums over groups, in their order, where there are groups.
struct activation {
    std::vector<double> frequency;        // [layers, experts] of a token of the model
    std::vector<uint64_t> layer_group;    // [layers + 1] groups of a layer; empty: not known
    std::vector<double> share;            // [groups] of the tokens
    std::vector<uint32_t> group_experts;  // [groups, top_k] in the layer, ascending
    bool has_groups() const { return !layer_group.empty(); }
};

inline constexpr uint32_t exact_groups_max = 2000, exact_top_k_max = 8, sample_tokens = 4096;

// `stream` keeps models, and homes with a shuffle of their own, apart.
struct drawing {
    double zipf = 0;
    uint64_t seed = 0, stream = 0;
    uint32_t groups_max = 0;  // of a layer; 0: only frequencies
};
activation draw_activation(const model_shape &shape, const drawing &how);

// Requests of a trace: of the workload's domains, and every request_step-th of them all.
result<std::vector<uint64_t>> chosen_requests(const trace &from, const cluster_workload &workload);
// Whether the trace's layers, experts and top_k are the model's.
bool fits(const trace &from, const model_shape &shape);
// At most `groups_max` tokens, evenly spaced, where it is not 0; else all, and no groups.
activation trace_activation(const trace &from, const std::vector<uint64_t> &requests,
                            uint32_t groups_max);

// A file of activation shares: `frequency` [subjects, layers, experts] in f32, a layer's summing
// to 1, optionally `requests` [subjects] in i32, by which subjects are weighted; metadata has
// format "moorage.frequency", model, layers, experts, top_k and subjects.
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
    // Of the subjects named, all where none are. Groups where a token chooses a single expert.
    result<activation> read(const std::vector<std::string> &subjects) const;

private:
    std::string name_;
    uint32_t layers_ = 0, experts_ = 0, top_k_ = 0;
    std::vector<std::string> subjects_;
    std::vector<float> shares_;    // [subjects, layers, experts]
    std::vector<double> weights_;  // [subjects]
};

}  // namespace moorage::core
