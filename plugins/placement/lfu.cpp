// lfu.cpp - the policy of lfu.hpp as a library.
#include "lfu.hpp"

MOORAGE_POLICIES("org.moorage.placement.lfu", "1.0.0", moorage::policies::lfu)
