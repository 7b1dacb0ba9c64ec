// load_link.cpp - divides a piece by the segments of its expert, and copies or reads each part.
#include "core/execute/load_link.h"

#include <utility>

#include "core/model/segment.h"

namespace moorage::core {

// About as long as it takes to wake a thread. Smaller parts would not arrive sooner.
constexpr uint64_t part_bytes = 64 << 10;

load_link::load_link(const model &of, const model *small, std::unique_ptr<expert_reader> reader)
    : experts_{experts_of(of), small ? experts_of(*small) : std::vector<const mlp_weights *>()},
      reader_(std::move(reader)),
      thread_([this](uint32_t part) { bring(part); }) {}

result<std::unique_ptr<load_link>> load_link::create(const model &of, bool from_disk,
                                                     const model *small) {
    std::unique_ptr<expert_reader> reader;
    if (from_disk) {
        auto made = expert_reader::create(of);
        if (!made) return made.failure();
        reader = std::move(*made);
    }
    return std::unique_ptr<load_link>(new load_link(of, small, std::move(reader)));
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
        pool.each(pool.threads(), [this](uint32_t) {
            while (thread_.help()) {
            }
        });
    thread_.wait();
}

// Part of the piece, in as many of one size.
void load_link::bring(uint32_t part) {
    const mlp_weights &expert = *experts_[piece_.version][piece_.page];
    const segment_image segments[] = {{expert, 0, top_rows_},
                                      {expert, top_rows_, expert.gate.rows - top_rows_}};
    link_piece own = piece_;
    own.offset_bytes += piece_.bytes * part / parts_;
    own.bytes = piece_.offset_bytes + piece_.bytes * (part + 1) / parts_ - own.offset_bytes;
    const auto ranges = own.parts(segments[0].bytes(), segments[1].bytes());
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
