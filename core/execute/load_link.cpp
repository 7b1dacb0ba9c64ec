// load_link.cpp - divides a piece by the segments of its expert, and copies or reads each part.
#include "core/execute/load_link.h"

#include <utility>

#include "core/model/segment.h"

namespace moorage::core {

// About as long as it takes to wake a thread. Smaller parts would not arrive sooner.
constexpr uint64_t part_bytes = 64 << 10;

load_link::load_link(const model &main_model, const model *small_model,
                     std::unique_ptr<expert_reader> reader)
    : experts_{experts_of(main_model),
               small_model ? experts_of(*small_model) : std::vector<const mlp_weights *>()},
      reader_(std::move(reader)),
      thread_([this](uint32_t part) { load_part(part); }) {}

result<std::unique_ptr<load_link>> load_link::create(const model &main_model, bool from_disk,
                                                     const model *small_model) {
    std::unique_ptr<expert_reader> reader;
    if (from_disk) {
        auto new_reader = expert_reader::create(main_model);
        if (!new_reader) return new_reader.failure();
        reader = std::move(*new_reader);
    }
    return std::unique_ptr<load_link>(new load_link(main_model, small_model, std::move(reader)));
}

void load_link::send(const link_piece &piece, uint32_t top_rows,
                     std::array<std::byte *, 2> images) {
    piece_ = piece;
    top_rows_ = top_rows;
    images_ = images;
    failure_.clear();
    // Reading is one thing after the other.
    parts_ = reader_ ? 1 : static_cast<uint32_t>((piece.bytes + part_bytes - 1) / part_bytes);
    thread_.start(parts_);
}

void load_link::help(thread_pool &pool) {
    if (!reader_)
        pool.parallel_for(pool.threads(), [this](uint32_t) {
            while (thread_.help()) {
            }
        });
    thread_.wait();
}

// Part of the piece, in as many of one size.
void load_link::load_part(uint32_t part) {
    const mlp_weights &expert = *experts_[piece_.version][piece_.page];
    const segment_image segments[] = {{expert, 0, top_rows_},
                                      {expert, top_rows_, expert.gate.rows - top_rows_}};
    link_piece part_piece = piece_;
    part_piece.offset_bytes += piece_.bytes * part / parts_;
    part_piece.bytes =
        piece_.offset_bytes + piece_.bytes * (part + 1) / parts_ - part_piece.offset_bytes;
    const auto ranges = part_piece.parts(segments[0].bytes(), segments[1].bytes());
    for (size_t i = 0; i < ranges.size() && failure_.empty(); ++i) {
        const auto [begin, end] = ranges[i];
        if (begin == end) continue;
        if (reader_)
            failure_ = reader_->read(segments[i], begin, end, images_[i]);
        else
            segments[i].copy(begin, end, images_[i]);
    }
}

}  // namespace moorage::core
