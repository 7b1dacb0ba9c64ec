// gguf_weights.h - supplies weights from GGUF files: tensors under their names there, in place.
//
// The binding asks with the names of Hugging Face. Experts are stacked, or one tensor each (files
// from before 2024-04). Query, key and value may be one matrix; gate and up may be one, too.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/binding.h"
#include "core/model/gguf.h"
#include "core/model/stored_weights.h"
#include "core/model/weight_supply.h"

namespace moorage::core {

// "blk.3.attn_q.weight" for "model.layers.3.self_attn.q_proj.weight".
std::string gguf_tensor_name(const std::string &wanted, const char *mlp_norm);
// "blk.3." for "model.layers.3."
std::string gguf_block_name(std::string_view layer);

class gguf_weights : public weight_supply {
public:
    // All are borrowed. `mlp_norm`: the name of the norm before the experts.
    gguf_weights(const model_config &config, gguf_files &files, const char *mlp_norm,
                 owned_weights &owned)
        : config_(config), files_(files), mlp_norm_(mlp_norm), owned_(owned) {}

    matrix read_matrix(const std::string &name, uint32_t rows, uint32_t columns, model_part part);
    std::span<const float> read_vector(const std::string &name, uint32_t count, model_part part);
    void read_experts(const std::string &layer, std::vector<mlp_weights> &experts);
    void read_latent(const std::string &prefix, attention_weights &weights);

private:
    using shape = std::vector<uint64_t>;
    std::string name_of(const std::string &wanted) const {
        return gguf_tensor_name(wanted, mlp_norm_);
    }
    // The tensor, with its shape checked, counted as used. Null after a failure.
    const gguf_tensor *take(const std::string &name, const shape &wanted, model_part part);
    std::span<const float> floats_of(const gguf_tensor &tensor, uint64_t first, uint64_t count);

    // The rows of a fused query, key and value matrix that belong to `name`; none: `name` is no
    // part of one.
    struct stretch {
        std::string name;
        uint64_t first_row = 0, total_rows = 0;
    };
    std::optional<stretch> find_in_fused(const std::string &name) const;
    void read_stacked(const std::string &layer, std::vector<mlp_weights> &experts);
    void read_separate(const std::string &layer, std::vector<mlp_weights> &experts);
    void read_biases(const std::string &layer, std::vector<mlp_weights> &experts);

    const model_config &config_;
    gguf_files &files_;
    const char *mlp_norm_;
    owned_weights &owned_;
};

}  // namespace moorage::core
