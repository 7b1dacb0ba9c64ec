// lookup.cpp - finds profiles and shapes by the names in measurements.
#include "tools/validate/lookup.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr const char *usual_node = "ddr5_desktop";

uint64_t round_bytes(double bytes) {
    return static_cast<uint64_t>(std::llround(std::max(bytes, 0.0)));
}

// "0.2.1 + SGLang" -> "0_2_1_sglang"
std::string to_name(std::string_view text) {
    std::string name;
    for (const char c : text) {
        const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        const bool capital = c >= 'A' && c <= 'Z';
        if (letter || capital)
            name += capital ? static_cast<char>(c + 32) : c;
        else if (!name.empty() && name.back() != '_')
            name += '_';
    }
    while (name.ends_with('_')) name.pop_back();
    return name;
}

}  // namespace

uint32_t count_or(double value, uint32_t absent) {
    return value == unknown ? absent : static_cast<uint32_t>(value);
}

result<engine_profile> find_engine(const measurement &figure, const setting_sources &sources) {
    std::string version = to_name(figure.engine_version);
    while (!version.empty()) {
        auto found = load_engine_profile(to_name(figure.engine) + "_" + version, sources.base);
        if (found) return found;
        const size_t end = version.rfind('_');
        version.resize(end == std::string::npos ? 0 : end);
    }
    return load_engine_profile(to_name(figure.engine), sources.base);
}

result<model_shape> find_geometry(const std::string &name, const setting_sources &sources) {
    for (std::string part = to_name(name); !part.empty();) {
        if (auto found = load_shape(part, sources.base)) return found;
        for (const model_shape &shape : sources.shapes)
            if (shape.name == part) return shape;
        const size_t end = part.rfind('_');
        part.resize(end == std::string::npos ? 0 : end);
    }
    return error{format("model_shape {}: its geometry is not known", name)};
}

status apply_formats(const measurement &figure, model_shape &shape,
                     std::vector<std::string> &assumed) {
    const double head_weights = static_cast<double>(shape.vocabulary) * shape.hidden;
    const double old_dense_bits = shape.bits(shape.dense_bits),
                 old_head_bits = shape.bits(shape.head_bits);
    const double dense_weights =
        (static_cast<double>(shape.dense_bytes) - head_weights * old_head_bits / 8) * 8 /
        old_dense_bits;
    const double weights = static_cast<double>(shape.matrices) * shape.hidden *
                           static_cast<double>(shape.moe_intermediate);
    if (figure.expert_bits > 0) shape.expert_bits = figure.expert_bits;
    if (figure.expert_bytes > 0)
        shape.expert_bytes = round_bytes(figure.expert_bytes);
    else if (figure.expert_bits > 0)
        shape.expert_bytes = std::max(uint64_t{1}, round_bytes(weights * figure.expert_bits / 8));
    if (figure.expert_bits <= 0) shape.expert_bits = 8.0 * double(shape.expert_bytes) / weights;
    if (figure.dense_bits > 0) shape.dense_bits = figure.dense_bits;
    if (figure.dense_bits <= 0) shape.dense_bits = old_dense_bits;
    shape.head_bits = figure.head_bits > 0    ? figure.head_bits
                      : figure.dense_bits > 0 ? figure.dense_bits
                                              : old_head_bits;
    if (figure.dense_bytes > 0) {
        shape.dense_bytes = round_bytes(figure.dense_bytes);
    } else {
        shape.dense_bytes =
            round_bytes(dense_weights * shape.dense_bits / 8 + head_weights * shape.head_bits / 8);
        if (figure.dense_bits <= 0 && figure.expert_bits > 0)
            assumed.push_back(format("dense part at {:.3g} bits a weight", shape.dense_bits));
    }
    if (figure.top_k > 0) shape.top_k = static_cast<uint32_t>(figure.top_k);
    return success();
}

status apply_link(const measurement &figure, const setting_sources &sources,
                  hardware_profile &hardware) {
    if (!figure.link_gen.empty()) {
        const std::string width = figure.link_width.empty() ? "16" : figure.link_width;
        // A card with fewer lanes names its link in its own file.
        const bool uses_device_link =
            figure.link_width.empty() && hardware.device.link.starts_with("pcie" + figure.link_gen);
        auto link = load_link_profile(
            uses_device_link ? hardware.device.link : format("pcie{}_x{}", figure.link_gen, width),
            sources.base);
        if (!link) return link.failure();
        hardware.link = std::move(*link);
    }
    const bool reached = figure.link_basis == "measured" || figure.link_basis == "published";
    if (figure.link_gb_s > 0 && reached) hardware.link.h2d_bytes_per_s = figure.link_gb_s * 1e9;
    return success();
}

// A channel transfers 8 bytes at a time. "ddr5_6000" means 6000 million transfers per second.
static double channel_bytes_per_s(const std::string &type, bool &stated) {
    const size_t first_digit = type.find_last_not_of("0123456789") + 1;
    const size_t digits = type.size() - first_digit;
    stated = first_digit != 0 && digits >= 3 && digits <= 5;
    const double usual = type.starts_with("ddr5") ? 5600 : 3200;
    return 8e6 * (stated ? std::stod(type.substr(first_digit)) : usual);
}

// The memory rate of one socket, from the row; 0: not given. A host with a file keeps its own
// channels' rate if the row does not state one.
static double stated_memory_rate(const measurement &figure, bool known) {
    if (figure.memory_gb_s > 0) return figure.memory_gb_s * 1e9 / std::max(figure.sockets, 1.0);
    if (figure.memory_channels <= 0 || figure.memory_type.empty()) return 0;
    bool stated = false;
    const double channel = channel_bytes_per_s(figure.memory_type, stated);
    return known && !stated ? 0 : figure.memory_channels * channel;
}

status apply_node(const measurement &figure, const setting_sources &sources,
                  hardware_profile &hardware, std::vector<std::string> &assumed) {
    const std::string name = to_name(figure.cpu_model);
    auto node = load_node_profile(name.empty() ? usual_node : name, sources.base);
    const bool known = node && !name.empty();
    if (!node) node = load_node_profile(usual_node, sources.base);
    if (!node) return node.failure();
    hardware.node = std::move(*node);
    if (const double memory = stated_memory_rate(figure, known); memory > 0) {
        hardware.node.memory_theory_bytes_per_s = memory;
        hardware.node.memory_bytes_per_s = std::max(hardware.node.memory_bytes_per_s, memory);
    }
    if (!known) {
        constexpr double core_flops_per_s = 0.13e12;  // 4 GHz, 32 operations per cycle
        if (figure.cores > 0) hardware.node.cpu_flops_per_s = figure.cores * core_flops_per_s;
        assumed.push_back(format("host: {}, memory {:.4g} GB/s a socket",
                                 name.empty() ? "a desktop" : figure.cpu_model,
                                 hardware.node.memory_theory_bytes_per_s / 1e9));
    }
    hardware.node.sockets = std::max(count_or(figure.sockets, 1), 1u);
    // If there are no more threads than a socket has cores, the other socket is idle.
    if (figure.threads > 0 && figure.cores > 0 && figure.threads <= figure.cores) {
        hardware.node.sockets = 1;
        hardware.node.cpu_flops_per_s *= figure.threads / figure.cores;
    }
    hardware.node.threads = count_or(figure.threads, 0);
    return success();
}

}  // namespace moorage::core
