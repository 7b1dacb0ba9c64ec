// setting.cpp - a row's machine as its engine uses it, and the places of the experts.
#include "core/validate/setting.h"

#include <algorithm>
#include <cmath>

#include "core/base/text.h"
#include "core/validate/lookup.h"

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
double free_bytes(const measurement &figure, const figure_setting &to) {
    const model_shape &shape = to.shape;
    const device_profile &device = to.hardware.device;
    const double here = double(device.memory_bytes) - double(device.reserved_bytes);
    const double sequences = to.prompt ? 1 : to.tokens;
    const double context = std::max(figure.context_tokens, 0.0) +
                           (to.prompt ? to.tokens : std::max(figure.measured_tokens, 0.0));
    const double cache = shape.layers * (context * double(shape.kv_token_layer_bytes) +
                                         double(shape.state_layer_bytes));
    return std::max(figure.gpu_count, 1.0) * here - double(shape.non_expert_bytes) -
           sequences * cache;
}

// Notes a row that says that all experts are resident although its GPUs have too little memory.
void doubt_residency(const measurement &figure, figure_setting &to) {
    const model_shape &shape = to.shape;
    const double experts = double(shape.moe_layers) * shape.experts * double(shape.expert_bytes);
    const double room = free_bytes(figure, to);
    if (figure.residency == "resident" && figure.gpu != "none" && room < experts)
        to.assumed.push_back(
            format("all experts resident, as the row says: {:.3g} GB, and the memory of {:g} GPU{} "
                   "has {:.3g} GB for them",
                   experts / 1e9, std::max(figure.gpu_count, 1.0), figure.gpu_count > 1 ? "s" : "",
                   std::max(room, 0.0) / 1e9));
}

// The share of a layer's experts on the GPU, in the layers that are not complete.
result<double> resident_share(const measurement &figure, const figure_setting &to) {
    const model_shape &shape = to.shape;
    const double all = static_cast<double>(shape.moe_layers) * shape.experts;
    const std::string &kind = figure.residency;
    if (kind == "resident") return 1.0;
    if (kind == "none" || kind == "cpu_layers" || kind == "cpu_all") return 0.0;
    if (kind == "fill_memory")
        return std::clamp(free_bytes(figure, to) / (all * double(shape.expert_bytes)), 0.0, 1.0);
    const double of = kind == "slots_per_layer" ? shape.experts
                      : kind == "slots_total"   ? all
                      : kind == "experts_share" ? 1.0
                                                : 0.0;
    if (of == 0)
        return error{format("residency_kind {}: where the experts are is not known", kind)};
    if (figure.residency_value == unknown)
        return error{format("residency_kind {}: residency_value is not published", kind)};
    return std::clamp(figure.residency_value / of, 0.0, 1.0);
}

status place_experts(const measurement &figure, figure_setting &to) {
    const auto share = resident_share(figure, to);
    if (!share) return share.failure();
    const uint32_t layers = to.shape.moe_layers;
    double host = figure.host_layers == unknown ? layers : figure.host_layers;
    if (figure.residency == "cpu_layers") {
        host = figure.residency_value == unknown ? figure.host_layers : figure.residency_value;
        if (host == unknown) return error{"cpu_layers: how many is not published"};
    }
    doubt_residency(figure, to);
    to.host_layers = *share == 1 ? 0 : static_cast<uint32_t>(std::min<double>(host, layers));
    to.hit_share = figure.hit_rate != unknown ? figure.hit_rate : *share;
    if (to.host_layers != 0 && *share > 0 && figure.hit_rate == unknown)
        to.assumed.push_back(
            format("hit rate {:.3g}, the share of experts that are there", *share));
    return success();
}

// Decides whether absent experts are loaded or computed, and what overlaps with that.
status place_misses(const measurement &figure, figure_setting &to) {
    const engine_profile &engine = to.hardware.engine;
    to.overlap = engine.overlap;
    to.on_cpu = figure.miss_action == "cpu";
    if (to.prompt && engine.prompt_load_tokens != 0)
        to.on_cpu = to.pass_tokens < engine.prompt_load_tokens;
    else if (to.host_layers != 0 && !to.on_cpu && figure.miss_action != "load")
        return error{
            "miss_action: whether absent experts are loaded or computed on the CPU is not "
            "published"};
    if (!to.prompt) return success();
    to.loads_all = engine.prompt_loads_all;
    to.overlap = engine.prompt_overlaps ? load_overlap::ahead : load_overlap::none;
    return success();
}

void classify(figure_setting &to) {
    const bool few = to.pass_tokens > 1 && to.pass_tokens <= batch_tokens_max;
    if (to.host_layers != 0 && !to.prompt)
        to.of = to.on_cpu ? figure_class::cpu_layers : figure_class::pcie;
    else if (to.host_layers == 0 && few)
        to.of = figure_class::batch;
    else
        to.of = to.prompt ? figure_class::prompt : figure_class::resident;
}

status take_work(const measurement &figure, figure_setting &to) {
    to.prompt = figure.prompt;
    if (figure.prompt && figure.prompt_tokens == unknown)
        return error{"prompt_tokens: the length of the prompt is not published"};
    to.tokens = count_of(figure.prompt ? figure.prompt_tokens : figure.batch, 1);
    const uint32_t usual = to.hardware.engine.microbatch;
    const uint32_t pass = figure.microbatch > 0 ? count_of(figure.microbatch, 0) : usual;
    to.pass_tokens = to.prompt && pass != 0 ? std::min(pass, to.tokens) : to.tokens;
    const double middle =
        figure.prompt || figure.measured_tokens == unknown ? 0 : figure.measured_tokens / 2;
    to.context = static_cast<uint64_t>(std::max(figure.context_tokens, 0.0) + middle);
    return success();
}

// Without a GPU the cores compute everything: a device with their rates and the host's memory.
void compute_on_cpu(figure_setting &to) {
    hardware_profile &of = to.hardware;
    engine_profile engine = of.engine;
    of.device.memory_bytes_per_s = of.node.cpu_bytes_per_s;
    of.device.flops_per_s = of.node.cpu_flops_per_s;
    of.device.memory_efficiency = of.device.flops_efficiency = 1;
    of.device.vector_flops_per_s = 1e18;
    of.device.sync_ns = 0;
    engine.kernels_per_product = engine.tile_tokens = 0;
    engine.layer_ns = engine.cpu_layer_ns;
    engine.batch_layer_ns = 0;
    engine.unpack_operations = 0;
    engine.context_share = engine.context_product_share = 1;
    of.engine = engine;
    to.host_layers = 0;
}

status take_machine(const measurement &figure, const setting_sources &sources, figure_setting &to) {
    hardware_profile &of = to.hardware;
    const bool has_gpu = figure.gpu != "none";
    auto device = load_device_profile(has_gpu ? figure.gpu : "rtx_4090", sources.base);
    if (!device) return error{"gpu " + device.failure().text};
    of.device = std::move(*device);
    auto link = load_link_profile(of.device.link, sources.base);
    if (!link) return link.failure();
    of.link = std::move(*link);
    if (const status done = take_link(figure, sources, of); !done) return done;
    if (const status done = take_node(figure, sources, of, to.assumed); !done) return done;
    auto engine = find_engine(figure, sources);
    if (!engine) return error{"engine " + engine.failure().text};
    if (figure.graphs == "on" || figure.graphs == "off") engine->graph = figure.graphs == "on";
    if (figure.link_memory == "pageable") engine->copy_bytes_per_s = pageable_bytes_per_s;
    if (const status done = use_engine(of, *engine); !done) return done;
    if (figure.gpu_count > 1)
        to.assumed.push_back(format("layers one after the other on {} GPUs", figure.gpu_count));
    return success();
}

// Refuses settings that would take the emulator hours or overflow its clock.
status check_extent(const figure_setting &to) {
    constexpr double operations_max = 5e7, seconds_max = 1e8;
    const hardware_profile &of = to.hardware;
    const double passes = std::ceil(double(to.tokens) / to.pass_tokens);
    const double each = std::min<double>(double(to.pass_tokens) * to.shape.top_k, to.shape.experts);
    const double operations = passes * to.shape.moe_layers * (each + 1);
    const double rate = std::min({of.device.memory_bytes_per_s, of.link.h2d_bytes_per_s,
                                  of.node.cpu_bytes_per_s, of.node.memory_bytes_per_s}) *
                        of.device.memory_efficiency;
    const double bytes = double(to.shape.expert_bytes) * to.shape.experts * to.shape.moe_layers +
                         double(to.shape.dense_bytes);
    if (operations > operations_max)
        return error{format("{:.3g} operations, {:.3g} is the limit: fewer passes of more tokens",
                            operations, operations_max)};
    if (!(passes * bytes / rate < seconds_max))
        return error{format("{:.3g} s at the slowest rate, {:.3g} is the limit",
                            passes * bytes / rate, seconds_max)};
    return success();
}

}  // namespace

result<figure_setting> setting_of(const measurement &figure, const setting_sources &sources) {
    // The collectors of the figures know best which parts are not published.
    if (figure.emulable.starts_with("no") &&
        figure.emulable.find("unpublished") != std::string::npos)
        return error{"the file says: " + figure.emulable};
    figure_setting to;
    auto shape = find_geometry(figure.model_shape, sources);
    if (!shape) return shape.failure();
    to.shape = std::move(*shape);
    if (const status done = check_values(figure, to.shape); !done) return done.failure();
    for (const auto &[column, cell] :
         {std::pair{"gpu", &figure.gpu}, std::pair{"engine", &figure.engine}})
        if (cell->empty())
            return error{format("{}: {} is empty: it is not published", figure.place, column)};
    if (const status done = take_formats(figure, to.shape, to.assumed); !done)
        return done.failure();
    if (const status done = take_machine(figure, sources, to); !done) return done.failure();
    if (const status done = take_work(figure, to); !done) return done.failure();
    if (const status done = place_experts(figure, to); !done) return done.failure();
    if (const status done = place_misses(figure, to); !done) return done.failure();
    hardware_profile &of = to.hardware;
    of.engine.overlap = to.overlap;
    const engine_profile &engine = of.engine;
    classify(to);
    if (const status done = check_extent(to); !done) return done.failure();
    // In layers with all experts present, the host decides nothing.
    of.device.sync_ns = of.device.sync_ns * to.host_layers / to.shape.moe_layers;
    if (figure.copy_piece.starts_with("whole layer"))
        of.link.issue_ns = layer_copies * engine.copies * engine.copy_ns / to.shape.experts;
    if (figure.gpu == "none" || figure.residency == "cpu_all") {
        compute_on_cpu(to);
        to.of = to.prompt ? figure_class::prompt : figure_class::cpu_layers;
    }
    return to;
}

}  // namespace moorage::core
