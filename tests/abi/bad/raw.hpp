// raw.hpp - the tables of a sound cache policy written out by hand. A bad library changes one
// entry.
#pragma once

#include <moorage/cache.h>

#include <cstring>

namespace raw {

struct instance {
    moorage_plugin plugin;
    const moorage_host *host;
    const moorage_residency *view;
};
inline instance *instance_of(moorage_plugin *plugin) {
    return reinterpret_cast<instance *>(plugin);
}

inline void destroy(moorage_plugin *plugin) { delete instance_of(plugin); }
inline int32_t activate(moorage_plugin *plugin, const moorage_limits *) {
    const moorage_host *host = instance_of(plugin)->host;
    const auto *service = static_cast<const moorage_residency_service *>(
        host->get_service(host, MOORAGE_SERVICE_RESIDENCY));
    instance_of(plugin)->view = service->view(host);
    return MOORAGE_OK;
}
inline void deactivate(moorage_plugin *) {}
inline void reset(moorage_plugin *) {}
inline bool evictable(moorage_plugin *plugin, uint32_t page, uint32_t pool) {
    const moorage_residency &view = *instance_of(plugin)->view;
    const uint32_t state = view.host_state[page];
    return (view.pools == 1 || page / view.experts == pool) &&
           (state & (MOORAGE_STATE_RESIDENT | MOORAGE_STATE_IN_FLIGHT)) != 0 &&
           (state & (MOORAGE_STATE_PINNED | MOORAGE_STATE_BUFFERED)) == 0;
}
inline uint32_t victims(moorage_plugin *plugin, const moorage_room *room, uint32_t *host_pages) {
    uint32_t count = 0;
    const uint32_t pages = instance_of(plugin)->view->layers * instance_of(plugin)->view->experts;
    for (uint32_t page = 0; page < pages && count < room->count; ++page)
        if (evictable(plugin, page, room->pool)) host_pages[count++] = page;
    return count;
}
inline constexpr moorage_cache cache{
    sizeof(moorage_cache), 0, victims, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
inline const void *get_interface(moorage_plugin *, const char *id) {
    return std::strcmp(id, MOORAGE_INTERFACE_CACHE) == 0 ? &cache : nullptr;
}

inline constexpr const char *kinds[] = {MOORAGE_INTERFACE_CACHE, MOORAGE_INTERFACE_REPLAY};
constexpr moorage_descriptor descriptor(const char *name, uint32_t kind_count = 1) {
    return {sizeof(moorage_descriptor),
            0,
            name,
            "1.0.0",
            "breaks a rule",
            "",
            kinds,
            nullptr,
            kind_count,
            0,
            0,
            0};
}

// create for a library with the given get_interface.
template <const void *(*find)(moorage_plugin *, const char *)>
int32_t create(const char *name, const moorage_host *host, const moorage_value *,
               uint32_t value_count, moorage_plugin **plugin) {
    // Each bad library has the name of its file, and only that one policy.
    if (std::strncmp(name, "no_such", 7) == 0 || value_count != 0) {
        host->set_error(host, "no such policy, or values for parameters that it has not");
        return MOORAGE_INVALID_ARGUMENT;
    }
    *plugin = &(new instance{{sizeof(moorage_plugin), 0, nullptr, destroy, activate, deactivate,
                              reset, find},
                             host,
                             nullptr})
                   ->plugin;
    return MOORAGE_OK;
}

}  // namespace raw

// Exports a module with one policy. CHANGE may spoil `fine`, its sound record.
#define RAW_MODULE(NAME, FIND, CHANGE) RAW_MODULE_OF(NAME, FIND, 1, CHANGE)
// `KINDS`: so many of raw::kinds.
#define RAW_MODULE_OF(NAME, FIND, KINDS, CHANGE)                                                 \
    extern "C" __attribute__((visibility("default"))) const moorage_module *moorage_module_v2(); \
    extern "C" const moorage_module *moorage_module_v2() {                                       \
        static const moorage_descriptor the_descriptor = raw::descriptor(NAME, KINDS);           \
        static const moorage_module record = [] {                                                \
            moorage_module fine{sizeof(moorage_module),                                          \
                                0,                                                               \
                                MOORAGE_ABI_MAJOR,                                               \
                                MOORAGE_ABI_MINOR,                                               \
                                "org.moorage.bad." NAME,                                         \
                                "1.0.0",                                                         \
                                1,                                                               \
                                0,                                                               \
                                nullptr,                                                         \
                                nullptr,                                                         \
                                [](uint32_t index) -> const moorage_descriptor * {               \
                                    return index == 0 ? &the_descriptor : nullptr;               \
                                },                                                               \
                                raw::create<FIND>};                                              \
            CHANGE;                                                                              \
            return fine;                                                                         \
        }();                                                                                     \
        return &record;                                                                          \
    }
