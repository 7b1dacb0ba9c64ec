// trace_record.cpp - collects steps by token and arranges them as a trace.
#include "core/source/trace_record.h"

#include <algorithm>
#include <cassert>

namespace moorage::core {

trace_recorder::trace_recorder(uint32_t layers, uint32_t experts, uint32_t top_k,
                               uint32_t predictions)
    : layers_(layers), experts_(experts), top_k_(top_k), predictions_(predictions) {
    one_experts_.resize(experts);
    one_scores_.resize(experts);
}

void trace_recorder::step(const moorage_step &view, const pass &tokens, source &from) {
    const size_t count = tokens.tokens.size();
    if (view.layer == 0) {
        first_ = tokens_.size();
        for (const pass_token &token : tokens.tokens) {
            tokens_.push_back({token.request, token.position, token.token_id, token.again});
            count_ += !token.again;
        }
        const size_t cells = tokens_.size() * layers_;
        chosen_.resize(cells * top_k_);
        weights_.resize(cells * top_k_);
        gate_scores_.resize(cells * experts_);
        predicted_.resize(cells * predictions_);
        prediction_scores_.resize(cells * predictions_);
        next_predicted_.resize(tokens_.size() * predictions_);
        next_scores_.resize(tokens_.size() * predictions_);
    }
    pass_scores_.resize(count * experts_);
    from.gate_scores(tokens, view.layer, pass_scores_.data());
    for (size_t i = 0; i < count; ++i) {
        const uint64_t at = cell(first_ + i, view.layer);
        for (uint32_t rank = 0; rank < top_k_; ++rank) {
            chosen_[at * top_k_ + rank] =
                static_cast<uint16_t>(view.host_chosen[i * top_k_ + rank]);
            if (view.host_weights)
                weights_[at * top_k_ + rank] = view.host_weights[i * top_k_ + rank];
        }
        std::copy_n(pass_scores_.begin() + static_cast<ptrdiff_t>(i * experts_), experts_,
                    gate_scores_.begin() + static_cast<ptrdiff_t>(at * experts_));
    }
    if (predictions_ != 0) predict(tokens, (view.layer + 1) % layers_, from);
}

void trace_recorder::predict(const pass &tokens, uint32_t layer, source &from) {
    for (size_t i = 0; i < tokens.tokens.size(); ++i) {
        const uint32_t count =
            from.predict(tokens.tokens[i].row, layer, one_experts_.data(), one_scores_.data());
        assert(count == 0 || count >= predictions_);
        const uint64_t token = first_ + i;
        uint16_t *experts = layer == 0 ? next_predicted_.data() + token * predictions_
                                       : predicted_.data() + cell(token, layer) * predictions_;
        float *scores = layer == 0 ? next_scores_.data() + token * predictions_
                                   : prediction_scores_.data() + cell(token, layer) * predictions_;
        for (uint32_t rank = 0; rank < predictions_; ++rank) {
            experts[rank] = static_cast<uint16_t>(count ? one_experts_[rank] : rank);
            scores[rank] = count ? one_scores_[rank] : 0;
        }
    }
}

trace_data trace_recorder::finish() const {
    assert(!tokens_.empty());
    std::vector<uint64_t> order;
    for (uint64_t token = 0; token < tokens_.size(); ++token)
        if (!tokens_[token].again) order.push_back(token);
    std::stable_sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) {
        return tokens_[a].request != tokens_[b].request ? tokens_[a].request < tokens_[b].request
                                                        : tokens_[a].position < tokens_[b].position;
    });
    trace_data data;
    data.tokens = count_;
    data.layers = layers_;
    data.experts = experts_;
    data.top_k = top_k_;
    data.predictions = predictions_;
    data.request_offsets.push_back(0);
    const auto append = [](auto &to, const auto &from, uint64_t begin, uint64_t count) {
        to.insert(to.end(), from.begin() + static_cast<ptrdiff_t>(begin),
                  from.begin() + static_cast<ptrdiff_t>(begin + count));
    };
    for (size_t i = 0; i < order.size(); ++i) {
        const uint64_t token = order[i], at = cell(token, 0);
        const bool first = i == 0 || tokens_[order[i - 1]].request != tokens_[token].request;
        if (first && i != 0) data.request_offsets.push_back(i);
        append(data.chosen, chosen_, at * top_k_, uint64_t{layers_} * top_k_);
        append(data.weights.values, weights_, at * top_k_, uint64_t{layers_} * top_k_);
        append(data.gate_scores.values, gate_scores_, at * experts_, uint64_t{layers_} * experts_);
        data.token_ids.push_back(tokens_[token].id);
        if (predictions_ == 0) continue;
        if (first) {
            for (uint32_t rank = 0; rank < predictions_; ++rank) {
                data.predicted.push_back(static_cast<uint16_t>(rank));
                data.prediction_scores.values.push_back(0);
            }
        } else {
            const uint64_t before = order[i - 1] * predictions_;
            append(data.predicted, next_predicted_, before, predictions_);
            append(data.prediction_scores.values, next_scores_, before, predictions_);
        }
        const uint64_t rest = uint64_t{layers_ - 1} * predictions_;
        append(data.predicted, predicted_, (at + 1) * predictions_, rest);
        append(data.prediction_scores.values, prediction_scores_, (at + 1) * predictions_, rest);
    }
    data.request_offsets.push_back(order.size());
    return data;
}

}  // namespace moorage::core
