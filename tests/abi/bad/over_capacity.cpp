// over_capacity.cpp - breaks a rule: answers with more victims than were asked for.
#include "raw.hpp"

namespace {

uint32_t victims(moorage_plugin *plugin, const moorage_room *room, uint32_t *host_pages) {
    return raw::victims(plugin, room, host_pages) + 1;
}
constexpr moorage_cache cache{
    sizeof(moorage_cache), 0, victims, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
const void *get_interface(moorage_plugin *, const char *id) {
    return std::strcmp(id, MOORAGE_INTERFACE_CACHE) == 0 ? &cache : nullptr;
}

}  // namespace

RAW_MODULE("over_capacity", get_interface, (void)0)
