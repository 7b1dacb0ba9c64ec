// setting.cpp - a row's machine as its engine uses it, and the places of the experts.
#include "tools/validate/setting.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "tools/validate/lookup.h"

namespace moorage::core {

namespace {

// Rate of copies from pageable memory, for any link: 8.0 to 9.1 GB/s published (imp PR 1412).
constexpr double pageable_bytes_per_s = 8.5e9;
// A pass with more tokens is a prompt, one with fewer is a batch. Above this number arithmetic
// begins to dominate.
constexpr uint32_t batch_tokens_max = 128;
constexpr uint64_t layer_copies = 2;  // of each of an expert's tensors, if a layer is one piece

// Memory that the row's GPUs have for experts, after the other weights and the cache of its tokens.
// Below 0: even these do not fit.
double free_bytes(const measurement &figure, const figure_setting &setting) {
    const model_shape &shape = setting.shape;
    const device_profile &device = setting.hardware.device;
    const double usable_bytes = double(device.memory_bytes) - double(device.reserved_bytes);
    const double sequences = setting.prompt ? 1 : setting.tokens;
    const double context =
        std::max(figure.context_tokens, 0.0) +
        (setting.prompt ? setting.tokens : std::max(figure.measured_tokens, 0.0));
    const double cache = shape.layers * (context * double(shape.kv_token_layer_bytes) +
                                         double(shape.state_layer_bytes));
    return std::max(figure.gpu_count, 1.0) * usable_bytes - double(shape.non_expert_bytes) -
           sequences * cache;
}

// Notes a row that says that all experts are resident although its GPUs have too little memory.
void doubt_residency(const measurement &figure, figure_setting &setting) {
    const model_shape &shape = setting.shape;
    const double experts = double(shape.moe_layers) * shape.experts * double(shape.expert_bytes);
    const double available_bytes = free_bytes(figure, setting);
    if (figure.residency == "resident" && figure.gpu != "none" && available_bytes < experts)
        setting.assumed.push_back(
            format("all experts resident, as the row says: {:.3g} GB, and the memory of {:g} GPU{} "
                   "has {:.3g} GB for them",
                   experts / 1e9, std::max(figure.gpu_count, 1.0), figure.gpu_count > 1 ? "s" : "",
                   std::max(available_bytes, 0.0) / 1e9));
}

// The share of a layer's experts on the GPU, in the layers that are not complete.
result<double> resident_share(const measurement &figure, const figure_setting &setting) {
    const model_shape &shape = setting.shape;
    const double total_experts = static_cast<double>(shape.moe_layers) * shape.experts;
    const std::string &kind = figure.residency;
    if (kind == "resident") return 1.0;
    if (kind == "none" || kind == "cpu_layers" || kind == "cpu_all") return 0.0;
    if (kind == "fill_memory")
        return std::clamp(
            free_bytes(figure, setting) / (total_experts * double(shape.expert_bytes)), 0.0, 1.0);
    const double total = kind == "slots_per_layer" ? shape.experts
                         : kind == "slots_total"   ? total_experts
                         : kind == "experts_share" ? 1.0
                                                   : 0.0;
    if (total == 0)
        return error{format("residency_kind {}: where the experts are is not known", kind)};
    if (figure.residency_value == unknown)
        return error{format("residency_kind {}: residency_value is not published", kind)};
    return std::clamp(figure.residency_value / total, 0.0, 1.0);
}

status place_experts(const measurement &figure, figure_setting &setting) {
    const auto share = resident_share(figure, setting);
    if (!share) return share.failure();
    const uint32_t layers = setting.shape.moe_layers;
    double host = figure.host_layers == unknown ? layers : figure.host_layers;
    if (figure.residency == "cpu_layers") {
        host = figure.residency_value == unknown ? figure.host_layers : figure.residency_value;
        if (host == unknown) return error{"cpu_layers: how many is not published"};
    }
    doubt_residency(figure, setting);
    setting.host_layers = *share == 1 ? 0 : static_cast<uint32_t>(std::min<double>(host, layers));
    setting.hit_share = figure.hit_rate != unknown ? figure.hit_rate : *share;
    if (setting.host_layers != 0 && *share > 0 && figure.hit_rate == unknown)
        setting.assumed.push_back(
            format("hit rate {:.3g}, the share of experts that are there", *share));
    return success();
}

// Decides whether absent experts are loaded or computed, and what overlaps with that.
status place_misses(const measurement &figure, figure_setting &setting) {
    const engine_profile &engine = setting.hardware.engine;
    setting.overlap = engine.overlap;
    setting.on_cpu = figure.miss_action == "cpu";
    if (setting.prompt && engine.prompt_load_tokens != 0)
        setting.on_cpu = setting.pass_tokens < engine.prompt_load_tokens;
    else if (setting.host_layers != 0 && !setting.on_cpu && figure.miss_action != "load")
        return error{
            "miss_action: whether absent experts are loaded or computed on the CPU is not "
            "published"};
    if (!setting.prompt) return success();
    setting.loads_all = engine.prompt_loads_all;
    setting.overlap = engine.prompt_overlaps ? load_overlap::ahead : load_overlap::none;
    return success();
}

void classify(figure_setting &setting) {
    const bool few = setting.pass_tokens > 1 && setting.pass_tokens <= batch_tokens_max;
    if (setting.host_layers != 0 && !setting.prompt)
        setting.kind = setting.on_cpu ? figure_class::cpu_layers : figure_class::pcie;
    else if (setting.host_layers == 0 && few)
        setting.kind = figure_class::batch;
    else
        setting.kind = setting.prompt ? figure_class::prompt : figure_class::resident;
}

status apply_work(const measurement &figure, figure_setting &setting) {
    setting.prompt = figure.prompt;
    if (figure.prompt && figure.prompt_tokens == unknown)
        return error{"prompt_tokens: the length of the prompt is not published"};
    setting.tokens = count_or(figure.prompt ? figure.prompt_tokens : figure.batch, 1);
    const uint32_t usual = setting.hardware.engine.microbatch;
    const uint32_t pass_limit = figure.microbatch > 0 ? count_or(figure.microbatch, 0) : usual;
    setting.pass_tokens =
        setting.prompt && pass_limit != 0 ? std::min(pass_limit, setting.tokens) : setting.tokens;
    const double middle =
        figure.prompt || figure.measured_tokens == unknown ? 0 : figure.measured_tokens / 2;
    setting.context = static_cast<uint64_t>(std::max(figure.context_tokens, 0.0) + middle);
    return success();
}

// Without a GPU the cores compute everything: a device with their rates and the host's memory.
void compute_on_cpu(figure_setting &setting) {
    hardware_profile &hardware = setting.hardware;
    engine_profile engine = hardware.engine;
    hardware.device.memory_bytes_per_s = hardware.node.cpu_bytes_per_s;
    hardware.device.flops_per_s = hardware.node.cpu_flops_per_s;
    hardware.device.memory_efficiency = hardware.device.flops_efficiency = 1;
    hardware.device.vector_flops_per_s = 1e18;
    hardware.device.sync_ns = 0;
    engine.kernels_per_product = engine.tile_tokens = 0;
    engine.layer_ns = engine.cpu_layer_ns;
    engine.batch_layer_ns = 0;
    engine.unpack_operations = 0;
    engine.context_share = engine.context_product_share = 1;
    hardware.engine = engine;
    setting.host_layers = 0;
}

status apply_machine(const measurement &figure, const setting_sources &sources,
                     figure_setting &setting) {
    hardware_profile &hardware = setting.hardware;
    const bool has_gpu = figure.gpu != "none";
    auto device = load_device_profile(has_gpu ? figure.gpu : "rtx_4090", sources.base);
    if (!device) return error{"gpu " + device.failure().text};
    hardware.device = std::move(*device);
    auto link = load_link_profile(hardware.device.link, sources.base);
    if (!link) return link.failure();
    hardware.link = std::move(*link);
    if (const status done = apply_link(figure, sources, hardware); !done) return done;
    if (const status done = apply_node(figure, sources, hardware, setting.assumed); !done)
        return done;
    auto engine = find_engine(figure, sources);
    if (!engine) return error{"engine " + engine.failure().text};
    if (figure.graphs == "on" || figure.graphs == "off") engine->graph = figure.graphs == "on";
    if (figure.link_memory == "pageable") engine->copy_bytes_per_s = pageable_bytes_per_s;
    if (const status done = apply_engine(hardware, *engine); !done) return done;
    if (figure.gpu_count > 1)
        setting.assumed.push_back(
            format("layers one after the other on {} GPUs", figure.gpu_count));
    return success();
}

// Refuses settings that would take the emulator hours or overflow its clock.
status check_extent(const figure_setting &setting) {
    constexpr double operations_max = 5e7, seconds_max = 1e8;
    const hardware_profile &hardware = setting.hardware;
    const double passes = std::ceil(double(setting.tokens) / setting.pass_tokens);
    const double pass_experts =
        std::min<double>(double(setting.pass_tokens) * setting.shape.top_k, setting.shape.experts);
    const double operations = passes * setting.shape.moe_layers * (pass_experts + 1);
    const double rate =
        std::min({hardware.device.memory_bytes_per_s, hardware.link.h2d_bytes_per_s,
                  hardware.node.cpu_bytes_per_s, hardware.node.memory_bytes_per_s}) *
        hardware.device.memory_efficiency;
    const double bytes =
        double(setting.shape.expert_bytes) * setting.shape.experts * setting.shape.moe_layers +
        double(setting.shape.dense_bytes);
    if (operations > operations_max)
        return error{format("{:.3g} operations, {:.3g} is the limit: fewer passes of more tokens",
                            operations, operations_max)};
    if (!(passes * bytes / rate < seconds_max))
        return error{format("{:.3g} s at the slowest rate, {:.3g} is the limit",
                            passes * bytes / rate, seconds_max)};
    return success();
}

}  // namespace

result<figure_setting> make_setting(const measurement &figure, const setting_sources &sources) {
    // The collectors of the figures know best which parts are not published.
    if (figure.emulable.starts_with("no") &&
        figure.emulable.find("unpublished") != std::string::npos)
        return error{"the file says: " + figure.emulable};
    figure_setting setting;
    auto shape = find_geometry(figure.model_shape, sources);
    if (!shape) return shape.failure();
    setting.shape = std::move(*shape);
    if (const status done = check_values(figure, setting.shape); !done) return done.failure();
    for (const auto &[column, cell] :
         {std::pair{"gpu", &figure.gpu}, std::pair{"engine", &figure.engine}})
        if (cell->empty())
            return error{format("{}: {} is empty: it is not published", figure.place, column)};
    if (const status done = apply_formats(figure, setting.shape, setting.assumed); !done)
        return done.failure();
    if (const status done = apply_machine(figure, sources, setting); !done) return done.failure();
    if (const status done = apply_work(figure, setting); !done) return done.failure();
    if (const status done = place_experts(figure, setting); !done) return done.failure();
    if (const status done = place_misses(figure, setting); !done) return done.failure();
    hardware_profile &hardware = setting.hardware;
    hardware.engine.overlap = setting.overlap;
    const engine_profile &engine = hardware.engine;
    classify(setting);
    if (const status done = check_extent(setting); !done) return done.failure();
    // In layers with all experts present, the host decides nothing.
    hardware.device.sync_ns =
        hardware.device.sync_ns * setting.host_layers / setting.shape.moe_layers;
    if (figure.copy_piece.starts_with("whole layer"))
        hardware.link.issue_ns =
            layer_copies * engine.copies * engine.copy_ns / setting.shape.experts;
    if (figure.gpu == "none" || figure.residency == "cpu_all") {
        compute_on_cpu(setting);
        setting.kind = setting.prompt ? figure_class::prompt : figure_class::cpu_layers;
    }
    return setting;
}

}  // namespace moorage::core
