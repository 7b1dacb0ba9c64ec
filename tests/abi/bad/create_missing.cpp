// create_missing.cpp - breaks a rule: it has no function to create anything.
#include "raw.hpp"

RAW_MODULE("create_missing", raw::get_interface, fine.create = nullptr)
