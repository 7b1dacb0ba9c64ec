// trace_cut.cpp - copies a range of tokens of a trace into memory, and drops optional tensors.
#include <algorithm>

#include "core/base/text.h"
#include "core/source/trace_write.h"

namespace moorage::core {

namespace {

// Reads [count, layers, width] values of `get(token, layer, rank)` into `values`.
template <class Value, class Get>
void copy(std::vector<Value> &values, const trace &trace, uint64_t first, uint64_t count,
          uint32_t width, const Get &get) {
    values.reserve(count * trace.layers() * width);
    for (uint64_t token = first; token < first + count; ++token)
        for (uint32_t layer = 0; layer < trace.layers(); ++layer)
            for (uint32_t rank = 0; rank < width; ++rank)
                values.push_back(static_cast<Value>(get(token, layer, rank)));
}

void copy_requests(trace_data &cut, const trace &trace, uint64_t first, uint64_t count) {
    const auto offsets = trace.request_offsets();
    for (uint64_t request = 0; request < trace.requests(); ++request) {
        if (offsets[request + 1] <= first || offsets[request] >= first + count) continue;
        cut.request_offsets.push_back(std::max(offsets[request], first) - first);
        if (!trace.request_domain().empty())
            cut.request_domain.push_back(trace.request_domain()[request]);
    }
    cut.request_offsets.push_back(count);
}

}  // namespace

trace_data cut_trace(const trace &trace, uint64_t first, uint64_t count) {
    trace_data cut;
    cut.tokens = count;
    cut.layers = trace.layers();
    cut.experts = trace.experts();
    cut.top_k = trace.top_k();
    cut.predictions = trace.predictions();
    cut.metadata = trace.metadata();
    using token = uint64_t;
    using index = uint32_t;
    copy(cut.chosen, trace, first, count, trace.top_k(),
         [&](token t, index l, index k) { return trace.expert(t, l, k); });
    if (trace.has_weight_tensor()) {
        cut.weights.half = trace.scores_are_half("weights");
        copy(cut.weights.values, trace, first, count, trace.top_k(),
             [&](token t, index l, index k) { return trace.weight(t, l, k); });
    }
    if (trace.has_gate_scores()) {
        std::vector<float> row(trace.experts());
        cut.gate_scores.half = trace.scores_are_half("gate_scores");
        copy(cut.gate_scores.values, trace, first, count, trace.experts(),
             [&](token t, index l, index e) {
                 if (e == 0) trace.gate_scores(t, l, row.data());
                 return row[e];
             });
    }
    if (trace.has_predictions())
        copy(cut.predicted, trace, first, count, trace.predictions(),
             [&](token t, index l, index k) { return trace.predicted(t, l, k); });
    if (trace.has_prediction_scores()) {
        cut.prediction_scores.half = trace.scores_are_half("pred_scores");
        copy(cut.prediction_scores.values, trace, first, count, trace.predictions(),
             [&](token t, index l, index k) { return trace.prediction_score(t, l, k); });
    }
    for (uint64_t t = first; trace.has_token_ids() && t < first + count; ++t)
        cut.token_ids.push_back(trace.token_id(t));
    copy_requests(cut, trace, first, count);
    return cut;
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
