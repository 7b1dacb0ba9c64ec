// trace_cut.cpp - copies a range of tokens of a trace into memory, and drops optional tensors.
#include <algorithm>

#include "core/base/text.h"
#include "core/source/trace_write.h"

namespace moorage::core {

namespace {

// Reads [count, layers, width] values of `get(token, layer, rank)` into `to`.
template <class Value, class Get>
void copy(std::vector<Value> &to, const trace &from, uint64_t first, uint64_t count, uint32_t width,
          const Get &get) {
    to.reserve(count * from.layers() * width);
    for (uint64_t token = first; token < first + count; ++token)
        for (uint32_t layer = 0; layer < from.layers(); ++layer)
            for (uint32_t rank = 0; rank < width; ++rank)
                to.push_back(static_cast<Value>(get(token, layer, rank)));
}

void copy_requests(trace_data &to, const trace &from, uint64_t first, uint64_t count) {
    const auto offsets = from.request_offsets();
    for (uint64_t request = 0; request < from.requests(); ++request) {
        if (offsets[request + 1] <= first || offsets[request] >= first + count) continue;
        to.request_offsets.push_back(std::max(offsets[request], first) - first);
        if (!from.request_domain().empty())
            to.request_domain.push_back(from.request_domain()[request]);
    }
    to.request_offsets.push_back(count);
}

}  // namespace

trace_data cut_trace(const trace &from, uint64_t first, uint64_t count) {
    trace_data to;
    to.tokens = count;
    to.layers = from.layers();
    to.experts = from.experts();
    to.top_k = from.top_k();
    to.predictions = from.predictions();
    to.metadata = from.metadata();
    using token = uint64_t;
    using index = uint32_t;
    copy(to.chosen, from, first, count, from.top_k(),
         [&](token t, index l, index k) { return from.expert(t, l, k); });
    if (from.has_weight_tensor()) {
        to.weights.half = from.scores_are_half("weights");
        copy(to.weights.values, from, first, count, from.top_k(),
             [&](token t, index l, index k) { return from.weight(t, l, k); });
    }
    if (from.has_gate_scores()) {
        std::vector<float> row(from.experts());
        to.gate_scores.half = from.scores_are_half("gate_scores");
        copy(to.gate_scores.values, from, first, count, from.experts(),
             [&](token t, index l, index e) {
                 if (e == 0) from.gate_scores(t, l, row.data());
                 return row[e];
             });
    }
    if (from.has_predictions())
        copy(to.predicted, from, first, count, from.predictions(),
             [&](token t, index l, index k) { return from.predicted(t, l, k); });
    if (from.has_prediction_scores()) {
        to.prediction_scores.half = from.scores_are_half("pred_scores");
        copy(to.prediction_scores.values, from, first, count, from.predictions(),
             [&](token t, index l, index k) { return from.prediction_score(t, l, k); });
    }
    for (uint64_t t = first; from.has_token_ids() && t < first + count; ++t)
        to.token_ids.push_back(from.token_id(t));
    copy_requests(to, from, first, count);
    return to;
}

status drop_tensor(trace_data &data, const std::string &name) {
    static const std::string names[] = {"weights",     "gate_scores", "pred_experts",
                                        "pred_scores", "token_ids",   "request_domain"};
    if (name == "weights")
        data.weights.values.clear();
    else if (name == "gate_scores")
        data.gate_scores.values.clear();
    else if (name == "pred_scores")
        data.prediction_scores.values.clear();
    else if (name == "token_ids")
        data.token_ids.clear();
    else if (name == "request_domain")
        data.request_domain.clear();
    else if (name == "pred_experts") {  // scores without predictions have no meaning
        data.predicted.clear();
        data.prediction_scores.values.clear();
        data.predictions = 0;
    } else
        return error{format("tensor {} is not optional{}; weights, gate_scores, pred_experts, "
                            "pred_scores, token_ids and request_domain are",
                            name, did_you_mean(name, names)),
                     true};
    return success();
}

}  // namespace moorage::core
