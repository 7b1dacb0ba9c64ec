// fact_packing.h - the fields of a fact, for packing.h.
#pragma once

#include "core/base/fact.h"
#include "core/base/packing.h"

namespace moorage::core {

void each_field(auto &record, auto &&visit) requires packed_as<decltype(record), fact> {
    auto &[name, value] = record;
    visit(name, value);
}

}  // namespace moorage::core
