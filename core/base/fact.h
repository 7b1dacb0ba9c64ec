// fact.h - a figure that a policy reports about itself.
#pragma once

#include <string>

namespace moorage::core {

struct fact {
    std::string name;  // the policy's own name for it, unit last
    double value = 0;
};

}  // namespace moorage::core
