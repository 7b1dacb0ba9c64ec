// expert_reader.h - reads stretches of experts from the files of a model, past the page cache.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/model/segment.h"
#include "core/store/disk_reader.h"

namespace moorage::core {

// Use from one thread.
class expert_reader {
public:
    // An error if no file has the model's experts in the form in which they are used.
    static result<std::unique_ptr<expert_reader>> create(const model &model);

    // Reads bytes [begin, end) of the image into the image at `target`. Returns an error message,
    // or "".
    std::string read(const segment_image &image, uint64_t begin, uint64_t end, std::byte *target);

private:
    explicit expert_reader(std::unique_ptr<disk_reader> files) : files_(std::move(files)) {}

    std::unique_ptr<disk_reader> files_;
    std::vector<segment_image::source> sources_;
    std::vector<disk_range> ranges_;
};

}  // namespace moorage::core
