// model.h - a model directory in Hugging Face layout, or a GGUF file (the first of them, where a
// model is split), opened: configuration and mapped weights.
//
//   auto opened = open_model("models/demo");
//   if (!opened) return opened.failure();
//   const model &demo = **opened;      // demo.weights().layers[0].experts[3].gate
//
// Opening reads config.json and the headers of the safetensors files; weights stay on disk until a
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

// generation_config.json; what is missing there keeps these values.
struct generation_config {
    std::vector<int32_t> end_ids;  // of config.json where generation_config.json has none
    // Of a GGUF file, which names no more than three ends: control tokens whose names say that a
    // turn or a text is over. Without those of end_ids.
    std::vector<int32_t> named_end_ids;
    int32_t begin_id = -1;  // -1: none
    bool sample = false;
    double temperature = 1, top_p = 1;
    uint32_t top_k = 0;  // 0: all
};

// Bytes in the files, by what they are.
struct model_sizes {
    uint64_t total_bytes = 0, expert_bytes = 0;  // expert_bytes: the largest routed expert
    uint64_t experts_bytes = 0;                  // all of them
    uint64_t shared_bytes = 0, attention_bytes = 0, dense_bytes = 0, router_bytes = 0;
    uint64_t embedding_bytes = 0, head_bytes = 0;  // head_bytes 0: tied
    uint64_t unused_bytes = 0;                     // tensors that no part of the model reads
    uint64_t parameters = 0;                       // of the tensors in use
    std::vector<std::string> unused;               // names of some, for a message
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
    // Which tensor holds what is no finite number (odd_weight.h); empty: none.
    virtual std::string odd_weight() const { return {}; }
    // Files and tensors, for `model info`.
    uint32_t file_count() const { return file_count_; }
    uint32_t tensor_count() const { return tensor_count_; }

protected:
    // A tensor of the files, as count_tensors() wants it.
    struct stored {
        const std::string *name, *file;
        std::span<const uint64_t> shape;
        std::span<const std::byte> bytes;
        bool used;
        unread_kind unread;             // were it not used
        std::optional<uint64_t> layer;  // none: it is of the whole model
    };
    model() = default;
    // What the files hold, and what of it the model does not use, to sizes_; warns where that is a
    // surprise. Layers that the configuration does not count are an error, and so is a tensor
    // without which another model would be computed.
    status count_tensors(uint32_t files, const std::vector<stored> &all);
    // The number that follows `prefix` at the front of a name.
    static std::optional<uint64_t> layer_of(std::string_view name, std::string_view prefix);
    std::filesystem::path directory_;
    model_config config_;
    generation_config generation_;
    model_weights weights_;
    model_sizes sizes_;
    uint32_t file_count_ = 0, tensor_count_ = 0;
};

result<std::unique_ptr<model>> open_model(const std::filesystem::path &directory);

// Routed experts by page: those of the first layer that has any, then those of the next.
std::vector<const mlp_weights *> experts_of(const model &of);

// A model of the given configuration filled with small random numbers, in memory: for timing
// where the weights are not at hand. All experts of a layer may share the same bytes when
// `distinct_experts` is smaller than their number (0: all distinct). Deterministic in `seed`.
// Refused with the sizes when it would take more than `bytes_max`.
struct random_model_options {
    uint64_t seed = 0;
    uint32_t distinct_experts = 0;
    uint64_t bytes_max = UINT64_MAX;
};
result<std::unique_ptr<model>> random_model(const model_config &config,
                                            const random_model_options &options);

// The configuration of a published shape (core/config/hardware.h: a name, an alias or a path), for
// random_model; of those whose file has a table [config].
result<model_config> config_of_shape(const std::string &name, const std::filesystem::path &base);

// The sizes of a model as the cost model wants them. `name`: of the directory or the model.
model_shape shape_of(const model &of, const std::string &name);

}  // namespace moorage::core
