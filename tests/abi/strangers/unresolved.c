/* unresolved.c - has a door, and takes a symbol that nothing has: the loader refuses it. */
int nobody_has_this(void);
__attribute__((visibility("default"))) const void *moorage_module_v2(void);
const void *moorage_module_v2(void) { return nobody_has_this() ? "" : 0; }
