// measure.cpp - fits the measurements, and makes the profile from them.
#include "core/execute/measure.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "core/base/text.h"

namespace moorage::core {

namespace {

// Prefill begins to be bound by arithmetic around here; the rate is that of the tokens beyond.
constexpr double tokens_many = 32;
// Smaller working sets are bound by the entry of their loops, not by a cache.
constexpr double working_set_min_bytes = 1 << 20;
// A cache that is hardly faster than memory is not worth a term.
constexpr double cache_gain_min = 1.2;

uint64_t to_ns(double seconds) { return static_cast<uint64_t>(std::lround(seconds * 1e9)); }

struct cache_figures {
    uint64_t bytes = 0;
    double bytes_per_s = 0;
};

// The largest working set whose rate is nearer to the fastest one than to the slowest (on a
// logarithmic scale), and the middle rate of all up to it.
cache_figures cache_of(const measured_machine &machine) {
    std::vector<timed_sample> sets = machine.working_sets;
    std::erase_if(sets,
                  [](const timed_sample &sample) { return sample.amount < working_set_min_bytes; });
    if (sets.size() < 2) return {};
    const auto rate = [](const timed_sample &sample) { return sample.amount / sample.seconds; };
    std::ranges::sort(sets, {}, &timed_sample::amount);
    const double slow = rate(sets.back()), fast = rate(*std::ranges::max_element(sets, {}, rate));
    if (fast < cache_gain_min * slow) return {};
    const double between = std::sqrt(fast * slow);
    size_t count = sets.size();
    while (rate(sets[count - 1]) < between) --count;
    std::vector<double> rates;
    for (size_t i = 0; i < count; ++i) rates.push_back(rate(sets[i]));
    return {static_cast<uint64_t>(sets[count - 1].amount), median(rates)};
}

// Operations per second that further tokens of an expert are computed with.
double compute_rate(const measured_machine &machine) {
    if (machine.prefill_layers.size() >= 2)
        if (const line_fit line = fit_line(machine.prefill_layers); line.slope > 0)
            return 1 / line.slope;
    std::vector<timed_sample> many = machine.expert_tokens;
    std::erase_if(many, [](const timed_sample &sample) { return sample.amount < tokens_many; });
    if (many.size() < 2) return machine.operations_per_s;
    const line_fit line = fit_line(many);
    return line.slope > 0 ? machine.expert_operations / line.slope : machine.operations_per_s;
}

// An expert for several tokens takes a constant longer than their operations do: in tokens.
double tile_of(const measured_machine &machine) {
    std::vector<timed_sample> several = machine.expert_tokens;
    std::erase_if(several, [](const timed_sample &sample) { return sample.amount < 2; });
    if (several.size() < 2) return 0;
    const line_fit line = fit_line(several);
    if (line.slope <= 0) return 0;
    return std::max(line.constant - machine.expert_seconds, 0.0) / line.slope;
}

// The constant of a layer. Whole tokens measure more than single kernels: the pipeline around them,
// threads that fell asleep, weights that another layer drove out of the nearest cache. A GPU
// computes the present experts of a layer in shared launches, so their constant cost is the
// layer's. The time that the host waits is a term of its own.
double layer_constant(const measured_machine &machine) {
    const double once = machine.is_host ? 0 : machine.experts_seconds;
    if (machine.token_layers.size() < 2) return machine.layer_seconds + once;
    const double experts = machine.token_experts * machine.expert_seconds +
                           (machine.is_host ? machine.experts_seconds : machine.sync_seconds);
    const double pass_layer_seconds = machine.pass_seconds / machine.token_layer_count;
    return std::max(fit_line(machine.token_layers).constant - experts - pass_layer_seconds, 0.0);
}

static void set_cache(device_profile &device, const measured_machine &machine) {
    const cache_figures cache = cache_of(machine);
    device.cache_bytes = cache.bytes;
    device.cache_bytes_per_s = cache.bytes_per_s;
    if (machine.is_host && cache.bytes != 0 && machine.token_layers.size() >= 2)
        if (const line_fit line = fit_line(machine.token_layers); line.slope > 0)
            device.cache_bytes_per_s = std::min(cache.bytes_per_s, 1 / line.slope);
}

device_profile device_of(const measured_machine &machine) {
    device_profile device;
    device.name = machine.processor;
    device.memory_bytes = machine.device_bytes;
    device.reserved_bytes = std::min(machine.device_reserved_bytes, machine.device_bytes - 1);
    device.memory_bytes_per_s = machine.read_bytes_per_s;
    device.memory_efficiency =
        std::min(1.0, machine.expert_memory_bytes_per_s / machine.read_bytes_per_s);
    device.flops_per_s = machine.operations_per_s;
    device.flops_efficiency = std::min(1.0, compute_rate(machine) / machine.operations_per_s);
    const double layer_seconds = layer_constant(machine);
    // A layer's constant is launches and a rest. The number of launches is only a matter of naming.
    const double loop = std::max(machine.loop_seconds, 1e-9);
    device.launch_ns = std::max<uint64_t>(to_ns(loop), 1);
    device.sync_ns = to_ns(machine.sync_seconds);
    device.attention_kernels = static_cast<uint32_t>(std::clamp(layer_seconds / loop, 0.0, 10.0));
    const uint64_t launches_ns = device.attention_kernels * device.launch_ns;
    device.layer_ns = std::max(to_ns(layer_seconds), launches_ns) - launches_ns;
    if (machine.is_host)
        device.expert_kernels =
            static_cast<uint32_t>(std::clamp(machine.experts_seconds / loop + 0.5, 0.0, 100.0));
    device.expert_ns = to_ns(machine.expert_seconds);
    if (machine.prefill_layers.size() >= 2)
        device.token_ns = to_ns(fit_line(machine.prefill_layers).constant);
    device.pass_ns = to_ns(machine.pass_seconds);
    device.is_host = machine.is_host;
    if (machine.is_host) {
        device.compute_share = machine.compute_share;
        device.copy_share = machine.copy_share;
    }
    device.load_ns = to_ns(machine.load_seconds);
    device.step_ns = to_ns(machine.step_seconds);
    device.wake_ns = to_ns(machine.wake_seconds);
    if (machine.draws.size() >= 2)
        if (const line_fit line = fit_line(machine.draws); line.slope > 0)
            device.logits_per_s = 1 / line.slope;
    if (machine.picks.size() >= 2)
        if (const line_fit line = fit_line(machine.picks); line.slope > 0)
            device.greedy_logits_per_s = 1 / line.slope;
    if (machine.is_host) device.tile_tokens = tile_of(machine);
    if (machine.few_layers.size() >= 2)
        if (const line_fit line = fit_line(machine.few_layers); line.slope > 0) {
            device.few_tokens = machine.few_tokens;
            device.few_flops_per_s = 1 / line.slope;
            device.few_token_ns = to_ns(line.constant);
        }
    // Not measured: as on the GPUs whose logs were read (decision 0049).
    if (!machine.is_host) device.busy_link_slowdown = 0.21;
    device.kernel_ns = device.launch_ns;
    // A GPU's other units are not measured.
    if (machine.is_host) device.vector_flops_per_s = machine.operations_per_s;
    if (machine.contexts.size() >= 2 && machine.context_bytes > 0)
        if (const line_fit line = fit_line(machine.contexts); line.slope > 0)
            device.context_bytes_per_s = machine.context_bytes / line.slope;
    set_cache(device, machine);
    return device;
}

link_profile link_of(const measured_machine &machine) {
    const line_fit to_device_fit = fit_line(machine.to_device);
    const line_fit to_host_fit =
        machine.to_host.size() < 2 ? to_device_fit : fit_line(machine.to_host);
    link_profile link;
    link.name = machine.is_host ? "copies in main memory of " + machine.processor
                                : "link of " + machine.processor;
    link.h2d_bytes_per_s = 1 / to_device_fit.slope;
    link.d2h_bytes_per_s = 1 / to_host_fit.slope;
    link.issue_ns = to_ns(to_device_fit.constant);
    return link;
}

node_profile node_of(const measured_machine &machine, const device_profile &device,
                     const link_profile &link) {
    node_profile node;
    node.name = machine.is_host ? machine.processor : "host of " + machine.processor;
    node.memory_bytes = machine.host_bytes;
    if (machine.is_host) {
        node.cpu_bytes_per_s = device.memory_bytes_per_s * device.memory_efficiency;
        node.cpu_flops_per_s = device.flops_per_s * device.flops_efficiency;
        node.cpu_issue_ns = to_ns(machine.experts_seconds + machine.expert_seconds);
    } else {
        node.cpu_bytes_per_s = machine.cpu_expert_bytes_per_s;
        node.cpu_flops_per_s = machine.cpu_operations_per_s;
        node.cpu_issue_ns = to_ns(machine.cpu_expert_seconds);
    }
    node.memory_bytes_per_s = std::max(machine.together_bytes_per_s, node.cpu_bytes_per_s);
    node.memory_theory_bytes_per_s = machine.host_read_bytes_per_s;
    node.launch_ns = to_ns(machine.loop_seconds);
    // The link alone reads the memory at its own rate at least.
    if (!machine.is_host)
        node.memory_bytes_per_s = std::max(node.memory_bytes_per_s, link.h2d_bytes_per_s);
    return node;
}

// Where a GPU's figures come from something else than a CPU's.
template <class How>
void sources_of_gpu(profile_sources &sources, How &&source) {
    auto &device = sources.by_part["device"];
    device["reserved_bytes"] = source("what was in use when it was measured, and the reserve");
    device["memory_bytes_per_s"] =
        source("copies within it or large products, the faster of the two");
    device["flops_per_s"] = source("large products of bf16 by the library");
    device["flops_efficiency"] = source("an expert for more and more tokens, against that");
    device["launch_ns"] = source("recorded launches of an empty kernel, slope of the fitted line");
    device["sync_ns"] = source(
        "recorded launches and a small copy until the host sees its end, "
        "constant of the fitted line");
    device["layer_ns"] = source(
        "a layer of small models run whole, at zero bytes, less launches, "
        "each expert and sync_ns");
    device["expert_kernels"] = "[D] shared by the experts of a layer, so part of its constant";
    device["pass_ns"] = source("the head of small models at zero bytes");
    device["cache_bytes_per_s"] = source("sets of weights up to that size, the middle one");
    auto &link = sources.by_part["link"];
    for (const char *rate : {"h2d_bytes_per_s", "d2h_bytes_per_s"})
        link[rate] = source("pinned pieces of 4 KiB to 64 MiB, slope of the fitted line");
    link["issue_ns"] = source("such pieces until the host sees their end, constant of the line");
    auto &node = sources.by_part["node"];
    node["memory_bytes_per_s"] =
        source("experts computed by the CPU and copied at the same time, both summed");
    node["cpu_bytes_per_s"] =
        source("four experts of one token by the CPU behind the GPU's attention, by bytes: slope");
    node["cpu_flops_per_s"] = source("an expert for more and more tokens by the CPU");
    node["cpu_issue_ns"] = source("of each of these at zero bytes, hand-over both ways included");
}

// Figures that only a CPU's executor has.
template <class How>
void sources_of_host(profile_sources &sources, How &&source) {
    auto &device = sources.by_part["device"];
    device["compute_share"] = source("an expert computed while another is copied");
    device["copy_share"] = source("an expert copied while another is computed");
    device["load_ns"] = source(
        "a small model run whole with room for a third of its experts: its time that is "
        "neither computing nor waiting, less step_ns, over its loads");
    device["step_ns"] = source(
        "small models run whole: time that is neither computing nor waiting, over layer steps");
    device["wake_ns"] = source("a thread that sleeps until it begins, while all cores compute");
    device["few_tokens"] = "[D] the executor's loops for few tokens";
    device["few_flops_per_s"] =
        source("small models run whole, passes of four tokens against those of one");
    device["few_token_ns"] = device["few_flops_per_s"];
}

profile_sources sources_of(const measured_machine &machine) {
    const std::string measured_by =
        format("[M] measured by moorage profile measure on {}{}, {}", machine.processor,
               machine.threads ? format(" ({} threads)", machine.threads) : "", machine.date);
    const auto note = [&](const char *text) { return measured_by + ": " + text; };
    profile_sources sources;
    sources.default_source = measured_by;
    auto &device = sources.by_part["device"];
    device["memory_bytes"] = note("what there is in all");
    device["reserved_bytes"] = note("what was in use when it was measured");
    device["memory_bytes_per_s"] = note("read in order, the best of many passes");
    device["memory_efficiency"] = note("experts of one token read from memory, against that");
    device["flops_per_s"] = note("float32 multiply-adds in registers, the best of many");
    device["flops_efficiency"] =
        note("small models run whole, many tokens in a pass, against that");
    device["launch_ns"] = note("an empty parallel loop or kernel");
    device["sync_ns"] = note("the router's scores until the host has them");
    device["layer_ns"] =
        note("a layer of small models run whole, at zero bytes, less launches and experts");
    device["attention_kernels"] = "[D] the share of a layer's constant that launches make up";
    device["expert_kernels"] = "[D] the constant of a loop over experts in launches";
    device["unified_memory"] = "[D] loads are copies";
    device["is_host"] = "[D] which executor was measured";
    device["logits_per_s"] = note("tokens drawn from 1,024 to 65,536 logits, slope of the line");
    device["greedy_logits_per_s"] = note("the most probable of as many logits, slope of the line");
    device["tile_tokens"] = note("an expert for 2 to 256 tokens, constant over slope of the line");
    device["vector_flops_per_s"] = device["flops_per_s"];
    device["kernel_ns"] = device["launch_ns"];
    device["busy_link_slowdown"] =
        "[G] as on an H100 and an H200 over PCIe 5: not measured by this command";
    device["expert_ns"] = note("small experts in one loop, at zero bytes");
    device["token_ns"] = note("small models run whole, many tokens in a pass, at zero operations");
    device["pass_ns"] = note("passes of small models at zero bytes, their layers taken off");
    device["context_bytes_per_s"] = note("attention of one token by the length of its past");
    device["cache_bytes"] = note("the largest set of weights that is read faster than memory");
    device["cache_bytes_per_s"] = note("small models run whole, the time of a layer by its bytes");
    auto &link = sources.by_part["link"];
    link["h2d_bytes_per_s"] = note("pieces of 4 KiB to 64 MiB, slope of the fitted line");
    link["d2h_bytes_per_s"] = link["h2d_bytes_per_s"];
    link["issue_ns"] = note("pieces of 4 KiB to 64 MiB, constant of the fitted line");
    auto &node = sources.by_part["node"];
    node["memory_bytes"] = note("what there is in all");
    node["memory_bytes_per_s"] = note("experts computed and copied at the same time, both summed");
    node["cpu_bytes_per_s"] = note("experts of one token read from memory");
    node["cpu_flops_per_s"] = note("an expert for more and more tokens");
    node["cpu_issue_ns"] = note("one small expert at zero bytes");
    node["memory_theory_bytes_per_s"] = note(
        "read in order by all cores, the best of many passes: what the channels give at least");
    node["launch_ns"] = device["launch_ns"];
    auto &engine = sources.by_part["engine"];
    engine["costs"] = "[M] the figures of this file's other tables are this engine's";
    engine["overlap"] = "[D] copies have a thread or a stream of their own";
    sources_of_host(sources, note);
    if (!machine.is_host) sources_of_gpu(sources, note);
    return sources;
}

std::string rate_text(double bytes, double seconds) {
    return format("{:>8.2f} GB/s", bytes / seconds / 1e9);
}

void add_samples(std::vector<std::string> &lines, const char *title, const char *unit,
                 std::span<const timed_sample> samples, bool bytes) {
    if (samples.empty()) return;
    lines.push_back("");
    lines.push_back(title);
    for (const timed_sample &sample : samples) {
        std::string line = bytes ? format("{:>12}", human_bytes(sample.amount))
                                 : format("{:>6.0f} {}", sample.amount, unit);
        line += format("{:>12.2f} us", sample.seconds * 1e6);
        if (bytes) line += rate_text(sample.amount, sample.seconds);
        lines.push_back(line);
    }
}

}  // namespace

namespace {

double value_at_rank(std::vector<double> &values, size_t rank) {
    assert(rank < values.size());
    const auto place = values.begin() + static_cast<ptrdiff_t>(rank);
    std::nth_element(values.begin(), place, values.end());
    return *place;
}

}  // namespace

double median(std::vector<double> &values) {
    return value_at_rank(values, (values.size() - 1) / 2);
}

double lower_quartile(std::vector<double> &values) {
    return value_at_rank(values, (values.size() - 1) / 4);
}

// Weighted least squares with weights 1 / seconds^2: the longest samples would drown the others.
line_fit fit_line(std::span<const timed_sample> samples) {
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    for (const timed_sample &sample : samples) {
        assert(sample.seconds > 0);
        const double weight = 1 / (sample.seconds * sample.seconds);
        w += weight;
        wx += weight * sample.amount;
        wy += weight * sample.seconds;
        wxx += weight * sample.amount * sample.amount;
        wxy += weight * sample.amount * sample.seconds;
    }
    const double spread = w * wxx - wx * wx;
    assert(spread > 0 && "samples of different amounts are needed");
    const double slope = (w * wxy - wx * wy) / spread, constant = (wy - slope * wx) / w;
    if (slope < 0) return {wy / w, 0};
    if (constant < 0) return {0, wxy / wxx};
    return {constant, slope};
}

measured_profile profile_of(const measured_machine &machine) {
    measured_profile measured;
    measured.profile.device = device_of(machine);
    measured.profile.link = link_of(machine);
    measured.profile.node = node_of(machine, measured.profile.device, measured.profile.link);
    measured.sources = sources_of(machine);
    measured.notes = tables_of(machine);
    return measured;
}

std::vector<std::string> tables_of(const measured_machine &machine) {
    std::vector<std::string> lines;
    lines.push_back(format("{}, executor {}, {} threads, {}", machine.processor, machine.executor,
                           machine.threads, machine.date));
    lines.push_back("");
    lines.push_back(format(
        "memory read in order {:.2f} GB/s, {} {:.1f} GFLOP/s", machine.read_bytes_per_s / 1e9,
        machine.is_host ? "multiply-adds" : "products of bf16", machine.operations_per_s / 1e9));
    lines.push_back(format("{} beside a copy keeps {:.0f} % of its speed, the copy {:.0f} %,",
                           machine.is_host ? "computing" : "the CPU's computing",
                           machine.compute_share * 100, machine.copy_share * 100));
    lines.push_back(format("together {:.2f} GB/s", machine.together_bytes_per_s / 1e9));
    lines.push_back(format(
        "constants: loop {:.2f} us, expert {:.2f} us, loop over experts "
        "{:.2f} us,",
        machine.loop_seconds * 1e6, machine.expert_seconds * 1e6, machine.experts_seconds * 1e6));
    lines.push_back(format("           layer {:.2f} us, pass {:.2f} us",
                           machine.layer_seconds * 1e6, machine.pass_seconds * 1e6));
    if (machine.is_host)
        lines.push_back(format(
            "           software: a step {:.2f} us, a load {:.2f} us, a thread woken {:.2f} us",
            machine.step_seconds * 1e6, machine.load_seconds * 1e6, machine.wake_seconds * 1e6));
    if (!machine.is_host) {
        lines.push_back(
            format("           hand-over to the host {:.2f} us, expert on the CPU {:.2f} us",
                   machine.sync_seconds * 1e6, machine.cpu_expert_seconds * 1e6));
        lines.push_back(
            format("experts on the CPU {:.2f} GB/s, {:.1f} GFLOP/s; it reads {:.2f} GB/s",
                   machine.cpu_expert_bytes_per_s / 1e9, machine.cpu_operations_per_s / 1e9,
                   machine.host_read_bytes_per_s / 1e9));
    }
    add_samples(lines, "copies to a slot, by bytes", "", machine.to_device, true);
    add_samples(lines, "copies back, by bytes", "", machine.to_host, true);
    if (!machine.products.empty()) {
        lines.push_back("");
        lines.push_back("products of a matrix, by type and shape");
    }
    for (const product_speed &product : machine.products)
        lines.push_back(
            format("{:>6} {:>6} x {:<6} {:>4} tokens{:>12.2f} us{}{:>8.1f} GFLOP/s",
                   name_of(product.type), product.rows, product.columns, product.tokens,
                   product.seconds * 1e6, rate_text(product.bytes, product.seconds),
                   2e-9 * product.rows * product.columns * product.tokens / product.seconds));
    add_samples(lines, "weights read again and again, by their bytes", "", machine.working_sets,
                true);
    add_samples(lines, "a layer of small models run whole, by the bytes it reads", "",
                machine.token_layers, true);
    add_samples(lines, "a token of many in a layer of such models, by operations", "operations",
                machine.prefill_layers, false);
    add_samples(lines, "a token of few beside the first, likewise", "operations",
                machine.few_layers, false);
    add_samples(lines, "an expert, by tokens", "tokens", machine.expert_tokens, false);
    add_samples(lines, "an expert on the CPU, of four for one token behind attention, by bytes", "",
                machine.cpu_experts, true);
    add_samples(lines, "a token drawn, by its logits", "logits", machine.draws, false);
    add_samples(lines, "the most probable token, by its logits", "logits", machine.picks, false);
    add_samples(lines, "attention of one token, by positions looked back on", "positions",
                machine.contexts, false);
    return lines;
}

}  // namespace moorage::core
