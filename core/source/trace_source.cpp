// trace_source.cpp - assigns the requests of a trace to streams.
#include "core/source/trace_source.h"

#include <algorithm>

#include "core/source/trace_rows.h"

namespace moorage::core {

trace_source::trace_source(const trace &trace, const trace_source_options &options)
    : trace_(trace), options_(options), streams_(options.batch) {
    token_limit_ = options.tokens == 0 ? trace.tokens() : std::min(options.tokens, trace.tokens());
    refill();
}

uint32_t trace_source::tokens_max() const { return std::max(options_.batch, options_.prefill); }

uint32_t trace_source::offers() const {
    // Steps follow the order of the trace only if one request is active at a time.
    const bool in_order = options_.batch == 1 && options_.prefill == 0;
    return in_order ? trace_.offers() : trace_.offers() & ~uint32_t{MOORAGE_NEEDS_FUTURE};
}

void trace_source::refill() {
    for (stream &stream : streams_) {
        if (stream.live || next_request_ >= trace_.requests()) continue;
        const uint64_t begin = trace_.request_offsets()[next_request_];
        if (begin >= token_limit_) return;
        const uint64_t end = std::min(trace_.request_offsets()[next_request_ + 1], token_limit_);
        stream = {true, options_.prefill == 0 || end - begin < 2, next_request_, begin, begin, end};
        ++next_request_;
    }
}

pass_token trace_source::token_at(const stream &stream, uint32_t index) const {
    pass_token token;
    token.row = stream.row;
    token.request = stream.request;
    token.stream = index;
    token.position = static_cast<uint32_t>((stream.row - stream.begin) % options_.context_max);
    if (trace_.has_token_ids()) token.token_id = trace_.token_id(stream.row);
    if (options_.vocabulary == 0) return token;
    // Any id will do, because routing comes from the trace and results are not read.
    const uint64_t id =
        trace_.has_token_ids() ? static_cast<uint64_t>(token.token_id) : stream.row * 2654435761u;
    token.token_id = static_cast<int32_t>(id % options_.vocabulary);
    return token;
}

bool trace_source::prefill_pass(pass &pass) {
    for (uint32_t index = 0; index < streams_.size(); ++index) {
        stream &stream = streams_[index];
        if (!stream.live || stream.prefilled) continue;
        pass.phase = MOORAGE_PREFILL;
        const uint64_t stop = std::min(stream.begin + options_.prefill, stream.end - 1);
        for (; stream.row < stop; ++stream.row) {
            const bool first = stream.row + 1 == stop;
            pass_token token = token_at(stream, index);
            token.next_row = first ? stop : MOORAGE_NEVER;
            token.first = token.output = first;
            pass.tokens.push_back(token);
        }
        stream.prefilled = true;
        return true;
    }
    return false;
}

bool trace_source::idle() {
    return std::ranges::none_of(
        streams_, [](const stream &stream) { return stream.live && stream.row != stream.begin; });
}

// Releases tokens that all streams have passed, a few thousand at a time.
void trace_source::release_passed() {
    uint64_t oldest = MOORAGE_NEVER;
    for (const stream &stream : streams_)
        if (stream.live) oldest = std::min(oldest, stream.row);
    if (oldest == MOORAGE_NEVER || oldest < released_ + 4096) return;
    trace_.release_before(oldest);
    released_ = oldest;
}

bool trace_source::next(pass &pass) {
    pass.tokens.clear();
    release_passed();
    if (prefill_pass(pass)) return true;
    pass.phase = MOORAGE_DECODE;
    for (uint32_t index = 0; index < streams_.size(); ++index) {
        stream &stream = streams_[index];
        if (!stream.live) continue;
        const bool last = stream.row + 1 == stream.end;
        pass_token token = token_at(stream, index);
        token.next_row = last ? MOORAGE_NEVER : stream.row + 1;
        token.first = stream.row == stream.begin;
        token.last = last;
        token.output = true;
        pass.tokens.push_back(token);
        stream.live = !last;
        ++stream.row;
    }
    if (pass.tokens.empty()) return false;
    refill();
    // With one stream the next request follows immediately: its first token is the next row.
    if (options_.batch == 1 && pass.tokens[0].last && streams_[0].live && streams_[0].prefilled)
        pass.tokens[0].next_row = streams_[0].row;
    return true;
}

void trace_source::route(const pass &pass, uint32_t layer, uint32_t *chosen) {
    for (const pass_token &token : pass.tokens) {
        route_row(trace_, token.row, layer, chosen);
        chosen += top_k();
    }
}

void trace_source::weights(const pass &pass, uint32_t layer, float *weights) {
    for (const pass_token &token : pass.tokens) {
        weights_row(trace_, token.row, layer, weights);
        weights += top_k();
    }
}

void trace_source::gate_scores(const pass &pass, uint32_t layer, float *scores) {
    for (const pass_token &token : pass.tokens) {
        trace_.gate_scores(token.row, layer, scores);
        scores += experts();
    }
}

void trace_source::weigh(const pass &pass, uint32_t layer, const uint32_t *chosen, float *weights) {
    for (const pass_token &token : pass.tokens) {
        weigh_row(trace_, token.row, layer, chosen, weights);
        chosen += top_k();
        weights += top_k();
    }
}

uint32_t trace_source::predict(uint64_t row, uint32_t layer, uint32_t *experts, float *scores) {
    const uint32_t count = trace_.predictions();
    predict_row(trace_, row, layer, count, experts, scores);
    return count;
}

}  // namespace moorage::core
