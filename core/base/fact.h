// fact.h - a figure that a policy states of itself.
#pragma once

#include <string>

namespace moorage::core {

struct fact {
    std::string name;  // as the policy calls it, unit last
    double value = 0;
};

}  // namespace moorage::core
