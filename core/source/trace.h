// trace.h - a routing trace (contract: *.safetensors, format "moorage.trace"), memory-mapped and
// checked.
//
//   auto opened = trace::open("demo.long.safetensors");
//   if (!opened) return opened.failure();
//   opened->expert(token, layer, rank);
//
// open() checks everything that later reads rely on: header, offsets, shapes, expert ids in range
// and distinct within a token and layer, request offsets ascending and complete, no empty request,
// finite scores. Values are read at any alignment.
//
// Other programs may overwrite the file after that. So offsets and shapes are copied, and ids are
// limited when they are read: no read leaves the file, and no id a table. The figures are refused
// at the end (base/mapped_file.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace moorage::core {

class trace {
public:
    static result<trace> open(const std::filesystem::path &path);
    // The same from memory, for tests. `name` is its name in errors.
    static result<trace> from_bytes(std::string name, std::vector<std::byte> bytes);
    trace(trace &&) noexcept;
    trace &operator=(trace &&) noexcept;
    ~trace();

    const std::filesystem::path &path() const;
    uint64_t tokens() const { return tokens_; }
    uint32_t layers() const { return layers_; }
    uint32_t experts() const { return experts_; }  // per layer
    uint32_t top_k() const { return top_k_; }
    uint64_t requests() const { return request_offsets_.size() - 1; }
    // Request r is tokens [offsets[r], offsets[r + 1]). [requests + 1]
    std::span<const uint64_t> request_offsets() const { return request_offsets_; }
    std::span<const int32_t> request_domain() const { return request_domain_; }  // empty: none
    const std::vector<std::string> &domains() const { return domains_; }
    const std::map<std::string, std::string> &metadata() const { return metadata_; }
    std::string meta(const std::string &key) const;  // "": no such key
    uint64_t file_bytes() const;

    // The expert chosen at rank (0 = largest weight). Requires: indices in range. Inline because it
    // is hot.
    uint32_t expert(uint64_t token, uint32_t layer, uint32_t rank) const {
        return id_at(experts_data_, experts_wide_, (token * layers_ + layer) * top_k_ + rank);
    }
    // Chosen experts of tokens [first, first + count): [count, layers, top_k], widened into `ids`.
    void read_experts(uint64_t first, uint64_t count, uint32_t *ids) const;

    // Router weight of the expert chosen at rank: from `weights`, otherwise its gate score.
    bool has_weights() const { return weights_.data != nullptr || has_gate_scores(); }
    bool has_weight_tensor() const { return weights_.data != nullptr; }
    float weight(uint64_t token, uint32_t layer, uint32_t rank) const;
    bool has_gate_scores() const { return gate_scores_.data != nullptr; }
    // Writes [experts] scores to `scores`.
    void gate_scores(uint64_t token, uint32_t layer, float *scores) const;
    bool has_predictions() const { return predictions_ != 0; }
    uint32_t predictions() const { return predictions_; }  // M of pred_experts; 0: none
    uint32_t predicted(uint64_t token, uint32_t layer, uint32_t rank) const {
        return id_at(pred_data_, pred_wide_, (token * layers_ + layer) * predictions_ + rank);
    }
    bool has_prediction_scores() const { return pred_scores_.data != nullptr; }
    float prediction_score(uint64_t token, uint32_t layer, uint32_t rank) const;
    bool has_token_ids() const { return token_ids_data_ != nullptr; }
    int32_t token_id(uint64_t token) const;
    // Is weights, gate_scores or pred_scores stored as f16? Otherwise f32.
    bool scores_are_half(const std::string &name) const;
    // MOORAGE_NEEDS_* that this trace can serve. MOORAGE_NEEDS_FUTURE is always included.
    uint32_t offers() const;
    // The name of the tensor for a MOORAGE_NEEDS_* bit, for messages.
    static const char *tensor_of(uint32_t need);

    // Tells the kernel that tokens before `token` need not stay in memory. They can still be read
    // again. This keeps the resident size small when a large trace is read once.
    void release_before(uint64_t token) const;

private:
    struct floats {
        const std::byte *data = nullptr;
        bool half = false;  // f16, otherwise f32
    };
    uint32_t id_at(const std::byte *data, bool wide, uint64_t index) const;
    static float read_float(const floats &values, uint64_t index);
    trace();
    struct mapping;
    struct loader;
    static result<trace> load(std::unique_ptr<mapping> mapped);
    std::unique_ptr<mapping> mapping_;
    uint64_t tokens_ = 0;
    uint32_t layers_ = 0, experts_ = 0, top_k_ = 0, predictions_ = 0;
    const std::byte *experts_data_ = nullptr, *pred_data_ = nullptr, *token_ids_data_ = nullptr;
    bool experts_wide_ = false, pred_wide_ = false;  // u16, otherwise u8
    floats weights_, gate_scores_, pred_scores_;
    std::vector<uint64_t> request_offsets_;
    std::vector<int32_t> request_domain_;
    std::vector<std::string> domains_;
    std::map<std::string, std::string> metadata_;
};

inline uint32_t trace::id_at(const std::byte *data, bool wide, uint64_t index) const {
    const uint32_t id = !wide ? static_cast<uint32_t>(data[index])
                              : static_cast<uint32_t>(data[2 * index]) |
                                    static_cast<uint32_t>(data[2 * index + 1]) << 8;
    return std::min(id, experts_ - 1);
}

}  // namespace moorage::core
