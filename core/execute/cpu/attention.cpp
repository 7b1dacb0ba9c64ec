// attention.cpp - projections, norms and rotation around the attend kernel.
#include "core/execute/cpu/attention.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace moorage::core {
namespace {

// The reference gives the norms of compressed vectors an epsilon of their own.
constexpr float epsilon_latent = 1e-6F;

void normalise_vector(std::span<const float> weight, float epsilon, float *values) {
    const auto width = static_cast<uint32_t>(weight.size());
    const rows vector{values, width};
    normalise(norm_kind::rms, {weight, {}}, epsilon, 1, width, vector, vector);
}

// Values per token of each scratch.
struct scratch_widths {
    size_t query, key, value, query_low, absorbed, latent_out, mixed;
};

scratch_widths widths_of(const model_config &config) {
    const attention_config &attention = config.attention;
    const size_t heads = attention.heads, rank = attention.kv_lora_rank;
    const bool latent = attention.kind == attention_kind::latent;
    scratch_widths sizes{};
    sizes.query = heads * attention.head_dim;
    sizes.mixed = heads * attention.value_dim;
    sizes.key =
        latent ? rank + config.rope.dimensions : size_t{attention.kv_heads} * attention.head_dim;
    sizes.value = latent ? 0 : size_t{attention.kv_heads} * attention.value_dim;
    sizes.query_low = latent ? attention.query_lora_rank : 0;
    sizes.absorbed = latent ? heads * (rank + config.rope.dimensions) : 0;
    sizes.latent_out = latent ? heads * rank : 0;
    return sizes;
}

bool shares_scales(const matrix &weights) { return format_of(weights.type).scale_rows > 1; }

// Each head's rows of a matrix that has those of all.
std::vector<matrix> split_heads(const matrix &whole, uint32_t heads) {
    std::vector<matrix> parts(heads, whole);
    for (uint32_t head = 0; head < heads; ++head) {
        parts[head].rows = whole.rows / heads;
        parts[head].data += uint64_t{head} * parts[head].rows * whole.row_bytes;
    }
    return parts;
}

}  // namespace

attention_block::attention_block(const model &model, thread_pool &pool, kv_cache cache,
                                 uint32_t tokens_max)
    : model_(model),
      config_(model.config()),
      pool_(pool),
      cache_(std::move(cache)),
      turns_(config_.rope) {
    const scratch_widths sizes = widths_of(config_);
    const size_t tokens = tokens_max, pairs = config_.rope.dimensions / 2;
    for (auto *list : {&streams_, &positions_, &starts_, &window_starts_}) list->resize(tokens);
    for (auto *list : {&cosines_, &sines_}) list->resize(tokens * pairs);
    query_.resize(tokens * sizes.query);
    key_.resize(tokens * sizes.key);
    value_.resize(tokens * sizes.value);
    query_low_.resize(tokens * sizes.query_low);
    absorbed_.resize(tokens * sizes.absorbed);
    latent_out_.resize(tokens * sizes.latent_out);
    mixed_.resize(tokens * sizes.mixed);
    key_caches_.resize(tokens);
    value_caches_.resize(tokens);
    products_.reserve(config_.attention.heads);
    if (config_.attention.kind == attention_kind::latent) absorb_keys(model.weights());
}

attention_block::~attention_block() = default;

// The halves of kv_b, head by head. The key half is [nope, rank] for each head, and the query needs
// its transpose. It is a transpose of the weights themselves if values are stored alone, otherwise
// of the floats that they stand for. A model that has the halves apart keeps them so.
void attention_block::absorb_keys(const model_weights &weights) {
    const attention_config &config = config_.attention;
    const size_t halves = size_t{config.heads} * config.kv_lora_rank;
    std::vector<size_t> offsets;
    size_t bytes = 0;
    for (const layer_weights &layer : weights.layers) {
        const attention_weights &projections = layer.attention;
        offsets.push_back(bytes);
        if (projections.key_up) continue;
        const size_t width = !in_groups(projections.kv_b.type)
                                 ? format_of(projections.kv_b.type).bytes
                                 : sizeof(float);
        bytes += halves * config.nope_dim * width;
        if (shares_scales(projections.kv_b)) bytes += halves * config.value_dim * sizeof(float);
    }
    absorbed_bytes_.resize(bytes);
    latent_.resize(weights.layers.size());
    pool_.parallel_for(static_cast<uint32_t>(latent_.size()), [&](uint32_t layer) {
        const attention_weights &projections = weights.layers[layer].attention;
        if (projections.key_up)
            latent_[layer] = {split_heads(projections.key_up, config.heads),
                              split_heads(projections.value_up, config.heads)};
        else
            absorb(projections.kv_b, absorbed_bytes_.data() + offsets[layer], latent_[layer]);
    });
}

void attention_block::absorb(const matrix &source, std::byte *target,
                             latent_matrices &matrices) const {
    const attention_config &attention = config_.attention;
    const size_t nope = attention.nope_dim, rank = attention.kv_lora_rank,
                 head_rows = nope + attention.value_dim;
    const bool single = format_of(source.type).order == value_order::single;
    const size_t width = single ? format_of(source.type).bytes : sizeof(float);
    const weight_type type = single ? source.type : weight_type::f32;
    std::vector<float> values(rank);
    for (size_t head = 0; head < attention.heads; ++head, target += nope * rank * width) {
        for (size_t row = 0; row < nope; ++row) {
            const size_t source_row = head * head_rows + row;
            if (!single) widen(source, static_cast<uint32_t>(source_row), values.data());
            const std::byte *source_values =
                single ? source.data + source_row * source.row_bytes
                       : reinterpret_cast<const std::byte *>(values.data());
            for (size_t column = 0; column < rank; ++column)
                std::memcpy(target + (column * nope + row) * width, source_values + column * width,
                            width);
        }
        matrices.key_up.push_back(
            packed_matrix(type, attention.kv_lora_rank, attention.nope_dim, target));
    }
    for (size_t head = 0; head < attention.heads; ++head) {
        const size_t first = head * head_rows + nope;
        matrix value_up = source;
        value_up.rows = attention.value_dim;
        if (shares_scales(source)) {
            // A head may begin within the rows that share a scale.
            for (size_t row = 0; row < attention.value_dim; ++row)
                widen(source, static_cast<uint32_t>(first + row),
                      reinterpret_cast<float *>(target) + row * rank);
            value_up = packed_matrix(weight_type::f32, attention.value_dim, attention.kv_lora_rank,
                                     target);
            target += attention.value_dim * rank * sizeof(float);
        } else {
            value_up.data += first * source.row_bytes;
            value_up.scales = scales_at(source, first);
        }
        matrices.value_up.push_back(value_up);
    }
}

void attention_block::begin(const pass &tokens) {
    tokens_ = static_cast<uint32_t>(tokens.tokens.size());
    assert(tokens_ <= streams_.size());
    const uint32_t window = config_.attention.window;
    const size_t pairs = config_.rope.dimensions / 2;
    for (uint32_t t = 0; t < tokens_; ++t) {
        const pass_token &token = tokens.tokens[t];
        streams_[t] = token.stream;
        positions_[t] = token.position;
        starts_[t] = 0;
        window_starts_[t] =
            window == 0 || token.position < window ? 0 : token.position - window + 1;
        rope_angles(turns_.turn_for_length(token.sequence_length()), token.position,
                    {cosines_.data() + t * pairs, pairs}, {sines_.data() + t * pairs, pairs});
    }
}

void attention_block::rotate(uint32_t token, float *values) const {
    const size_t pairs = config_.rope.dimensions / 2;
    rope_rotate(config_.rope.interleaved, {cosines_.data() + token * pairs, pairs},
                {sines_.data() + token * pairs, pairs}, values);
}

void attention_block::operator()(uint32_t layer, const_rows input, rows output) {
    const attention_weights &weights = model_.weights().layers[layer].attention;
    if (config_.attention.kind == attention_kind::latent)
        latent(layer, weights, input);
    else
        grouped(layer, weights, input);
    const size_t width = widths_of(config_).mixed;
    const product projection{&weights.output, {mixed_.data(), width}, output, weights.output_bias};
    multiply(pool_, tokens_, {&projection, 1});
}

void attention_block::attend_to_cache(uint32_t layer, const attention_call &shape) {
    attention_call call = shape;
    for (uint32_t t = 0; t < tokens_; ++t) {
        key_caches_[t] = cache_.keys(layer, streams_[t]);
        value_caches_[t] = cache_.values(layer, streams_[t]);
    }
    const std::vector<uint8_t> &sliding = config_.attention.sliding;
    const bool slides = config_.attention.window != 0 && !sliding.empty() && sliding[layer] != 0;
    call.tokens = tokens_;
    call.heads = config_.attention.heads;
    call.scale = static_cast<float>(config_.attention.scale);
    call.keys = key_caches_.data();
    call.values = value_caches_.data();
    call.key_stride = cache_.key_stride();
    call.value_stride = cache_.value_stride();
    call.first_positions = slides ? window_starts_.data() : starts_.data();
    call.positions = positions_.data();
    call.sinks = model_.weights().layers[layer].attention.sinks;
    attend(pool_, call);
}

void attention_block::grouped(uint32_t layer, const attention_weights &weights, const_rows input) {
    const attention_config &attention = config_.attention;
    const scratch_widths sizes = widths_of(config_);
    const rows query{query_.data(), sizes.query}, key{key_.data(), sizes.key},
        value{value_.data(), sizes.value};
    const product products[] = {{&weights.query, input, query, weights.query_bias},
                                {&weights.key, input, key, weights.key_bias},
                                {&weights.value, input, value, weights.value_bias}};
    multiply(pool_, tokens_, products);
    each_token(pool_, tokens_, [&](uint32_t token) { finish_heads(token, weights, layer); });
    attention_call call{};
    call.kv_heads = attention.kv_heads;
    call.head_dim = attention.head_dim;
    call.value_dim = attention.value_dim;
    call.query = query;
    call.output = {mixed_.data(), sizes.mixed};
    attend_to_cache(layer, call);
}

// Norms, clipping and rotation of one token's heads, then its keys and values into the cache.
void attention_block::finish_heads(uint32_t token, const attention_weights &weights,
                                   uint32_t layer) {
    const attention_config &attention = config_.attention;
    const scratch_widths wide = widths_of(config_);
    const auto epsilon = static_cast<float>(config_.norm_epsilon);
    const auto clip = static_cast<float>(attention.clip_qkv);
    float *query = &query_[token * wide.query], *key = &key_[token * wide.key];
    float *value = &value_[token * wide.value];
    const auto finish = [&](float *values, size_t heads, std::span<const float> norm) {
        if (attention.norm == query_key_norm::whole) normalise_vector(norm, epsilon, values);
        if (attention.norm == query_key_norm::per_head)
            for (size_t head = 0; head < heads; ++head)
                normalise_vector(norm, epsilon, values + head * attention.head_dim);
        if (clip > 0)
            for (size_t i = 0; i < heads * attention.head_dim; ++i)
                values[i] = std::clamp(values[i], -clip, clip);
        for (size_t head = 0; head < heads; ++head)
            rotate(token, values + head * attention.head_dim);
    };
    finish(query, attention.heads, weights.query_norm);
    finish(key, attention.kv_heads, weights.key_norm);
    if (clip > 0)
        for (size_t i = 0; i < wide.value; ++i) value[i] = std::clamp(value[i], -clip, clip);
    const uint32_t stream = streams_[token], position = positions_[token];
    std::copy_n(key, wide.key, cache_.keys(layer, stream) + position * cache_.key_stride());
    std::copy_n(value, wide.value, cache_.values(layer, stream) + position * cache_.value_stride());
}

void attention_block::latent(uint32_t layer, const attention_weights &weights, const_rows input) {
    const attention_config &attention = config_.attention;
    const scratch_widths sizes = widths_of(config_);
    const size_t rank = attention.kv_lora_rank, rotated = config_.rope.dimensions;
    const rows query{query_.data(), sizes.query}, compressed{key_.data(), sizes.key};
    const rows low{query_low_.data(), sizes.query_low};
    const bool two_steps = attention.query_lora_rank != 0;
    const product first[] = {
        {&weights.kv_a, input, compressed},
        {two_steps ? &weights.query_a : &weights.query, input, two_steps ? low : query}};
    multiply(pool_, tokens_, first);
    if (two_steps) {
        each_token(pool_, tokens_, [&](uint32_t token) {
            normalise_vector(weights.query_a_norm, epsilon_latent, low.data + token * low.stride);
        });
        const product second{&weights.query_b, low, query};
        multiply(pool_, tokens_, {&second, 1});
    }
    // A whole kv_b is meant for latents: each latent is rounded, and the mean is taken afterwards.
    // Here queries and means stay unrounded, which is nearer.
    const bool has_halves = static_cast<bool>(weights.key_up);
    products_.clear();
    for (uint32_t head = 0; head < attention.heads; ++head)
        products_.push_back({.weights = &latent_[layer].key_up[head],
                             .input = {query.data + head * attention.head_dim, query.stride},
                             .output = {absorbed_.data() + head * (rank + rotated), sizes.absorbed},
                             .rounds = has_halves});
    multiply(pool_, tokens_, products_);
    each_token(pool_, tokens_, [&](uint32_t token) { finish_latent(token, weights, layer); });

    attention_call call{};
    call.kv_heads = 1;
    call.head_dim = static_cast<uint32_t>(rank + rotated);
    call.value_dim = attention.kv_lora_rank;
    call.query = {absorbed_.data(), sizes.absorbed};
    call.output = {latent_out_.data(), sizes.latent_out};
    attend_to_cache(layer, call);

    products_.clear();
    for (uint32_t head = 0; head < attention.heads; ++head)
        products_.push_back(
            {.weights = &latent_[layer].value_up[head],
             .input = {latent_out_.data() + head * rank, sizes.latent_out},
             .output = {mixed_.data() + size_t{head} * attention.value_dim, sizes.mixed},
             .rounds = has_halves});
    multiply(pool_, tokens_, products_);
}

// The rotated parts of one token's queries and key, and the token's entry in the cache.
void attention_block::finish_latent(uint32_t token, const attention_weights &weights,
                                    uint32_t layer) {
    const attention_config &attention = config_.attention;
    const scratch_widths sizes = widths_of(config_);
    const size_t rank = attention.kv_lora_rank, rotated = config_.rope.dimensions;
    const float *query = &query_[token * sizes.query];
    float *absorbed = &absorbed_[token * sizes.absorbed];
    for (size_t head = 0; head < attention.heads; ++head) {
        float *rotated_part = absorbed + head * (rank + rotated) + rank;
        std::copy_n(query + head * attention.head_dim + attention.nope_dim, rotated, rotated_part);
        rotate(token, rotated_part);
    }
    float *compressed = &key_[token * sizes.key];
    normalise_vector(weights.kv_a_norm, epsilon_latent, compressed);
    rotate(token, compressed + rank);
    const size_t offset = positions_[token] * cache_.key_stride();
    std::copy_n(compressed, sizes.key, cache_.keys(layer, streams_[token]) + offset);
}

uint64_t attention_block::scratch_values(const model_config &config) {
    const scratch_widths sizes = widths_of(config);
    return sizes.query + sizes.key + sizes.value + sizes.query_low + sizes.absorbed +
           sizes.latent_out + sizes.mixed + config.rope.dimensions;
}

uint64_t attention_block::memory_bytes() const {
    return cache_.bytes() + absorbed_bytes_.size() +
           streams_.size() * scratch_values(config_) * sizeof(float);
}

}  // namespace moorage::core
