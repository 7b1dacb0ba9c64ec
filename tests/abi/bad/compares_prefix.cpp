// compares_prefix.cpp - breaks a rule: looks at the first letters of an id only.
#include "raw.hpp"

namespace {

const void *get_interface(moorage_plugin *, const char *id) {
    return std::strncmp(id, MOORAGE_INTERFACE_CACHE, sizeof(MOORAGE_INTERFACE_CACHE) - 1) == 0
               ? &raw::cache
               : nullptr;
}

}  // namespace

RAW_MODULE("compares_prefix", get_interface, (void)0)
