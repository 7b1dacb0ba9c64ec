// load_link.cpp - what of a piece lies in which segment of its expert, and where that comes from.
#include "core/execute/load_link.h"

#include <utility>

#include "core/model/segment.h"

namespace moorage::core {

load_link::load_link(const model &of, const model *small, std::unique_ptr<expert_reader> reader)
    : experts_{experts_of(of), small ? experts_of(*small) : std::vector<const mlp_weights *>()},
      reader_(std::move(reader)),
      thread_([this] { bring(); }) {}

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
    thread_.start();
}

void load_link::bring() {
    const mlp_weights &expert = *experts_[piece_.version][piece_.page];
    const segment_image segments[] = {{expert, 0, top_rows_},
                                      {expert, top_rows_, expert.gate.rows - top_rows_}};
    const auto parts = piece_.parts(segments[0].bytes(), segments[1].bytes());
    failure_.clear();
    for (size_t i = 0; i < parts.size() && failure_.empty(); ++i) {
        const auto [begin, end] = parts[i];
        if (begin == end) continue;
        if (reader_)
            failure_ = reader_->read(segments[i], begin, end, images_[i]);
        else
            segments[i].copy(begin, end, images_[i]);
    }
}

}  // namespace moorage::core
