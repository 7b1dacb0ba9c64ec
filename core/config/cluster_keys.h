// cluster_keys.h - the keys of [cluster] and its tables.
#pragma once

#include "core/config/cluster_config.h"
#include "core/config/keys.h"

namespace moorage::core {

// Limits of a cluster and of a server, far above every published system.
inline constexpr uint32_t cluster_models_max = 1024, server_gpus_max = 64;

extern const key_rows_of<cluster_config> cluster_rows;
extern const key_rows_of<cluster_model> model_rows;
extern const key_rows_of<cluster_server> server_rows;
extern const key_rows_of<cluster_link> link_rows;
extern const key_rows_of<cluster_cloud> cloud_rows;
extern const key_rows_of<cluster_radio> radio_rows;
extern const key_rows_of<cluster_user> user_rows;
extern const key_rows_of<cluster_workload> workload_rows;

void add_cluster_tables(std::vector<key_table> &tables);

}  // namespace moorage::core
