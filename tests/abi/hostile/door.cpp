// door.cpp - a library with a hostile entry point: HOSTILE_AT names the function, HOSTILE_DOES the
// deed.
#include "../bad/raw.hpp"
#include "deeds.hpp"

namespace {

void enter(const char *function) {
    const char *hostile_function = std::getenv("HOSTILE_AT"), *deed = std::getenv("HOSTILE_DOES");
    if (!hostile_function || !deed || std::strcmp(hostile_function, function) != 0) return;
    hostile::act(deed);
}
// Whether the function must return a wild pointer.
bool is_wild(const char *function) {
    const char *wild = std::getenv("HOSTILE_WILD");
    return wild && std::strcmp(wild, function) == 0;
}
template <class Record>
Record *nowhere() {
    return reinterpret_cast<Record *>(uintptr_t{0x123456789000});
}
const void *find(moorage_plugin *plugin, const char *id) {
    enter("get_interface");
    if (is_wild("get_interface")) return nowhere<void>();
    return raw::get_interface(plugin, id);
}
int32_t init(const moorage_host *) {
    enter("init");
    return MOORAGE_OK;
}
const moorage_descriptor *describe(uint32_t) {
    enter("descriptor");
    if (is_wild("descriptor")) return nowhere<const moorage_descriptor>();
    static const moorage_descriptor descriptor = raw::descriptor("door");
    return &descriptor;
}

}  // namespace

RAW_MODULE("door", find, {
    enter("moorage_module_v2");
    fine.init = init;
    fine.deinit = [] { enter("deinit"); };
    fine.descriptor = describe;
})
