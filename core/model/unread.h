// unread.h - tensors of a model's files that nothing reads: which ones may be ignored, and which
// ones would change the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace moorage::core {

enum class unread_kind : uint8_t {
    expected,   // usual in files; computed otherwise or not needed
    elsewhere,  // for a part that has no effect on texts, or for no model at all
    changes     // belongs to what is computed
};

// Decides by the name. The caller handles layer numbers.
unread_kind unread_in_directory(std::string_view name, bool tied_embedding);
// `has_long_factors`: the file has rope_factors_long.weight.
unread_kind unread_in_gguf(std::string_view name, bool has_long_factors);

// Is it a bias that is 0 everywhere? Some tools write one for every matrix.
bool is_zero_bias(std::string_view name, std::span<const std::byte> bytes);

}  // namespace moorage::core
