// throws.cpp - breaks a rule: an exception leaves a function of its table.
#include "raw.hpp"

#include <stdexcept>

namespace {

uint32_t victims(moorage_plugin *, const moorage_room *, uint32_t *) {
    throw std::runtime_error("no victim comes to mind");
}
constexpr moorage_cache cache{
    sizeof(moorage_cache), 0, victims, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
const void *get_interface(moorage_plugin *, const char *id) {
    return std::strcmp(id, MOORAGE_INTERFACE_CACHE) == 0 ? &cache : nullptr;
}

}  // namespace

RAW_MODULE("throws", get_interface, (void)0)
