/* missing_symbol.c - breaks a rule: exports nothing that a host looks for. */
__attribute__((visibility("default"))) int moorage_module_of_mine(void);
int moorage_module_of_mine(void) { return 1; }
