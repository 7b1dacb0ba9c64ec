// forward.h - a whole pass through a model on the CPU by the model's own routing, with every expert
// read in place: what runs where no policy is asked, and what executors are compared with.
//
//   forward run(compute, model);
//   run(pass);                       // compute.logits() has them
#pragma once

#include <cstdint>
#include <vector>

#include "core/execute/cpu/cpu_model.h"
#include "core/model/routing.h"

namespace moorage::core {

class forward {
public:
    forward(cpu_model &compute, const model &of);  // borrowed
    void operator()(const pass &tokens);

private:
    cpu_model &compute_;
    const model &model_;
    routing_rule rule_;
    std::vector<uint32_t> layers_, chosen_, distinct_;
    std::vector<float> weights_;
};

// `ids` as the tokens of one stream from position `first` on, all with logits or only the last.
pass prompt_pass(std::span<const int32_t> ids, uint32_t stream, uint32_t first, bool all_outputs);

}  // namespace moorage::core
