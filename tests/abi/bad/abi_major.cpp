// abi_major.cpp - breaks a rule: built for another major version of the interface than this host's.
#include "raw.hpp"

RAW_MODULE("abi_major", raw::get_interface, fine.abi_major = 9)
