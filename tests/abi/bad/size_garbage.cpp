// size_garbage.cpp - breaks a rule: the size of its module record is an impossible number.
#include "raw.hpp"

RAW_MODULE("size_garbage", raw::get_interface, fine.size = 0xdeadbeef)
