/* outside.c - a library without policies in plain C: as little as a door can be. */
#include <moorage/module.h>

static const moorage_descriptor *descriptor(uint32_t index) { return (void)index, (void *)0; }
static int32_t create(const char *name, const moorage_host *host, const moorage_value *host_values,
                      uint32_t value_count, moorage_plugin **out) {
    (void)name, (void)host_values, (void)value_count, (void)out;
    return host->set_error(host, "there are no policies here"), MOORAGE_UNSUPPORTED;
}
static const moorage_module record = {sizeof record, 0, MOORAGE_ABI_MAJOR, MOORAGE_ABI_MINOR,
    "com.example.outside-c", "0.1.0", 0, 0, (void *)0, (void *)0, descriptor, create};
__attribute__((visibility("default"))) const moorage_module *moorage_module_v2(void);
const moorage_module *moorage_module_v2(void) { return &record; }
