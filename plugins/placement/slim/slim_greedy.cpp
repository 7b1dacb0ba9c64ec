// slim_greedy.cpp - the policy of slim_greedy.hpp as a library.
#include "slim_greedy.hpp"

MOORAGE_POLICIES("org.moorage.placement.slim_greedy", "1.0.0", moorage::policies::slim_greedy)
