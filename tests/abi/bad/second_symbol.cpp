// second_symbol.cpp - breaks a rule: exports a function of its own beside the entry point. Built
// without the SDK's module.map, which would hide it.
#include "raw.hpp"

extern "C" __attribute__((visibility("default"))) int second_symbol_helper();
extern "C" int second_symbol_helper() { return 1; }

RAW_MODULE("second_symbol", raw::get_interface, (void)0)
