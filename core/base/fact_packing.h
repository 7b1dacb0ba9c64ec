// fact_packing.h - the fields of a fact, for packing.h.
#pragma once

#include "core/base/fact.h"
#include "core/base/packing.h"

namespace moorage::core {

void each_field(auto &of, auto &&each) requires packed_as<decltype(of), fact> {
    auto &[name, value] = of;
    each(name, value);
}

}  // namespace moorage::core
