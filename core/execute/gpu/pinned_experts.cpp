// pinned_experts.cpp - places the images in chunks, allocates them, packs them.
#include "core/execute/gpu/pinned_experts.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <map>
#include <thread>
#include <utility>

#include "core/base/machine_limits.h"

namespace moorage::core::gpu {

namespace {

constexpr uint64_t chunk_bytes_max = 1ull << 30;
constexpr uint64_t image_alignment = 256;

uint64_t rounded(uint64_t bytes) {
    return (bytes + image_alignment - 1) / image_alignment * image_alignment;
}

}  // namespace

pinned_experts::pinned_experts(const model &model, const device_arenas &places, const arena *rows)
    : places_(places), rows_(rows), experts_(experts_of(model)) {
    std::map<const std::byte *, uint32_t> first;
    for (const mlp_weights *expert : experts_) {
        const auto page = static_cast<uint32_t>(shared_with_.size());
        shared_with_.push_back(first.emplace(expert->gate.data, page).first->second);
    }
    image_places_.resize(experts_.size());
    sharers_.resize(experts_.size());
    packed_.resize(experts_.size());
    images_.resize(experts_.size(), nullptr);
    const uint32_t intermediate = model.config().moe_intermediate;
    for (uint32_t page = 0; page < experts_.size(); ++page) {
        ++sharers_[shared_with_[page]];
        if (shared_with_[page] != page) continue;
        const uint64_t image = segment_image(*experts_[page], 0, intermediate).bytes();
        row_bytes_ = std::max(row_bytes_, (image + intermediate - 1) / intermediate);
        const uint64_t bytes = rounded(image);
        frame_bytes_ = std::max(frame_bytes_, bytes);
        if (rows_) continue;
        if (chunk_bytes_.empty() || chunk_bytes_.back() + bytes > chunk_bytes_max)
            chunk_bytes_.push_back(0);
        image_places_[page] = {static_cast<uint32_t>(chunk_bytes_.size() - 1), chunk_bytes_.back()};
        chunk_bytes_.back() += bytes;
        bytes_ += bytes;
    }
    if (rows_) plan_frames();
}

// As many whole frames as fit in each chunk.
void pinned_experts::plan_frames() {
    const uint64_t chunk_frames = std::max<uint64_t>(chunk_bytes_max / frame_bytes_, 1);
    const uint64_t frames = rows_->rows_total() / rows_->rows();
    bytes_ = frames * frame_bytes_;
    for (uint64_t left = frames; left != 0; left -= std::min(left, chunk_frames))
        chunk_bytes_.push_back(std::min(left, chunk_frames) * frame_bytes_);
}

std::byte *pinned_experts::frame(uint32_t page) const {
    const uint64_t row = rows_->row_of(page, first_segment);
    assert(row != MOORAGE_NEVER);
    const uint64_t chunk_frames = chunk_bytes_.front() / frame_bytes_, number = row / rows_->rows();
    return chunks_[number / chunk_frames] + number % chunk_frames * frame_bytes_;
}

uint32_t pinned_experts::first_row(uint32_t page, uint32_t segment) const {
    return segment == 0 ? 0 : top_rows(page);
}

uint32_t pinned_experts::rows(uint32_t page, uint32_t segment) const {
    return segment == 0 ? top_rows(page) : places_.arena_of(page).rows() - top_rows(page);
}

segment_image pinned_experts::segment_of(uint32_t page, uint32_t segment) const {
    return {*experts_[page], first_row(page, segment), rows(page, segment)};
}

mlp_weights pinned_experts::view(uint32_t page, uint32_t segment, const std::byte *base) const {
    return segment_of(page, segment).view(base);
}

bool pinned_experts::fill(std::function<std::byte *(uint64_t bytes)> take) {
    take_ = std::move(take);
    for (const uint64_t bytes : chunk_bytes_) {
        chunks_.push_back(take_(bytes));
        if (!chunks_.back()) return false;
    }
    if (rows_) return true;
    for (uint32_t page = 0; page < experts_.size(); ++page)
        if (shared_with_[page] == page)
            packed_[page].push_back(
                {chunks_[image_places_[page].chunk] + image_places_[page].offset_bytes, 0});
    return divide();
}

bool pinned_experts::divide() {
    if (rows_) return true;
    std::vector<uint32_t> stale;
    for (uint32_t page = 0; page < experts_.size(); ++page) {
        std::vector<packed_image> &known = packed_[shared_with_[page]];
        const uint32_t top = top_rows(page);
        auto found = std::ranges::find(known, top, &packed_image::top_rows);
        if (found == known.end()) {
            found = std::ranges::find(known, 0u, &packed_image::top_rows);
            // Its own image is packed anew; a shared one stays for the layers that still use it.
            if (found == known.end() && sharers_[shared_with_[page]] == 1) found = known.begin();
            if (found == known.end()) {
                std::byte *data = take_(rounded(
                    segment_image(*experts_[page], 0, places_.arena_of(page).rows()).bytes()));
                if (!data) return false;
                found = known.insert(known.end(), {data, 0});
            }
            found->top_rows = top;
            stale.push_back(page);
        }
        images_[page] = found->data;
    }
    pack(std::move(stale));
    return true;
}

// One thread does not reach the memory's bandwidth, and the files may not be read yet.
void pinned_experts::pack(std::vector<uint32_t> pages) {
    const uint32_t threads = std::min(usable_processors(), 16u);
    std::atomic<size_t> next{0};
    const auto work = [&] {
        for (size_t i = next++; i < pages.size(); i = next++) {
            std::byte *target = images_[pages[i]];
            for (uint32_t segment = 0; segment < 2; ++segment) {
                if (rows(pages[i], segment) == 0) continue;
                const segment_image image = segment_of(pages[i], segment);
                image.copy(0, image.bytes(), target);
                target += image.bytes();
            }
        }
    };
    std::vector<std::thread> workers;
    for (uint32_t i = 1; i < threads; ++i) workers.emplace_back(work);
    work();
    for (std::thread &worker : workers) worker.join();
}

}  // namespace moorage::core::gpu
