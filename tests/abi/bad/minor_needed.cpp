// minor_needed.cpp - breaks a rule: needs a minor version of the ABI that no host has yet.
#include "raw.hpp"

RAW_MODULE("minor_needed", raw::get_interface, fine.abi_minor_needed = 9)
