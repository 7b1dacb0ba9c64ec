// profile_keys.h - the keys of hardware profiles and model shapes.
#pragma once

#include "core/config/hardware.h"
#include "core/config/keys.h"

namespace moorage::core {

// A file has all `labels` and `figures`. It has those `terms` that differ from their defaults.
// Figures and terms have sources.
template <class Of>
struct profile_rows {
    key_rows_of<Of> labels, figures, terms;
};
extern const profile_rows<device_profile> device_profile_rows;
extern const profile_rows<link_profile> link_profile_rows;
extern const profile_rows<node_profile> node_profile_rows;
extern const profile_rows<disk_profile> disk_profile_rows;
extern const profile_rows<engine_profile> engine_profile_rows;
extern const profile_rows<model_shape> shape_rows;
// Keys of an engine that uses the machine's own figures: what it may add to them.
extern const key_rows_of<engine_profile> engine_change_rows;

void add_profile_tables(std::vector<key_table> &tables);

}  // namespace moorage::core
