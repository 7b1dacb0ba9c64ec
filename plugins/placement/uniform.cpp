// uniform.cpp - the policy of uniform.hpp as a library.
#include "uniform.hpp"

MOORAGE_POLICIES("org.moorage.uniform_placement", "1.0.0", moorage::policies::uniform)
