// cost_model.cpp - the arithmetic of cost_model.h.
#include "core/execute/cost_model.h"

#include <algorithm>
#include <cmath>

namespace moorage::core {

namespace {

uint64_t whole_ns(double seconds) { return rounded_up(seconds * 1e9); }

}  // namespace

cost_model::cost_model(const hardware_profile &hardware, const model_shape &shape)
    : hardware_(hardware), shape_(shape) {
    // The head reads vocabulary x hidden weights once per pass; everything else that is read for
    // every token is spread evenly over the MoE layers, dense layers included.
    const double head =
        static_cast<double>(shape.vocabulary) * shape.hidden * (shape.bits(shape.head_bits) / 8);
    head_bytes_ = std::min(head, static_cast<double>(shape.dense_bytes));
    layer_bytes_ = (static_cast<double>(shape.dense_bytes) - head_bytes_) / shape.moe_layers;
    expert_format_ = format_of(shape.bits(shape.expert_bits));
    if (shape.versions() > 1) small_expert_format_ = format_of(shape.small_expert_bits);
    dense_format_ = format_of(shape.bits(shape.dense_bits));
    head_format_ = format_of(shape.bits(shape.head_bits));
    const device_profile &device = hardware_.device;
    read_bytes_per_s_ = device.memory_bytes_per_s * device.memory_efficiency;
    // Every token reads the same bytes again. Either all of them stay in the cache or none.
    const double token_bytes =
        static_cast<double>(shape.dense_bytes) +
        static_cast<double>(shape.expert_bytes) * shape.top_k * shape.moe_layers;
    if (token_bytes <= static_cast<double>(device.cache_bytes))
        read_bytes_per_s_ = device.cache_bytes_per_s;
    if (!hardware_.engine.is_own()) price_layer();
    price_one_token();
}

cost_model::weight_format cost_model::format_of(double bits) const {
    constexpr double whole_bits = 16;  // from here on a weight is converted, which is one operation
    const engine_profile &engine = hardware_.engine;
    const double weights_per_byte = 8 / bits;
    if (engine.is_own()) return {weights_per_byte, 0};
    const double operations = bits < whole_bits ? engine.unpack_operations : 1;
    // A rate counts multiplication and addition as two.
    return {weights_per_byte,
            weights_per_byte * operations / (hardware_.device.vector_flops_per_s / 2)};
}

// The time that software adds to a layer, whatever its weights. Launches are counted per layer, not
// per expert. The host launches while the GPU works; only the excess is waited for.
void cost_model::price_layer() {
    const engine_profile &engine = hardware_.engine;
    device_profile &device = hardware_.device;
    const double kernels = shape_.products * engine.kernels_per_product;
    const double layers = static_cast<double>(shape_.layers) / shape_.moe_layers;
    const double work_ns =
        1e9 *
        (work_s(dense_format_, layer_bytes_, 1, 0) / layers +
         shape_.top_k * work_s(expert_format_, static_cast<double>(shape_.expert_bytes), 1, 0));
    const auto priced = [&](bool graph) {
        const auto gap_ns = static_cast<double>(graph ? 0 : engine.launch_gap_ns);
        const double device_ns = kernels * (static_cast<double>(device.kernel_ns) + gap_ns);
        const double host_ns = graph ? 0 : kernels * static_cast<double>(hardware_.node.launch_ns);
        const double waits_ns = std::max(0.0, host_ns - device_ns - work_ns);
        const double software_ns = static_cast<double>(engine.layer_ns);
        return rounded_up((device_ns + waits_ns + software_ns) * layers) +
               engine.expert_loop_ns * shape_.experts;
    };
    device.layer_ns = priced(engine.graph);
    several_tokens_ns_ =
        priced(false) + engine.batch_layer_ns - std::min(device.layer_ns, priced(false));
}

void cost_model::price_one_token() {
    device_one_token_ns_ = price_device_expert(1, 1, 0);
    cpu_one_token_ns_ = price_cpu_expert(1, 1);
    load_expert_ns_ = price_load(shape_.expert_bytes);
}

double cost_model::work_s(const weight_format &format, double bytes, uint64_t tokens,
                          double tile_tokens) const {
    const device_profile &device = hardware_.device;
    const double rate = device.flops_per_s * device.flops_efficiency;
    const double operations = 2.0 * bytes * format.weights_per_byte;
    const double padded_tokens = static_cast<double>(tokens) + (tokens == 1 ? 0 : tile_tokens);
    if (hardware_.engine.is_own()) {
        if (is_few(tokens))
            return read_s(bytes) +
                   operations * static_cast<double>(tokens - 1) / device.few_flops_per_s;
        return std::max(read_s(bytes), operations * padded_tokens / rate);
    }
    // Kernels for one token do their arithmetic on the vector units, while they unpack.
    if (tokens == 1) return read_s(bytes) + bytes * format.unpack_byte_s;
    return read_s(bytes) + bytes * format.unpack_byte_s + operations * padded_tokens / rate;
}

uint64_t cost_model::corrected(term kind, uint64_t ns) const {
    const double factor = factors_[kind];
    return factor == 1 ? ns : static_cast<uint64_t>(std::llround(static_cast<double>(ns) * factor));
}

void cost_model::observe(term kind, uint64_t modelled_ns, uint64_t measured_ns) {
    if (modelled_ns == 0 || measured_ns == 0) return;
    // One interrupted operation must not turn the estimate over.
    const double ratio = std::clamp(
        static_cast<double>(measured_ns) / static_cast<double>(modelled_ns), 1.0 / 8, 8.0);
    factors_[kind] = std::clamp(factors_[kind] * (1 + (ratio - 1) / 16), 1e-4, 1e4);
    price_one_token();
}

uint64_t cost_model::attention_ns(uint64_t tokens, uint64_t context, uint64_t sequences) const {
    const device_profile &device = hardware_.device;
    const uint64_t constant =
        attention_overhead_ns() + (std::max<uint64_t>(tokens, 1) - 1) *
                                      (is_few(tokens) ? device.few_token_ns : device.token_ns);
    if (!hardware_.engine.is_own())
        return constant + (tokens > 1 ? several_tokens_ns_ : 0) +
               whole_ns(work_s(dense_format_, layer_bytes_, tokens, 0) +
                        look_back_s(tokens, context, sequences));
    const double cache = static_cast<double>(context) * shape_.kv_token_layer_bytes;
    const double states = state_bytes(sequences);
    const bool has_context_rate = device.context_bytes_per_s != 0;
    const double read = read_s(layer_bytes_ + states + (has_context_rate ? 0 : cache));
    const double looked_back = has_context_rate ? cache / device.context_bytes_per_s : 0;
    const double worked =
        std::max(read, work_s(dense_format_, layer_bytes_, tokens, 0)) + looked_back;
    return corrected(attention, constant + whole_ns(worked));
}

// Layers without a past read and write their state.
double cost_model::state_bytes(uint64_t sequences) const {
    return 2.0 * static_cast<double>(sequences) * static_cast<double>(shape_.state_layer_bytes);
}

// An engine reads cached keys and values once for all tokens of a sequence, and multiplies them for
// each token.
double cost_model::look_back_s(uint64_t tokens, uint64_t context, uint64_t sequences) const {
    const engine_profile &engine = hardware_.engine;
    const device_profile &device = hardware_.device;
    const double layers = static_cast<double>(shape_.layers) / shape_.moe_layers;
    const double cached = static_cast<double>(context) / static_cast<double>(tokens);
    const double looked_at = cached * static_cast<double>(sequences) * shape_.kv_token_layer_bytes;
    const double read =
        (looked_at + state_bytes(sequences)) / (device.memory_bytes_per_s * engine.context_share);
    const double multiplied = static_cast<double>(context) * shape_.context_operations /
                              (device.flops_per_s * engine.context_product_share);
    return layers * std::max(read, multiplied);
}

uint64_t cost_model::head_ns(uint64_t tokens) const {
    const device_profile &device = hardware_.device;
    if (tokens == 0) return device.pass_ns;
    return head_overhead_ns() + whole_ns(work_s(head_format_, head_bytes_, tokens, 0));
}

uint64_t cost_model::draw_ns(uint64_t positions) const {
    const double rate = hardware_.device.logits_per_s;
    const double logits = static_cast<double>(positions) * shape_.vocabulary;
    return rate == 0 ? 0 : whole_ns(logits / rate);
}

uint64_t cost_model::price_device_expert(uint64_t tokens, double share, uint32_t version) const {
    const double bytes = bytes_of(version) * share;
    const double tile =
        hardware_.engine.is_own() ? hardware_.device.tile_tokens : hardware_.engine.tile_tokens;
    const double worked =
        work_s(version == 0 ? expert_format_ : small_expert_format_, bytes, tokens, tile);
    return corrected(device_expert, expert_overhead_ns() + whole_ns(worked));
}

uint64_t cost_model::price_cpu_expert(uint64_t tokens, double share) const {
    const node_profile &node = hardware_.node;
    const double bytes = static_cast<double>(shape_.expert_bytes) * share;
    const double read = bytes / std::min(node.cpu_bytes_per_s, node.memory_bytes_per_s);
    const double operations =
        2.0 * bytes * expert_format_.weights_per_byte * static_cast<double>(tokens);
    return corrected(cpu_expert, node.cpu_issue_ns +
                                     whole_ns(std::max(read, operations / node.cpu_flops_per_s)));
}

uint64_t cost_model::move_ns(double share, uint32_t version) const {
    const double bytes = bytes_of(version) * share;
    return move_overhead_ns() + whole_ns(2 * read_s(bytes));  // read and written
}

uint64_t cost_model::price_load(uint64_t bytes) const {
    if (hardware_.device.unified_memory) return 0;
    const double rate = std::min(hardware_.link.h2d_bytes_per_s, hardware_.node.memory_bytes_per_s);
    return corrected(load, hardware_.link.issue_ns + whole_ns(static_cast<double>(bytes) / rate));
}

uint64_t cost_model::read_ns(uint64_t bytes) const {
    const disk_profile &disk = hardware_.disk;
    const double rate = std::min(disk.read_bytes_per_s, hardware_.node.memory_bytes_per_s);
    return corrected(read, disk.issue_ns + whole_ns(static_cast<double>(bytes) / rate));
}

uint64_t cost_model::states_out_ns(uint64_t tokens) const {
    return hardware_.peer.issue_ns +
           whole_ns(static_cast<double>(activation_bytes(tokens)) / hardware_.peer.h2d_bytes_per_s);
}

uint64_t cost_model::results_back_ns(uint64_t tokens) const {
    return hardware_.peer.issue_ns +
           whole_ns(static_cast<double>(activation_bytes(tokens)) / hardware_.peer.d2h_bytes_per_s);
}

uint64_t cost_model::part_bytes(double share, uint32_t version) const {
    return rounded_up(bytes_of(version) * share);
}

moorage_costs cost_model::summary(uint64_t context) {
    context_ = context;
    moorage_costs costs{};
    costs.size = sizeof(costs);
    refresh(costs);
    return costs;
}

void cost_model::refresh(moorage_costs &costs) const {
    costs.expert_bytes = shape_.expert_bytes;
    costs.load_ns = load_ns(shape_.expert_bytes);
    costs.transfer_issue_ns = hardware_.device.unified_memory ? 0 : hardware_.link.issue_ns;
    costs.attention_ns = attention_ns(1, context_) + sync_ns();
    costs.gpu_expert_ns = gpu_expert_ns(1, 1);
    costs.gpu_token_ns = (gpu_expert_ns(1025, 1) - costs.gpu_expert_ns) / 1024;
    costs.cpu_expert_ns = cpu_expert_ns(1, 1);
    costs.head_ns = head_ns(1);
    costs.cpu_token_ns = (cpu_expert_ns(1025, 1) - costs.cpu_expert_ns) / 1024;
    if (!hardware_.disk.name.empty()) costs.disk_read_ns = read_ns(shape_.expert_bytes);
}

}  // namespace moorage::core
