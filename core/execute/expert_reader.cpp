// expert_reader.cpp - where the bytes of an image lie in the files.
#include "core/execute/expert_reader.h"

#include <span>

#include "core/base/mapped_file.h"
#include "core/base/text.h"

namespace moorage::core {

result<std::unique_ptr<expert_reader>> expert_reader::create(const model &model) {
    const uint32_t first = model.config().moe_layers().front();
    if (!mapped_place_of(model.weights().layers[first].experts[0].gate.data))
        return error{format(
            "{}: its experts are no part of a file as they are used, but were made or turned "
            "round in memory, so none can be read from disk; leave out [memory] host_experts "
            "and host_bytes",
            model.directory().empty() ? "the model" : model.directory().string())};
    auto files = disk_reader::create();
    if (!files) return files.failure();
    return std::unique_ptr<expert_reader>(new expert_reader(std::move(*files)));
}

std::string expert_reader::read(const segment_image &image, uint64_t begin, uint64_t end,
                                std::byte *target) {
    sources_.clear();
    ranges_.clear();
    image.find_sources(begin, end, sources_);
    for (const segment_image::source &source : sources_)
        ranges_.push_back({source.data, source.bytes});
    const status done = files_->read(
        ranges_, [&](size_t number, uint64_t offset, std::span<const std::byte> bytes) {
            image.copy_source(sources_[number], offset, bytes, target);
        });
    return done.ok() ? "" : done.failure().text;
}

}  // namespace moorage::core
