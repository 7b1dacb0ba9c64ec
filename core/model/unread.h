// unread.h - tensors of a model's files that no part of it reads: which may stay, and which are of
// what is computed, so that without them the result would be another model's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace moorage::core {

enum class unread_kind : uint8_t {
    expected,   // files carry it along, and what it holds is computed or not needed
    elsewhere,  // of a part that has no share in texts, or of no model at all
    changes     // of what is computed
};

// By the name; layers are told apart by the caller.
unread_kind unread_in_directory(std::string_view name, bool tied_embedding);
// `has_long_factors`: the file has rope_factors_long.weight.
unread_kind unread_in_gguf(std::string_view name, bool has_long_factors);

// Whether it is a bias that is 0 everywhere, as some tools write for every matrix.
bool adds_nothing(std::string_view name, std::span<const std::byte> bytes);

}  // namespace moorage::core
