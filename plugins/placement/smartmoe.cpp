// smartmoe.cpp - the policy of smartmoe.hpp as a library.
#include "smartmoe.hpp"

MOORAGE_POLICIES("org.moorage.smartmoe", "1.0.0", moorage::policies::smartmoe)
