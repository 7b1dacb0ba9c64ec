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
struct profile_fit {
    std::string profile;
    uint64_t memory_bytes = 0, needed_bytes = 0;  // needed: all but experts, with the reserve
    uint64_t kv_bytes = 0;
    uint64_t experts = 0;
    double share = 0;         // of all experts
    bool is_default = false;  // a default processor, not measured on this machine
};

struct summary {
    const model &source_model;
    model_shape shape;
    uint32_t context;  // as asked for, at most the model's positions
    uint32_t context_asked;
    const executor_kind &executor;  // the figures of JSON are for its cache
    std::vector<profile_fit> fits;
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
std::vector<std::pair<std::string, uint64_t>> formats_of(const model &source_model, bool experts) {
    std::map<std::string, uint64_t> bytes;
    const auto add = [&](const matrix &weight) {
        bytes[core::name_of(weight.type)] += bytes_of(weight);
    };
    for (const layer_weights &layer : source_model.weights().layers) {
        if (!experts) each_matrix(layer, add);
        for (const mlp_weights &expert : layer.experts)
            if (experts) each_matrix(expert, add);
    }
    if (!experts) {
        add(source_model.weights().embedding);
        if (!source_model.config().tied_embedding) add(source_model.weights().head);
    }
    std::vector<std::pair<std::string, uint64_t>> sorted(bytes.begin(), bytes.end());
    std::ranges::stable_sort(sorted, std::greater<>{},
                             [](const auto &entry) { return entry.second; });
    return sorted;
}

// "q4_k and q6_k"
std::string expert_formats(const model &source_model) {
    std::vector<std::string> names;
    for (const auto &[name, bytes] : formats_of(source_model, /*experts=*/true))
        names.push_back(name);
    return listed(names, "and");
}

uint32_t sliding_layers(const model_config &config) {
    return static_cast<uint32_t>(std::ranges::count(config.attention.sliding, 1));
}

// As executors keep them: every layer has every position, also those outside its window.
uint64_t token_kv_bytes(const summary &model_summary, const executor_kind &executor) {
    return model_summary.source_model.config().kv_token_layer_bytes(executor.kv_value_bytes) *
           model_summary.shape.layers;
}
uint64_t kv_bytes(const summary &model_summary, const executor_kind &executor) {
    return token_kv_bytes(model_summary, executor) * model_summary.context;
}

std::string attention_text(const model_config &config) {
    const attention_config &attention = config.attention;
    std::string text =
        attention.kind == attention_kind::latent
            ? format("latent, {} heads of {} + {}, keys and values from {}", attention.heads,
                     attention.nope_dim, config.rope.dimensions, attention.kv_lora_rank)
            : format("{} heads of {}, {} of keys and values", attention.heads, attention.head_dim,
                     attention.kv_heads);
    if (attention.norm != query_key_norm::none) text += ", queries and keys normed";
    if (attention.sinks) text += ", sinks";
    if (attention.window != 0)
        text +=
            format(", {} layers see the last {} tokens", sliding_layers(config), attention.window);
    return text;
}

std::string routing_text(const model_config &config) {
    const router_config &router = config.router;
    std::string text = format("{}, top-{}", name_of(router.score), config.top_k);
    if (router.group != group_rule::none)
        text += format(" from {} of {} groups", router.groups_chosen, router.groups);
    if (router.normalise) text += ", weights normalised";
    if (router.scale != 1) text += format(", times {:g}", router.scale);
    return text;
}

std::string info_line(const std::string &label, const std::string &text) {
    std::string lines;
    for (const std::string &part : core::wrapped(text, text_columns))
        lines += padded_right(lines.empty() ? label : "", info_label_columns) + part + "\n";
    return lines;
}

std::string head_text(const summary &model_summary) {
    const model_config &config = model_summary.source_model.config();
    const uint32_t dense = config.layers - model_summary.shape.moe_layers;
    std::string text = info_line("model", model_summary.source_model.directory().string());
    text += info_line("architecture", format("{}, {}", config.architecture, name_of(config.norm)));
    text += info_line(
        "layers",
        format("{} of width {}; {} with {} experts of {} rows{}{}", config.layers, config.hidden,
               model_summary.shape.moe_layers, config.experts, config.moe_intermediate,
               config.shared_intermediate != 0
                   ? format(" and {} shared rows", config.shared_intermediate)
                   : "",
               dense != 0 ? format(", {} dense of {}", dense, config.dense_intermediate) : ""));
    text += info_line("router", routing_text(config));
    text += info_line("attention", attention_text(config));
    text += info_line("context", format("{} positions, {} RoPE", with_commas(config.positions_max),
                                        name_of(config.rope.kind)));
    text += info_line("vocabulary", with_commas(config.vocabulary));
    text += info_line("weights", format("{} parameters, experts in {}; {} tensors in {} file{}",
                                        with_commas(model_summary.source_model.sizes().parameters),
                                        expert_formats(model_summary.source_model),
                                        with_commas(model_summary.source_model.tensor_count()),
                                        model_summary.source_model.file_count(),
                                        model_summary.source_model.file_count() == 1 ? "" : "s"));
    const auto formats = formats_of(model_summary.source_model, /*experts=*/false);
    std::vector<std::string> shares;
    uint64_t total_bytes = 0;
    for (const auto &[name, bytes] : formats) total_bytes += bytes;
    for (const auto &[name, bytes] : formats)
        shares.push_back(format(
            "{} {}", name, percent(static_cast<double>(bytes), static_cast<double>(total_bytes))));
    if (shares.size() > 1) text += info_line("formats", listed(shares, "and"));
    return text;
}

std::string sizes_text(const summary &model_summary) {
    const model_sizes &sizes = model_summary.source_model.sizes();
    const auto row = [&](const std::string &name, uint64_t bytes) {
        return bytes == 0 ? std::string()
                          : padded_right("  " + name, 32) + padded_left(bytes_text(bytes), 10) +
                                padded_left(percent(static_cast<double>(bytes),
                                                    static_cast<double>(sizes.total_bytes)),
                                            10) +
                                "\n";
    };
    const uint64_t expert_count =
        uint64_t{model_summary.shape.moe_layers} * model_summary.shape.experts;
    std::string text =
        "\n" + padded_right("part", 32) + padded_left("size", 10) + padded_left("share", 10) + "\n";
    text +=
        row(format("{} experts of {}", with_commas(expert_count), bytes_text(sizes.expert_bytes)),
            sizes.experts_bytes);
    text += row("shared experts", sizes.shared_bytes);
    text += row("dense layers", sizes.dense_bytes);
    text += row("attention and norms", sizes.attention_bytes);
    text += row("routers, biases of experts", sizes.router_bytes);
    text += row("embedding", sizes.embedding_bytes);
    text += row("head", sizes.head_bytes);
    text += row("read by no part", sizes.unused_bytes);
    text += row("all", sizes.total_bytes);
    if (!sizes.unused.empty())
        text += info_line("unused", format("{}{}", fmt::join(sizes.unused, ", "),
                                           sizes.unused.size() == 8 ? ", ..." : ""));
    return text;
}

uint64_t active_expert_bytes(const model_shape &shape) {
    return uint64_t{shape.moe_layers} * shape.top_k * shape.expert_bytes;
}

std::string token_text(const summary &model_summary) {
    const model_shape &shape = model_summary.shape;
    const uint64_t active = active_expert_bytes(shape);
    std::string text = "\n";
    text += info_line("one token",
                      format("reads {}: {} experts of {} together, and {} of the rest",
                             bytes_text(active + shape.dense_bytes), shape.moe_layers * shape.top_k,
                             bytes_text(active), bytes_text(shape.dense_bytes)));
    for (const executor_kind &executor : executors) {
        if (!executor.real) continue;
        const bool first = text.find("KV cache") == std::string::npos;
        text += info_line(first ? "KV cache" : "",
                          format("{}: {} a token, {} at {} tokens, {} bytes a value", executor.name,
                                 bytes_text(token_kv_bytes(model_summary, executor)),
                                 bytes_text(kv_bytes(model_summary, executor)),
                                 with_commas(model_summary.context), executor.kv_value_bytes));
    }
    if (model_summary.context < model_summary.context_asked)
        text += info_line("", format("--context {} is cut to the model's {} positions",
                                     with_commas(model_summary.context_asked),
                                     with_commas(model_summary.context)));
    return text;
}

std::string fits_text(const summary &model_summary) {
    std::string text = format("\nwhat fits beside the rest and the KV cache of {} tokens\n",
                              with_commas(model_summary.context)) +
                       padded_right("profile", 26) + padded_left("memory", 10) +
                       padded_left("left", 10) + padded_left("experts", 12) +
                       padded_left("share", 10) + "\n";
    for (const profile_fit &entry : model_summary.fits) {
        text += padded_right("  " + entry.profile, 26) +
                padded_left(bytes_text(entry.memory_bytes), 10);
        if (entry.needed_bytes > entry.memory_bytes) {
            text +=
                format("  {} too little\n", bytes_text(entry.needed_bytes - entry.memory_bytes));
            continue;
        }
        text += padded_left(bytes_text(entry.memory_bytes - entry.needed_bytes), 10) +
                padded_left(with_commas(entry.experts), 12) +
                padded_left(core::percent(entry.share, 1), 10) + "\n";
    }
    for (const profile_fit &entry : model_summary.fits)
        if (entry.is_default)
            text += info_line("  " + entry.profile,
                              "a usual computer as in hw_profiles/device/host.toml, not this one; "
                              "\"moorage profile measure\" writes this one's profile");
    return text;
}

json to_json(const summary &model_summary) {
    const model_config &config = model_summary.source_model.config();
    const model_sizes &sizes = model_summary.source_model.sizes();
    const model_shape &shape = model_summary.shape;
    json fits = json::array();
    for (const profile_fit &entry : model_summary.fits)
        fits.push_back({{"profile", entry.profile},
                        {"memory", entry.memory_bytes},
                        {"needed", entry.needed_bytes},
                        {"kv_bytes", entry.kv_bytes},
                        {"experts", entry.experts},
                        {"share", stable(entry.share)}});
    json formats = json::object();
    for (const auto &[name, bytes] : formats_of(model_summary.source_model, /*experts=*/false))
        formats[name] = bytes;
    const bool latent = config.attention.kind == attention_kind::latent;
    return {{"model", model_summary.source_model.directory().string()},
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
            {"type", expert_formats(model_summary.source_model)},
            {"formats", formats},
            {"parameters", sizes.parameters},
            {"files", model_summary.source_model.file_count()},
            {"tensors", model_summary.source_model.tensor_count()},
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
              {"kv_bytes", token_kv_bytes(model_summary, model_summary.executor)}}},
            {"executor", model_summary.executor.name},
            {"context", model_summary.context},
            {"kv_bytes", kv_bytes(model_summary, model_summary.executor)},
            {"fits", fits}};
}

result<profile_fit> fit_on(const std::string &profile, const summary &model_summary) {
    const result<hardware_profile> hardware = load_hardware({profile, "", "", "."});
    if (!hardware) return hardware.failure();
    const device_profile &device = hardware->device;
    const model_shape &shape = model_summary.shape;
    const uint64_t expert_count = uint64_t{shape.moe_layers} * shape.experts;
    profile_fit entry{.profile = hardware->id, .memory_bytes = device.memory_bytes};
    // A processor uses the executor cpu, a GPU uses cuda.
    entry.kv_bytes = kv_bytes(model_summary, *find_executor(device.is_host ? "cpu" : "cuda"));
    entry.needed_bytes = device.reserved_bytes + shape.non_expert_bytes + entry.kv_bytes;
    entry.is_default = device.is_host && hardware->id == "host";
    if (entry.needed_bytes < entry.memory_bytes)
        entry.experts =
            std::min(expert_count, (entry.memory_bytes - entry.needed_bytes) / shape.expert_bytes);
    entry.share = static_cast<double>(entry.experts) / static_cast<double>(expert_count);
    return entry;
}

int info(model_info_arguments &arguments) {
    constexpr std::string_view used[] = {"hardware.profile", "run.executor"};
    const auto keys = read_alone(arguments.settings, "model info", used);
    if (!keys) return fail(keys.failure());
    const auto settings = read_settings(arguments.settings);
    if (arguments.profiles.empty() && has_setting(*settings, used[0]))
        arguments.profiles = {keys->profile};
    const executor_kind &executor =
        *find_executor(has_setting(*settings, used[1]) ? std::string_view(keys->executor) : "cpu");
    const auto opened = open_model(arguments.directory);
    if (!opened) return fail(opened.failure());
    const model &source_model = **opened;
    const std::filesystem::path path = source_model.directory().lexically_normal();
    const uint32_t context = std::min(arguments.context, source_model.config().positions_max);
    summary model_summary{
        source_model,
        shape_of(source_model, (path.has_filename() ? path : path.parent_path()).filename()),
        context,
        arguments.context,
        executor,
        {}};
    for (const std::string &profile :
         arguments.profiles.empty() ? known_profiles() : arguments.profiles) {
        const result<profile_fit> entry = fit_on(profile, model_summary);
        if (!entry) return fail(entry.failure());
        model_summary.fits.push_back(*entry);
    }
    if (arguments.json_file != "-")
        print(head_text(model_summary) + sizes_text(model_summary) + token_text(model_summary) +
              fits_text(model_summary));
    if (arguments.json_file.empty()) return exit_ok;
    const status done = write_json(arguments.json_file, to_json(model_summary));
    return done ? exit_ok : fail(done.failure());
}

}  // namespace

command install_model_info(parser &model) {
    parser *sub = model.add_subcommand(
        "info", "show a model, the size of each part, and what fits on which profile");
    const auto arguments = std::make_shared<model_info_arguments>();
    sub->add_option("model", arguments->directory, "model directory or GGUF file")->required();
    add_json(*sub, arguments->json_file, "the figures");
    add_set(*sub, arguments->settings);
    sub->add_option("--profile", arguments->profiles, "show only this profile; repeatable")
        ->type_name("NAME")
        ->take_all()
        ->expected(1);
    sub->add_option("--context", arguments->context, "number of tokens in the KV cache")
        ->capture_default_str()
        ->range(1u, 1u << 28);
    add_flag_of_key(*sub, arguments->settings, "--executor",
                    "executor whose KV cache is in the JSON; default cpu");
    sub->footer(
        "The KV cache is that of the executor: cpu on a processor, cuda on a GPU.\n"
        "Only headers are read. Weights stay on disk.");
    return [arguments] { return info(*arguments); };
}

}  // namespace moorage::tool
