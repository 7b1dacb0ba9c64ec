// expert_store.cpp - keeps account of the experts in memory.
#include "tools/node/expert_store.h"

#include <cassert>

namespace moorage::core {

expert_store::expert_store(const model &model, uint64_t bytes_max)
    : model_(model), experts_(experts_of(model)), bytes_max_(bytes_max), slots_(experts_.size()) {}

void expert_store::copy(uint32_t page, uint64_t offset, uint64_t bytes,
                        std::vector<std::byte> &target) const {
    assert(has(page));
    const segment_image image(*weights(page), 0, model_.config().moe_intermediate);
    // An image is copied by its own offsets, so the memory begins where byte 0 would lie.
    std::vector<std::byte> buffer(static_cast<size_t>(offset + bytes));
    image.copy(offset, offset + bytes, buffer.data());
    target.insert(target.end(), buffer.begin() + static_cast<ptrdiff_t>(offset), buffer.end());
}

void expert_store::take_own(uint32_t page) {
    assert(!has(page) && slots_[page].image.data() == nullptr);
    slots_[page].weights = experts_[page];
    bytes_ += image_bytes(page);
    ++held_;
}

result<std::byte *> expert_store::begin(uint32_t page) {
    slot &entry = slots_[page];
    assert(!has(page) && entry.image.data() == nullptr);
    auto memory = memory_block::create(image_bytes(page), "an expert that is brought");
    if (!memory) return memory.failure();
    entry.image = std::move(*memory);
    bytes_ += image_bytes(page);
    return entry.image.data();
}

void expert_store::end(uint32_t page) {
    slot &entry = slots_[page];
    assert(!has(page) && entry.image.data() != nullptr);
    entry.in_image = image_of(page).view(entry.image.data());
    entry.weights = &entry.in_image;
    ++held_;
}

void expert_store::abandon(uint32_t page) {
    slot &entry = slots_[page];
    assert(!has(page) && entry.image.data() != nullptr);
    entry = {};
    bytes_ -= image_bytes(page);
}

void expert_store::forget(uint32_t page) {
    assert(has(page));
    slots_[page] = {};
    bytes_ -= image_bytes(page);
    --held_;
}

}  // namespace moorage::core
