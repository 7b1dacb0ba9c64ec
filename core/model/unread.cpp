// unread.cpp - the names of tensors that may be ignored.
#include "core/model/unread.h"

#include <algorithm>

namespace moorage::core {

namespace {

bool starts_with_any(std::string_view name, std::span<const std::string_view> prefixes) {
    return std::ranges::any_of(prefixes,
                               [&](std::string_view prefix) { return name.starts_with(prefix); });
}
bool ends_with_any(std::string_view name, std::span<const std::string_view> endings) {
    return std::ranges::any_of(endings,
                               [&](std::string_view ending) { return name.ends_with(ending); });
}

// Images, sound, and prediction of several tokens at once.
constexpr std::string_view other_parts[] = {"model.visual.",       "model.vision_tower.",
                                            "model.vision_model.", "model.audio_tower.",
                                            "model.mtp.",          "model.multi_modal_projector."};
constexpr std::string_view other_parts_of_gguf[] = {"v.", "mm.", "a.", "mtp."};
// Scales for activations and caches in 8 bits, which are not stored in 8 bits here.
constexpr std::string_view scales_of_activations[] = {".input_scale", ".q_scale", ".k_scale",
                                                      ".v_scale", ".kv_scale"};

}  // namespace

unread_kind unread_in_directory(std::string_view name, bool tied_embedding) {
    // Rotation frequencies follow from the configuration.
    if (name.ends_with("rotary_emb.inv_freq")) return unread_kind::expected;
    if (tied_embedding && name == "lm_head.weight") return unread_kind::expected;
    if (starts_with_any(name, other_parts) || ends_with_any(name, scales_of_activations))
        return unread_kind::elsewhere;
    constexpr std::string_view computed[] = {"model.", "lm_head."};
    return starts_with_any(name, computed) ? unread_kind::changes : unread_kind::elsewhere;
}

unread_kind unread_in_gguf(std::string_view name, bool has_long_factors) {
    // Rotation factors are read with the configuration; those for lengths come as a pair.
    const bool factors = name == "rope_freqs.weight" || name == "rope_factors_long.weight" ||
                         (name == "rope_factors_short.weight" && has_long_factors);
    if (factors || name.ends_with(".attn_rot_embd.weight")) return unread_kind::expected;
    return starts_with_any(name, other_parts_of_gguf) ? unread_kind::elsewhere
                                                      : unread_kind::changes;
}

bool is_zero_bias(std::string_view name, std::span<const std::byte> bytes) {
    return name.ends_with("bias") && !bytes.empty() &&  // empty: of a type that nothing reads
           std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{}; });
}

}  // namespace moorage::core
