// sampler.h - from the logits of one position to the next token.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/base/random.h"

namespace moorage::core {

struct sampling {
    double temperature = 0;  // 0: the most probable token
    double top_p = 1;        // of the probability mass, most probable first
    uint32_t top_k = 0;      // tokens considered; 0: all
    uint64_t seed = 0;
};

// The most probable token; ties go to the smaller id.
int32_t most_probable(std::span<const float> logits);
// -log p(token), in double precision.
double negative_log_likelihood(std::span<const float> logits, int32_t token);

class sampler {
public:
    explicit sampler(const sampling &how) : how_(how) {}
    // Each request has draws of its own, so that its text does not depend on those beside it.
    random_stream draws_of(uint64_t request) const {
        return {how_.seed, 0x73616d706c65 + request * 0x9e3779b97f4a7c15u};
    }
    int32_t operator()(std::span<const float> logits, random_stream &draws);

private:
    void weigh(std::span<const float> logits);
    void collect(std::span<const float> logits, double least);
    int32_t ranked(std::span<const float> logits, size_t index);

    sampling how_;
    std::vector<float> weights_;                     // by id; the most probable has 1
    std::vector<std::pair<float, int32_t>> ranked_;  // logits and ids, the first sorted_ in order
    size_t sorted_ = 0;
};

}  // namespace moorage::core
