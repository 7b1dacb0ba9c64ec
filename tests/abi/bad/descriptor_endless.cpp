// descriptor_endless.cpp - breaks a rule: it has a descriptor for every index.
#include "raw.hpp"

RAW_MODULE(
    "descriptor_endless", raw::get_interface,
    fine.descriptor = [](uint32_t) -> const moorage_descriptor * { return &the_descriptor; })
