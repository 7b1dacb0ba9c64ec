// sampler.h - chooses the next token from the logits of one position.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/base/random.h"

namespace moorage::core {

// How the next token is chosen. The steps are applied in this order: penalties, temperature, top_k,
// top_p, min_p.
struct sampling {
    double temperature = 0;  // 0: the most probable token
    double top_p = 1;        // share of the mass after top_k to keep, most probable first
    uint32_t top_k = 0;      // candidates; 0: all
    double min_p = 0;        // drops tokens below this share of the largest probability
    uint64_t seed = 0;
    // Penalties for tokens among the last `penalty_window` of prompt and text (0: all). A logit
    // above 0 is divided by `repetition`, one below 0 is multiplied by it. Then `presence` is
    // subtracted once, and `frequency` once for each occurrence.
    double repetition = 1, presence = 0, frequency = 0;
    uint32_t penalty_window = 64;

    bool penalises() const { return repetition != 1 || presence != 0 || frequency != 0; }
};

// The most probable token; of equal ones the smaller id.
int32_t most_probable(std::span<const float> logits);
// -log p(token), in double precision.
double negative_log_likelihood(std::span<const float> logits, int32_t token);

class sampler {
public:
    explicit sampler(const sampling &sampling) : sampling_(sampling) {}
    // Each request has its own random stream, so its text does not depend on other requests.
    random_stream draws_of(uint64_t request) const {
        return {sampling_.seed, 0x73616d706c65 + request * 0x9e3779b97f4a7c15u};
    }
    int32_t operator()(std::span<const float> logits, random_stream &draws);
    // The same with penalties for tokens of the prompt and of the written text.
    int32_t operator()(std::span<const float> logits, random_stream &draws,
                       std::span<const int32_t> prompt, std::span<const int32_t> written);

private:
    std::span<const float> penalised(std::span<const float> logits, std::span<const int32_t> prompt,
                                     std::span<const int32_t> written);
    size_t kept_by_mass(std::span<const float> logits, size_t count, double &kept);
    void drop_seldom(std::span<const float> logits, size_t &count, double &kept);
    double weight_at(std::span<const float> logits, size_t index) {
        return weights_[static_cast<size_t>(ranked(logits, index))];
    }
    void weigh(std::span<const float> logits);
    void collect(std::span<const float> logits, double least);
    int32_t ranked(std::span<const float> logits, size_t index);

    sampling sampling_;
    std::vector<float> weights_;                     // by id; the most probable one has 1
    std::vector<std::pair<float, int32_t>> ranked_;  // logits and ids; only the first `sorted_` are
                                                     // in order
    size_t sorted_ = 0;
    std::vector<float> penalised_;  // logits
    std::vector<int32_t> recent_;   // ids of the window, ascending
};

}  // namespace moorage::core
