// kv_cache.h - keys and values of every layer, stream and position, in float32 (kernels.h says
// why).
//
// Grouped attention keeps the keys and the values of its kv heads. Latent attention keeps one
// vector a position: the compressed keys and values, followed by the rotated part of the key. Its
// values are the front of its keys (DeepSeek-V2, 2.1.2). Memory is taken as positions fill.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/memory_block.h"
#include "core/model/model_config.h"

namespace moorage::core {

struct kv_limits {
    uint32_t streams, context_max;
};

class kv_cache {
public:
    // Bytes of a cache. A double, because the product may be any size.
    static double bytes_wanted(const model_config &config, const kv_limits &limits);
    // Requires: bytes_wanted() below 2^63.
    static result<kv_cache> create(const model_config &config, const kv_limits &limits);

    // Position p of a stream begins at p * key_stride(), p * value_stride().
    float *keys(uint32_t layer, uint32_t stream) const { return stream_data(layer, stream); }
    float *values(uint32_t layer, uint32_t stream) const {
        return stream_data(layer, stream) + values_offset_;
    }
    size_t key_stride() const { return key_stride_; }
    size_t value_stride() const { return value_stride_; }
    uint64_t bytes() const { return pages_.bytes(); }

private:
    float *stream_data(uint32_t layer, uint32_t stream) const {
        return reinterpret_cast<float *>(pages_.data()) +
               (static_cast<size_t>(layer) * streams_ + stream) * stream_values_;
    }
    memory_block pages_;
    size_t streams_ = 0;
    size_t stream_values_ = 0;  // of one layer of a stream
    size_t values_offset_ = 0;  // from keys to values; 0: values lie within the keys
    size_t key_stride_ = 0, value_stride_ = 0;
};

}  // namespace moorage::core
