// trace_record.cpp - collects steps by token and arranges them as a trace.
#include "core/source/trace_record.h"

#include <algorithm>
#include <cassert>

namespace moorage::core {

trace_recorder::trace_recorder(uint32_t layers, uint32_t experts, uint32_t top_k,
                               uint32_t predictions)
    : layers_(layers), experts_(experts), top_k_(top_k), predictions_(predictions) {
    token_experts_.resize(experts);
    token_scores_.resize(experts);
}

void trace_recorder::step(const moorage_step &view, const pass &pass, source &source) {
    const size_t count = pass.tokens.size();
    if (view.layer == 0) {
        first_ = tokens_.size();
        for (const pass_token &token : pass.tokens) {
            tokens_.push_back({token.request, token.position, token.token_id, token.recomputed});
            count_ += !token.recomputed;
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
    source.gate_scores(pass, view.layer, pass_scores_.data());
    for (size_t i = 0; i < count; ++i) {
        const uint64_t cell_index = cell(first_ + i, view.layer);
        for (uint32_t rank = 0; rank < top_k_; ++rank) {
            chosen_[cell_index * top_k_ + rank] =
                static_cast<uint16_t>(view.host_chosen[i * top_k_ + rank]);
            if (view.host_weights)
                weights_[cell_index * top_k_ + rank] = view.host_weights[i * top_k_ + rank];
        }
        std::copy_n(pass_scores_.begin() + static_cast<ptrdiff_t>(i * experts_), experts_,
                    gate_scores_.begin() + static_cast<ptrdiff_t>(cell_index * experts_));
    }
    if (predictions_ != 0) predict(pass, (view.layer + 1) % layers_, source);
}

void trace_recorder::predict(const pass &pass, uint32_t layer, source &source) {
    for (size_t i = 0; i < pass.tokens.size(); ++i) {
        const uint32_t count =
            source.predict(pass.tokens[i].row, layer, token_experts_.data(), token_scores_.data());
        assert(count == 0 || count >= predictions_);
        const uint64_t token = first_ + i;
        uint16_t *experts = layer == 0 ? next_predicted_.data() + token * predictions_
                                       : predicted_.data() + cell(token, layer) * predictions_;
        float *scores = layer == 0 ? next_scores_.data() + token * predictions_
                                   : prediction_scores_.data() + cell(token, layer) * predictions_;
        for (uint32_t rank = 0; rank < predictions_; ++rank) {
            experts[rank] = static_cast<uint16_t>(count ? token_experts_[rank] : rank);
            scores[rank] = count ? token_scores_[rank] : 0;
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
    const auto append = [](auto &target, const auto &values, uint64_t begin, uint64_t count) {
        target.insert(target.end(), values.begin() + static_cast<ptrdiff_t>(begin),
                      values.begin() + static_cast<ptrdiff_t>(begin + count));
    };
    for (size_t i = 0; i < order.size(); ++i) {
        const uint64_t token = order[i], cell_index = cell(token, 0);
        const bool first = i == 0 || tokens_[order[i - 1]].request != tokens_[token].request;
        if (first && i != 0) data.request_offsets.push_back(i);
        append(data.chosen, chosen_, cell_index * top_k_, uint64_t{layers_} * top_k_);
        append(data.weights.values, weights_, cell_index * top_k_, uint64_t{layers_} * top_k_);
        append(data.gate_scores.values, gate_scores_, cell_index * experts_,
               uint64_t{layers_} * experts_);
        data.token_ids.push_back(tokens_[token].id);
        if (predictions_ == 0) continue;
        if (first) {
            for (uint32_t rank = 0; rank < predictions_; ++rank) {
                data.predicted.push_back(static_cast<uint16_t>(rank));
                data.prediction_scores.values.push_back(0);
            }
        } else {
            const uint64_t previous = order[i - 1] * predictions_;
            append(data.predicted, next_predicted_, previous, predictions_);
            append(data.prediction_scores.values, next_scores_, previous, predictions_);
        }
        const uint64_t rest = uint64_t{layers_ - 1} * predictions_;
        append(data.predicted, predicted_, (cell_index + 1) * predictions_, rest);
        append(data.prediction_scores.values, prediction_scores_, (cell_index + 1) * predictions_,
               rest);
    }
    data.request_offsets.push_back(order.size());
    return data;
}

}  // namespace moorage::core
