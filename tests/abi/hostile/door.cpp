// door.cpp - a library whose door is a trap: HOSTILE_AT names the function, HOSTILE_DOES the deed.
#include "../bad/raw.hpp"
#include "deeds.hpp"

namespace {

void enter(const char *function) {
    const char *at = std::getenv("HOSTILE_AT"), *does = std::getenv("HOSTILE_DOES");
    if (!at || !does || std::strcmp(at, function) != 0) return;
    hostile::act(does);
}
const void *find(moorage_plugin *plugin, const char *id) {
    enter("get_interface");
    return raw::get_interface(plugin, id);
}
int32_t init(const moorage_host *) {
    enter("init");
    return MOORAGE_OK;
}
const moorage_descriptor *describe(uint32_t) {
    enter("descriptor");
    static const moorage_descriptor the_one = raw::descriptor("door");
    return &the_one;
}

}  // namespace

RAW_MODULE("door", find, {
    enter("moorage_module_v2");
    fine.init = init;
    fine.deinit = [] { enter("deinit"); };
    fine.descriptor = describe;
})
