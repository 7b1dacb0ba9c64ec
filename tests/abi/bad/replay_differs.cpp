// replay_differs.cpp - breaks a rule: its replay function says that everything hits.
#include "raw.hpp"

namespace {

void replay(moorage_plugin *plugin, const moorage_replay *run) {
    const size_t requests = size_t{run->token_count} * run->rounds * run->repeats * run->width;
    for (size_t i = 0; i < requests * raw::of(plugin)->view->layers; ++i)
        run->host_outcomes[i] = MOORAGE_REPLAY_KEPT;
}
constexpr moorage_cache cache{
    sizeof(moorage_cache), 0, raw::victims, nullptr, nullptr, nullptr, replay, nullptr};
const void *get_interface(moorage_plugin *, const char *id) {
    return std::strcmp(id, MOORAGE_INTERFACE_CACHE) == 0 ? &cache : nullptr;
}

}  // namespace

RAW_MODULE("replay_differs", get_interface, (void)0)
