// slim_maxconv.cpp - the policy of slim_maxconv.hpp as a library.
#include "slim_maxconv.hpp"

MOORAGE_POLICIES("org.moorage.placement.slim_maxconv", "1.0.0", moorage::policies::slim_maxconv)
