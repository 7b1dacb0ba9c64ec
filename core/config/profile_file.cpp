// profile_file.cpp - profile and shape files: every key known and given, every figure with a
// source.
#include "core/config/profile_file.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/base/text.h"
#include "core/config/document.h"
#include "core/config/section.h"
#include "core/config/shape_config.h"

namespace moorage::core {

namespace {

// Far above every machine; what exceeds them is a slip in a unit.
constexpr uint64_t bytes_max = uint64_t{1} << 50, ns_max = 1'000'000'000;
constexpr double rate_max = 1e16, flops_max = 1e20;
constexpr uint32_t count_max = 1 << 24, kernels_max = 1000;
constexpr double weight_bytes_max = 8, share_max = 4;

constexpr std::string_view marks[] = {"[S]", "[M]", "[D]", "[2]", "[R]", "[G]", "[fit]"};

// One profile file while it is read. Each figure() is required and has to have a source.
class profile_reader {
public:
    // `kind` is "device", "link", "node", "disk", "engine" or "model".
    // `within`: the list is a table of a machine's file, whose name says its kind.
    profile_reader(const node &root, std::string_view file, std::string kind, bool within)
        : kind_(std::move(kind)),
          within_(within),
          top_(std::string(file), kind_ == "model" ? "model shape" : kind_ + " profile"),
          sources_(std::string(file), "[sources]") {
        if (kind_ == "model") figures_ = {"geometry", "sizes"};
        top_.add(root);
        if (const given *sources = top_.find("sources")) {
            if (sources->value.type == node_type::table)
                sources_.add(sources->value);
            else
                top_.fail(*sources, "a table with a source for every figure is needed");
        }
        if (within_) return;
        std::string read;
        label("kind", read);
        const given *found = top_.find("kind");
        if (found && read != kind_) top_.fail(*found, "a file of kind \"" + kind_ + "\" is needed");
    }

    void label(const std::string &key, std::string &out) {
        take(key);
        top_.read(key, out);
    }
    void flag(const std::string &key, bool &out) {
        figure(key);
        top_.read(key, out);
    }
    template <class Integer>
    void count(const std::string &key, Integer &out, Integer min, Integer max) {
        figure(key);
        top_.read(key, out, min, max);
    }
    void bytes(const std::string &key, uint64_t &out, uint64_t min = 1) {
        count(key, out, min, bytes_max);
    }
    void ns(const std::string &key, uint64_t &out) { count(key, out, uint64_t{0}, ns_max); }
    void positive(const std::string &key, double &out, double max) {
        figure(key);
        top_.read_above(key, out, 0, max);
    }
    void texts(const std::string &key, std::vector<std::string> &out) {
        known_.push_back(key);
        top_.read_texts(key, out);
    }
    // What only some files have: a figure with a source where it is given.
    void maybe_flag(const std::string &key, bool &out) {
        if (maybe(key)) top_.read(key, out);
    }
    void maybe_bytes(const std::string &key, uint64_t &out) {
        if (maybe(key)) top_.read(key, out, uint64_t{0}, bytes_max);
    }
    void maybe_ns(const std::string &key, uint64_t &out) {
        if (maybe(key)) top_.read(key, out, uint64_t{0}, ns_max);
    }
    void maybe_positive(const std::string &key, double &out, double max) {
        if (maybe(key)) top_.read_above(key, out, 0, max);
    }
    // Of a model, whose figures have their sources by group.
    void maybe_size(const std::string &key, double &out, double max) {
        known_.push_back(key);
        top_.read_above(key, out, 0, max);
    }
    void maybe_size_bytes(const std::string &key, uint64_t &out) {
        known_.push_back(key);
        top_.read(key, out, uint64_t{0}, bytes_max);
    }
    void maybe_count(const std::string &key, uint32_t &out, uint32_t min, uint32_t max) {
        known_.push_back(key);
        top_.read(key, out, min, max);
    }
    void not_negative(const std::string &key, double &out, double max) {
        figure(key);
        top_.read_above(key, out, 0, max, /*or_equal=*/true);
    }
    // A word that stands for a value.
    template <class Value>
    void choice(const std::string &key, Value &out,
                std::span<const std::pair<std::string_view, Value>> words) {
        figure(key);
        read_choice(key, out, words);
    }
    template <class Value>
    void maybe_choice(const std::string &key, Value &out,
                      std::span<const std::pair<std::string_view, Value>> words) {
        if (maybe(key)) read_choice(key, out, words);
    }
    // Further names by which the file is found (hardware.cpp).
    void aliases() {
        std::vector<std::string> names;
        texts("aliases", names);
    }
    // The file of another part; within a machine's file the part of the same file is usual.
    void neighbour(const std::string &key, std::string &out) {
        if (!within_) return label(key, out);
        known_.push_back(key);
        top_.read(key, out);
    }
    // An optional table that counts as one figure. Null without.
    const node *table(const std::string &key) {
        known_.push_back(key);
        const given *found = top_.find(key);
        if (!found) return nullptr;
        figures_.push_back(key);
        if (found->value.type == node_type::table) return &found->value;
        top_.fail(*found, "a table is needed");
        return nullptr;
    }
    section_reader &top() { return top_; }

    // Unknown keys come before missing ones: a slip of the keyboard makes both.
    status finish() {
        known_.push_back("sources");
        top_.expect(known_);
        sources_.expect(figures_);
        for (const std::string &key : required_)
            top_.require(key, "every key of such a file is needed");
        top_.require("sources", "every figure needs one, for example " + figures_.front() +
                                    " = \"[G] reason\"");
        for (const std::string &key : figures_) check_source(key);
        if (top_.failed()) return top_.failure();
        if (sources_.failed()) return sources_.failure();
        return success();
    }

private:
    template <class Value>
    void read_choice(const std::string &key, Value &out,
                     std::span<const std::pair<std::string_view, Value>> words) {
        const given *found = top_.find(key);
        if (!found) return;
        std::string all;
        for (const auto &[word, value] : words) {
            if (found->value.text == word) out = value;
            if (found->value.text == word) return;
            all += format("{}\"{}\"", all.empty() ? "" : " or ", word);
        }
        top_.fail(*found, all + " is needed");
    }
    void take(const std::string &key) {
        known_.push_back(key);
        required_.push_back(key);
    }
    bool maybe(const std::string &key) {
        known_.push_back(key);
        if (!top_.find(key)) return false;
        figures_.push_back(key);
        return true;
    }
    void figure(const std::string &key) {
        take(key);
        // A model's figures come in two groups, each from one place.
        if (kind_ != "model") figures_.push_back(key);
    }
    void check_source(const std::string &key) {
        std::string source;
        sources_.require(key, "say where the figure comes from");
        sources_.read(key, source);
        if (sources_.failed()) return;
        const bool marked =
            std::any_of(std::begin(marks), std::end(marks),
                        [&](std::string_view mark) { return source.starts_with(mark); });
        if (!marked)
            sources_.fail(*sources_.find(key),
                          "it begins with a mark: [S] stated, [M] measured, [D] "
                          "derived, [2] second-hand, [R] recalled, [G] guess, [fit] fitted");
    }

    std::string kind_;
    bool within_;
    section_reader top_, sources_;
    std::vector<std::string> known_, required_, figures_;
};

bool is_near(double a, double b) { return std::abs(a - b) <= 0.01 * std::abs(b); }

// What the sizes of a shape owe each other. Within 1 %, which leaves room for biases and norms.
void check_shape_file(section_reader &top, const shape_file &parsed) {
    const model_shape &shape = parsed.shape;
    const auto fail = [&](std::string_view key, const std::string &what) {
        top.fail(*top.find(key), what);
    };
    if (shape.moe_layers > shape.layers)
        fail("moe_layers", format("layers is {}, and no more can be MoE layers", shape.layers));
    if (shape.top_k > shape.experts)
        fail("top_k", format("experts is {}, and no more can be chosen", shape.experts));
    const double matrix = shape.hidden * shape.bits(shape.expert_bits) / 8;
    const double expert = matrix * shape.matrices * shape.moe_intermediate;
    if (!is_near(static_cast<double>(shape.expert_bytes), expert))
        fail("expert_bytes",
             format("matrices x hidden x moe_intermediate x {} is {:.0f}",
                    shape.expert_bits != 0 ? "expert_bits / 8" : "weight_bytes", expert));
    if (shape.dense_bytes > shape.non_expert_bytes)
        return fail("dense_bytes", format("non_expert_bytes is {}, and this is a part of it",
                                          shape.non_expert_bytes));
    // A tied embedding is read whole as the output matrix, so then nothing is excluded.
    const double embedding =
        static_cast<double>(shape.hidden) * shape.vocabulary * shape.bits(shape.embedding_bits) / 8;
    const auto excluded = static_cast<double>(shape.non_expert_bytes - shape.dense_bytes);
    if (excluded != 0 && !is_near(excluded, embedding))
        fail("dense_bytes", format("non_expert_bytes less the input embedding of {:.0f} is needed, "
                                   "or all of it where the embedding is tied",
                                   embedding));
}

void read_device(profile_reader &file, device_profile &device) {
    file.label("name", device.name);
    file.bytes("memory_bytes", device.memory_bytes);
    file.bytes("reserved_bytes", device.reserved_bytes, 0);
    file.positive("memory_bytes_per_s", device.memory_bytes_per_s, rate_max);
    file.positive("memory_efficiency", device.memory_efficiency, 1);
    file.positive("flops_per_s", device.flops_per_s, flops_max);
    file.positive("flops_efficiency", device.flops_efficiency, 1);
    file.ns("launch_ns", device.launch_ns);
    file.ns("sync_ns", device.sync_ns);
    file.ns("layer_ns", device.layer_ns);
    file.count("attention_kernels", device.attention_kernels, 0u, kernels_max);
    file.count("expert_kernels", device.expert_kernels, 0u, kernels_max);
    file.flag("unified_memory", device.unified_memory);
    file.neighbour("link", device.link);
    file.neighbour("node", device.node);
    file.maybe_flag("is_host", device.is_host);
    file.maybe_positive("compute_share", device.compute_share, 1);
    file.maybe_positive("copy_share", device.copy_share, 1);
    file.maybe_ns("load_ns", device.load_ns);
    file.maybe_ns("step_ns", device.step_ns);
    file.maybe_ns("expert_ns", device.expert_ns);
    file.maybe_ns("token_ns", device.token_ns);
    file.maybe_ns("pass_ns", device.pass_ns);
    file.maybe_positive("tile_tokens", device.tile_tokens, kernels_max);
    file.maybe_positive("context_bytes_per_s", device.context_bytes_per_s, rate_max);
    file.maybe_bytes("cache_bytes", device.cache_bytes);
    file.maybe_positive("cache_bytes_per_s", device.cache_bytes_per_s, rate_max);
    file.maybe_positive("vector_flops_per_s", device.vector_flops_per_s, flops_max);
    file.maybe_ns("kernel_ns", device.kernel_ns);
    file.aliases();
}
void check_device(section_reader &top, const device_profile &device) {
    if (device.reserved_bytes >= device.memory_bytes)
        top.fail(*top.find("reserved_bytes"),
                 format("memory_bytes is {}, and something has to be left", device.memory_bytes));
    if (device.cache_bytes != 0 && device.cache_bytes_per_s == 0)
        top.fail(*top.find("cache_bytes"), "cache_bytes_per_s has to be given, too");
}

void read_link(profile_reader &file, link_profile &link) {
    file.label("name", link.name);
    file.positive("h2d_bytes_per_s", link.h2d_bytes_per_s, rate_max);
    file.positive("d2h_bytes_per_s", link.d2h_bytes_per_s, rate_max);
    file.ns("issue_ns", link.issue_ns);
}
void check_link(section_reader &, const link_profile &) {}

void read_disk(profile_reader &file, disk_profile &disk) {
    file.label("name", disk.name);
    file.positive("read_bytes_per_s", disk.read_bytes_per_s, rate_max);
    file.ns("issue_ns", disk.issue_ns);
}
void check_disk(section_reader &, const disk_profile &) {}

void read_node(profile_reader &file, node_profile &node) {
    file.label("name", node.name);
    file.bytes("memory_bytes", node.memory_bytes);
    file.positive("memory_bytes_per_s", node.memory_bytes_per_s, rate_max);
    file.positive("cpu_bytes_per_s", node.cpu_bytes_per_s, rate_max);
    file.positive("cpu_flops_per_s", node.cpu_flops_per_s, flops_max);
    file.ns("cpu_issue_ns", node.cpu_issue_ns);
    file.maybe_positive("memory_theory_bytes_per_s", node.memory_theory_bytes_per_s, rate_max);
    file.maybe_ns("launch_ns", node.launch_ns);
    file.aliases();
}
void check_node(section_reader &top, const node_profile &node) {
    if (node.cpu_bytes_per_s > node.memory_bytes_per_s)
        top.fail(*top.find("cpu_bytes_per_s"),
                 format("memory_bytes_per_s, the ceiling of all readers together, is {:.4g}",
                        node.memory_bytes_per_s));
}

void read_launches(profile_reader &file, engine_profile &engine) {
    file.flag("graph", engine.graph);
    file.not_negative("kernels_per_product", engine.kernels_per_product, kernels_max);
    file.ns("launch_gap_ns", engine.launch_gap_ns);
    file.ns("layer_ns", engine.layer_ns);
    file.ns("expert_loop_ns", engine.expert_loop_ns);
    file.maybe_ns("expert_ns", engine.expert_ns);
    file.ns("batch_layer_ns", engine.batch_layer_ns);
    file.ns("sync_ns", engine.sync_ns);
    file.ns("prompt_ns", engine.prompt_ns);
}
void read_kernels(profile_reader &file, engine_profile &engine) {
    file.positive("memory_share", engine.memory_share, 1);
    file.not_negative("unpack_operations", engine.unpack_operations, kernels_max);
    file.positive("product_share", engine.product_share, share_max);
    file.not_negative("tile_tokens", engine.tile_tokens, kernels_max);
    file.positive("context_share", engine.context_share, 1);
    file.positive("context_product_share", engine.context_product_share, share_max);
}
constexpr std::pair<std::string_view, load_overlap> overlaps[] = {
    {"none", load_overlap::none},
    {"prefetch", load_overlap::prefetch},
    {"layer", load_overlap::layer},
    {"ahead", load_overlap::ahead}};
void read_loads(profile_reader &file, engine_profile &engine) {
    file.count("copies", engine.copies, 1u, kernels_max);
    file.ns("copy_ns", engine.copy_ns);
    file.maybe_positive("copy_bytes_per_s", engine.copy_bytes_per_s, rate_max);
    file.choice<load_overlap>("overlap", engine.overlap, overlaps);
    file.count("prompt_load_tokens", engine.prompt_load_tokens, 0u, count_max);
    file.flag("prompt_loads_all", engine.prompt_loads_all);
    file.flag("prompt_overlaps", engine.prompt_overlaps);
    file.count("microbatch", engine.microbatch, 0u, count_max);
    file.positive("prompt_experts_share", engine.prompt_experts_share, 1);
}
// What software may do otherwise on top of a machine's own figures.
void read_changes(profile_reader &file, engine_profile &engine) {
    file.maybe_choice<load_overlap>("overlap", engine.overlap, overlaps);
    file.maybe_positive("copy_bytes_per_s", engine.copy_bytes_per_s, rate_max);
    file.maybe_ns("layer_ns", engine.layer_ns);
    file.maybe_ns("expert_ns", engine.expert_ns);
    file.maybe_ns("cpu_layer_ns", engine.cpu_layer_ns);
    engine.name.clear();
}
// `costs` says whose figures hold, so that a forgotten one of an engine is never a zero.
void read_engine(profile_reader &file, engine_profile &engine) {
    constexpr std::pair<std::string_view, bool> costs[] = {{"device", true}, {"engine", false}};
    bool own = false;
    file.label("name", engine.name);
    file.texts("aliases", engine.aliases);
    file.choice<bool>("costs", own, costs);
    if (own) return read_changes(file, engine);
    read_launches(file, engine);
    read_kernels(file, engine);
    read_loads(file, engine);
    file.positive("cpu_memory_share", engine.cpu_memory_share, 1);
    file.maybe_positive("thread_bytes_per_s", engine.thread_bytes_per_s, rate_max);
    file.positive("cpu_flops_share", engine.cpu_flops_share, share_max);
    file.not_negative("socket_flops_share", engine.socket_flops_share, 1);
    file.ns("cpu_layer_ns", engine.cpu_layer_ns);
}
void check_engine(section_reader &, const engine_profile &) {}

void read_shape(profile_reader &file, shape_file &parsed) {
    model_shape &shape = parsed.shape;
    file.label("name", shape.name);
    file.texts("aliases", parsed.aliases);
    file.count("layers", shape.layers, 1u, count_max);
    file.count("moe_layers", shape.moe_layers, 1u, count_max);
    file.count("experts", shape.experts, 1u, count_max);
    file.count("top_k", shape.top_k, 1u, count_max);
    file.count("hidden", shape.hidden, 1u, count_max);
    file.count("moe_intermediate", shape.moe_intermediate, 1u, count_max);
    file.count("matrices", shape.matrices, 2u, 3u);
    file.positive("weight_bytes", shape.weight_bytes, weight_bytes_max);
    file.bytes("expert_bytes", shape.expert_bytes);
    file.bytes("non_expert_bytes", shape.non_expert_bytes);
    file.bytes("dense_bytes", shape.dense_bytes);
    file.bytes("kv_token_layer_bytes", shape.kv_token_layer_bytes);
    file.count("vocabulary", shape.vocabulary, 1u, count_max);
    for (auto [key, out] :
         {std::pair{"expert_bits", &shape.expert_bits}, std::pair{"dense_bits", &shape.dense_bits},
          std::pair{"head_bits", &shape.head_bits},
          std::pair{"embedding_bits", &shape.embedding_bits}})
        file.maybe_size(key, *out, 8 * weight_bytes_max);
    file.maybe_count("products", shape.products, 1u, kernels_max);
    file.maybe_size("context_operations", shape.context_operations, flops_max);
    file.maybe_size_bytes("state_layer_bytes", shape.state_layer_bytes);
    if (const node *config = file.table("config")) parsed.config = json_text_of(*config, shape);
}

// The table of a machine's file for `kind`; of any other file its root.
result<const node *> part_of(const node &root, std::string_view name, const std::string &kind) {
    const auto of_machine = [](const entry &one) {
        return one.key == "kind" && one.value.text == "machine";
    };
    if (kind == "model" || std::ranges::none_of(root.entries, of_machine)) return &root;
    section_reader top(std::string(name), "machine profile");
    top.add(root);
    top.expect({"kind", "device", "link", "node", "disk", "engine"});
    top.require(kind, kind == "disk" || kind == "engine"
                          ? format("the machine's file has no table [{}]", kind)
                          : "a machine's file has the tables [device], [link] and [node]");
    if (top.failed()) return top.failure();
    const given *part = top.find(kind);
    if (part->value.type != node_type::table) {
        top.fail(*part, "a table is needed");
        return top.failure();
    }
    const auto found = std::ranges::find(root.entries, kind, &entry::key);
    return &found->value;
}

// Checks run once every key is known to be there and of its type.
template <class Value>
result<Value> parse_file(std::string_view text, std::string_view name, const char *kind,
                         void (*read)(profile_reader &, Value &),
                         void (*check)(section_reader &, const Value &)) {
    const result<node> root = parse_document(text, name);
    if (!root) return root.failure();
    const auto part = part_of(*root, name, kind);
    if (!part) return part.failure();
    profile_reader file(**part, name, kind, *part != &*root);
    Value value;
    read(file, value);
    if (const status done = file.finish(); !done) return done.failure();
    check(file.top(), value);
    if (file.top().failed()) return file.top().failure();
    return value;
}

}  // namespace

result<device_profile> parse_device(std::string_view text, std::string_view name) {
    return parse_file<device_profile>(text, name, "device", read_device, check_device);
}
result<link_profile> parse_link(std::string_view text, std::string_view name) {
    return parse_file<link_profile>(text, name, "link", read_link, check_link);
}
result<node_profile> parse_node(std::string_view text, std::string_view name) {
    return parse_file<node_profile>(text, name, "node", read_node, check_node);
}
result<disk_profile> parse_disk(std::string_view text, std::string_view name) {
    return parse_file<disk_profile>(text, name, "disk", read_disk, check_disk);
}
result<engine_profile> parse_engine(std::string_view text, std::string_view name) {
    return parse_file<engine_profile>(text, name, "engine", read_engine, check_engine);
}
result<shape_file> parse_shape(std::string_view text, std::string_view name) {
    return parse_file<shape_file>(text, name, "model", read_shape, check_shape_file);
}

}  // namespace moorage::core
