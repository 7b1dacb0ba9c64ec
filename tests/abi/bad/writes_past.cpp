// writes_past.cpp - breaks a rule: writes one element beyond the array that it was given.
#include "raw.hpp"

namespace {

uint32_t victims(moorage_plugin *plugin, const moorage_room *room, uint32_t *host_pages) {
    host_pages[room->count] = MOORAGE_NONE;  // as if lists ended with a mark here
    return raw::victims(plugin, room, host_pages);
}
constexpr moorage_cache cache{
    sizeof(moorage_cache), 0, victims, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
const void *get_interface(moorage_plugin *, const char *id) {
    return std::strcmp(id, MOORAGE_INTERFACE_CACHE) == 0 ? &cache : nullptr;
}

}  // namespace

RAW_MODULE("writes_past", get_interface, (void)0)
