// pinned_experts.cpp - places the images in chunks, allocates them, packs them.
#if defined(MOORAGE_HAS_CUDA)

#include "core/execute/cuda/pinned_experts.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

namespace moorage::core::cuda {

namespace {

constexpr uint64_t chunk_bytes_max = 1ull << 30;
constexpr uint64_t image_alignment = 256;

uint64_t rounded(uint64_t bytes) {
    return (bytes + image_alignment - 1) / image_alignment * image_alignment;
}

}  // namespace

pinned_experts::pinned_experts(const model &of, uint32_t top_rows)
    : top_rows_(top_rows), intermediate_(of.config().moe_intermediate) {
    std::map<const std::byte *, uint32_t> first;
    for (const uint32_t layer : of.config().moe_layers())
        for (const mlp_weights &expert : of.weights().layers[layer].experts) {
            const auto page = static_cast<uint32_t>(experts_.size());
            experts_.push_back(&expert);
            shared_with_.push_back(first.emplace(expert.gate.data, page).first->second);
        }
    for (uint32_t segment = 0; segment < 2; ++segment) {
        places_[segment].resize(experts_.size());
        images_[segment].resize(experts_.size(), nullptr);
        if (segment == 1 && top_rows_ == intermediate_) break;
        segment_bytes_[segment] = segment_of(0, segment).bytes();
        for (uint32_t page = 0; page < experts_.size(); ++page) {
            if (shared_with_[page] != page) continue;
            const uint64_t bytes = rounded(segment_bytes_[segment]);
            if (chunk_bytes_.empty() || chunk_bytes_.back() + bytes > chunk_bytes_max)
                chunk_bytes_.push_back(0);
            places_[segment][page] = {static_cast<uint32_t>(chunk_bytes_.size() - 1),
                                      chunk_bytes_.back()};
            chunk_bytes_.back() += bytes;
            bytes_ += bytes;
        }
    }
}

segment_image pinned_experts::segment_of(uint32_t page, uint32_t segment) const {
    return segment == 0 ? segment_image(*experts_[page], 0, top_rows_)
                        : segment_image(*experts_[page], top_rows_, intermediate_ - top_rows_);
}

mlp_weights pinned_experts::view(uint32_t page, uint32_t segment, const std::byte *base) const {
    return segment_of(page, segment).view(base);
}

status pinned_experts::fill(cuda_device &device, uint32_t threads) {
    std::vector<std::byte *> chunks;
    for (const uint64_t bytes : chunk_bytes_) {
        chunks.push_back(device.take_pinned(bytes));
        if (!chunks.back()) return error{device.notes().text()};
    }
    const auto pages = static_cast<uint32_t>(experts_.size());
    for (uint32_t segment = 0; segment < 2; ++segment)
        for (uint32_t page = 0; page < pages && segment_bytes_[segment] != 0; ++page) {
            const place &at = places_[segment][shared_with_[page]];
            images_[segment][page] = chunks[at.chunk] + at.offset_bytes;
        }
    // One thread does not reach the memory's bandwidth, and the files may not be read yet.
    std::atomic<uint32_t> next{0};
    const auto pack = [&] {
        for (uint32_t page = next++; page < pages; page = next++) {
            if (shared_with_[page] != page) continue;
            for (uint32_t segment = 0; segment < 2; ++segment)
                if (segment_bytes_[segment] != 0)
                    segment_of(page, segment)
                        .copy(0, segment_bytes_[segment], images_[segment][page]);
        }
    };
    std::vector<std::thread> workers;
    for (uint32_t i = 1; i < std::max(1u, threads); ++i) workers.emplace_back(pack);
    pack();
    for (std::thread &worker : workers) worker.join();
    return success();
}

}  // namespace moorage::core::cuda

#endif
