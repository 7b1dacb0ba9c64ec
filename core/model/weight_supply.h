// weight_supply.h - the common part of all supplies that read files: the first error, and how many
// bytes of the files the model uses.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/model/binding.h"

namespace moorage::core {

class weight_supply {
public:
    bool failed() const { return failure_.has_value(); }
    const error &failure() const { return *failure_; }
    uint64_t bytes(model_part part) const { return bytes_[static_cast<size_t>(part)]; }
    uint64_t parameters() const { return parameters_; }

protected:
    void fail(const std::string &text) {
        if (!failure_) failure_ = error{text};
    }
    // Call it when a tensor of the part is used for the first time.
    void count(model_part part, uint64_t bytes) { bytes_[static_cast<size_t>(part)] += bytes; }
    void count_parameters(uint64_t values) { parameters_ += values; }

private:
    std::optional<error> failure_;
    std::array<uint64_t, model_part_count> bytes_{};
    uint64_t parameters_ = 0;
};

}  // namespace moorage::core
