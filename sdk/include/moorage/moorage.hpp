// moorage.hpp - everything a C++ policy needs: one include.
#pragma once

#include "module.hpp"
