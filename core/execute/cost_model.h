// cost_model.h - the duration of each operation, from a hardware profile and a model shape.
//
// Uses roofline terms (bytes over bandwidth or operations over rate, whichever is longer). Adds
// constants without which real systems are mispredicted: per kernel launch, per layer, per
// hand-over to the host, per transfer. With an engine (hardware.h), reading, unpacking and
// arithmetic add up, and the launches and software of a layer are one constant. Durations are whole
// nanoseconds, rounded up. Functions depend on their arguments only.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "core/config/hardware_figures.h"
#include "moorage/base.h"

namespace moorage::core {

// Rounds up to whole nanoseconds or bytes, minus the error that arithmetic may have added.
// std::ceil would be a call. Requires: >= 0, below 2^63.
inline uint64_t rounded_up(double value) {
    const double least = value - 1e-6;
    const auto whole = static_cast<int64_t>(least);
    return static_cast<uint64_t>(whole + (static_cast<double>(whole) < least));
}

// One cost model for each device of a machine.
class cost_model;
struct device_costs {
    const cost_model &first;
    std::span<const cost_model> rest;
    inline const cost_model &of_device(uint32_t device) const;
};

class cost_model {
public:
    cost_model(const hardware_profile &hardware, const model_shape &shape);

    // Attention, norms, gate and shared experts of one layer for `tokens` tokens. Together they
    // look back on `context` cached tokens. Tokens of one sequence, such as a prompt, mostly share
    // them. The hand-over of the gate's result is not included. Requires: tokens > 0 with an
    // engine.
    uint64_t attention_ns(uint64_t tokens, uint64_t context, uint64_t sequences) const;
    uint64_t attention_ns(uint64_t tokens, uint64_t context) const {
        return attention_ns(tokens, context, tokens);
    }
    // Output head for `tokens` tokens, and the other costs that a pass has once.
    uint64_t head_ns(uint64_t tokens) const;
    // `share` of an expert (1: whole) in one of its versions for `tokens` tokens.
    uint64_t gpu_expert_ns(uint64_t tokens, double share, uint32_t version = 0) const {
        return tokens == 1 && share == 1 && version == 0
                   ? device_one_token_ns_
                   : price_device_expert(tokens, share, version);
    }
    uint64_t cpu_expert_ns(uint64_t tokens, double share) const {
        return tokens == 1 && share == 1 ? cpu_one_token_ns_ : price_cpu_expert(tokens, share);
    }
    // Drawing tokens from the logits of so many positions, by the host's software.
    uint64_t draw_ns(uint64_t positions) const;
    // The fixed part of an operation's time: what remains when nothing is read or computed.
    uint64_t attention_overhead_ns() const {
        const device_profile &device = hardware_.device;
        return device.layer_ns + device.attention_kernels * device.launch_ns;
    }
    uint64_t expert_overhead_ns() const { return hardware_.device.expert_ns + expert_loop_ns(); }
    uint64_t head_overhead_ns() const {
        return hardware_.device.pass_ns + hardware_.device.launch_ns;
    }
    uint64_t move_overhead_ns() const { return hardware_.device.launch_ns; }
    // The part of gpu_expert_ns for launches. Experts computed in one parallel loop pay it once.
    uint64_t expert_loop_ns() const {
        return uint64_t{hardware_.device.expert_kernels} * hardware_.device.launch_ns;
    }
    // Copying `share` of an expert within the device's memory.
    uint64_t move_ns(double share, uint32_t version = 0) const;
    // One transfer, host to GPU, alone on link and memory.
    uint64_t load_ns(uint64_t bytes) const {
        return bytes == shape_.expert_bytes ? load_expert_ns_ : price_load(bytes);
    }
    // One transfer from disk to host memory, alone. Requires: a disk.
    uint64_t read_ns(uint64_t bytes) const;
    // Moving the hidden states of `tokens` tokens from the first device to this one, alone, and
    // moving the results back. Requires: this is not the first device.
    uint64_t states_out_ns(uint64_t tokens) const;
    uint64_t results_back_ns(uint64_t tokens) const;
    uint64_t sync_ns() const { return hardware_.device.sync_ns; }

    // Bytes of `share` of an expert in one of its versions, rounded up.
    uint64_t expert_bytes(double share, uint32_t version = 0) const {
        return share == 1 && version == 0 ? shape_.expert_bytes : part_bytes(share, version);
    }
    // Activations of `tokens` tokens, one way, 16 bits a value.
    uint64_t activation_bytes(uint64_t tokens) const { return tokens * shape_.hidden * 2; }

    const hardware_profile &hardware() const { return hardware_; }
    const model_shape &shape() const { return shape_; }
    // In real runs the profile is only the starting point. Each timed operation moves a factor for
    // its kind, a mean over about the last sixteen. All later answers of that kind are multiplied
    // by the factor. `modelled_ns`: what this model said of the operation just before. Never called
    // in virtual time.
    enum term : uint32_t { attention, device_expert, cpu_expert, load, read, term_count };
    void observe(term kind, uint64_t modelled_ns, uint64_t measured_ns);

    // For the policies (moorage_costs); `context` as in attention_ns for one token.
    moorage_costs summary(uint64_t context);
    // The same, for the context of the last summary().
    void refresh(moorage_costs &costs) const;

private:
    double read_s(double bytes) const { return bytes / read_bytes_per_s_; }
    // Weights in a byte, and the time to unpack a byte of them.
    struct weight_format {
        double weights_per_byte = 0, unpack_byte_s = 0;
    };
    weight_format format_of(double bits) const;
    // Reading the weights and multiplying them, for `tile_tokens` more tokens than there are.
    double work_s(const weight_format &format, double bytes, uint64_t tokens,
                  double tile_tokens) const;
    // Whether so many tokens stream past the weights.
    bool is_few(uint64_t tokens) const {
        return tokens > 1 && tokens <= hardware_.device.few_tokens;
    }
    double look_back_s(uint64_t tokens, uint64_t context, uint64_t sequences) const;
    double state_bytes(uint64_t sequences) const;
    void price_layer();
    uint64_t price_device_expert(uint64_t tokens, double share, uint32_t version) const;
    uint64_t price_cpu_expert(uint64_t tokens, double share) const;
    uint64_t price_load(uint64_t bytes) const;
    uint64_t part_bytes(double share, uint32_t version) const;
    double bytes_of(uint32_t version) const {
        return static_cast<double>(version == 0 ? shape_.expert_bytes : shape_.small_expert_bytes);
    }
    uint64_t corrected(term kind, uint64_t ns) const;
    void price_one_token();

    hardware_profile hardware_;
    model_shape shape_;
    double layer_bytes_ = 0, head_bytes_ = 0;
    weight_format expert_format_, small_expert_format_, dense_format_, head_format_;
    uint64_t several_tokens_ns_ = 0;  // the extra time of a layer in a pass of several tokens
    double read_bytes_per_s_ = 0;     // rate at which the device reads weights
    uint64_t context_ = 1;
    std::array<double, term_count> factors_{1, 1, 1, 1, 1};
    // A whole expert for one token. Nearly every question in decoding is this one.
    uint64_t device_one_token_ns_ = 0, cpu_one_token_ns_ = 0, load_expert_ns_ = 0;
};

const cost_model &device_costs::of_device(uint32_t device) const {
    return device == 0 ? first : rest[device - 1];
}

}  // namespace moorage::core
