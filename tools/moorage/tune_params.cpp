// tune_params.cpp - the name and the range of a parameter, before any run.
#include "tools/moorage/tune_params.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "core/base/quantity.h"
#include "core/base/text.h"
#include "core/config/keys.h"
#include "core/config/stage_policy.h"
#include "core/pipeline/memory_plan.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

// A wider declared range gives the legal values, not the useful ones.
constexpr double declared_width_max = 1000;

// The known properties of a parameter before any run.
struct numeric_param {
    std::string section, key;
    bool whole = true;
    std::optional<double> smallest, largest;  // worth trying
};

// The row of "memory.experts", "cluster.servers.flops" or "cluster.servers.lab.flops". Null: it is
// not a key of the host.
const config_key *host_key(const numeric_param &param) {
    const size_t first = param.key.find('.'), last = param.key.rfind('.');
    const std::string table = first == std::string::npos
                                  ? param.section
                                  : param.section + "." + param.key.substr(0, first);
    for (const key_table &candidate : key_tables())
        if (candidate.name == table)
            return candidate.find(last == std::string::npos ? param.key
                                                            : param.key.substr(last + 1));
    return nullptr;
}

// Of the source.
result<uint64_t> all_experts(run_resources &shared, const run_config &config) {
    if (!config.trace.empty()) {
        const auto source = shared.open(config.trace);
        if (!source) return source.failure();
        return uint64_t{(*source)->layers()} * (*source)->experts();
    }
    const auto opened = shared.open_model(config.model);
    if (!opened) return opened.failure();
    const model_config &model = (*opened)->loaded_model->config();
    return uint64_t{model.experts} * model.moe_layers().size();
}

// Whether the configuration would refuse it: there is no such section, or no such key in it.
bool is_unknown(const numeric_param &param) {
    const auto table = std::ranges::find(key_tables(), param.section, &key_table::name);
    const bool is_entry = param.key.find('.') != std::string::npos;
    return table == key_tables().end() || (!table->is_open && !is_entry);
}

error unknown_key(const std::string &text) {
    std::vector<std::string> names;
    for (const key_table &table : key_tables())
        if (table.title.starts_with('['))
            for (const std::string &key : table.names())
                names.push_back(format("{}.{}", table.name, key));
    return usage(format("--param {}: there is no such key{}; moorage help keys lists all", text,
                        did_you_mean(text, names)));
}

// The range of its row: shares from end to end, experts up to all experts.
result<numeric_param> host_param(const std::string &text, const option_range &range,
                                 numeric_param param, run_resources &shared,
                                 const run_config &config) {
    const config_key *key = host_key(param);
    if (!key && is_unknown(param)) return unknown_key(text);
    if (!key) return param;  // a key of a policy or an entry; the configuration checks it
    const value_shape &takes = key->accepted;
    param.whole = takes.kind != value_kind::real;
    if (takes.kind == value_kind::real && takes.unit == quantity_unit::share) {
        param.smallest = takes.above_low ? takes.low + (takes.high - takes.low) / 10 : takes.low;
        param.largest = takes.high;
    }
    if (takes.kind != value_kind::amount) return param;
    param.smallest = 1;
    if (!std::isnan(range.largest)) return param;
    const auto expert_count = all_experts(shared, config);
    if (!expert_count) return expert_count.failure();
    param.largest = static_cast<double>(*expert_count);
    return param;
}

result<numeric_param> policy_param(const std::string &text, numeric_param param,
                                   const run_resources &shared, const run_config &config) {
    const std::string &plugin = config.stage(param.section).plugin;
    std::string name = param.key;
    if (const size_t dot = name.find('.'); dot != std::string::npos) {
        if (name.substr(0, dot) != plugin)
            return usage(
                format("--param {}: the {} policy is {}, so this parameter does not count; "
                       "add --set {}.plugin={}",
                       text, param.section, plugin, param.section, name.substr(0, dot)));
        name.erase(0, dot + 1);
    }
    const auto found = find_policy(shared.policies(), config.stage(param.section), param.section);
    if (!found) return found.failure();
    std::vector<std::string> names;
    for (const moorage_param &declared : (*found)->params) {
        names.emplace_back(declared.plugin_key);
        if (name != declared.plugin_key) continue;
        if (declared.type != MOORAGE_PARAM_REAL && declared.type != MOORAGE_PARAM_INTEGER)
            return usage(format("--param {}: {} of {} is no number; {}=a,b,c tries words", text,
                                name, plugin, text));
        param.whole = declared.type == MOORAGE_PARAM_INTEGER;
        const double low = param.whole ? double(declared.integer_min) : declared.real_min;
        const double high = param.whole ? double(declared.integer_max) : declared.real_max;
        if (high - low <= declared_width_max) param.smallest = low, param.largest = high;
        return param;
    }
    return usage(format("--param {}: {} policy {} has no parameter {}{}", text, param.section,
                        plugin, name, did_you_mean(name, names)));
}

result<numeric_param> find_param(const std::string &text, const option_range &range,
                                 run_resources &shared, const run_config &config) {
    const auto parsed = parse_override(text + "=0");
    if (!parsed)
        return usage(format("--param {}: the form is section.key, for example router.alpha", text));
    numeric_param param{parsed->section, parsed->key, true, {}, {}};
    const bool is_stage = std::ranges::find(stage_kinds, param.section) != stage_kinds.end();
    if (!is_stage || host_key(param))
        return host_param(text, range, std::move(param), shared, config);
    return policy_param(text, std::move(param), shared, config);
}

result<value_grid> find_grid(const std::string &text, const option_range &range,
                             const numeric_param &param) {
    value_grid grid;
    if (std::isnan(range.smallest) && !param.smallest)
        return usage(
            format("--param {}: no range is declared that is worth sampling; say "
                   "--param {}=FROM:TO for numbers, or --param {}=WORD,WORD for words",
                   text, text, text));
    grid.first = std::isnan(range.smallest) ? *param.smallest : range.smallest;
    if (std::isnan(range.largest) && !param.largest)
        return usage(
            format("--param {}: no largest value is known; say --param {}=FROM:TO", text, text));
    grid.last = std::isnan(range.largest) ? *param.largest : range.largest;
    grid.whole = param.whole;
    if (!std::isfinite(grid.first) || !std::isfinite(grid.last) || !(grid.first < grid.last))
        return usage(format("--param {} from {} to {}: a range that goes up is needed", text,
                            grid.first, grid.last));
    const double width = grid.last - grid.first;
    // Tries every whole number. A share has SMoE's step, any other number an equally fine one.
    const bool is_share = param.smallest == 0.0 && param.largest == 1.0;
    const double usual = param.whole ? 1 : is_share ? 0.01 : width / 100;
    grid.step = std::isnan(range.step) ? usual : range.step;
    if (param.whole && grid.step != std::floor(grid.step))
        return usage(format("--param {}: step {}; its values are whole numbers, and so are steps",
                            text, grid.step));
    if (!(grid.step > 0) || grid.step > width || width / grid.step > 1e6)
        return usage(format("--param {}: step {}; choose from {} to {}", text, grid.step,
                            std::max(width / 1e6, param.whole ? 1.0 : 0.0), width));
    return grid;
}

// A plain number, or one with the key's unit. For experts also a share of all experts.
result<double> read_bound(const std::string &text, const std::string &part, run_resources &shared,
                          const run_config &config) {
    double plain = 0;
    const char *const end = part.data() + part.size();
    if (!part.empty() && std::from_chars(part.data(), end, plain).ptr == end &&
        std::isfinite(plain))
        return plain;
    const auto parsed = parse_override(text + "=0");
    if (!parsed) return usage("--param " + parsed.failure().text);
    const config_key *key = host_key({parsed->section, parsed->key, true, {}, {}});
    const quantity_unit unit = key ? key->accepted.unit : unit_of_name(parsed->key);
    const auto read = parse_quantity(part, unit);
    if (!read)
        return usage(
            format("--param {}: a range is FROM:TO or FROM:TO:STEP, in numbers; \"{}\": {}", text,
                   part, read.failure().text));
    if (!key || key->accepted.kind != value_kind::amount) return *read;
    const auto expert_count = all_experts(shared, config);
    if (!expert_count) return expert_count.failure();
    return static_cast<double>(share_of_experts(*read, *expert_count));
}

// "0:1:0.05", "1:656", "10%:50%".
result<option_range> read_range(const std::string &text, const std::string &written,
                                run_resources &shared, const run_config &config) {
    const std::vector<std::string> parts = split(written, ':');
    option_range range;
    double *const places[] = {&range.smallest, &range.largest, &range.step};
    if (parts.size() > std::size(places))
        return usage(format("--param {}: a range is FROM:TO or FROM:TO:STEP, in numbers", text));
    for (size_t i = 0; i < parts.size(); ++i) {
        const auto read = read_bound(text, parts[i], shared, config);
        if (!read) return read.failure();
        *places[i] = *read;
    }
    return range;
}

// Refuses keys that a cluster has no use for.
status check_use(const std::string &name, const run_config &config) {
    const auto parsed = parse_override(name + "=0");
    if (!config.cluster || !parsed) return success();
    const auto known = [&](const key_table &table) { return table.name == parsed->section; };
    if (std::ranges::none_of(key_tables(), known)) return success();
    const std::string idle =
        idle_in_cluster(parsed->section, parsed->key, *config.cluster, read_for::emulation);
    if (idle.empty()) return success();
    return usage(format("--param {}: {}: {}", name, config.file.string(), idle));
}

}  // namespace

result<tuned_param> read_param(const std::string &text, const option_range &range,
                               run_resources &shared, const run_config &config) {
    const size_t equals = text.find('=');
    tuned_param tuned;
    tuned.name = text.substr(0, equals);
    if (const status useful = check_use(tuned.name, config); !useful) return useful.failure();
    const std::string written = equals == std::string::npos ? "" : text.substr(equals + 1);
    option_range param_range = range;
    if (equals != std::string::npos && written.find(':') == std::string::npos) {
        auto words = parse_sweep(text);
        if (!words) return usage("--param " + words.failure().text);
        tuned.words = std::move(words->values);
        return tuned;
    }
    if (equals != std::string::npos) {
        if (!std::isnan(range.smallest) || !std::isnan(range.largest) || !std::isnan(range.step))
            return usage(
                format("--param {}: its range is given twice, by --from, --to or --step "
                       "too",
                       text));
        const auto read = read_range(tuned.name, written, shared, config);
        if (!read) return read.failure();
        param_range = *read;
    }
    const auto param = find_param(tuned.name, param_range, shared, config);
    if (!param) return param.failure();
    auto grid = find_grid(tuned.name, param_range, *param);
    if (!grid) return grid.failure();
    tuned.grid = *grid;
    return tuned;
}

}  // namespace moorage::tool
