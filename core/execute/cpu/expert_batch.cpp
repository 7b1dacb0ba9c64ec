// expert_batch.cpp - joins callers of an expert, computes, hands the rows back.
#include "core/execute/cpu/expert_batch.h"

#include <algorithm>
#include <functional>

#include "core/execute/cpu/kernels_vector.h"

namespace moorage::core {

namespace {

bool streams(const batch_item &expert) { return expert.rows.size() <= STREAM_TOKENS_MAX; }

}  // namespace

// One call of the kernel for all of them.
void expert_batch::join(std::span<const batch_item *const> group) {
    const size_t hidden = config_.hidden;
    mlp_call call{};
    call.weights = group.front()->weights;
    call.intermediate = call.count = config_.moe_intermediate;
    call.activation = config_.activation;
    call.limit = static_cast<float>(config_.activation_limit);
    if (group.size() == 1) {
        const batch_item &expert = *group.front();
        call.tokens = static_cast<uint32_t>(expert.rows.size());
        call.gathered = expert.rows.data();
        call.input = {expert.input, hidden};
        call.output = {expert.outputs, hidden};
        calls_.push_back(call);
        return;
    }
    // Memory is taken before any call is made, so that it stays where it is.
    const size_t first = joint_rows_;
    for (const batch_item *expert : group) {
        joined_.push_back({expert, joint_rows_});
        for (const uint32_t row : expert->rows)
            std::copy_n(expert->input + row * hidden, hidden, &input_[joint_rows_++ * hidden]);
    }
    call.tokens = static_cast<uint32_t>(joint_rows_ - first);
    call.input = {&input_[first * hidden], hidden};
    call.output = {&outputs_[first * hidden], hidden};
    calls_.push_back(call);
}

void expert_batch::scatter() {
    const size_t hidden = config_.hidden;
    for (const joined_item &entry : joined_)
        std::copy_n(&outputs_[entry.row * hidden], entry.item->rows.size() * hidden,
                    entry.item->outputs);
}

void expert_batch::compute(std::span<const batch_item> items) {
    order_.clear();
    calls_.clear();
    joined_.clear();
    joint_rows_ = 0;
    size_t rows = 0;
    for (const batch_item &expert : items) order_.push_back(&expert), rows += expert.rows.size();
    std::ranges::stable_sort(order_, [](const batch_item *a, const batch_item *b) {
        if (a->weights != b->weights) return std::less<>()(a->weights, b->weights);
        return streams(*a) > streams(*b);
    });
    if (input_.size() < rows * config_.hidden) {
        input_.resize(rows * config_.hidden);
        outputs_.resize(rows * config_.hidden);
    }
    for (size_t begin = 0, end; begin < order_.size(); begin = end) {
        const batch_item &first = *order_[begin];
        size_t together = first.rows.size();
        for (end = begin + 1; end < order_.size(); ++end) {
            const batch_item &next = *order_[end];
            if (next.weights != first.weights) break;
            // Items with few tokens come first, so this also parts them from items with many.
            if (streams(first) && together + next.rows.size() > STREAM_TOKENS_MAX) break;
            together += next.rows.size();
        }
        join(std::span(order_).subspan(begin, end - begin));
    }
    if (!calls_.empty()) mlp_(calls_);
    scatter();
}

}  // namespace moorage::core
