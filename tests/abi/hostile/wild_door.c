/* wild_door.c - a library whose record lies nowhere. */
#include <moorage/module.h>

#include <stdint.h>

__attribute__((visibility("default"))) const moorage_module *moorage_module_v2(void) {
    return (const moorage_module *)(uintptr_t)0x123456789000;
}
