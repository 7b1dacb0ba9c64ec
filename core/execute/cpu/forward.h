// forward.h - a whole pass through a model on the CPU by the model's own routing, with every expert
// read in place. It is used if no policy is asked, and as the reference for executors.
//
//   forward run(compute, model);
//   run(pass);                       // compute.logits() has them
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/execute/cpu/cpu_model.h"
#include "core/model/routing.h"

namespace moorage::core {

class forward {
public:
    forward(cpu_model &compute, const model &model);  // borrowed
    void operator()(const pass &tokens);
    // The watcher is told which experts the tokens of a pass chose in a layer, top_k for each
    // token.
    using choice_watcher = std::function<void(uint32_t layer, std::span<const uint32_t> chosen)>;
    void watch(choice_watcher watcher) { watcher_ = std::move(watcher); }

private:
    cpu_model &compute_;
    const model &model_;
    routing_rule rule_;
    std::vector<uint32_t> layers_, chosen_, distinct_;
    std::vector<float> weights_;
    choice_watcher watcher_;
};

// `ids` as the tokens of one stream from position `first` on. All tokens have logits, or only the
// last. `length`: of the text to which this piece belongs; 0: the text ends with the piece.
pass prompt_pass(std::span<const int32_t> ids, uint32_t stream, uint32_t first, bool all_outputs,
                 uint32_t length = 0);

}  // namespace moorage::core
