// versions.cpp - opens, sizes and chooses versions of experts.
#include "core/pipeline/versions.h"

#include "core/base/text.h"
#include "core/config/hardware.h"
#include "core/model/config_difference.h"

namespace moorage::core {

result<const model *> open_small(const run_config &config, const model &first,
                                 run_resources &shared) {
    if (config.small.empty()) return nullptr;
    const auto opened = shared.open_model(config.small);
    if (!opened) return opened.failure();
    const model *const small = (*opened)->loaded_model.get();
    const std::string differs = difference_of(first.config(), small->config());
    if (!differs.empty())
        return error{
            format("{}: it is no version of {}: {}; [source] small names the same model "
                   "in another format",
                   config.small, config.model.string(), differs)};
    const uint64_t bytes = small->sizes().expert_bytes, most = first.sizes().expert_bytes;
    if (bytes <= most) return small;
    return error{
        format("{}: an expert has {} bytes, and {} in {}; [source] small names the "
               "smaller version",
               config.small, bytes, most, config.model.string())};
}

namespace {

result<model_shape> small_shape(const run_config &config, const model *small) {
    if (small) return shape_of(*small, config.small);
    return load_shape(config.small, config.file.parent_path());
}

std::string sizes_of(const model_shape &shape) {
    return format("{} layers of {} experts of {} x {}, {} bytes each", shape.moe_layers,
                  shape.experts, shape.hidden, shape.moe_intermediate, shape.expert_bytes);
}

}  // namespace

status add_small(const run_config &config, const model *small, model_shape &shape) {
    if (config.small.empty()) return success();
    const auto smaller = small_shape(config, small);
    if (!smaller) return smaller.failure();
    if (smaller->moe_layers != shape.moe_layers || smaller->experts != shape.experts ||
        smaller->hidden != shape.hidden || smaller->moe_intermediate != shape.moe_intermediate ||
        smaller->expert_bytes > shape.expert_bytes)
        return error{format("{}: {}, are no smaller version of {} with {}; correct [source] "
                            "small_shape",
                            config.small, sizes_of(*smaller), shape.name, sizes_of(shape)),
                     true};
    shape.small_expert_bytes = smaller->expert_bytes;
    shape.small_expert_bits = smaller->bits(smaller->expert_bits);
    // Experts are split where both may be: blocks of two sizes have no border in common.
    if (smaller->part_unit != shape.part_unit) shape.part_unit = shape.moe_intermediate;
    return success();
}

std::vector<std::string> names_of_versions(const run_config &config, const model_shape &first) {
    if (config.small.empty()) return {};
    return {first.name, std::filesystem::path(config.small).filename().string()};
}

}  // namespace moorage::core
