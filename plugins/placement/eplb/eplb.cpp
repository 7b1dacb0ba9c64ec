// eplb.cpp - the policy of eplb.hpp as a library.
#include "eplb.hpp"

MOORAGE_POLICIES("org.moorage.eplb", "1.0.0", moorage::policies::eplb)
