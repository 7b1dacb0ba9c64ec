// kernels.h - the arithmetic of a layer on the CPU: float32 sums over weights of any type.
//
// Activations are float32, row-major, one token a row. Weights are read in place and widened in
// registers. Every function gives the same bits for the same arguments, whatever the number of
// threads. Vector instructions are chosen at run time (Highway).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/execute/thread_pool.h"
#include "core/model/weights.h"

namespace moorage::core {

// Rows of float32 values; row t begins at data + t * stride.
struct rows {
    float *data = nullptr;
    size_t stride = 0;
};
struct const_rows {
    const float *data = nullptr;
    size_t stride = 0;
    const_rows() = default;
    const_rows(const float *values, size_t step) : data(values), stride(step) {}
    const_rows(rows source) : data(source.data), stride(source.stride) {}
};

// output[t, r] = sum over c of weights[r, c] input[t, c], plus bias[r].
struct product {
    const matrix *weights;
    const_rows input;
    rows output;
    std::span<const float> bias = {};
    bool rounds = true;   // fast arithmetic rounds activations to the weights' format
    bool finely = false;  // in fast arithmetic, 16 activations share a scale, whatever the format
                          // has
};
// Independent products of the same tokens, in one parallel loop. One token uses a matrix-vector
// kernel that streams the weights. Many tokens use a blocked kernel.
void multiply(thread_pool &pool, uint32_t tokens, std::span<const product> products);

// The kernel that multiplies bf16 weights with activations rounded to bf16: "amx" or "vectors".
// "floats" rounds no activations. The orders of their sums differ.
std::string_view pair_kernel_name();

// One expert's rows [first, first + count) of the intermediate dimension, for some tokens:
// output[t] = or += down(activation(gate x[t]) * (up x[t])), summed part by part (expert_parts).
// `weights` holds these rows alone: gate and up [count, hidden], down [hidden, count], biases of
// gate and up [count]. down_bias is added with the first part only. `first` is at the border of a
// part. Segments of an expert come in rising order, the first with add = false.
struct mlp_call {
    const mlp_weights *weights;
    uint32_t intermediate;  // of the whole expert
    uint32_t first, count;
    activation_kind activation;
    float limit;  // clamped_swiglu
    uint32_t tokens;
    // Row numbers of the tokens in input; null: 0, 1, 2, ... Rows of output are 0, 1, 2, ...
    const uint32_t *gathered;
    const_rows input;  // [.., hidden]
    rows output;       // [tokens, hidden]
    bool add;
    uint32_t unit = usual_part_unit;  // part unit of the expert
};
// Its scratch grows to the needs of the largest call and stays.
class mlp_kernel {
public:
    explicit mlp_kernel(thread_pool &pool);
    ~mlp_kernel();
    void operator()(const mlp_call &call);
    // Several calls in one parallel loop: the experts of a decode step.
    void operator()(std::span<const mlp_call> calls);

private:
    thread_pool &pool_;
    struct scratch;
    scratch *scratch_;
};

// Attention of a batch over its caches. Token t attends to positions [first_positions[t],
// positions[t]] of its stream's cache. Keys and values are float32. In half precision the golden
// models' logits were off by up to 1.8e-3 of the largest, and a router near its threshold
// (Phi-3.5-MoE's) chose otherwise. In float32 they are within 2.1e-6 (`moorage model check`).
struct attention_call {
    uint32_t tokens, heads, kv_heads, head_dim, value_dim;
    float scale;
    const_rows query;                 // [tokens, heads * head_dim]
    rows output;                      // [tokens, heads * value_dim]
    const float *const *keys;         // [tokens] the stream's cache: position p at p * key_stride
    const float *const *values;       // [tokens]
    size_t key_stride, value_stride;  // number of values from one position to the next
    const uint32_t *first_positions, *positions;  // [tokens]
    std::span<const float> sinks;                 // [heads] or empty
};
void attend(thread_pool &pool, const attention_call &call);

void widen(const matrix &source, uint32_t row, float *target);  // one row, for embeddings
// output[t] = weight * input[t] / sqrt(mean(input[t]^2) + epsilon), or with mean and bias.
void normalise(norm_kind kind, const norm_weights &weights, float epsilon, uint32_t tokens,
               uint32_t width, const_rows input, rows output);

}  // namespace moorage::core
