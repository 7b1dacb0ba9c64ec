// forward.cpp - the layer loop without a pipeline.
#include "core/execute/cpu/forward.h"

#include <algorithm>

namespace moorage::core {

forward::forward(cpu_model &compute, const model &model)
    : compute_(compute),
      model_(model),
      rule_(model.config()),
      layers_(model.config().moe_layers()) {}

void forward::operator()(const pass &tokens) {
    const size_t count = tokens.tokens.size();
    const size_t top_k = model_.config().top_k, experts = model_.config().experts;
    chosen_.resize(count * top_k);
    weights_.resize(count * top_k);
    compute_.begin(tokens);
    for (uint32_t layer = 0; layer < layers_.size(); ++layer) {
        compute_.run_attention(layer);
        const std::span<const float> logits = compute_.router_logits();
        const std::span<const float> correction =
            model_.weights().layers[layers_[layer]].correction_bias;
        for (size_t token = 0; token < count; ++token)
            rule_.choose(logits.subspan(token * experts, experts), correction,
                         {&chosen_[token * top_k], top_k}, {&weights_[token * top_k], top_k});
        if (watcher_) watcher_(layer, chosen_);
        compute_.route(chosen_, weights_);
        distinct_ = chosen_;
        std::ranges::sort(distinct_);
        distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
        compute_.run_experts(layer, distinct_);
    }
    compute_.run_head();
}

pass prompt_pass(std::span<const int32_t> ids, uint32_t stream, uint32_t first, bool all_outputs,
                 uint32_t length) {
    pass prompt;
    prompt.phase = ids.size() > 1 ? MOORAGE_PREFILL : MOORAGE_DECODE;
    for (size_t i = 0; i < ids.size(); ++i) {
        pass_token token;
        token.stream = stream;
        token.position = first + static_cast<uint32_t>(i);
        token.length = length != 0 ? length : first + static_cast<uint32_t>(ids.size());
        token.token_id = ids[i];
        token.output = all_outputs || i + 1 == ids.size();
        prompt.tokens.push_back(token);
    }
    return prompt;
}

}  // namespace moorage::core
