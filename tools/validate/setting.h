// setting.h - a published figure as a setting to emulate: a machine, a model, a workload.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/config/hardware.h"
#include "tools/validate/measurement.h"

namespace moorage::core {

enum class figure_class : uint8_t { resident, batch, cpu_layers, pcie, prompt };
inline constexpr const char *figure_class_names[] = {"resident", "batch", "CPU layers",
                                                     "PCIe, cached", "prefill"};

struct figure_setting {
    hardware_profile hardware;
    model_shape shape;
    figure_class kind = figure_class::resident;
    bool prompt = false;
    uint32_t tokens = 1;       // of a prompt, or decoded together
    uint32_t pass_tokens = 1;  // limit of a pass
    uint64_t context = 0;      // cached tokens before them, for each
    uint32_t host_layers = 0;  // MoE layers with some experts not on the GPU
    double hit_share = 1;      // share of requests that hit in those layers
    bool on_cpu = false;       // the CPU computes absent experts; otherwise they are loaded
    bool loads_all = false;    // loads all absent experts of a layer, requested or not
    load_overlap overlap = load_overlap::layer;
    std::vector<std::string> assumed;  // values that are not published
};

// Where hardware, engine and model files are found, and the shapes beside the measurements.
struct setting_sources {
    std::filesystem::path base;
    std::vector<model_shape> shapes;
};
// The rows of a shapes file, whose columns docs/validate.md describes. Missing values come from the
// shape in the column `base`, if that is known.
result<std::vector<model_shape>> read_shapes(const csv_table &table,
                                             const std::filesystem::path &base);

// The error says why the figure cannot be emulated, for the list of such figures.
result<figure_setting> make_setting(const measurement &figure, const setting_sources &sources);

}  // namespace moorage::core
