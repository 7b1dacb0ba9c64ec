// ushape.cpp - the policy of ushape.hpp as a library.
#include "ushape.hpp"

MOORAGE_POLICIES("org.moorage.placement.ushape", "1.0.0", moorage::policies::ushape)
