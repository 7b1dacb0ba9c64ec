// slim_dp.cpp - the policy of slim_dp.hpp as a library.
#include "slim_dp.hpp"

MOORAGE_POLICIES("org.moorage.placement.slim_dp", "1.0.0", moorage::policies::slim_dp)
