// hardware.h - hardware profiles and model shapes read from TOML. The cost model uses their
// figures.
//
// A profile is three files: hw_profiles/device (the GPU), link (host to GPU) and node (CPU and host
// memory). `[hardware] disk` adds a fourth one: the drive for experts that do not fit into host
// memory. `[hardware] profile` names the device. The device names its usual link and node;
// `[hardware] link` and `node` replace them. Names are file names without .toml, found in the
// folder of their kind or in hw_profiles/measured; a path works too. In its file, every figure has
// an entry of the same key under [sources], which says where it comes from. `[hardware] engine`
// names a file that says how a piece of software spends time on such a machine. The default engine
// is moorage itself.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/config/hardware_figures.h"

namespace moorage::core {

// Directories whose hw_profiles/ and configs/models/ are searched for names. The first match wins.
// The order is: those of $MOORAGE_DATA_PATH (colon-separated), ../share/moorage relative to the
// program's directory, the tree that the program was built from. The config's own directory comes
// before all of them.
std::vector<std::filesystem::path> data_roots();

struct hardware_choice {
    std::string profile, link, node;  // link and node may be empty
    std::filesystem::path base;       // directory of the config
    std::string disk = {};            // empty: none
    std::string peer = {};            // empty: devices reach each other through host memory
    std::string engine = {};          // empty: moorage itself
};
result<device_profile> load_device_profile(const std::string &name,
                                           const std::filesystem::path &base);
result<link_profile> load_link_profile(const std::string &name, const std::filesystem::path &base);
result<node_profile> load_node_profile(const std::string &name, const std::filesystem::path &base);
result<engine_profile> load_engine_profile(const std::string &name,
                                           const std::filesystem::path &base);
// Turns the engine's shares and multiples into figures of this machine. Fails if the profile lacks
// a figure that they refer to.
status apply_engine(hardware_profile &profile, const engine_profile &engine);
result<hardware_profile> load_hardware(const hardware_choice &choice);
// The devices of a machine. The first one is `first_choice`, `profiles` names the others. All else
// is chosen as for the first one.
result<std::vector<hardware_profile>> load_devices(const hardware_choice &first_choice,
                                                   const std::vector<std::string> &profiles);
// For a processor whose memory does not hold all experts: its loads are reads, so its link becomes
// the disk. Requires: it has a disk.
void load_from_disk(hardware_profile &profile);
// `name` is a file name without .toml ("mixtral_8x7b"), a path, or a published name or alias from a
// shape file ("Mixtral-8x7B"), in any case.
result<model_shape> load_shape(const std::string &name, const std::filesystem::path &base);
// The file that load_shape reads.
result<std::filesystem::path> find_shape(const std::string &name,
                                         const std::filesystem::path &base);
// The shape for a trace whose metadata names its model, checked against the trace's own counts.
// `layers` counts the trace's layers, which are MoE layers.
result<model_shape> shape_for_trace(const std::string &model_name, uint32_t layers,
                                    uint32_t experts, uint32_t top_k,
                                    const std::filesystem::path &base);
// Checks that the shape of [source] shape fits a trace's counts.
status check_shape(const model_shape &shape, const std::string &model_name, uint32_t layers,
                   uint32_t experts, uint32_t top_k);
std::vector<std::string> known_profiles();
std::vector<std::string> known_shapes();

}  // namespace moorage::core
