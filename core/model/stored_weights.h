// stored_weights.h - supplies weights from a directory's shards. Checks names, shapes and types,
// and transposes matrices that a checkpoint stores the other way.
#pragma once

#include <deque>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "core/model/binding.h"
#include "core/base/memory_block.h"
#include "core/model/shards.h"
#include "core/model/weight_supply.h"

namespace moorage::core {

// Memory for weights that cannot stay in the mapped files.
struct owned_weights {
    std::deque<std::vector<float>> vectors;
    std::deque<memory_block> blocks;
    uint64_t left_bytes = 0;                   // unused part of the last block
    std::deque<std::vector<uint32_t>> orders;  // matrix::group_of
};
struct packed_int4;

class stored_weights : public weight_supply {
public:
    // All are borrowed.
    stored_weights(const model_config &config, const architecture &arch, shards &shards,
                   owned_weights &owned)
        : config_(config), arch_(arch), shards_(shards), owned_(owned) {}

    matrix read_matrix(const std::string &name, uint32_t rows, uint32_t columns, model_part part);
    std::span<const float> read_vector(const std::string &name, uint32_t count, model_part part);
    void read_experts(const std::string &layer, std::vector<mlp_weights> &experts);
    void read_latent(const std::string &prefix, attention_weights &weights);

private:
    using shape = std::vector<uint64_t>;
    // The tensor, with its shape checked, counted as used. Null after a failure. `counted`: its
    // values are parameters of the model.
    const stored_tensor *take(const std::string &name, const shape &wanted, model_part part,
                              bool counted = true);
    std::optional<weight_type> type_of(const stored_tensor &tensor);
    // Its bytes, copied if the file does not align them to the type.
    const std::byte *values_of(const stored_tensor &tensor);
    // Allocates memory of the model's own, aligned to 64 bytes.
    std::byte *allocate(uint64_t bytes, const std::string &purpose);
    std::vector<float> floats_of(const stored_tensor &tensor);
    std::span<const float> keep_vector(std::vector<float> values);

    // Defined in stored_packed.cpp.
    const stored_tensor *take_of_type(const std::string &name, const shape &wanted, model_part part,
                                      std::initializer_list<dtype> types);
    std::optional<matrix> read_packed(const std::string &name, uint32_t rows, uint32_t columns,
                                      model_part part);
    matrix read_fp8(const std::string &stem, uint32_t rows, uint32_t columns, model_part part);
    matrix read_int4(const std::string &stem, uint32_t rows, uint32_t columns, model_part part);
    std::vector<uint32_t> read_order(const std::string &name, const packed_int4 &packed,
                                     model_part part);

    void read_separate(const std::string &layer, std::vector<mlp_weights> &experts);
    void read_halves(const std::string &layer, std::vector<mlp_weights> &experts);
    void read_transposed(const std::string &layer, std::vector<mlp_weights> &experts);
    void read_mxfp4(const std::string &layer, std::vector<mlp_weights> &experts);
    void read_biases(const std::string &layer, std::vector<mlp_weights> &experts);

    const model_config &config_;
    const architecture &arch_;
    shards &shards_;
    owned_weights &owned_;
};

}  // namespace moorage::core
