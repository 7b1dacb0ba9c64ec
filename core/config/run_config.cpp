// run_config.cpp - turns a run's TOML and its overrides into a run_config, section by section.
#include "core/config/run_config.h"

#include <algorithm>
#include <map>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/config/arithmetic_reader.h"
#include "core/config/document.h"
#include "core/config/emulator_section.h"
#include "core/config/registry_config.h"
#include "core/config/run_keys.h"
#include "core/config/section.h"
#include "core/host/kinds.h"

namespace moorage::core {

namespace {

constexpr uint32_t model_prefill_max = 1 << 16;

constexpr std::string_view host_table = "host";  // [cache.host]: a separate stage

// Sections of a run's file, in the order in which they are documented and checked.
std::vector<const key_table *> section_tables() {
    std::vector<const key_table *> tables;
    for (const key_table &table : key_tables())
        if (table.title == format("[{}]", table.name) && table.name.find('.') == std::string::npos)
            tables.push_back(&table);
    return tables;
}

std::vector<std::string> section_names() {
    std::vector<std::string> names;
    for (const key_table *table : section_tables()) names.push_back(table->name);
    return names;
}

std::string bracketed(std::string_view name) { return format("[{}]", name); }

// The sections of one run, merged from the file and --set.
class run_config_builder {
public:
    // `may_read`: whether the file of [cluster] file may be read.
    run_config_builder(std::string file, std::filesystem::path base, bool may_read,
                       read_for purpose)
        : file_(std::move(file)), base_(std::move(base)), may_read_(may_read), purpose_(purpose) {
        for (const std::string &name : section_names()) add_section(name);
        add_section(std::string(host_cache_stage));
    }

    status add_file(const node &root);
    void add_host_cache(const node &cache);
    status add_overrides(std::span<const override_value> overrides);
    status build(run_config &config);

private:
    error unknown_section(std::string_view place, const std::string &name) const;
    void add_section(const std::string &name) {
        sections_.emplace(name, section_reader(file_, key_table_of(name), base_));
    }
    // Names of profiles and shapes are looked up from the file's folder. A path in --set is
    // relative to the current folder, so it is made absolute.
    static void anchor(const config_value *value, std::string &name) {
        std::error_code code;
        const bool is_path = name.ends_with(".toml");
        if (value && value->raw && is_path) name = std::filesystem::absolute(name, code).string();
    }
    section_reader &section(std::string_view name) { return sections_.find(name)->second; }

    void read_run(run_config &config);
    void read_hardware(run_config &config);
    void read_source(run_config &config);
    void read_small(run_config &config, bool has_trace);
    void read_model(run_config &config, bool has_trace);
    static bool choose(section_reader &reader, const char *first_key, const char *second_key,
                       const config_value *&first, const config_value *&second);
    void read_memory(run_config &config);
    void read_host_memory(run_config &config);
    void read_cluster(run_config &config);
    void add_cluster_file(const config_value &file, section_reader &cluster,
                          cluster_origin &origin);
    void read_placement(run_config &config);
    status check_idle_keys(run_config &config);
    void read_library(section_reader &reader, run_config &config, stage_config &stage);
    void read_stage(std::string_view kind, run_config &config);
    void read_table(section_reader &reader, const config_value &table, std::string_view kind,
                    bool chosen, stage_config &stage);
    void add_param(section_reader &reader, const config_value &value, const std::string &key,
                   std::string_view kind, bool may_replace, settings &params);

    std::string file_;
    std::filesystem::path base_;
    bool may_read_;
    read_for purpose_;
    std::map<std::string, section_reader, std::less<>> sections_;
};

error run_config_builder::unknown_section(std::string_view place, const std::string &name) const {
    for (const key_table *section : section_tables())
        if (!section->is_open && section->find(name))
            return error{format("{}: key {} stands outside its section; put it below {}", place,
                                name, section->title),
                         true};
    const std::vector<std::string> names = section_names();
    const std::string hint = did_you_mean(name, names);
    return error{format("{}: unknown section [{}]{}", place, name,
                        hint.empty() ? format("; there are {}", fmt::join(names, ", ")) : hint),
                 true};
}

status run_config_builder::add_file(const node &root) {
    for (const entry &part : root.entries) {
        const std::string place = format("{}:{}", file_, part.value.line);
        const auto found = sections_.find(part.key);
        if (found == sections_.end()) return unknown_section(place, part.key);
        if (part.value.type != node_type::table)
            return error{
                format("{}: {} is {}, and a section is needed; write [{}] and its keys below",
                       place, part.key, describe(part.value), part.key),
                true};
        found->second.add(part.value);
        if (part.key == "cache") add_host_cache(part.value);
    }
    return success();
}

// Adds the keys of the table [cache.host]. read_stage() then skips them in [cache].
void run_config_builder::add_host_cache(const node &cache) {
    for (const entry &inner : cache.entries)
        if (inner.key == host_table && inner.value.type == node_type::table)
            section(host_cache_stage).add(inner.value);
}

status run_config_builder::add_overrides(std::span<const override_value> overrides) {
    for (const override_value &assignment : overrides) {
        const std::string place = assignment.place.empty()
                                      ? format("--set {}.{}", assignment.section, assignment.key)
                                      : assignment.place;
        const auto found = sections_.find(assignment.section);
        if (found == sections_.end()) return unknown_section(place, assignment.section);
        const std::string below = format("{}.", host_table);
        if (assignment.section == "cache" && assignment.key.starts_with(below))
            section(host_cache_stage)
                .add(config_value{assignment.key.substr(below.size()),
                                  parse_value(assignment.value), place, assignment.value});
        else
            found->second.add(config_value{assignment.key, parse_value(assignment.value), place,
                                           assignment.value});
    }
    return success();
}

void run_config_builder::read_run(run_config &config) {
    section_reader &run = section("run");
    run.read("executor", config.executor);  // first, because others depend on it
    if (!run.failed() && find_executor(config.executor) == nullptr) {
        std::vector<std::string> known;
        for (const executor_kind &kind : executors) known.emplace_back(kind.name);
        const std::string hint = did_you_mean(config.executor, known);
        run.fail(*run.find("executor"), hint.empty() ? "choose " + listed(known, "or")
                                                     : "there are " + listed(known, "and") + hint);
    }
    if (!config.model.empty()) config.prefill = 512;
    run.read("prefill", config.prefill);
    if (!config.model.empty() && config.prefill > model_prefill_max)
        run.fail(*run.find("prefill"), format("choose from 0 to {}", model_prefill_max));
    read_arithmetic(run, config.runs_on(), config.arithmetic_mode);
    run.read_rows(run_rows, config);
    config.seed_is_given = run.find("seed") != nullptr;
}

void run_config_builder::read_hardware(run_config &config) {
    section_reader &hardware = section("hardware");
    if (config.runs_on().real) config.profile = "host";
    hardware.read_rows(hardware_rows, config);
    for (auto [key, name] : {std::pair{"profile", &config.profile}, std::pair{"link", &config.link},
                             std::pair{"node", &config.node}, std::pair{"disk", &config.disk},
                             std::pair{"engine", &config.engine}})
        anchor(hardware.find(key), *name);
    read_devices(hardware, section("memory"), config.runs_on(), config.cluster.has_value(),
                 config.devices);
    if (!config.devices.profiles.empty()) config.profile = config.devices.profiles.front();
    if (config.profile.empty() && !config.cluster)
        hardware.require("profile", "name a device, for example profile = \"rtx_4090\"");
}

// If two keys exclude each other, that of --set wins over the file's.
bool run_config_builder::choose(section_reader &reader, const char *first_key,
                                const char *second_key, const config_value *&first,
                                const config_value *&second) {
    first = reader.find(first_key);
    second = reader.find(second_key);
    if (!first || !second) return true;
    if (first->raw.has_value() == second->raw.has_value()) return false;
    const config_value *&dropped = first->raw ? second : first;
    log_info(format("{}: {} is not used, --set gives {}", dropped->place, dropped->key,
                    first->raw ? first_key : second_key));
    dropped = nullptr;
    return true;
}

void run_config_builder::read_source(run_config &config) {
    section_reader &source = section("source");
    const config_value *trace = nullptr, *model = nullptr;
    if (!choose(source, "trace", "model", trace, model))
        return source.fail(
            format("{}: [source] has both trace and model; keep one of them", model->place));
    if (trace) {
        source.read("trace", config.trace);
    } else if (model) {
        source.read("model", config.model);
    } else if (!config.cluster) {
        source.fail(format(
            "{}: [source] is not given; name a trace file, a model directory or a GGUF file, "
            "for example trace = \"demo.long.safetensors\" or model = \"demo\"",
            file_));
    }
    source.read_rows(source_rows, config);
    read_stop(source, config.stop);
    anchor(source.find("shape"), config.shape);
    read_small(config, trace != nullptr);
    read_model(config, trace != nullptr);
}

// The experts' second version. With a model, the shape is ignored, as elsewhere.
void run_config_builder::read_small(run_config &config, bool has_trace) {
    section_reader &source = section("source");
    const config_value *model = source.find("small"), *shape = source.find("small_shape");
    const config_value *small = has_trace ? shape : model;
    if (has_trace && model)
        return source.fail(*model, "it is a model, and this is a trace: say small_shape");
    if (!small) return;
    if (has_trace) {
        source.read("small_shape", config.small);
        anchor(small, config.small);
        if (config.runs_on().real)
            source.fail(*small,
                        "a trace has random weights on this executor, in one version; take "
                        "executor = \"emulator\", or a model");
    } else {
        std::filesystem::path path;
        source.read("small", path);
        config.small = path.string();
    }
    if (config.cluster) source.fail(*small, "servers of a cluster have one version of the experts");
    if (config.runs_on().memory == fast_memory::gpu)
        source.fail(*small, format("executor {} has one version of the experts; take emulator or "
                                   "cpu",
                                   config.executor));
}

void run_config_builder::read_model(run_config &config, bool has_trace) {
    section_reader &source = section("source");
    if (has_trace) {
        for (const char *key :
             {"prompt", "text", "max_tokens", "temperature", "top_p", "top_k", "min_p",
              "repetition_penalty", "presence_penalty", "frequency_penalty", "penalty_window"})
            if (const config_value *found = source.find(key); found && !source.find("model"))
                source.fail(
                    format("{}: [source] {} needs a model; give [source] model in place "
                           "of trace, or remove it",
                           found->place, key));
        return;
    }
    const config_value *prompt = nullptr, *text = nullptr;
    if (!choose(source, "prompt", "text", prompt, text))
        return source.fail(
            format("{}: [source] has both prompt and text; a prompt is continued, "
                   "a text is scored; keep one of them",
                   text->place));
    if (prompt) source.read("prompt", config.prompts);
    if (text) source.read("text", config.text);
}

void run_config_builder::read_memory(run_config &config) {
    section_reader &memory = section("memory");
    const config_value *experts = nullptr, *bytes = nullptr;
    if (!choose(memory, "experts", "bytes", experts, bytes))
        memory.fail(
            format("{}: [memory] has both experts and bytes; keep one of them", experts->place));
    if (!experts && !bytes && config.devices.experts.empty() && !config.runs_on().real &&
        config.model.empty() && !config.cluster)
        memory.fail(
            format("{}: [memory] has no size; give experts (a count) or bytes, for example "
                   "experts = 96",
                   file_));
    if (experts) memory.read_amount("experts", config.experts, config.experts_share);
    if (bytes) memory.read("bytes", config.bytes.emplace());
    read_host_memory(config);
    if (memory.find("buffer_experts"))
        memory.read("buffer_experts", config.buffer_experts.emplace());
    memory.read_rows(memory_rows, config);
}

// How much of the model is in host memory. The rest is on disk.
void run_config_builder::read_host_memory(run_config &config) {
    section_reader &memory = section("memory");
    const config_value *experts = nullptr, *bytes = nullptr;
    if (!choose(memory, "host_experts", "host_bytes", experts, bytes))
        memory.fail(format("{}: [memory] has both host_experts and host_bytes; keep one of them",
                           experts->place));
    if (const config_value *found = experts ? experts : bytes; found && !config.small.empty())
        memory.fail(*found, "experts come from disk in one version; leave out [source] small");
    if (experts) memory.read_amount("host_experts", config.host_experts, config.host_experts_share);
    if (bytes) memory.read("host_bytes", config.host_bytes.emplace());
    const config_value *const found = experts ? experts : bytes;
    if (found && config.cluster)
        memory.fail(*found, "servers of a cluster say host_experts of their own");
    // For a real disk: the figures that estimates start from.
    if (found && config.runs_on().real && config.disk.empty()) config.disk = "nvme_gen4";
    if (found && config.disk.empty())
        memory.fail(*found,
                    "experts beyond it are read from a disk; say which one is emulated, for "
                    "example [hardware] disk = \"nvme_gen4\"");
    const section_reader &host = section(host_cache_stage);
    config.host_cache_given = !host.values().empty();
    if (!found && !host.values().empty())
        memory.fail(
            format("{}: [cache.host] is the cache of host memory, which holds all experts; "
                   "give [memory] host_experts or host_bytes",
                   host.values().front().place));
}

// Adds the [cluster] section of the file that `file` names, which may be the file of a whole run.
void run_config_builder::add_cluster_file(const config_value &file, section_reader &cluster,
                                          cluster_origin &origin) {
    const std::string *text = text_of(file);
    if (!text) return cluster.fail(file, "name a file");
    if (!may_read_) return cluster.fail(file, "a text that came from no file cannot name one");
    const std::filesystem::path path = cluster.resolved(*text, file);
    const result<std::string> read = read_document(path);
    if (!read)
        return cluster.fail(format("{}: [cluster] file: {}", file.place, read.failure().text));
    const result<node> root = parse_document(*read, path.string());
    if (!root) return cluster.fail(root.failure().text);
    origin = {path.string(), path.parent_path()};
    const auto found = std::find_if(root->entries.begin(), root->entries.end(),
                                    [](const entry &part) { return part.key == "cluster"; });
    if (found == root->entries.end() || found->value.type != node_type::table)
        return cluster.fail(format("{}: it has no section [cluster]", path.string()));
    cluster = section_reader(origin.file, key_table_of("cluster"), origin.base);
    cluster.add(found->value);
    if (const config_value *again = cluster.find("file"))
        cluster.fail(*again, "the file that a [cluster] file names cannot name a further one");
}

void run_config_builder::read_cluster(run_config &config) {
    section_reader &cluster = section("cluster");
    if (cluster.values().empty() || cluster.failed()) return;
    cluster_origin origin{file_, base_};
    section_reader whole(file_, key_table_of("cluster"), base_);
    const config_value *file = cluster.find("file");
    if (file) add_cluster_file(*file, whole, origin);
    for (const config_value &value : cluster.values()) {
        if (value.key == "file") continue;
        if (file && !value.raw) {
            if (!file->raw)
                whole.fail(value, "it stands beside file, which gives the whole cluster; keep one");
            log_info(format("{}: {} is not used, --set gives file", value.place, value.key));
            continue;
        }
        whole.add(value);
    }
    if (whole.failed()) return cluster.fail(whole.failure().text);
    result<cluster_config> read = read_cluster_config(whole, origin);
    if (!read) return cluster.fail(read.failure().text);
    config.cluster = std::move(*read);
}

void run_config_builder::read_placement(run_config &config) {
    section_reader &placement = section("placement");
    if (!config.cluster) {
        for (const config_value &value : placement.values())
            if (value.key != "plugin" && value.key != "library")
                placement.fail(value, "it is of use on a cluster only; describe one in [cluster]");
        return;
    }
    cluster_config &cluster = *config.cluster;
    placement.read_rows(placement_rows, cluster);
    if (config.runs_on().real)
        placement.fail(format("{}: [cluster] is emulated, and [run] executor is {}; set it to {}",
                              cluster.place, config.executor, executors[0].name));
}

// Keys that have no effect on this cluster: refused from --set, a warning from the file.
status run_config_builder::check_idle_keys(run_config &config) {
    if (!config.cluster) return success();
    for (const key_table *table : section_tables()) {
        for (const config_value &value : section(table->name).values()) {
            const std::string idle = idle_in_cluster(table->name, value.key, *config.cluster,
                                                     value.raw ? purpose_ : read_for::nodes);
            if (idle.empty()) continue;
            if (value.raw) return error{format("{}: {}: {}", value.place, file_, idle), true};
            config.warnings.push_back(
                format("{}: [{}] {}: {}", value.place, table->name, value.key, idle));
        }
    }
    return success();
}

// Adds one of the policy's own parameters. --set replaces an earlier value.
void run_config_builder::add_param(section_reader &reader, const config_value &value,
                                   const std::string &key, std::string_view kind, bool may_replace,
                                   settings &params) {
    const std::string stage_name(kind.substr(0, kind.find('.')));
    const key_table &stage_table = key_table_of(stage_name);
    const std::vector<std::string> reserved = stage_table.names();
    if (stage_table.find(key))
        return reader.fail(format("{}: unknown key {} in [{}]: it is no policy's; put it in [{}]",
                                  value.place, key, kind, stage_name));
    if (const std::string meant = nearest(key, reserved); !meant.empty())
        return reader.fail(
            format("{}: unknown key {} in [{}]; did you mean {}", value.place, key, kind, meant));
    const std::optional<setting_value> read = setting_of(value);
    if (!read)
        return reader.fail(value,
                           "a policy's parameter is a boolean, a finite number or text without "
                           "control characters");
    const auto found = std::find_if(params.begin(), params.end(),
                                    [&](const setting &param) { return param.key == key; });
    if (found == params.end()) {
        params.push_back({key, *read, value.place});
    } else if (may_replace) {
        *found = {key, *read, value.place};
    } else {
        reader.fail(format("{}: {} is given here and at {}; keep one of them", value.place, key,
                           found->place));
    }
}

// Reads a table such as [cache.lfu]. It is checked even if it does not apply.
void run_config_builder::read_table(section_reader &reader, const config_value &table,
                                    std::string_view kind, bool chosen, stage_config &stage) {
    const std::string title = format("{}.{}", kind, table.key);
    section_reader inner(file_, bracketed(title));
    inner.add(table.value);
    settings &params = chosen ? stage.params : stage.table_of(table.key, table.place).params;
    for (const config_value &value : inner.values())
        add_param(inner, value, value.key, title, false, params);
    if (inner.failed()) reader.fail(inner.failure().text);
}

// A path, relative to the configuration's folder. If no such file exists, it is searched in the
// plugin paths (registry.h).
void run_config_builder::read_library(section_reader &reader, run_config &config,
                                      stage_config &stage) {
    std::string name;
    reader.read("library", name);
    if (name.empty() || reader.failed()) return;
    std::error_code failed;
    const auto beside =
        std::filesystem::absolute(reader.resolved(name, *reader.find("library")), failed);
    stage.library = name;
    if (!std::filesystem::exists(beside, failed)) return;
    stage.library = beside;
    config.plugin_paths.push_back(beside);
}

void run_config_builder::read_stage(std::string_view kind, run_config &config) {
    section_reader &reader = section(kind);
    stage_config &stage = config.stage(kind);
    std::string written = stage.plugin;
    for (const config_value &value : reader.values())
        if (value.key == "plugin" && !value.raw && text_of(value)) written = *text_of(value);
    reader.read("plugin", stage.plugin);
    if (const config_value *plugin = reader.find("plugin")) stage.place = plugin->place;
    const bool changed = stage.plugin != written;
    if (const config_value *library = reader.find("library"); library && (library->raw || !changed))
        read_library(reader, config, stage);

    for (const config_value &value : reader.values()) {
        if (reader.failed()) return;
        if (key_table_of(kind).find(value.key)) continue;
        if (kind == "cache" && value.key == host_table && value.value.type == node_type::table)
            continue;
        const size_t dot = value.raw ? value.key.find('.') : std::string::npos;
        if (dot != std::string::npos) {
            const std::string policy = value.key.substr(0, dot);
            add_param(
                reader, value, value.key.substr(dot + 1), kind, true,
                policy == stage.plugin ? stage.params : stage.table_of(policy, value.place).params);
        } else if (value.value.type == node_type::table && !value.raw) {
            read_table(reader, value, kind, value.key == stage.plugin, stage);
        } else if (changed && !value.raw) {
            log_info(format("{}: [{}] {} is not used, it was written for {} and --set chose {}",
                            value.place, kind, value.key, written.empty() ? "no policy" : written,
                            stage.plugin));
        } else {
            add_param(reader, value, value.key, kind, value.raw.has_value(), stage.params);
        }
    }
}

status run_config_builder::build(run_config &config) {
    for (const key_table *table : section_tables()) {
        if (table->is_open || table->name == "cluster") continue;  // cluster checks its own tables
        section_reader &reader = section(table->name);
        reader.expect();
        if (reader.failed()) return reader.failure();
    }
    read_cluster(config);
    if (section("cluster").failed()) return section("cluster").failure();
    read_source(config);
    read_run(config);
    read_emulator(section("emulator"), config);
    read_hardware(config);
    read_memory(config);
    section("plugins").read_rows(plugins_rows, config);
    read_placement(config);
    read_registry(section("registry"), config.registry);
    section("report").read_rows(report_rows, config);
    section("router").read_rows(router_rows, config);
    for (const std::string_view kind : kinds) read_stage(kind, config);
    read_stage(host_cache_stage, config);
    for (const std::string &name : section_names())
        if (section(name).failed()) return section(name).failure();
    if (section(host_cache_stage).failed()) return section(host_cache_stage).failure();
    return check_idle_keys(config);
}

}  // namespace

namespace {

result<run_config> parse(std::string_view text, const std::filesystem::path &name,
                         std::span<const override_value> overrides, bool may_read, read_for purpose,
                         const run_config &defaults) {
    const result<node> root = parse_document(text, name.string());
    if (!root) return root.failure();
    run_config_builder sections(name.string(), name.parent_path(), may_read, purpose);
    run_config config = defaults;
    config.file = name;
    if (const status added = sections.add_file(*root); !added) return added.failure();
    if (const status added = sections.add_overrides(overrides); !added) return added.failure();
    if (const status built = sections.build(config); !built) return built.failure();
    return config;
}

}  // namespace

std::string idle_in_cluster(std::string_view section, std::string_view key,
                            const cluster_config &cluster, read_for purpose) {
    switch (key_table_of(section).use_of(key)) {
        case cluster_use::as_table:
        case cluster_use::all:
            return "";
        case cluster_use::loads:
            if (std::ranges::any_of(cluster.servers, &cluster_server::host_experts)) return "";
            return "it has no effect where no server loads experts; set host_experts = true for "
                   "one, or leave it out";
        case cluster_use::nodes:
            if (purpose == read_for::nodes) return "";
            return "it has no effect on an emulated cluster, whose [[cluster.servers]] and "
                   "[[cluster.workloads]] say what runs; leave it out";
        case cluster_use::none:
            return "it has no effect on a cluster, whose [[cluster.servers]] and "
                   "[[cluster.workloads]] say what runs; leave it out";
    }
    return "";
}

result<run_config> parse_run_config(std::string_view text, const std::filesystem::path &name,
                                    std::span<const override_value> overrides,
                                    const run_config &defaults) {
    return parse(text, name, overrides, /*may_read=*/false, read_for::emulation, defaults);
}

result<run_config> load_run_config(const std::filesystem::path &file,
                                   std::span<const override_value> overrides, read_for purpose,
                                   const run_config &defaults) {
    const result<std::string> text = read_document(file);
    if (!text) return text.failure();
    auto config = parse(*text, file, overrides, /*may_read=*/true, purpose, defaults);
    return config ? (watch_calls(*config), config) : config;
}

void watch_calls(const run_config &config) {
    board->guard = config.guard_calls;
    board->call_limit_ms = config.call_limit_ms;
}

}  // namespace moorage::core
