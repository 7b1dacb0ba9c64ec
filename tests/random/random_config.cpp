// random_config.cpp - draws sections one by one. The program refuses contradictions.
#include "tests/random/random_config.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/base/text.h"
#include "core/source/synth.h"

namespace moorage::random {

namespace {

using core::format;
using core::random_stream;

constexpr uint64_t trace_tokens = 60;
const std::string machine =
    "[hardware]\nprofile = \"device.toml\"\nlink = \"link.toml\"\nnode = \"node.toml\"\n";

bool chance(random_stream &draws, uint64_t percent) { return draws.below(100) < percent; }

template <class Value>
Value pick(random_stream &draws, const std::vector<Value> &values) {
    return values[draws.below(values.size())];
}

// TOML text: a real has a point or an exponent.
std::string real_text(double value) {
    std::string text = format("{}", value);
    return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// Whether this processor has it, as far as policies want it.
bool has_avx512() {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vpopcntdq");
#else
    return false;
#endif
}

// Which vectors a policy uses changes nothing that it decides: those that this processor lacks are
// left to it.
std::string available_vectors(const std::string &choice) {
    if (choice == "avx512" && !has_avx512()) return "auto";
#if defined(__x86_64__)
    if (choice == "avx2" && !__builtin_cpu_supports("avx2")) return "auto";
#else
    if (choice == "avx2") return "auto";
#endif
    return choice;
}

// A value within the declared limits; large ranges are drawn near their lower end, where runs as
// short as these see an effect.
std::string value_of(random_stream &draws, const moorage_param &p) {
    switch (p.type) {
        case MOORAGE_PARAM_FLAG:
            return draws.below(2) ? "true" : "false";
        case MOORAGE_PARAM_INTEGER: {
            const auto span = static_cast<uint64_t>(p.integer_max) - uint64_t(p.integer_min);
            return format("{}",
                          p.integer_min + int64_t(draws.below(std::min<uint64_t>(span, 64) + 1)));
        }
        case MOORAGE_PARAM_REAL: {
            const double low = p.real_min, high = std::min(p.real_max, p.real_min + 4);
            return real_text(low + (high - low) * double(draws.below(9)) / 8);
        }
        default:
            return format("\"{}\"", p.plugin_text_choices
                                        ? available_vectors(
                                              pick(draws, core::split(p.plugin_text_choices, '|')))
                                        : std::string(p.plugin_text_default));
    }
}

}  // namespace

config_maker::config_maker(const core::registry &known, std::filesystem::path demo)
    : known_(known), demo_(std::move(demo)) {
    sources_ = {{3, 8, 2, true, true},   {4, 16, 4, true, true}, {2, 6, 1, true, false},
                {5, 12, 3, false, true}, {1, 4, 2, true, true},  {3, 40, 6, true, true}};
    for (const source_file &source : sources_) write_source(source);
}

void config_maker::write_source(const source_file &source) {
    const toy::folder &folder = folders_.emplace_back();
    toy::write_files(folder, source.layers, source.experts, source.top_k);
    std::string slow = toy::device_toml;
    const std::string fast = "memory_bytes_per_s = 1000e9";
    slow.replace(slow.find(fast), fast.size(), "memory_bytes_per_s = 300e9");
    folder.write("slow.toml", slow);
    core::synth_options options;
    options.layers = source.layers, options.experts = source.experts, options.top_k = source.top_k;
    options.tokens = trace_tokens;
    options.requests = 5;
    options.reuse = 0.4;
    options.domains = 2;
    options.gate_scores = source.scores;
    options.predictions = source.predictions ? std::min(source.experts, 2 * source.top_k) : 0;
    options.prediction_accuracy = 0.7;
    options.seed = folders_.size();
    auto data = core::synthesize(options);
    if (!data) std::abort();
    data->metadata["model"] = "toy";
    // Weights as a model has them: the chosen ones' scores, which add up to 1.
    for (size_t row = 0; source.scores && row < trace_tokens * source.layers; ++row) {
        double sum = 0;
        const auto score = [&](uint32_t rank) {
            return data->gate_scores
                .values[row * source.experts + data->chosen[row * source.top_k + rank]];
        };
        for (uint32_t rank = 0; rank < source.top_k; ++rank) sum += double{score(rank)};
        for (uint32_t rank = 0; rank < source.top_k; ++rank)
            data->weights.values.push_back(sum > 0 ? static_cast<float>(double{score(rank)} / sum)
                                                   : 1.0f / float(source.top_k));
    }
    if (!core::write_trace(*data, folder / "trace.safetensors")) std::abort();
}

// A policy of the kind, with some of its parameters set. Mostly one whose needs the run meets
// (MOORAGE_NEEDS_*).
std::string config_maker::stage(random_stream &draws, std::string_view kind, uint32_t lacking,
                                const std::string &extra_lines) const {
    const bool ignores_needs = chance(draws, 10);
    std::vector<const core::policy *> fit;
    const std::string_view base_kind = kind.substr(0, kind.find('.'));  // "cache.host"
    for (const core::policy &policy : known_.policies())
        if (policy.is(base_kind) && (ignores_needs || (policy.descriptor->needs & lacking) == 0))
            fit.push_back(&policy);
    if (fit.empty()) return "";
    std::ranges::sort(fit, {}, [](const core::policy *policy) { return policy->name(); });
    const auto wild = std::ranges::find_if(
        fit, [](const core::policy *policy) { return policy->name().starts_with("anything_"); });
    const core::policy &chosen =
        wild != fit.end() && chance(draws, 60) ? **wild : *pick(draws, fit);
    std::string text = format("[{}]\nplugin = \"{}\"\n{}", kind, chosen.name(), extra_lines);
    for (const moorage_param &p : chosen.params)
        if (chance(draws, 30)) text += format("{} = {}\n", p.plugin_key, value_of(draws, p));
    return text;
}

// Half of the stages but the cache stay as they are by default.
std::string config_maker::stages(random_stream &draws, uint32_t lacking) const {
    std::string text = stage(draws, "cache", lacking);
    for (const char *kind : {"budget", "prefetch", "dispatch", "transport"})
        if (chance(draws, 50)) text += stage(draws, kind, lacking);
    if (chance(draws, 40)) return text;
    std::string limits;
    if (chance(draws, 30))
        limits = format("substitution_max = {}\n", real_text(double(draws.below(5)) / 8));
    if (chance(draws, 15)) limits += "exact_requests = [0, 3]\n";
    return text + stage(draws, "router", lacking, limits);
}

// `memory`: further keys of [memory].
std::string config_maker::trace_text(random_stream &draws, const source_file &source,
                                     const std::string &memory) const {
    const uint64_t pages = uint64_t{source.layers} * source.experts, batch = 1 + draws.below(4);
    const uint64_t prefill = chance(draws, 60) ? 0 : draws.below(8);
    const uint64_t buffer = chance(draws, 30) ? source.top_k : draws.below(2 * source.experts + 2);
    const bool per_layer = chance(draws, 60);
    uint32_t lacking = MOORAGE_NEEDS_SERVERS;
    if (batch != 1 || prefill != 0) lacking |= MOORAGE_NEEDS_FUTURE;
    if (!source.scores) lacking |= MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS;
    if (!source.predictions || buffer == 0) lacking |= MOORAGE_NEEDS_PREDICTIONS;
    if (!per_layer) lacking |= MOORAGE_NEEDS_PER_LAYER;
    if (buffer < source.experts) lacking |= MOORAGE_NEEDS_LAYER_BUFFER;
    std::string text =
        format("[run]\nbatch = {}\nprefill = {}\nseed = {}\n", batch, prefill, draws.below(3));
    if (chance(draws, 20)) text += format("tokens = {}\n", 1 + draws.below(trace_tokens));
    if (chance(draws, 10)) text += "guard = true\nguard_window = 4\n";
    text += machine + (memory.empty() ? "" : "disk = \"disk.toml\"\n") +
            format(
                "[source]\ntrace = \"trace.safetensors\"\nshape = \"shape.toml\"\n"
                "[memory]\nexperts = {}\nbuffer_experts = {}\nsharing = \"{}\"\n{}",
                1 + draws.below(pages + pages / 4 + 1), buffer, per_layer ? "per-layer" : "shared",
                memory);
    if (chance(draws, 30))
        text += format("split = {}\n", real_text(double(1 + draws.below(8)) / 8));
    if (chance(draws, 15)) text += "prefill_displaces = false\n";
    return text + stages(draws, lacking);
}

std::string config_maker::model_text(random_stream &draws) const {
    const bool per_layer = chance(draws, 50);
    const uint32_t lacking = MOORAGE_NEEDS_SERVERS | MOORAGE_NEEDS_FUTURE |
                             MOORAGE_NEEDS_LAYER_BUFFER |
                             (per_layer ? 0u : uint32_t{MOORAGE_NEEDS_PER_LAYER});
    // A statement each: in which order arguments are drawn is the compiler's.
    const std::string policies = stages(draws, lacking);
    const uint64_t buffer = 1 + draws.below(8), experts = 1 + draws.below(96);
    const uint64_t tokens = 1 + draws.below(6);
    const uint64_t seed = draws.below(3), batch = 1 + draws.below(2);
    return format("[run]\nbatch = {}\nseed = {}\nthreads = 1\n", batch, seed) + machine +
           format(
               "[source]\nmodel = \"{}\"\nprompt = [\"To be\", \"or\"]\nmax_tokens = {}\n"
               "[memory]\nexperts = {}\nbuffer_experts = {}\nsharing = \"{}\"\n",
               demo_.string(), tokens, experts, buffer, per_layer ? "per-layer" : "shared") +
           policies;
}

std::string config_maker::cluster_text(random_stream &draws, const source_file &source) const {
    const uint64_t pages = uint64_t{source.layers} * source.experts, servers = 2 + draws.below(2);
    const uint64_t requests = 1 + draws.below(8), seed = draws.below(3);
    const uint64_t batch = 1 + draws.below(4);
    std::string text =
        format("[run]\nbatch = {}\nseed = {}\n[cluster]\nrequests = {}\n", batch, seed, requests);
    if (chance(draws, 30)) text += "serial_calls = true\n";
    text += "[[cluster.models]]\nname = \"toy\"\nshape = \"shape.toml\"\n";
    const bool loads = chance(draws, 40);
    for (uint64_t i = 0; i < servers; ++i) {
        const uint64_t room = (pages + servers - 1) / servers + draws.below(pages);
        text += format(
            "[[cluster.servers]]\nname = \"s{}\"\ngpus = \"device.toml\"\n"
            "expert_memory_bytes = {}\n{}",
            i, room * 100'000, loads ? "host_experts = true\n" : "");
        if (i == 0 || chance(draws, 60)) text += "workload = \"some\"\n";
    }
    text += format(
        "[[cluster.links]]\nfrom = \"*\"\nto = \"*\"\nbits_per_s = 8e9\n"
        "latency_s = 500e-9\n[[cluster.workloads]]\nname = \"some\"\n"
        "trace = \"trace.safetensors\"\npoisson_s = {}\n",
        real_text(1e-5 * double(1 + draws.below(20))));
    uint32_t lacking = MOORAGE_NEEDS_FUTURE | MOORAGE_NEEDS_PER_LAYER | MOORAGE_NEEDS_LAYER_BUFFER;
    if (!source.scores) lacking |= MOORAGE_NEEDS_GATE_SCORES | MOORAGE_NEEDS_WEIGHTS;
    if (!source.predictions) lacking |= MOORAGE_NEEDS_PREDICTIONS;
    const char *moves = loads || chance(draws, 50) ? "interval_s = 0\n" : "interval_s = 0.0001\n";
    std::string policies;
    for (const char *kind : {"transport", "dispatch", "cache"})
        policies.insert(0, stage(draws, kind, lacking));
    text += stage(draws, "placement", 0, moves) + policies;
    if (loads && chance(draws, 50)) text += stage(draws, "prefetch", lacking);
    return text + (chance(draws, 50) ? stage(draws, "router", lacking) : "");
}

config_maker::drawn_config config_maker::draw(uint64_t seed) const {
    random_stream draws(seed, 0);
    const size_t number = draws.below(sources_.size());
    const std::filesystem::path file = folders_[number] / "drawn.toml";
    const uint64_t sort = draws.below(12);
    if (sort < 2) return {cluster_text(draws, sources_[number]), file};
    if (sort == 2) return {model_text(draws), file};
    return {trace_text(draws, sources_[number]), file};
}

config_maker::drawn_config config_maker::draw_anywhere(uint64_t seed) const {
    switch (seed % 3) {
        case 0:
            return draw_on_disk(seed);
        case 1:
            return draw_on_gpus(seed);
        default:
            return draw(seed);
    }
}

config_maker::drawn_config config_maker::draw_on_gpus(uint64_t seed) const {
    random_stream draws(seed, 2);
    const size_t number = draws.below(sources_.size());
    const source_file &source = sources_[number];
    std::string text = trace_text(draws, source, "");
    const auto replace = [&](const std::string &old_text, const std::string &new_text) {
        text.replace(text.find(old_text), old_text.size(), new_text);
    };
    const uint64_t gpus = 2 + draws.below(2), pages = uint64_t{source.layers} * source.experts;
    std::string list = "\"device.toml\"", experts = format("{}", 1 + draws.below(pages));
    for (uint64_t i = 1; i < gpus; ++i) {
        list += chance(draws, 50) ? ", \"device.toml\"" : ", \"slow.toml\"";
        experts += format(", {}", 1 + draws.below(pages));
    }
    std::string hardware = format("devices = [{}]\n", list);
    if (chance(draws, 30)) hardware += "spread = \"layers\"\n";
    if (chance(draws, 30)) hardware += "peer = \"link.toml\"\n";
    replace("profile = \"device.toml\"\n", hardware);
    if (chance(draws, 60)) {
        const size_t line_begin = text.find("\nexperts = ") + 1;
        text.replace(line_begin, text.find('\n', line_begin) - line_begin,
                     format("device_experts = [{}]", experts));
    }
    return {text, folders_[number] / "drawn.toml"};
}

config_maker::drawn_config config_maker::draw_on_disk(uint64_t seed) const {
    random_stream draws(seed, 1);
    const size_t number = draws.below(sources_.size());
    const source_file &source = sources_[number];
    const uint64_t pages = uint64_t{source.layers} * source.experts;
    const std::string host = format("host_experts = {}\n", 1 + draws.below(pages + pages / 4));
    std::string text = trace_text(draws, source, host);
    if (chance(draws, 70)) text += stage(draws, "cache.host", ~uint32_t{0});
    return {text, folders_[number] / "drawn.toml"};
}

}  // namespace moorage::random
