// model_source.cpp - assigns requests to streams, routes by the model's rule, reads the logits.
#include "core/source/model_source.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>

#include "core/base/finite.h"
#include "core/base/text.h"
#include "core/model/odd_weight.h"
#include "core/model/rope.h"

namespace moorage::core {

model_source::model_source(const model &model, std::vector<model_request> requests,
                           const model_source_options &options)
    : model_(model),
      config_(model.config()),
      moe_layers_(config_.moe_layers()),
      rule_(config_),
      options_(options),
      requests_(std::move(requests)),
      sampler_(options.sampling_options),
      // Enough for every policy that uses the best few. Sorting all experts costs more.
      predictions_(std::min(config_.experts, std::max(4 * config_.top_k, 16u))),
      streams_(options.batch),
      written_(requests_.size()),
      scores_(requests_.size()) {
    assert((!requests_.empty() || options.take_request) && options.batch >= 1);
    weights_.resize(size_t{tokens_max()} * config_.top_k);
    row_scores_.resize(config_.experts);
    ranked_.resize(config_.experts);
}

uint32_t model_source::tokens_max() const { return std::max(options_.batch, options_.prefill); }

uint32_t model_source::offers() const {
    return MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS |
           (options_.predict ? MOORAGE_NEEDS_PREDICTIONS : 0);
}

uint32_t model_source::context_max() const {
    size_t longest = options_.take_request ? options_.context_max : 0;
    for (const model_request &request : requests_)
        longest = std::max(longest, request.ids.size() + request.new_tokens);
    return static_cast<uint32_t>(longest);
}

uint32_t model_source::outputs_max() const {
    return scores_texts() ? tokens_max() : options_.batch;
}

void model_source::refill() {
    for (stream &stream : streams_) {
        if (stream.live) continue;
        if (next_request_ == first_request_ + requests_.size()) {
            model_request coming;
            if (!options_.take_request || !options_.take_request(coming)) return;
            requests_.push_back(std::move(coming));
            written_.emplace_back();
            scores_.emplace_back();
        }
        stream = {
            .live = true, .request = next_request_, .draws = sampler_.draws_of(next_request_)};
        stream.scaling = rope_scaling_of(config_.rope, length_of(stream, 0));
        ++next_request_;
    }
}

uint64_t model_source::length_of(const stream &stream, uint32_t position) const {
    return std::max<uint64_t>(request_of(stream.request).ids.size(), uint64_t{position} + 1);
}

void model_source::end(stream &stream) {
    stream.live = false;
    if (options_.on_end) options_.on_end(stream.request);
}

// With endless requests, forgets those before the oldest active one.
void model_source::forget() {
    constexpr uint64_t at_one_time = 64;
    if (!options_.take_request) return;
    uint64_t oldest = next_request_;
    for (const stream &stream : streams_)
        if (stream.live) oldest = std::min(oldest, stream.request);
    const auto count = static_cast<std::ptrdiff_t>(oldest - first_request_);
    if (oldest - first_request_ < at_one_time) return;
    requests_.erase(requests_.begin(), requests_.begin() + count);
    written_.erase(written_.begin(), written_.begin() + count);
    scores_.erase(scores_.begin(), scores_.begin() + count);
    first_request_ = oldest;
}

// Samples or scores every position of the last pass that had logits.
void model_source::take_results() {
    const std::span<const float> pass_logits = results_->logits();
    size_t row = 0;
    for (const pass_token &token : last_.tokens) {
        if (!token.output || !failure_.empty()) continue;
        const auto logits = pass_logits.subspan(row++ * config_.vocabulary, config_.vocabulary);
        if (check_logits(logits, "the logit of token id", token, config_.layers))
            take_logits(streams_[token.stream], token, logits);
    }
    for (stream &stream : streams_)
        if (stream.live) {
            const model_request &request = request_of(stream.request);
            const bool scored = request.new_tokens == 0 && stream.position == request.ids.size();
            if (scored || std::ranges::find(given_up_, stream.request) != given_up_.end())
                end(stream);
        }
    given_up_.clear();
    last_.tokens.clear();
}

void model_source::take_logits(stream &stream, const pass_token &token,
                               std::span<const float> logits) {
    const model_request &request = request_of(token.request);
    const auto add_score = [&](int32_t id) {
        score &sum = scores_[token.request - first_request_];
        ++sum.tokens;
        sum.nll_sum += negative_log_likelihood(logits, id);
    };
    if (request.new_tokens == 0) return add_score(request.ids[token.position + 1]);
    std::vector<int32_t> &text = written_[token.request - first_request_];
    const int32_t id = sampler_(logits, stream.draws, request.ids, text);
    const std::vector<int32_t> &ends = options_.end_ids;
    if (std::find(ends.begin(), ends.end(), id) != ends.end()) {
        end(stream);
        return;
    }
    text.push_back(id);
    if (options_.score_written) add_score(id);
    if (options_.on_token) options_.on_token(token.request, id);
    const bool has_stopped = options_.ends_text && options_.ends_text(token.request, id);
    if (has_stopped || text.size() == request.new_tokens) return end(stream);
    const uint64_t scaling = rope_scaling_of(config_.rope, length_of(stream, stream.position));
    if (scaling != stream.scaling) stream.position = 0;
    stream.scaling = scaling;
}

void model_source::add_token(pass &pass, stream &stream, uint32_t index, bool decoding) {
    const model_request &request = request_of(stream.request);
    const bool scored = request.new_tokens == 0;
    const std::vector<int32_t> &written = written_[stream.request - first_request_];
    const size_t prompt = request.ids.size();
    const uint32_t position = stream.position++;
    const bool prompt_end = stream.position == prompt;
    pass_token token;
    token.row = rows_++;
    token.request = stream.request;
    token.stream = index;
    token.position = position;
    token.recomputed = position < stream.computed;
    token.length = static_cast<uint32_t>(length_of(stream, std::max(stream.computed, position)));
    stream.computed = std::max(stream.computed, stream.position);
    token.token_id = position < prompt ? request.ids[position] : written[position - prompt];
    token.output = scored ? !prompt_end && stream.position >= request.score_from
                          : !token.recomputed && stream.position >= prompt;
    // A scored text has no prompt: if it is decoded, every token counts as an output.
    token.silent = decoding && !scored && !token.output;
    token.first = scored && decoding ? position == 0 : prompt_end && !token.recomputed;
    // Only the logits show that a continuation ends here; a limit is known earlier.
    token.last = scored ? prompt_end : token.output && written.size() + 1 == request.new_tokens;
    const bool all_entered = stream.position == std::max<size_t>(prompt, stream.computed);
    const bool goes_on = !token.last && (decoding || all_entered);
    token.next_row = goes_on ? token.row : MOORAGE_NEVER;  // its own row represents the next one
    pass.tokens.push_back(token);
}

bool model_source::prefill_pass(pass &pass) {
    if (options_.prefill == 0) return false;
    for (uint32_t index = 0; index < streams_.size(); ++index) {
        stream &stream = streams_[index];
        if (!stream.live) continue;
        // The known length: of a prompt, or of positions that are computed again.
        const size_t known =
            std::max<size_t>(request_of(stream.request).ids.size(), stream.computed);
        if (stream.position >= known) continue;
        const size_t left = known - stream.position;
        const size_t count = std::min<size_t>({left, options_.prefill, tokens_left()});
        pass.phase = MOORAGE_PREFILL;
        for (size_t i = 0; i < count; ++i) add_token(pass, stream, index, false);
        return true;
    }
    return false;
}

void model_source::decode_pass(pass &pass) {
    pass.phase = MOORAGE_DECODE;
    for (uint32_t index = 0; index < streams_.size() && tokens_left() > 0; ++index)
        if (streams_[index].live) add_token(pass, streams_[index], index, true);
}

uint64_t model_source::tokens_left() const {
    if (options_.tokens == 0) return UINT64_MAX;
    return options_.tokens - std::min(options_.tokens, rows_);
}

bool model_source::idle() {
    take_results();  // only now it is known which requests continue
    return std::ranges::none_of(
        streams_, [](const stream &stream) { return stream.live && stream.computed != 0; });
}

bool model_source::next(pass &pass) {
    assert(results_ && "connect() comes first");
    take_results();
    pass.tokens.clear();
    forget();
    refill();
    first_row_ = rows_;
    if (tokens_left() == 0 || !failure_.empty()) return false;
    if (!prefill_pass(pass)) decode_pass(pass);
    last_.tokens = pass.tokens;
    return !pass.tokens.empty();
}

std::span<const float> model_source::logits_of(size_t index) const {
    return results_->router_logits().subspan(index * config_.experts, config_.experts);
}

// Records the first value that is not finite as the failure. layer: config_.layers means after the
// last one.
bool model_source::check_logits(std::span<const float> logits, const char *of_what,
                                const pass_token &token, uint32_t layer) {
    const size_t odd = first_non_finite(logits);
    if (odd == logits.size()) return true;
    const std::string weight = find_non_finite_weight(model_);
    failure_ =
        format("{}: {}token {} of request {}: {} {} is {}; {}", model_.directory().string(),
               layer == config_.layers ? "" : format("layer {}, ", layer), token.position,
               token.request, of_what, odd, logits[odd],
               weight.empty() ? "every weight is finite, so what was computed from them left "
                                "the range of a float"
                              : weight);
    return false;
}

void model_source::route(const pass &pass, uint32_t layer, uint32_t *chosen) {
    const uint32_t k = config_.top_k, model_layer = moe_layers_[layer];
    const std::span<const float> correction = model_.weights().layers[model_layer].correction_bias;
    for (size_t i = 0; i < pass.tokens.size(); ++i) {
        const std::span<uint32_t> experts(chosen + i * k, k);
        const std::span<float> weights(weights_.data() + i * k, k);
        if (failure_.empty() && check_logits(logits_of(i), "the router's logit of expert",
                                             pass.tokens[i], model_layer)) {
            rule_.choose(logits_of(i), correction, experts, weights);
        } else {
            std::iota(experts.begin(), experts.end(), 0u);
            std::ranges::fill(weights, 0.0f);
        }
    }
}

void model_source::weights(const pass &pass, uint32_t, float *weights) {
    std::copy_n(weights_.begin(), pass.tokens.size() * config_.top_k, weights);
}

void model_source::gate_scores(const pass &pass, uint32_t, float *scores) {
    if (!failure_.empty())
        return void(std::fill_n(scores, pass.tokens.size() * config_.experts, 0.0f));
    for (size_t i = 0; i < pass.tokens.size(); ++i)
        rule_.scores(logits_of(i), {scores + i * config_.experts, config_.experts});
}

void model_source::weigh(const pass &pass, uint32_t, const uint32_t *chosen, float *weights) {
    const uint32_t k = config_.top_k;
    std::vector<float> &row_weights = row_scores_;
    for (size_t i = 0; i < pass.tokens.size(); ++i) {
        if (failure_.empty())
            rule_.weigh(logits_of(i), {chosen + i * k, k}, {row_weights.data(), k});
        else
            std::ranges::fill(row_weights, 0.0f);
        for (uint32_t rank = 0; rank < k; ++rank)
            if (std::isnan(weights[i * k + rank])) weights[i * k + rank] = row_weights[rank];
    }
}

uint32_t model_source::predict(uint64_t row, uint32_t layer, uint32_t *experts, float *scores) {
    const std::span<const float> router_logits = results_->next_router_logits();
    const size_t index = static_cast<size_t>(row - first_row_), count = config_.experts;
    if (router_logits.size() < (index + 1) * count) return 0;
    const std::span<const float> logits = router_logits.subspan(index * count, count);
    if (first_non_finite(logits) != count)
        return 0;  // the check of the layer's own logits will report it
    rule_.scores(logits, row_scores_);
    const std::span<const float> correction =
        model_.weights().layers[moe_layers_[layer]].correction_bias;
    const auto worth = [&](uint32_t expert) {
        return row_scores_[expert] + (correction.empty() ? 0.0f : correction[expert]);
    };
    std::iota(ranked_.begin(), ranked_.end(), 0u);
    std::partial_sort(ranked_.begin(), ranked_.begin() + predictions_, ranked_.end(),
                      [&](uint32_t a, uint32_t b) {
                          return worth(a) > worth(b) || (worth(a) == worth(b) && a < b);
                      });
    for (uint32_t i = 0; i < predictions_; ++i) {
        experts[i] = ranked_[i];
        scores[i] = row_scores_[ranked_[i]];
    }
    return predictions_;
}

}  // namespace moorage::core
