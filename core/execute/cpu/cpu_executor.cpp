// cpu_executor.cpp - computes what is queued on the caller's thread.
#include "core/execute/cpu/cpu_executor.h"

#include <cstring>

namespace moorage::core {

cpu_executor::cpu_executor(const cpu_executor_options &options)
    : turns_executor(options.transfers_max, nullptr),
      options_(options),
      experts_(options.of->config().experts),
      intermediate_(options.of->config().moe_intermediate),
      slots_(*options.of, *options.places) {}

result<std::unique_ptr<cpu_executor>> cpu_executor::create(const cpu_executor_options &options) {
    std::unique_ptr<cpu_executor> made(new cpu_executor(options));
    if (options.in_place) return made;
    if (const status done = made->slots_.take_slots(options.from_disk); !done)
        return done.failure();
    return made;
}

void cpu_executor::begin(const pass &tokens) {
    options_.compute->begin(tokens);
    now_ = time_ns();
}

void cpu_executor::route(std::span<const uint32_t> chosen, std::span<const float> weights) {
    options_.compute->route(chosen, weights);
}

void cpu_executor::predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) {
    predict_from_.assign(experts.begin(), experts.end());
    turns_executor::predict(layer, tokens, experts);
}

void cpu_executor::send(const link_piece &piece) {
    begin_piece(piece.link);
    slots_.send(piece);
}

bool cpu_executor::take_piece(completion &out) {
    slot_loader::copied piece;
    if (!slots_.take(piece)) return false;
    if (!piece.failure.empty() && !failed_) {
        failed_ = true;
        failure_ = piece.failure;
    }
    end_piece(piece.link, piece.ended_ns - piece.started_ns, out);
    return true;
}

void cpu_executor::compute(const operation &one) {
    switch (one.kind) {
        case event_kind::gate:
            return options_.compute->attention(one.layer);
        case event_kind::prediction:
            return options_.compute->predict(one.layer, predict_from_);
        case event_kind::moved:
            return move(one);
        default:
            return options_.compute->head();
    }
}

void cpu_executor::move(const operation &next) {
    const uint32_t page = next.page, rows = options_.places->top_rows(page / experts_);
    std::memcpy(slots_.row(next.to_row), slots_.address(page, MOORAGE_TOP),
                segment_image(slots_.expert_of(page), 0, rows).bytes());
}

// In one go: one parallel loop for a step.
void cpu_executor::compute(std::span<const operation> experts) {
    const bool in_place = options_.in_place || experts.front().kind == event_kind::cpu_expert;
    calls_.clear();
    views_.clear();
    views_.reserve(experts.size());
    for (const operation &one : experts) {
        const bool bottom = one.segments == MOORAGE_BOTTOM, whole = one.segments == MOORAGE_WHOLE;
        const uint32_t top = options_.places->top_rows(one.page / experts_);
        const uint32_t first = bottom ? top : 0;
        const uint32_t end = whole || bottom ? intermediate_ : top;
        const mlp_weights *weights = nullptr;
        if (!in_place) {
            const segment_image image(slots_.expert_of(one.page), first, end - first);
            views_.push_back(
                image.view(slots_.address(one.page, bottom ? MOORAGE_BOTTOM : MOORAGE_TOP)));
            weights = &views_.back();
        }
        calls_.push_back({one.page % experts_, first, end - first, weights});
    }
    options_.compute->experts(layer_, calls_);
}

}  // namespace moorage::core
