// model_info.cpp - the sizes of a model directory as a table, and the experts that each profile
// holds.
#include "tools/moorage/model_info.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/executors.h"
#include "core/config/hardware.h"
#include "core/model/model.h"
#include "core/report/figures.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

constexpr size_t info_label_columns = 14, text_columns = 80 - info_label_columns;

struct model_info_arguments {
    std::string directory, json_file;
    std::vector<std::string> profiles;
    uint32_t context = 4096;
    setting_options settings;
};

// The memory that a device has left for experts beside everything else.
struct fit {
    std::string profile;
    uint64_t memory_bytes = 0, needed_bytes = 0;  // needed: all but experts, with the reserve
    uint64_t kv_bytes = 0;
    uint64_t experts = 0;
    double share = 0;         // of all experts
    bool is_default = false;  // a default processor, not measured on this machine
};

struct summary {
    const model &of;
    model_shape shape;
    uint32_t context;  // as asked for, at most the model's positions
    uint32_t context_asked;
    const executor_kind &executor;  // the figures of JSON are for its cache
    std::vector<fit> fits;
};

std::string bytes_text(uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

const char *name_of(norm_kind kind) { return kind == norm_kind::rms ? "RMS norm" : "layer norm"; }
const char *name_of(rope_kind kind) {
    constexpr const char *names[] = {"plain", "linear", "dynamic", "yarn", "llama3", "longrope"};
    return names[static_cast<size_t>(kind)];
}
const char *name_of(score_kind kind) {
    constexpr const char *names[] = {"softmax", "sigmoid", "softmax of the chosen", "sparsemixer"};
    return names[static_cast<size_t>(kind)];
}

// Bytes of matrices by the name of their format, the largest first; for experts, or for all.
std::vector<std::pair<std::string, uint64_t>> formats_of(const model &of, bool experts) {
    std::map<std::string, uint64_t> bytes;
    const auto add = [&](const matrix &one) { bytes[core::name_of(one.type)] += bytes_of(one); };
    for (const layer_weights &layer : of.weights().layers) {
        if (!experts) each_matrix(layer, add);
        for (const mlp_weights &one : layer.experts)
            if (experts) each_matrix(one, add);
    }
    if (!experts) {
        add(of.weights().embedding);
        if (!of.config().tied_embedding) add(of.weights().head);
    }
    std::vector<std::pair<std::string, uint64_t>> sorted(bytes.begin(), bytes.end());
    std::ranges::stable_sort(sorted, std::greater<>{}, [](const auto &one) { return one.second; });
    return sorted;
}

// "q4_k and q6_k"
std::string expert_formats(const model &of) {
    std::vector<std::string> names;
    for (const auto &[name, bytes] : formats_of(of, /*experts=*/true)) names.push_back(name);
    return listed(names, "and");
}

uint32_t sliding_layers(const model_config &config) {
    return static_cast<uint32_t>(std::ranges::count(config.attention.sliding, 1));
}

// As executors keep them: every layer has every position, also those outside its window.
uint64_t token_kv_bytes(const summary &what, const executor_kind &executor) {
    return what.of.config().kv_token_layer_bytes(executor.kv_value_bytes) * what.shape.layers;
}
uint64_t kv_bytes(const summary &what, const executor_kind &executor) {
    return token_kv_bytes(what, executor) * what.context;
}

std::string attention_text(const model_config &config) {
    const attention_config &of = config.attention;
    std::string text =
        of.kind == attention_kind::latent
            ? format("latent, {} heads of {} + {}, keys and values from {}", of.heads, of.nope_dim,
                     config.rope.dimensions, of.kv_lora_rank)
            : format("{} heads of {}, {} of keys and values", of.heads, of.head_dim, of.kv_heads);
    if (of.norm != query_key_norm::none) text += ", queries and keys normed";
    if (of.sinks) text += ", sinks";
    if (of.window != 0)
        text += format(", {} layers see the last {} tokens", sliding_layers(config), of.window);
    return text;
}

std::string routing_text(const model_config &config) {
    const router_config &of = config.router;
    std::string text = format("{}, top-{}", name_of(of.score), config.top_k);
    if (of.group != group_rule::none)
        text += format(" from {} of {} groups", of.groups_chosen, of.groups);
    if (of.normalise) text += ", weights normalised";
    if (of.scale != 1) text += format(", times {:g}", of.scale);
    return text;
}

std::string info_line(const std::string &label, const std::string &text) {
    std::string out;
    for (const std::string &part : core::wrapped(text, text_columns))
        out += padded_right(out.empty() ? label : "", info_label_columns) + part + "\n";
    return out;
}

std::string head_text(const summary &what) {
    const model_config &config = what.of.config();
    const uint32_t dense = config.layers - what.shape.moe_layers;
    std::string out = info_line("model", what.of.directory().string());
    out += info_line("architecture", format("{}, {}", config.architecture, name_of(config.norm)));
    out += info_line(
        "layers",
        format("{} of width {}; {} with {} experts of {} rows{}{}", config.layers, config.hidden,
               what.shape.moe_layers, config.experts, config.moe_intermediate,
               config.shared_intermediate != 0
                   ? format(" and {} shared rows", config.shared_intermediate)
                   : "",
               dense != 0 ? format(", {} dense of {}", dense, config.dense_intermediate) : ""));
    out += info_line("router", routing_text(config));
    out += info_line("attention", attention_text(config));
    out += info_line("context", format("{} positions, {} RoPE", with_commas(config.positions_max),
                                       name_of(config.rope.kind)));
    out += info_line("vocabulary", with_commas(config.vocabulary));
    out += info_line("weights", format("{} parameters, experts in {}; {} tensors in {} file{}",
                                       with_commas(what.of.sizes().parameters),
                                       expert_formats(what.of), with_commas(what.of.tensor_count()),
                                       what.of.file_count(), what.of.file_count() == 1 ? "" : "s"));
    const auto formats = formats_of(what.of, /*experts=*/false);
    std::vector<std::string> shares;
    uint64_t all = 0;
    for (const auto &[name, bytes] : formats) all += bytes;
    for (const auto &[name, bytes] : formats)
        shares.push_back(
            format("{} {}", name, percent(static_cast<double>(bytes), static_cast<double>(all))));
    if (shares.size() > 1) out += info_line("formats", listed(shares, "and"));
    return out;
}

std::string sizes_text(const summary &what) {
    const model_sizes &sizes = what.of.sizes();
    const auto row = [&](const std::string &name, uint64_t bytes) {
        return bytes == 0 ? std::string()
                          : padded_right("  " + name, 32) + padded_left(bytes_text(bytes), 10) +
                                padded_left(percent(static_cast<double>(bytes),
                                                    static_cast<double>(sizes.total_bytes)),
                                            10) +
                                "\n";
    };
    const uint64_t all = uint64_t{what.shape.moe_layers} * what.shape.experts;
    std::string out =
        "\n" + padded_right("part", 32) + padded_left("size", 10) + padded_left("share", 10) + "\n";
    out += row(format("{} experts of {}", with_commas(all), bytes_text(sizes.expert_bytes)),
               sizes.experts_bytes);
    out += row("shared experts", sizes.shared_bytes);
    out += row("dense layers", sizes.dense_bytes);
    out += row("attention and norms", sizes.attention_bytes);
    out += row("routers, biases of experts", sizes.router_bytes);
    out += row("embedding", sizes.embedding_bytes);
    out += row("head", sizes.head_bytes);
    out += row("read by no part", sizes.unused_bytes);
    out += row("all", sizes.total_bytes);
    if (!sizes.unused.empty())
        out += info_line("unused", format("{}{}", fmt::join(sizes.unused, ", "),
                                          sizes.unused.size() == 8 ? ", ..." : ""));
    return out;
}

uint64_t active_expert_bytes(const model_shape &shape) {
    return uint64_t{shape.moe_layers} * shape.top_k * shape.expert_bytes;
}

std::string token_text(const summary &what) {
    const model_shape &shape = what.shape;
    const uint64_t active = active_expert_bytes(shape);
    std::string out = "\n";
    out += info_line("one token",
                     format("reads {}: {} experts of {} together, and {} of the rest",
                            bytes_text(active + shape.dense_bytes), shape.moe_layers * shape.top_k,
                            bytes_text(active), bytes_text(shape.dense_bytes)));
    for (const executor_kind &executor : executors) {
        if (!executor.real) continue;
        const bool first = out.find("KV cache") == std::string::npos;
        out += info_line(
            first ? "KV cache" : "",
            format("{}: {} a token, {} at {} tokens, {} bytes a value", executor.name,
                   bytes_text(token_kv_bytes(what, executor)), bytes_text(kv_bytes(what, executor)),
                   with_commas(what.context), executor.kv_value_bytes));
    }
    if (what.context < what.context_asked)
        out += info_line("", format("--context {} is cut to the model's {} positions",
                                    with_commas(what.context_asked), with_commas(what.context)));
    return out;
}

std::string fits_text(const summary &what) {
    std::string out = format("\nwhat fits beside the rest and the KV cache of {} tokens\n",
                             with_commas(what.context)) +
                      padded_right("profile", 26) + padded_left("memory", 10) +
                      padded_left("left", 10) + padded_left("experts", 12) +
                      padded_left("share", 10) + "\n";
    for (const fit &one : what.fits) {
        out += padded_right("  " + one.profile, 26) + padded_left(bytes_text(one.memory_bytes), 10);
        if (one.needed_bytes > one.memory_bytes) {
            out += format("  {} too little\n", bytes_text(one.needed_bytes - one.memory_bytes));
            continue;
        }
        out += padded_left(bytes_text(one.memory_bytes - one.needed_bytes), 10) +
               padded_left(with_commas(one.experts), 12) +
               padded_left(core::percent(one.share, 1), 10) + "\n";
    }
    for (const fit &one : what.fits)
        if (one.is_default)
            out += info_line("  " + one.profile,
                             "a usual computer as in hw_profiles/device/host.toml, not this one; "
                             "\"moorage profile measure\" writes this one's profile");
    return out;
}

json to_json(const summary &what) {
    const model_config &config = what.of.config();
    const model_sizes &sizes = what.of.sizes();
    const model_shape &shape = what.shape;
    json fits = json::array();
    for (const fit &one : what.fits)
        fits.push_back({{"profile", one.profile},
                        {"memory", one.memory_bytes},
                        {"needed", one.needed_bytes},
                        {"kv_bytes", one.kv_bytes},
                        {"experts", one.experts},
                        {"share", stable(one.share)}});
    json formats = json::object();
    for (const auto &[name, bytes] : formats_of(what.of, /*experts=*/false)) formats[name] = bytes;
    const bool latent = config.attention.kind == attention_kind::latent;
    return {{"model", what.of.directory().string()},
            {"architecture", config.architecture},
            {"layers", config.layers},
            {"moe_layers", shape.moe_layers},
            {"experts", config.experts},
            {"top_k", config.top_k},
            {"hidden", config.hidden},
            {"moe_intermediate", config.moe_intermediate},
            {"vocabulary", config.vocabulary},
            {"positions", config.positions_max},
            {"router", name_of(config.router.score)},
            {"rope", name_of(config.rope.kind)},
            {"attention",
             {{"kind", latent ? "latent" : "grouped"},
              {"heads", config.attention.heads},
              {"kv_heads", config.attention.kv_heads},
              {"head_dim", config.attention.head_dim}}},
            {"type", expert_formats(what.of)},
            {"formats", formats},
            {"parameters", sizes.parameters},
            {"files", what.of.file_count()},
            {"tensors", what.of.tensor_count()},
            {"bytes",
             {{"total", sizes.total_bytes},
              {"expert", sizes.expert_bytes},
              {"experts", sizes.experts_bytes},
              {"shared", sizes.shared_bytes},
              {"dense", sizes.dense_bytes},
              {"attention", sizes.attention_bytes},
              {"router", sizes.router_bytes},
              {"embedding", sizes.embedding_bytes},
              {"head", sizes.head_bytes},
              {"unused", sizes.unused_bytes}}},
            {"token",
             {{"bytes", active_expert_bytes(shape) + shape.dense_bytes},
              {"expert_bytes", active_expert_bytes(shape)},
              {"kv_bytes", token_kv_bytes(what, what.executor)}}},
            {"executor", what.executor.name},
            {"context", what.context},
            {"kv_bytes", kv_bytes(what, what.executor)},
            {"fits", fits}};
}

result<fit> fit_on(const std::string &profile, const summary &what) {
    const result<hardware_profile> hardware = load_hardware({profile, "", "", "."});
    if (!hardware) return hardware.failure();
    const device_profile &device = hardware->device;
    const model_shape &shape = what.shape;
    const uint64_t all = uint64_t{shape.moe_layers} * shape.experts;
    fit made{.profile = hardware->id, .memory_bytes = device.memory_bytes};
    // A processor uses the executor cpu, a GPU uses cuda.
    made.kv_bytes = kv_bytes(what, *find_executor(device.is_host ? "cpu" : "cuda"));
    made.needed_bytes = device.reserved_bytes + shape.non_expert_bytes + made.kv_bytes;
    made.is_default = device.is_host && hardware->id == "host";
    if (made.needed_bytes < made.memory_bytes)
        made.experts = std::min(all, (made.memory_bytes - made.needed_bytes) / shape.expert_bytes);
    made.share = static_cast<double>(made.experts) / static_cast<double>(all);
    return made;
}

int info(model_info_arguments &given) {
    constexpr std::string_view used[] = {"hardware.profile", "run.executor"};
    const auto keys = read_alone(given.settings, "model info", used);
    if (!keys) return fail(keys.failure());
    const auto settings = read_settings(given.settings);
    if (given.profiles.empty() && gives(*settings, used[0])) given.profiles = {keys->profile};
    const executor_kind &executor =
        *find_executor(gives(*settings, used[1]) ? std::string_view(keys->executor) : "cpu");
    const auto opened = open_model(given.directory);
    if (!opened) return fail(opened.failure());
    const model &of = **opened;
    const std::filesystem::path path = of.directory().lexically_normal();
    const uint32_t context = std::min(given.context, of.config().positions_max);
    summary what{
        of,       shape_of(of, (path.has_filename() ? path : path.parent_path()).filename()),
        context,  given.context,
        executor, {}};
    for (const std::string &profile : given.profiles.empty() ? known_profiles() : given.profiles) {
        const result<fit> made = fit_on(profile, what);
        if (!made) return fail(made.failure());
        what.fits.push_back(*made);
    }
    if (given.json_file != "-")
        print(head_text(what) + sizes_text(what) + token_text(what) + fits_text(what));
    if (given.json_file.empty()) return exit_ok;
    const status done = write_json(given.json_file, to_json(what));
    return done ? exit_ok : fail(done.failure());
}

}  // namespace

command install_model_info(parser &model) {
    parser *sub = model.add_subcommand(
        "info", "show a model, the size of each part, and what fits on which profile");
    const auto given = std::make_shared<model_info_arguments>();
    sub->add_option("model", given->directory, "model directory or GGUF file")->required();
    add_json(*sub, given->json_file, "the figures");
    add_set(*sub, given->settings);
    sub->add_option("--profile", given->profiles, "show only this profile; repeatable")
        ->type_name("NAME")
        ->take_all()
        ->expected(1);
    sub->add_option("--context", given->context, "number of tokens in the KV cache")
        ->capture_default_str()
        ->range(1u, 1u << 28);
    add_flag_of_key(*sub, given->settings, "--executor",
                    "executor whose KV cache is in the JSON; default cpu");
    sub->footer(
        "The KV cache is that of the executor: cpu on a processor, cuda on a GPU.\n"
        "Only headers are read. Weights stay on disk.");
    return [given] { return info(*given); };
}

}  // namespace moorage::tool
