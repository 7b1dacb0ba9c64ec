// kinds.h - the kinds of policies, in the order of the documentation.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/host/policy_calls.h"

namespace moorage::core {

#define MOORAGE_KIND(name) #name,
inline constexpr std::string_view kinds[] = {MOORAGE_KINDS(MOORAGE_KIND)};
#undef MOORAGE_KIND
// The kinds that are stages of a run. A wire carries messages between processes. It has a section,
// too: nodes use it, and an emulated cluster ignores it.
inline constexpr std::span<const std::string_view> stage_kinds(kinds, stage_kind_count);
// The cache of host memory. It is also of kind "cache" but has its own section.
inline constexpr std::string_view host_cache_stage = "cache.host";
// "cache" -> "moorage.cache/1"; full ids stay unchanged.
std::string interface_id(std::string_view kind);
// id == interface_id(kind), without a new text: it is asked for each policy and each kind.
bool is_interface_of(std::string_view id, std::string_view kind);

}  // namespace moorage::core
