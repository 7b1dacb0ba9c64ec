// run_keys.h - the keys of a run's sections, except those of the cluster.
#pragma once

#include "core/config/device_config.h"
#include "core/config/keys.h"
#include "core/config/run_config.h"

namespace moorage::core {

extern const key_rows_of<run_config> run_rows, emulator_rows, hardware_rows, source_rows,
    memory_rows, plugins_rows, router_rows, report_rows;
extern const key_rows_of<device_config> device_rows;
extern const key_rows_of<registry_config> registry_rows;
extern const key_rows_of<stage_config> stage_rows;  // of every stage
extern const key_rows_of<cluster_config> placement_rows;

void add_run_tables(std::vector<key_table> &tables);

}  // namespace moorage::core
