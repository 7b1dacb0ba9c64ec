// other_build.cpp - a part of a program that was built elsewhere: nothing of it may be used.
#include "core/host/program_part.h"

extern "C" __attribute__((visibility("default")))
const moorage::core::program_part moorage_program_part;
const moorage::core::program_part moorage_program_part = {"0.0.0, another compiler", nullptr};
