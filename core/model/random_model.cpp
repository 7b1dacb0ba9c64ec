// random_model.cpp - a model of any configuration in memory, filled with small random numbers.
//
// The tensors are visited twice: first to count, then to place every matrix in one block of memory.
// The content of memory depends only on the seed and its address in the block, so the number of
// threads has no effect.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <new>
#include <thread>
#include <utility>

#include "core/base/machine_limits.h"
#include "core/base/memory_block.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "core/model/architectures.h"
#include "core/model/binding.h"

namespace moorage::core {

namespace {

constexpr uint64_t alignment = 64, piece_bytes = 4u << 20;
constexpr uint32_t threads_max = 16;

// A range of memory to fill with bf16 numbers of one magnitude.
struct fill_range {
    uint64_t begin, end;
    uint16_t exponent;  // of bf16, biased
};

// Exponent of an embedding: numbers near 1. A token's row must matter beside what the layers add to
// it. Otherwise all tokens look alike to the routers, which then choose only a few experts. A tied
// embedding is filled like other matrices.
constexpr uint16_t embedding_exponent = 127;

// Numbers of random sign in [2^e, 2^(e+1)), with 2^e near 1 / sqrt(columns). So products of
// normalised inputs stay near 1.
uint16_t exponent_for(uint32_t columns) {
    return static_cast<uint16_t>(127 - std::lround(0.5 * std::log2(columns) + 0.5));
}

void fill(std::byte *base, const fill_range &range, uint64_t seed) {
    random_stream random(seed, range.begin);
    const uint64_t size = uint64_t{range.exponent} << 7;
    const uint64_t sizes = size | size << 16 | size << 32 | size << 48;
    uint64_t position = range.begin;
    for (; position + 8 <= range.end; position += 8) {
        const uint64_t four = (random.next() & 0x807f'807f'807f'807fu) | sizes;
        std::memcpy(base + position, &four, 8);
    }
    const uint64_t rest = (random.next() & 0x807f'807f'807f'807fu) | sizes;
    std::memcpy(base + position, &rest, range.end - position);
}

class random_supply {
public:
    // `base` null: only counts.
    random_supply(const model_config &config, const random_model_options &options, std::byte *base,
                  std::deque<std::vector<float>> *vectors)
        : config_(config),
          distinct_(options.distinct_experts == 0
                        ? config.experts
                        : std::min(options.distinct_experts, config.experts)),
          base_(base),
          vectors_(vectors),
          random_(options.seed, /*name=*/0) {}

    matrix read_matrix(const std::string &, uint32_t rows, uint32_t columns, model_part part) {
        const matrix weights = packed_matrix(weight_type::bf16, rows, columns,
                                             base_ == nullptr ? nullptr : base_ + bytes_);
        const uint64_t size = bytes_of(weights);
        const bool embedding = part == model_part::embedding && !config_.tied_embedding;
        if (base_ != nullptr)
            plan_filling(bytes_, bytes_ + size,
                         embedding ? embedding_exponent : exponent_for(columns));
        bytes_ += (size + alignment - 1) / alignment * alignment;
        count(part, size);
        return weights;
    }

    std::span<const float> read_vector(const std::string &name, uint32_t size, model_part part) {
        count(part, uint64_t{size} * 2);
        if (vectors_ == nullptr) return {};
        std::vector<float> values(size, 1.0f);
        if (!name.ends_with("norm.weight"))
            for (float &value : values) value = static_cast<float>(random_.unit() - 0.5) * 0.02f;
        vectors_->push_back(std::move(values));
        return vectors_->back();
    }

    void read_experts(const std::string &, std::vector<mlp_weights> &experts) {
        const uint32_t inner = config_.moe_intermediate, hidden = config_.hidden;
        const uint64_t previous_bytes = bytes_of_part_[static_cast<size_t>(model_part::experts)];
        // Counting needs no list, which might be long.
        const uint32_t listed = base_ == nullptr ? distinct_ : config_.experts;
        for (uint32_t expert = 0; expert < listed; ++expert) {
            if (expert >= distinct_) {
                experts.push_back(experts[expert % distinct_]);
                continue;
            }
            mlp_weights weights;
            weights.gate = read_matrix({}, inner, hidden, model_part::experts);
            weights.up = read_matrix({}, inner, hidden, model_part::experts);
            weights.down = read_matrix({}, hidden, inner, model_part::experts);
            if (config_.expert_bias) {
                weights.gate_bias = read_vector({}, inner, model_part::router);
                weights.up_bias = read_vector({}, inner, model_part::router);
                weights.down_bias = read_vector({}, hidden, model_part::router);
            }
            if (base_ != nullptr) experts.push_back(weights);
        }
        // Experts that share memory are counted separately.
        uint64_t &total_bytes = bytes_of_part_[static_cast<size_t>(model_part::experts)];
        total_bytes = previous_bytes + (total_bytes - previous_bytes) / distinct_ * config_.experts;
    }

    void read_latent(const std::string &, attention_weights &weights) {
        const attention_config &attention = config_.attention;
        weights.kv_b = read_matrix({}, attention.heads * (attention.nope_dim + attention.value_dim),
                                   attention.kv_lora_rank, model_part::attention);
    }

    bool failed() const { return false; }
    uint64_t bytes() const { return bytes_; }
    uint64_t bytes(model_part part) const { return bytes_of_part_[static_cast<size_t>(part)]; }
    const std::vector<fill_range> &fillings() const { return fillings_; }

private:
    void count(model_part part, uint64_t size) {
        bytes_of_part_[static_cast<size_t>(part)] += size;
    }
    void plan_filling(uint64_t begin, uint64_t end, uint16_t exponent) {
        for (uint64_t position = begin; position < end; position += piece_bytes)
            fillings_.push_back({position, std::min(position + piece_bytes, end), exponent});
    }

    const model_config &config_;
    uint32_t distinct_;
    std::byte *base_;
    std::deque<std::vector<float>> *vectors_;
    random_stream random_;
    uint64_t bytes_ = 0;
    std::array<uint64_t, model_part_count> bytes_of_part_{};
    std::vector<fill_range> fillings_;
};

void fill_all(std::byte *base, const std::vector<fill_range> &fillings, uint64_t seed) {
    std::atomic<size_t> next{0};
    const auto work = [&] {
        for (size_t index; (index = next.fetch_add(1)) < fillings.size();)
            fill(base, fillings[index], seed);
    };
    const size_t threads = std::min<size_t>({usable_processors(), threads_max, fillings.size()});
    std::vector<std::jthread> helpers;
    for (size_t i = 1; i < threads; ++i) helpers.emplace_back(work);
    work();
}

class model_in_memory final : public model {
public:
    static result<std::unique_ptr<model>> create(const model_config &config,
                                                 const random_model_options &options) {
        const architecture *arch = find_architecture(config.architecture);
        if (arch == nullptr)
            return error{format("random model: architecture {} is not known; supported are {}",
                                config.architecture, fmt::join(known_architectures(), ", "))};
        random_supply counted(config, options, nullptr, nullptr);
        (void)weight_binding(config, *arch, counted).bind();
        if (counted.bytes() > options.bytes_max)
            return error{
                format("random model of {}: takes {}, above the limit of {}; let experts "
                       "share memory or take fewer layers",
                       config.architecture, human_bytes(static_cast<double>(counted.bytes())),
                       human_bytes(static_cast<double>(options.bytes_max)))};
        result<memory_block> block =
            memory_block::create(counted.bytes(), "random model of " + config.architecture);
        if (!block) return block.failure();
        std::unique_ptr<model_in_memory> created(new model_in_memory);
        created->directory_ = "random " + config.architecture;
        created->config_ = config;
        created->block_ = std::move(*block);
        random_supply supply(config, options, created->block_.data(), &created->vectors_);
        created->weights_ = weight_binding(config, *arch, supply).bind();
        fill_all(created->block_.data(), supply.fillings(), options.seed);
        created->measure(supply);
        return std::unique_ptr<model>(std::move(created));
    }

private:
    model_in_memory() = default;

    void measure(const random_supply &supply) {
        sizes_ = sizes_of(config_, weights_, supply);
        sizes_.total_bytes = sizes_.experts_bytes + sizes_.shared_bytes + sizes_.attention_bytes +
                             sizes_.dense_bytes + sizes_.router_bytes + sizes_.embedding_bytes +
                             sizes_.head_bytes;
        sizes_.parameters = sizes_.total_bytes / 2;
    }

    memory_block block_;
    std::deque<std::vector<float>> vectors_;
};

}  // namespace

result<std::unique_ptr<model>> random_model(const model_config &config,
                                            const random_model_options &options) {
    try {
        return model_in_memory::create(config, options);
    } catch (const std::bad_alloc &) {
        return error{format("random model of {}: not enough memory", config.architecture)};
    }
}

}  // namespace moorage::core
