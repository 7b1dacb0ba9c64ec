// log_builder.cpp - the rules of a routing log, row by row.
#include "core/source/log_builder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/source/trace_check.h"

namespace moorage::core {

namespace {

constexpr uint64_t layers_max = 65536;
// Numbers start near 0. Larger ones are ids or times in the wrong column.
constexpr uint64_t token_max = INT32_MAX;
// The largest number an f16 holds.
constexpr double half_max = 65504;

}  // namespace

bool log_builder::keeps(uint64_t layer) const {
    return kept_.empty() || std::ranges::any_of(kept_, [layer](const layer_range &range) {
               return range.first <= layer && layer < range.last;
           });
}

status log_builder::end_token() {
    if (trace_.tokens == 1 && layers_.empty())
        return error{"column layer: none of the first token's layers is kept"};
    if (trace_.tokens == 1) trace_.layers = static_cast<uint32_t>(layers_.size());
    if (trace_.tokens > 0 && layers_done_ < layers_.size())
        return error{format("column layer: token {} ends after {} layers, the first token has {}",
                            trace_.tokens - 1, layers_done_, layers_.size())};
    layers_done_ = 0;
    return success();
}

status log_builder::begin_token(const log_row &row) {
    if (row.token && *row.token > token_max)
        return error{
            format("column token: {} is out of range, the limit is {}", *row.token, token_max)};
    if (const status ended = end_token(); !ended) return ended;
    const bool new_request = trace_.tokens == 0 || row.request != request_;
    if (new_request) {
        if (!requests_seen_.insert(row.request).second)
            return error{
                format("column request: {} comes again after other requests; sort the log "
                       "by request",
                       printable(row.request))};
        trace_.request_offsets.push_back(trace_.tokens);
    } else if (row.token && token_ && *row.token != *token_ + 1) {
        return error{
            format("column token: {} after {}; tokens of a request are numbered one by "
                   "one{}",
                   *row.token, *token_,
                   row.request.empty() ? " (several requests need a column request)" : "")};
    }
    if (trace_.tokens == 0) has_token_ids_ = row.token_id.has_value();
    if (has_token_ids_ != row.token_id.has_value())
        return error{format("column token_id: {} here, but not so at the first token",
                            row.token_id ? "given" : "missing")};
    if (row.token_id && (*row.token_id < std::numeric_limits<int32_t>::min() ||
                         *row.token_id > std::numeric_limits<int32_t>::max()))
        return error{format("column token_id: {} does not fit in 32 bits", *row.token_id)};
    if (row.token_id) trace_.token_ids.push_back(static_cast<int32_t>(*row.token_id));
    request_ = row.request;
    token_ = row.token;
    ++trace_.tokens;
    return success();
}

status log_builder::check_row(const log_row &row) {
    const bool first = trace_.chosen.empty();
    if (first) {
        trace_.top_k = static_cast<uint32_t>(row.experts.size());
        has_weights_ = !row.weights.empty();
    }
    // For layers without experts, logs have no ids, or zeros.
    const auto remedy = [&] {
        return format("; if layer {} has no experts, leave it out (--layers)", row.layer);
    };
    if (row.experts.empty()) return error{"column experts: no expert is named" + remedy()};
    if (row.experts.size() != trace_.top_k)
        return error{format("column experts: {} experts, the first row has {}", row.experts.size(),
                            trace_.top_k)};
    for (size_t k = 0; k < row.experts.size(); ++k) {
        const uint64_t expert = row.experts[k];
        if (experts_ != 0 && expert >= experts_)
            return error{format("column expert{}: {} is out of range, the limit is {}: --experts "
                                "gives {} experts a layer",
                                k, expert, experts_ - 1, experts_)};
        if (expert >= trace_experts_max)
            return error{format("column expert{}: {} is out of range, the limit is {}", k, expert,
                                trace_experts_max - 1)};
        if (std::find(row.experts.begin(), row.experts.begin() + static_cast<ptrdiff_t>(k),
                      expert) != row.experts.begin() + static_cast<ptrdiff_t>(k))
            return error{
                format("column expert{}: {} is named twice; the experts of a token and "
                       "layer are distinct{}",
                       k, expert, remedy())};
    }
    if (has_weights_ != !row.weights.empty())
        return error{format("column weights: {} here, but not so in the first row",
                            row.weights.empty() ? "missing" : "given")};
    if (has_weights_ && row.weights.size() != row.experts.size())
        return error{format("column weights: {} weights for {} experts", row.weights.size(),
                            row.experts.size())};
    for (size_t k = 0; k < row.weights.size(); ++k) {
        const double limit = trace_.weights.half ? half_max : std::numeric_limits<float>::max();
        if (!(std::fabs(row.weights[k]) <= limit))
            return error{format("column weight{}: {} is not a finite number up to {}", k,
                                row.weights[k], limit)};
    }
    return success();
}

void log_builder::store(const log_row &row) {
    order_.resize(row.experts.size());
    std::iota(order_.begin(), order_.end(), size_t{0});
    if (has_weights_)
        std::ranges::stable_sort(order_, std::ranges::greater(),
                                 [&row](size_t k) { return row.weights[k]; });
    for (const size_t k : order_) {
        expert_largest_ = std::max(expert_largest_, row.experts[k]);
        trace_.chosen.push_back(static_cast<uint16_t>(row.experts[k]));
        if (has_weights_) trace_.weights.values.push_back(static_cast<float>(row.weights[k]));
    }
}

status log_builder::add(const log_row &row, bool new_token) {
    const bool moved = trace_.tokens == 0 || row.request != request_ || row.token != token_;
    if (new_token || moved)
        if (const status begun = begin_token(row); !begun) return begun;
    if (row.layer >= layers_max)
        return error{
            format("column layer: {} is out of range, the limit is {}", row.layer, layers_max - 1)};
    if (!keeps(row.layer)) return success();
    if (trace_.tokens == 1) {
        if (!layers_.empty() && row.layer <= layers_.back())
            return error{format("column layer: {} after {}; the layers of a token rise", row.layer,
                                layers_.back())};
        if (layers_.size() == layers_max)
            return error{format("column layer: more than {} layers", layers_max)};
        layers_.push_back(row.layer);
    } else if (layers_done_ == layers_.size() || layers_[layers_done_] != row.layer) {
        return error{format("column layer: {} as number {} of this token, the first token has {}",
                            row.layer, layers_done_,
                            layers_done_ < layers_.size()
                                ? format("{} there", layers_[layers_done_])
                                : format("{} layers", layers_.size()))};
    }
    if (const status right = check_row(row); !right) return right;
    store(row);
    ++layers_done_;
    return success();
}

result<trace_data> log_builder::finish() {
    if (trace_.tokens == 0) return error{"no row: an empty log makes no trace"};
    if (const status ended = end_token(); !ended) return ended.failure();
    trace_.experts = experts_ != 0 ? experts_ : static_cast<uint32_t>(expert_largest_ + 1);
    if (experts_ > trace_experts_max || uint64_t{trace_.layers} * trace_.experts > trace_pages_max)
        return error{
            format("{} layers of {} experts are above the limit of {} a layer and {} in all",
                   trace_.layers, trace_.experts, trace_experts_max, trace_pages_max)};
    trace_.request_offsets.push_back(trace_.tokens);
    return std::move(trace_);
}

}  // namespace moorage::core
