// abi_major.cpp - breaks a rule: built for a major version of the interface that this host does not
// speak.
#include "raw.hpp"

RAW_MODULE("abi_major", raw::get_interface, fine.abi_major = 9)
