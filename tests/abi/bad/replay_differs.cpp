// replay_differs.cpp - breaks a rule: its replay function says that everything hits.
#include "raw.hpp"

namespace {

void replay(moorage_plugin *plugin, const moorage_replay *run) {
    const size_t requests = size_t{run->token_count} * run->rounds * run->repeats * run->width;
    for (size_t i = 0; i < requests * raw::instance_of(plugin)->view->layers; ++i)
        run->host_outcomes[i] = MOORAGE_REPLAY_KEPT;
}
constexpr moorage_replayer replayer{sizeof(moorage_replayer), 0, replay};
const void *get_interface(moorage_plugin *plugin, const char *id) {
    if (std::strcmp(id, MOORAGE_INTERFACE_REPLAY) == 0) return &replayer;
    return raw::get_interface(plugin, id);
}

}  // namespace

RAW_MODULE_OF("replay_differs", get_interface, 2, (void)0)
