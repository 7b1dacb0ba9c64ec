// size_small.cpp - breaks a rule: its module record is smaller than that of any version.
#include "raw.hpp"

RAW_MODULE("size_small", raw::get_interface, fine.size = 16)
