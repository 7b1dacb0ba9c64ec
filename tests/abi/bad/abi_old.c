/* abi_old.c - breaks a rule: exports the door of abi 1 alone, as libraries built before did. */
#include <moorage/module.h>

__attribute__((visibility("default"))) const moorage_module *moorage_module_v1(void);
const moorage_module *moorage_module_v1(void) { return 0; }
