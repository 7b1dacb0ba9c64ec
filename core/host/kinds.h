// kinds.h - the kinds of policies, in the order in which they are told of.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace moorage::core {

inline constexpr std::string_view kinds[] = {"router",   "cache",     "budget",    "prefetch",
                                             "dispatch", "placement", "transport", "wire"};
// Those of them that are stages of a run. A wire carries messages between processes: it has a
// section, too, which nodes go by and an emulated cluster passes over.
inline constexpr std::span<const std::string_view> stage_kinds(kinds, 7);
// Of kind "cache", too, and a section of its own: the cache of host memory.
inline constexpr std::string_view host_cache_stage = "cache.host";
// "cache" -> "moorage.cache/1"; ids pass through.
std::string interface_id(std::string_view kind);

}  // namespace moorage::core
