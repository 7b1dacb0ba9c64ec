// prism.cpp - the policy of prism.hpp as a library.
#include "prism.hpp"

MOORAGE_POLICIES("org.moorage.prism", "1.0.0", moorage::policies::prism)
