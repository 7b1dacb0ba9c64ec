// model.h - opens a model: a directory in Hugging Face layout, or a GGUF file (of a split model the
// first one). Reads its configuration and maps its weights.
//
//   auto opened = open_model("models/demo");
//   if (!opened) return opened.failure();
//   const model &demo = **opened;      // demo.weights().layers[0].experts[3].gate
//
// Opening reads config.json and the headers of the safetensors files. Weights stay on disk until a
// kernel reads them. A missing tensor, a wrong shape or type, an unknown architecture and a
// truncated shard are errors that name file and tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/config/hardware.h"
#include "core/model/model_config.h"
#include "core/model/unread.h"
#include "core/model/weights.h"

namespace moorage::core {

// From generation_config.json. Missing keys keep these values.
struct generation_config {
    std::vector<int32_t> end_ids;  // from config.json if generation_config.json has none
    // GGUF only: such a file names at most three end tokens. These are further control tokens whose
    // names say that a turn or a text ends. Excludes end_ids.
    std::vector<int32_t> named_end_ids;
    int32_t begin_id = -1;  // -1: none
    bool sample = false;
    double temperature = 1, top_p = 1;
    uint32_t top_k = 0;  // 0: all
};

// Bytes in the files by purpose.
struct model_sizes {
    uint64_t total_bytes = 0, expert_bytes = 0;  // expert_bytes: the largest routed expert
    uint64_t experts_bytes = 0;                  // all of them
    uint64_t shared_bytes = 0, attention_bytes = 0, dense_bytes = 0, router_bytes = 0;
    uint64_t embedding_bytes = 0, head_bytes = 0;  // head_bytes 0: tied
    uint64_t unused_bytes = 0;                     // tensors that no part of the model reads
    uint64_t parameters = 0;                       // of the tensors in use
    std::vector<std::string> unused;               // names of some of them, for a message
};

class model {
public:
    model(const model &) = delete;
    virtual ~model() = default;
    const std::filesystem::path &directory() const { return directory_; }  // or the GGUF file
    const model_config &config() const { return config_; }
    const generation_config &generation() const { return generation_; }
    const model_weights &weights() const { return weights_; }
    const model_sizes &sizes() const { return sizes_; }
    // The tensor that holds a value that is not finite (odd_weight.h); empty: none.
    virtual std::string find_non_finite_weight() const { return {}; }
    // Counts of files and tensors, for `model info`.
    uint32_t file_count() const { return file_count_; }
    uint32_t tensor_count() const { return tensor_count_; }

protected:
    // A tensor of the files, for count_tensors().
    struct stored {
        const std::string *name, *file;
        std::span<const uint64_t> shape;
        std::span<const std::byte> bytes;
        bool used;
        unread_kind unread;             // what it would be if unused
        std::optional<uint64_t> layer;  // none: belongs to the whole model
    };
    model() = default;
    // Adds to sizes_ what the files hold and what the model does not use, and warns of surprises.
    // Layers beyond those of the configuration are an error. So are unused tensors that would
    // change the result.
    status count_tensors(uint32_t files, const std::vector<stored> &tensors);
    // The number after `prefix` at the beginning of a name.
    static std::optional<uint64_t> layer_of(std::string_view name, std::string_view prefix);
    std::filesystem::path directory_;
    model_config config_;
    generation_config generation_;
    model_weights weights_;
    model_sizes sizes_;
    uint32_t file_count_ = 0, tensor_count_ = 0;
};

result<std::unique_ptr<model>> open_model(const std::filesystem::path &directory);

// Routed experts by page: those of the first MoE layer, then those of the next one.
std::vector<const mlp_weights *> experts_of(const model &model);

// A model of the given configuration in memory, filled with small random numbers. It is for timing
// without the real weights. If `distinct_experts` is not 0 and smaller than the number of experts,
// experts of a layer share the same bytes. Deterministic in `seed`. Fails with the sizes if it
// would need more than `bytes_max`.
struct random_model_options {
    uint64_t seed = 0;
    uint32_t distinct_experts = 0;
    uint64_t bytes_max = UINT64_MAX;
};
result<std::unique_ptr<model>> random_model(const model_config &config,
                                            const random_model_options &options);

// The configuration of a published shape (core/config/hardware.h: a name, an alias or a path), for
// random_model. Its file must have a table [config].
result<model_config> config_of_shape(const std::string &name, const std::filesystem::path &base);

// The sizes of a model for the cost model. `name`: of the directory or the model.
model_shape shape_of(const model &model, const std::string &name);

}  // namespace moorage::core
