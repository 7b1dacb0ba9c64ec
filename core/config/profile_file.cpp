// profile_file.cpp - profile and shape files. Every key must be known and given, and every figure
// needs a source.
#include "core/config/profile_file.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/base/text.h"
#include "core/config/document.h"
#include "core/config/profile_keys.h"
#include "core/config/section.h"
#include "core/config/shape_config.h"

namespace moorage::core {

namespace {

constexpr std::string_view marks[] = {"[S]", "[M]", "[D]", "[2]", "[R]", "[G]", "[fit]"};

// Reads one profile file. Each figure is required and needs a source.
class profile_reader {
public:
    // `kind` is "device", "link", "node", "disk", "engine" or "model".
    // `within`: the list is a table of a machine's file, whose name tells the kind.
    profile_reader(const node &root, std::string_view file, std::string kind, bool within)
        : kind_(std::move(kind)),
          within_(within),
          top_(std::string(file), key_table_of(kind_)),
          sources_(std::string(file), "[sources]") {
        if (kind_ == "model") figures_ = {"geometry", "sizes"};
        top_.add(root);
        if (const config_value *sources = top_.find("sources")) {
            if (sources->value.type == node_type::table)
                sources_.add(sources->value);
            else
                top_.fail(*sources, "a table with a source for every figure is needed");
        }
        if (within_) return;
        std::string read;
        read_label("kind", read);
        const config_value *found = top_.find("kind");
        if (found && read != kind_) top_.fail(*found, "a file of kind \"" + kind_ + "\" is needed");
    }

    void read_label(const std::string &key, std::string &value) {
        add_required(key);
        top_.read(config_key{.name = key, .accepted = a_text}, value);
    }
    void require_figure(const std::string &key) {
        add_required(key);
        // A model's figures come in two groups, each with one source.
        if (kind_ != "model") figures_.push_back(key);
    }
    // Reads a row as a figure. A term is optional.
    template <class Of>
    void read_figure(const key_row<Of> &row, Of &target) {
        require_figure(std::string(row.name));
        row.read(top_, row, target);
    }
    template <class Of>
    void read_term(const key_row<Of> &row, Of &target) {
        if (add_if_given(std::string(row.name))) row.read(top_, row, target);
    }
    template <class Of>
    void read_all(const profile_rows<Of> &rows, Of &target) {
        for (const key_row<Of> &row : rows.labels) add_required(std::string(row.name));
        top_.read_rows(rows.labels, target);
        for (const key_row<Of> &row : rows.figures) read_figure(row, target);
        for (const key_row<Of> &row : rows.terms) read_term(row, target);
    }
    void read_texts(const std::string &key, std::vector<std::string> &values) {
        known_.push_back(key);
        top_.read(key, values);
    }
    // Further names by which the file is found (hardware.cpp).
    void read_aliases() {
        std::vector<std::string> names;
        read_texts("aliases", names);
    }
    // The name of another part's file. In a machine's file the default is its own part.
    void read_neighbour(const std::string &key, std::string &value) {
        if (!within_) return read_label(key, value);
        known_.push_back(key);
        top_.read(key, value);
    }
    // An optional table that counts as one figure. Null: not given.
    const node *read_table(const std::string &key) {
        known_.push_back(key);
        const config_value *found = top_.find(key);
        if (!found) return nullptr;
        figures_.push_back(key);
        if (found->value.type == node_type::table) return &found->value;
        top_.fail(*found, "a table is needed");
        return nullptr;
    }
    section_reader &top() { return top_; }

    // Report unknown keys before missing ones: one typing error causes both.
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
    void add_required(const std::string &key) {
        known_.push_back(key);
        required_.push_back(key);
    }
    bool add_if_given(const std::string &key) {
        known_.push_back(key);
        if (!top_.find(key)) return false;
        if (kind_ != "model") figures_.push_back(key);
        return true;
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

// Checks that the sizes of a shape agree within 1 %, which leaves room for biases and norms.
void check_shape_file(section_reader &top, const shape_file &parsed) {
    const model_shape &shape = parsed.shape;
    const auto fail = [&](std::string_view key, const std::string &problem) {
        top.fail(*top.find(key), problem);
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
    // A tied embedding is also the output matrix and is read whole, so nothing is excluded.
    const double embedding =
        static_cast<double>(shape.hidden) * shape.vocabulary * shape.bits(shape.embedding_bits) / 8;
    const auto excluded = static_cast<double>(shape.non_expert_bytes - shape.dense_bytes);
    if (excluded != 0 && !is_near(excluded, embedding))
        fail("dense_bytes", format("non_expert_bytes less the input embedding of {:.0f} is needed, "
                                   "or all of it where the embedding is tied",
                                   embedding));
}

void read_device(profile_reader &file, device_profile &device) {
    file.read_all(device_profile_rows, device);
    file.read_neighbour("link", device.link);
    file.read_neighbour("node", device.node);
    file.read_aliases();
}
void check_device(section_reader &top, const device_profile &device) {
    if (device.reserved_bytes >= device.memory_bytes)
        top.fail(*top.find("reserved_bytes"),
                 format("memory_bytes is {}, and something has to be left", device.memory_bytes));
    if (device.few_tokens != 0 && device.few_flops_per_s == 0)
        top.fail(*top.find("few_tokens"), "few_flops_per_s has to be given, too");
    const double thousandths = device.busy_link_slowdown * 1000;
    if (device.busy_link_slowdown != 0 && device.is_host)
        top.fail(*top.find("busy_link_slowdown"),
                 "is_host is true, and such a device has compute_share in its place");
    if (std::abs(thousandths - std::round(thousandths)) > 1e-6)
        top.fail(*top.find("busy_link_slowdown"), "no more than three places behind the point");
    if (device.cache_bytes != 0 && device.cache_bytes_per_s == 0)
        top.fail(*top.find("cache_bytes"), "cache_bytes_per_s has to be given, too");
}

void read_link(profile_reader &file, link_profile &link) { file.read_all(link_profile_rows, link); }
void check_link(section_reader &, const link_profile &) {}

void read_disk(profile_reader &file, disk_profile &disk) { file.read_all(disk_profile_rows, disk); }
void check_disk(section_reader &, const disk_profile &) {}

void read_node(profile_reader &file, node_profile &node) {
    file.read_all(node_profile_rows, node);
    file.read_aliases();
}
void check_node(section_reader &top, const node_profile &node) {
    if (node.cpu_bytes_per_s > node.memory_bytes_per_s)
        top.fail(*top.find("cpu_bytes_per_s"),
                 format("memory_bytes_per_s, the ceiling of all readers together, is {:.4g}",
                        node.memory_bytes_per_s));
}

// The key `costs` says whose figures apply, so that a forgotten figure of an engine is never taken
// as zero.
void read_engine(profile_reader &file, engine_profile &engine) {
    file.read_texts("aliases", engine.aliases);
    bool of_engine = false;
    file.require_figure("costs");
    file.top().read("costs", of_engine);
    if (of_engine) return file.read_all(engine_profile_rows, engine);
    file.read_label("name", engine.name);
    for (const key_row<engine_profile> &row : engine_change_rows) file.read_term(row, engine);
    engine.name.clear();
}
void check_engine(section_reader &, const engine_profile &) {}

void read_shape(profile_reader &file, shape_file &parsed) {
    model_shape &shape = parsed.shape;
    file.read_all(shape_rows, shape);
    file.read_texts("aliases", parsed.aliases);
    if (const node *config = file.read_table("config"))
        parsed.config = json_text_of(*config, shape);
}

// In a machine's file the table for `kind`, in any other file its root.
result<const node *> part_of(const node &root, std::string_view name, const std::string &kind) {
    const auto of_machine = [](const entry &key) {
        return key.key == "kind" && key.value.text == "machine";
    };
    if (kind == "model" || std::ranges::none_of(root.entries, of_machine)) return &root;
    section_reader top(std::string(name), "machine profile");
    top.add(root);
    top.expect({"kind", "device", "link", "node", "disk", "engine"});
    top.require(kind, kind == "disk" || kind == "engine"
                          ? format("the machine's file has no table [{}]", kind)
                          : "a machine's file has the tables [device], [link] and [node]");
    if (top.failed()) return top.failure();
    const config_value *part = top.find(kind);
    if (part->value.type != node_type::table) {
        top.fail(*part, "a table is needed");
        return top.failure();
    }
    const auto found = std::ranges::find(root.entries, kind, &entry::key);
    return &found->value;
}

// `check` runs after every key is known to be there with the right type.
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
