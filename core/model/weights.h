// weights.h - the weights of a model as kernels read them: matrices in place, in the type of the
// file.
//
// If the file's layout allows it, a matrix is borrowed from the mapped file: rows of outputs, each
// row contiguous. Otherwise it is converted once into memory of the model's own. Small vectors
// (norms, biases) are copied as floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/model/model_config.h"
#include "core/model/weight_types.h"

namespace moorage::core {

// Row-major [rows, columns]: y = W x. Null `data`: the model has no such matrix.
struct matrix {
    const std::byte *data = nullptr;
    const std::byte *scales = nullptr;  // of its blocks, rows scale_row_bytes apart; null: not
                                        // separate
    weight_type type = usual_weights;
    uint32_t rows = 0, columns = 0;
    uint64_t row_bytes = 0;              // from one row to the next
    uint64_t scale_row_bytes = 0;        // from one row of scales to the next
                                         // (weight_format::scale_rows)
    const uint32_t *group_of = nullptr;  // int4_ordered: [columns] the group of each
    explicit operator bool() const { return data != nullptr; }
};
// A matrix without gaps between its rows. `scales`: only for formats with separate scales.
matrix packed_matrix(weight_type type, uint32_t rows, uint32_t columns, const std::byte *data,
                     const std::byte *scales = nullptr);
// Bytes of a row of separate scales, and the number of such rows.
uint64_t scale_bytes_of(const matrix &weights);
uint32_t scale_rows_of(const matrix &weights);
// The scales of row `row`; null: not separate.
inline const std::byte *scales_at(const matrix &weights, uint64_t row) {
    return weights.scales
               ? weights.scales + row / format_of(weights.type).scale_rows * weights.scale_row_bytes
               : nullptr;
}
// Bytes of the values and scales of the whole matrix, without gaps between rows.
uint64_t bytes_of(const matrix &weights);

// Computes down(activation(gate x) * (up x)): an expert, a shared expert or a dense MLP.
struct mlp_weights {
    matrix gate, up;                                       // [intermediate, hidden]
    matrix down;                                           // [hidden, intermediate]
    std::span<const float> gate_bias, up_bias, down_bias;  // empty: none
};

// An expert is computed and stored in parts along the intermediate dimension. Sums over it are
// always taken part by part, in order. So a result has the same bits however the expert is split
// into segments, on a part's border, and whatever device computes it. All parts but the last are
// equal, a multiple of `unit` rows. There are at most eight. If a unit larger than the usual one
// does not divide the whole, there is one part.
inline constexpr uint32_t usual_part_unit = 32;
struct expert_parts {
    uint32_t intermediate, part;  // rows; part: of every part but the last
    uint32_t count() const { return (intermediate + part - 1) / part; }
};
expert_parts parts_of(uint32_t intermediate, uint32_t unit = usual_part_unit);
// The smallest unit whose borders cut no block of `down`.
uint32_t part_unit_of(const matrix &down);
// Rows of the top segment for the split ratio `theta`, rounded to the nearest border of a part. At
// least one part; all rows for theta = 1.
uint32_t top_rows(uint32_t intermediate, double theta, uint32_t unit = usual_part_unit);

struct norm_weights {
    std::span<const float> weight, bias;  // bias: layer norm only
};

struct attention_weights {
    matrix query, key, value, output;  // grouped; latent without q_lora: query and output only
    matrix query_a, query_b;           // latent with q_lora
    matrix kv_a;                       // latent: [kv_lora_rank + rope, hidden]
    matrix kv_b;                       // latent: [heads (nope + value), kv_lora_rank]
    // Instead of kv_b, if a file stores its halves separately; the keys' half is transposed:
    matrix key_up, value_up;  // [heads kv_lora_rank, nope], [heads value, kv_lora_rank]
    std::span<const float> query_bias, key_bias, value_bias, output_bias;
    std::span<const float> query_norm, key_norm;  // query_key_norm
    std::span<const float> query_a_norm, kv_a_norm;
    std::span<const float> sinks;  // [heads]
};

struct layer_weights {
    norm_weights attention_norm, mlp_norm;
    attention_weights attention;
    mlp_weights dense;                                    // of layers without experts
    mlp_weights shared;                                   // empty: none
    matrix shared_gate;                                   // [1, hidden]
    matrix router;                                        // [experts, hidden]
    std::span<const float> router_bias, correction_bias;  // [experts]
    std::vector<mlp_weights> experts;
};

// Calls body(matrix) for every matrix of a layer, or only for the experts' matrices.
template <class Body>
void each_matrix(const mlp_weights &mlp, Body &&body) {
    for (const matrix *projection : {&mlp.gate, &mlp.up, &mlp.down})
        if (*projection) body(*projection);
}
template <class Body>
void each_matrix(const layer_weights &layer, Body &&body) {
    const attention_weights &attention = layer.attention;
    for (const matrix *candidate :
         {&attention.query, &attention.key, &attention.value, &attention.output, &attention.query_a,
          &attention.query_b, &attention.kv_a, &attention.kv_b, &attention.key_up,
          &attention.value_up, &layer.shared_gate, &layer.router})
        if (*candidate) body(*candidate);
    each_matrix(layer.dense, body);
    each_matrix(layer.shared, body);
    for (const mlp_weights &expert : layer.experts) each_matrix(expert, body);
}

struct model_weights {
    matrix embedding;  // [vocabulary, hidden]
    matrix head;       // the embedding itself if tied
    std::span<const float> head_bias;
    norm_weights final_norm;
    std::vector<layer_weights> layers;
};

}  // namespace moorage::core
