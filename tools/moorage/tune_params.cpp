// tune_params.cpp - what is known of a parameter before it is run: its name, its range.
#include "tools/moorage/tune_params.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "core/base/text.h"
#include "core/config/stage_policy.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

// A declared range wider than this says what is legal, not what is worth trying.
constexpr double declared_width_max = 1000;

// What is known of a parameter before it is run.
struct numeric_param {
    std::string section, key;
    bool whole = true;
    std::optional<double> from, to;  // worth trying
};

error usage(std::string text) { return {std::move(text), true}; }

// The host's own settings are counts but for these.
result<numeric_param> host_param(const given_range &range, numeric_param param,
                                 run_resources &shared, const run_config &config) {
    if (param.section == "router" && param.key == "substitution_max")
        param = {param.section, param.key, false, 0.0, 1.0};
    else if (param.section == "memory" && param.key == "split")
        param = {param.section, param.key, false, 0.1, 1.0};
    else if (param.section == "source" && (param.key == "temperature" || param.key == "top_p"))
        param.whole = false;
    if (param.section != "memory" || param.key != "experts") return param;
    param.from = 1;
    if (!std::isnan(range.to)) return param;
    uint64_t all = 0;
    if (!config.trace.empty()) {
        const auto source = shared.open(config.trace);
        if (!source) return source.failure();
        all = uint64_t{(*source)->layers()} * (*source)->experts();
    } else {
        const auto opened = shared.open_model(config.model);
        if (!opened) return opened.failure();
        const model_config &of = (*opened)->of->config();
        all = uint64_t{of.experts} * of.moe_layers().size();
    }
    param.to = static_cast<double>(all);
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
    for (const moorage_param &one : (*found)->params) {
        names.emplace_back(one.plugin_key);
        if (name != one.plugin_key) continue;
        if (one.type != MOORAGE_PARAM_REAL && one.type != MOORAGE_PARAM_INTEGER)
            return usage(format("--param {}: {} of {} is no number; {}=a,b,c tries words", text,
                                name, plugin, text));
        param.whole = one.type == MOORAGE_PARAM_INTEGER;
        const double low = param.whole ? double(one.integer_min) : one.real_min;
        const double high = param.whole ? double(one.integer_max) : one.real_max;
        if (high - low <= declared_width_max) param.from = low, param.to = high;
        return param;
    }
    return usage(format("--param {}: {} policy {} has no parameter {}{}", text, param.section,
                        plugin, name, did_you_mean(name, names)));
}

result<numeric_param> find_param(const std::string &text, const given_range &range,
                                 run_resources &shared, const run_config &config) {
    const auto parsed = parse_override(text + "=0");
    if (!parsed)
        return usage(format("--param {}: the form is section.key, for example router.alpha", text));
    numeric_param param{parsed->section, parsed->key, true, {}, {}};
    const bool is_stage = std::ranges::find(stage_kinds, param.section) != stage_kinds.end();
    if (!is_stage || param.key == "substitution_max")
        return host_param(range, std::move(param), shared, config);
    return policy_param(text, std::move(param), shared, config);
}

result<value_grid> find_grid(const std::string &text, const given_range &range,
                             const numeric_param &param) {
    value_grid grid;
    if (std::isnan(range.from) && !param.from)
        return usage(
            format("--param {}: no range is declared that is worth sampling; say "
                   "--param {}=FROM:TO",
                   text, text));
    grid.from = std::isnan(range.from) ? *param.from : range.from;
    if (std::isnan(range.to) && !param.to)
        return usage(
            format("--param {}: no largest value is known; say --param {}=FROM:TO", text, text));
    grid.to = std::isnan(range.to) ? *param.to : range.to;
    grid.whole = param.whole;
    if (!std::isfinite(grid.from) || !std::isfinite(grid.to) || !(grid.from < grid.to))
        return usage(format("--param {} from {} to {}: a range that goes up is needed", text,
                            grid.from, grid.to));
    const double width = grid.to - grid.from;
    // Whole numbers to the last one; SMoE's step where a share is searched, and as fine a one else.
    const bool is_share = param.from == 0.0 && param.to == 1.0;
    grid.step = !std::isnan(range.step) ? range.step : is_share ? 0.01 : width / 100;
    if (param.whole) grid.step = std::isnan(range.step) ? 1 : std::max(1.0, std::round(range.step));
    if (!(grid.step > 0) || grid.step > width || width / grid.step > 1e6)
        return usage(format("--param {}: step {}; choose from {} to {}", text, grid.step,
                            width / 1e6, width));
    return grid;
}

// "0:1:0.05", "1:656".
result<given_range> read_range(const std::string &text, const std::string &written) {
    const std::vector<std::string> parts = split(written, ':');
    given_range range;
    double *const places[] = {&range.from, &range.to, &range.step};
    for (size_t i = 0; i < parts.size(); ++i) {
        const char *const end = parts[i].data() + parts[i].size();
        const bool extra = i >= std::size(places);
        if (extra || std::from_chars(parts[i].data(), end, *places[i]).ptr != end ||
            parts[i].empty())
            return usage(
                format("--param {}: a range is FROM:TO or FROM:TO:STEP, in numbers", text));
    }
    return range;
}

}  // namespace

result<tuned_param> read_param(const std::string &text, const given_range &range,
                               run_resources &shared, const run_config &config) {
    const size_t equals = text.find('=');
    tuned_param made;
    made.name = text.substr(0, equals);
    const std::string written = equals == std::string::npos ? "" : text.substr(equals + 1);
    given_range own = range;
    if (equals != std::string::npos && written.find(':') == std::string::npos) {
        auto words = parse_sweep(text);
        if (!words) return usage("--param " + words.failure().text);
        made.words = std::move(words->values);
        return made;
    }
    if (equals != std::string::npos) {
        const auto read = read_range(text, written);
        if (!read) return read.failure();
        own = *read;
    }
    const auto param = find_param(made.name, own, shared, config);
    if (!param) return param.failure();
    auto grid = find_grid(made.name, own, *param);
    if (!grid) return grid.failure();
    made.grid = *grid;
    return made;
}

}  // namespace moorage::tool
