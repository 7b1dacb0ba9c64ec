// cpu_executor.cpp - runs what is queued on the caller's thread and copies on another.
#include "core/execute/cpu/cpu_executor.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "core/base/mapped_file.h"
#include "core/base/memory_block.h"
#include "core/base/text.h"

namespace moorage::core {

cpu_executor::cpu_executor(const cpu_executor_options &options)
    : turns_executor(options.transfers_max),
      options_(options),
      moe_layers_(options.of->config().moe_layers()),
      experts_(options.of->config().experts),
      intermediate_(options.of->config().moe_intermediate),
      begun_(std::chrono::steady_clock::now()) {}

result<std::unique_ptr<cpu_executor>> cpu_executor::create(const cpu_executor_options &options) {
    std::unique_ptr<cpu_executor> made(new cpu_executor(options));
    if (options.in_place) return made;
    const arena &places = *options.places;
    assert(places.rows() == made->intermediate_);
    // Layers may be of different types; an arena's rows are as wide as the widest.
    for (const uint32_t layer : made->moe_layers_) {
        const mlp_weights &one = options.of->weights().layers[layer].experts[0];
        const uint64_t bytes = segment_image(one, 0, made->intermediate_).bytes();
        made->row_bytes_ = std::max(made->row_bytes_, (bytes + places.rows() - 1) / places.rows());
    }
    auto memory = memory_block::create(
        made->row_bytes_ * places.rows_total(),
        format("the arena of {} expert slots", places.rows_total() / places.rows()));
    if (!memory) return error{memory.failure().text + "; lower [memory] experts"};
    made->arena_ = std::move(*memory);
    if (options.from_disk) {
        const mlp_weights &one = made->expert_of(0);
        if (!mapped_place_of(one.gate.data))
            return error{format(
                "{}: its experts are no part of a file as they are used, but were made or turned "
                "round in memory, so none can be read from disk; leave out [memory] host_experts "
                "and host_bytes",
                options.of->directory().empty() ? "the model" : options.of->directory().string())};
        auto reader = disk_reader::create();
        if (!reader) return reader.failure();
        made->reader_ = std::move(*reader);
    }
    made->copier_ = std::thread([executor = made.get()] { executor->copy_loop(); });
    return made;
}

cpu_executor::~cpu_executor() {
    if (copier_.joinable()) {
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
        }
        wanted_.notify_one();
        copier_.join();
    }
}

uint64_t cpu_executor::elapsed_ns() const {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now() - begun_)
                                     .count());
}

const mlp_weights &cpu_executor::expert_of(uint32_t page) const {
    const layer_weights &layer = options_.of->weights().layers[moe_layers_[page / experts_]];
    return layer.experts[page % experts_];
}

std::byte *cpu_executor::address(uint32_t page, uint8_t segment) const {
    const uint64_t row = options_.places->row_of(page, segment);
    assert(row != MOORAGE_NEVER);
    return arena_.data() + row * row_bytes_;
}

void cpu_executor::begin(const pass &tokens) {
    options_.compute->begin(tokens);
    now_ = elapsed_ns();
}

void cpu_executor::route(std::span<const uint32_t> chosen, std::span<const float> weights) {
    options_.compute->route(chosen, weights);
}

void cpu_executor::predict(uint32_t layer, const pass &tokens, std::span<const uint32_t> experts) {
    predict_from_.assign(experts.begin(), experts.end());
    turns_executor::predict(layer, tokens, experts);
}

void cpu_executor::send(const link_piece &piece) {
    link_state &link = links_[piece.link];
    assert(!link.busy);
    link.busy = true;
    link.piece = piece;
    // Fixed now: a piece under way goes on when its transfer is cancelled and the slot given away;
    // what comes there next waits for the link.
    const bool copies = !options_.in_place && piece.page != MOORAGE_NONE;
    const bool split = copies && options_.places->split(piece.page / experts_);
    for (const uint8_t segment : {uint8_t{MOORAGE_TOP}, uint8_t{MOORAGE_BOTTOM}})
        if (copies && (piece.segments & segment) && (segment == MOORAGE_TOP || split))
            link.targets[segment == MOORAGE_BOTTOM] = address(piece.page, segment);
    if (copies) link.top_rows = options_.places->top_rows(piece.page / experts_);
    link.started_ns = link.ended_ns = elapsed_ns();  // the copy thread moves the end
    {
        const std::lock_guard lock(mutex_);
        // Nothing to copy: the completion is there at once.
        (copies ? pending_ : copied_)[piece.link] = true;
    }
    if (copies) wanted_.notify_one();
}

void cpu_executor::copy_loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
        wanted_.wait(lock, [&] { return stop_ || pending_[link_h2d] || pending_[link_d2h]; });
        if (stop_) return;
        const uint32_t which = pending_[link_h2d] ? link_h2d : link_d2h;
        pending_[which] = false;
        const link_state link = links_[which];
        lock.unlock();
        std::string failure = copy(link);
        const uint64_t ended_ns = elapsed_ns();
        lock.lock();
        links_[which].ended_ns = ended_ns;
        links_[which].failure = std::move(failure);
        copied_[which] = true;
        finished_.notify_one();
    }
}

// Bytes [begin, end) of the image, from disk. What went wrong, or nothing.
std::string cpu_executor::read(const segment_image &image, uint64_t begin, uint64_t end,
                               std::byte *target) {
    sources_.clear();
    ranges_.clear();
    image.sources(begin, end, sources_);
    for (const segment_image::source &one : sources_) ranges_.push_back({one.data, one.bytes});
    const status done = reader_->read(
        ranges_, [&](size_t number, uint64_t offset, std::span<const std::byte> bytes) {
            image.take(sources_[number], offset, bytes, target);
        });
    return done.ok() ? "" : done.failure().text;
}

// The piece's bytes of the image of the whole transfer: those of the top segment, then the
// bottom's. What went wrong, or nothing.
std::string cpu_executor::copy(const link_state &link) {
    const link_piece &piece = link.piece;
    const mlp_weights &expert = expert_of(piece.page);
    const uint32_t top = link.top_rows;
    uint64_t begin = piece.offset_bytes, left = piece.bytes;
    for (const uint8_t segment : {uint8_t{MOORAGE_TOP}, uint8_t{MOORAGE_BOTTOM}}) {
        const bool is_top = segment == MOORAGE_TOP;
        if (!(piece.segments & segment) || (!is_top && top == intermediate_)) continue;
        const segment_image image(expert, is_top ? 0 : top, is_top ? top : intermediate_ - top);
        if (begin >= image.bytes()) {
            begin -= image.bytes();
            continue;
        }
        const uint64_t count = std::min(left, image.bytes() - begin);
        std::byte *const target = link.targets[is_top ? 0 : 1];
        if (!reader_) {
            image.copy(begin, begin + count, target);
        } else if (std::string why = read(image, begin, begin + count, target); !why.empty()) {
            return why;
        }
        left -= count;
        begin = 0;
        if (left == 0) break;
    }
    return {};
}

bool cpu_executor::take_piece(completion &out) {
    const std::lock_guard lock(mutex_);
    for (uint32_t which = 0; which < link_count; ++which) {
        if (!copied_[which]) continue;
        copied_[which] = false;
        link_state &link = links_[which];
        link.busy = false;
        if (!link.failure.empty() && !failed_) {
            failed_ = true;
            failure_ = link.failure;
        }
        const uint64_t duration_ns = link.ended_ns - link.started_ns;
        (which == link_h2d ? busy_.h2d : busy_.d2h) += duration_ns;
        out = {event_kind::piece, which, duration_ns, 0};
        return true;
    }
    return false;
}

void cpu_executor::wait_for_piece() {
    std::unique_lock lock(mutex_);
    assert((links_[link_h2d].busy || links_[link_d2h].busy) && "something must be under way");
    finished_.wait(lock, [&] { return copied_[link_h2d] || copied_[link_d2h]; });
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
    const uint32_t page = next.work.page, rows = options_.places->top_rows(page / experts_);
    std::memcpy(arena_.data() + next.to_row * row_bytes_, address(page, MOORAGE_TOP),
                segment_image(expert_of(page), 0, rows).bytes());
}

mlp_weights cpu_executor::view_of(const expert_work &work) const {
    const bool bottom = work.segments == MOORAGE_BOTTOM;
    const uint32_t top = options_.places->top_rows(work.page / experts_);
    const uint32_t first = bottom ? top : 0;
    const uint32_t count =
        bottom ? intermediate_ - top : (work.segments == MOORAGE_TOP ? top : intermediate_);
    const segment_image image(expert_of(work.page), first, count);
    return image.view(address(work.page, bottom ? MOORAGE_BOTTOM : MOORAGE_TOP));
}

// In one go: one parallel loop for a step.
void cpu_executor::compute(std::span<const operation> experts) {
    const bool in_place = options_.in_place || experts.front().kind == event_kind::cpu_expert;
    calls_.clear();
    views_.clear();
    views_.reserve(experts.size());
    for (const operation &one : experts) {
        const expert_work &work = one.work;
        const bool bottom = work.segments == MOORAGE_BOTTOM, whole = work.segments == MOORAGE_WHOLE;
        const uint32_t top = options_.places->top_rows(work.page / experts_);
        const uint32_t first = bottom ? top : 0;
        const uint32_t count = whole ? intermediate_ : bottom ? intermediate_ - top : top;
        const mlp_weights *weights = nullptr;
        if (!in_place) {
            views_.push_back(view_of(work));
            weights = &views_.back();
        }
        calls_.push_back({work.page % experts_, first, count, weights});
    }
    options_.compute->experts(layer_, calls_);
}

}  // namespace moorage::core
