// cpu_executor.cpp - computes queued operations on the caller's thread.
#include "core/execute/cpu/cpu_executor.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/base/text.h"
#include "core/model/segment.h"

namespace moorage::core {

cpu_executor::cpu_executor(const cpu_executor_options &options)
    : turns_executor(options.transfers_max, nullptr),
      options_(options),
      experts_(options.source_model->config().experts),
      intermediate_(options.source_model->config().moe_intermediate),
      weights_{experts_of(*options.source_model)},
      begun_ns_(steady_ns()) {
    if (!options.small_model) return;
    weights_[1] = experts_of(*options.small_model);
    small_unit_ = options.small_model->config().part_unit;
}

result<std::unique_ptr<cpu_executor>> cpu_executor::create(const cpu_executor_options &options) {
    assert((!options.beside || options.in_place) && "one thing to wait for");
    std::unique_ptr<cpu_executor> executor(new cpu_executor(options));
    if (options.in_place) return executor;
    if (const status done = executor->take_slots(); !done) return done.failure();
    auto link = load_link::create(*options.source_model, options.from_disk, options.small_model);
    if (!link) return link.failure();
    executor->link_ = std::move(*link);
    return executor;
}

status cpu_executor::take_slots() {
    const arena &places = *options_.places;
    assert(places.rows() == intermediate_);
    // Layers may be of different types; an arena's rows are as wide as the widest.
    for (const auto &version : weights_)
        for (const mlp_weights *expert : version) {
            const uint64_t bytes = segment_image(*expert, 0, intermediate_).bytes();
            row_bytes_ = std::max(row_bytes_, (bytes + intermediate_ - 1) / intermediate_);
        }
    const std::string purpose =
        format("the arena of {} expert slots", places.rows_total() / places.rows());
    const auto remedied = [](const error &reason) {
        return error{reason.text + "; lower [memory] experts"};
    };
    auto memory = memory_block::create(row_bytes_ * places.rows_total(), purpose);
    if (!memory) return remedied(memory.failure());
    memory_ = std::move(*memory);
    if (const status touched = memory_.touch(purpose); !touched) return remedied(touched.failure());
    return success();
}

std::byte *cpu_executor::address(uint32_t page, uint8_t segment) const {
    const uint64_t first_row = options_.places->row_of(page, segment);
    assert(first_row != MOORAGE_NEVER);
    return row(first_row);
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
    // Experts go one way alone.
    if (!link_ || piece.link != link_h2d || piece.page == MOORAGE_NONE)
        return end_piece(piece.link, 0, at_once_.push());
    const auto image = [&](uint8_t segment) {
        return piece.segments & segment ? address(piece.page, segment) : nullptr;
    };
    const bool split = options_.places->is_split(piece.page / experts_);
    link_->send(piece, options_.places->top_rows(piece.page / experts_),
                {image(first_segment), split ? image(last_segment) : nullptr});
}

bool cpu_executor::take_beside(completion &completed) {
    if (!options_.beside || !options_.beside->take(completed)) return false;
    failure_ = options_.beside->failure();
    failed_ = !failure_.empty();
    return true;
}

bool cpu_executor::take_piece(completion &completed) {
    if (take_beside(completed)) return true;
    if (!at_once_.empty()) {
        completed = at_once_.front();
        at_once_.pop();
        return true;
    }
    if (!link_ || !link_->try_finish()) return false;
    if (!link_->failure().empty() && !failed_) {
        failed_ = true;
        failure_ = link_->failure();
    }
    end_piece(link_h2d, link_->duration_ns(), completed);
    return true;
}

void cpu_executor::compute(const operation &next) {
    switch (next.kind) {
        case event_kind::gate:
            return options_.compute->run_attention(next.layer);
        case event_kind::prediction:
            return options_.compute->predict(next.layer, predict_from_);
        case event_kind::moved:
            return move(next);
        default:
            return options_.compute->run_head();
    }
}

void cpu_executor::move(const operation &next) {
    const uint32_t page = next.page, rows = options_.places->top_rows(page / experts_);
    std::memcpy(row(next.to_row), address(page, first_segment),
                segment_image(weights_of(next), 0, rows).bytes());
}

// In one go: one parallel loop for a step.
void cpu_executor::compute(std::span<const operation> experts) {
    const bool in_place = options_.in_place || experts.front().kind == event_kind::cpu_expert;
    calls_.clear();
    views_.clear();
    views_.reserve(experts.size());
    for (const operation &expert : experts) {
        const bool bottom = expert.segments == last_segment,
                   whole = expert.segments == MOORAGE_WHOLE;
        const uint32_t top = options_.places->top_rows(expert.page / experts_);
        const uint32_t first = bottom ? top : 0;
        const uint32_t end = whole || bottom ? intermediate_ : top;
        const mlp_weights *weights = expert.version == 0 ? nullptr : &weights_of(expert);
        if (!in_place) {
            const segment_image image(weights_of(expert), first, end - first);
            views_.push_back(
                image.view(address(expert.page, bottom ? last_segment : first_segment)));
            weights = &views_.back();
        }
        calls_.push_back({expert.page % experts_, first, end - first, weights,
                          expert.version == 0 ? 0 : small_unit_});
    }
    options_.compute->run_experts(layer_, calls_);
}

}  // namespace moorage::core
