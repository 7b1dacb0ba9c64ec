// registry_config.h - where nodes agree on members and plans while they run: section [registry].
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/config/section.h"

namespace moorage::core {

// Neither directory nor endpoints: the cluster's file is all that its nodes know.
struct registry_config {
    std::filesystem::path directory;     // of one machine, resolved
    std::vector<std::string> endpoints;  // of etcd, "host:port"
    std::string prefix = "moorage";      // of its keys, one a cluster
    std::string place;                   // of the section, for messages; empty: not given
};

// What is wrong stands in `from`. A path of the file is relative to `base`.
void read_registry(section_reader &from, const std::filesystem::path &base, registry_config &out);

}  // namespace moorage::core
