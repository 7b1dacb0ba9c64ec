// tune_command.cpp - moorage tune: which value of a parameter meets a target.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/cluster/cluster_run.h"
#include "core/config/stage_policy.h"
#include "core/report/tuning.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/rows.h"
#include "tools/moorage/run_many.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

constexpr double unset = std::numeric_limits<double>::quiet_NaN();
// A declared range wider than this says what is legal, not what is worth trying.
constexpr double declared_width_max = 1000;

struct arguments {
    std::string config, param, target, json_file;
    std::vector<std::string> overrides;
    double from = unset, to = unset, step = unset;
    uint32_t samples = 6, degree = 1, jobs = 0;
    std::string prefer;  // empty: by the fit
};

// What is known of a parameter before it is run.
struct numeric_param {
    std::string section, key;
    bool whole = true;
    std::optional<double> from, to;  // worth trying
};

error usage(std::string text) { return {std::move(text), true}; }

preference preference_of(const std::string &word) {
    if (word.empty()) return preference::by_fit;
    return word == "smallest" ? preference::smallest : preference::largest;
}

// The host's own settings are counts but for these.
result<numeric_param> host_param(const arguments &given, numeric_param param, run_resources &shared,
                                 const run_config &config) {
    if (param.section == "router" && param.key == "substitution_max")
        param = {param.section, param.key, false, 0.0, 1.0};
    else if (param.section == "memory" && param.key == "split")
        param = {param.section, param.key, false, 0.1, 1.0};
    else if (param.section == "source" && (param.key == "temperature" || param.key == "top_p"))
        param.whole = false;
    if (param.section != "memory" || param.key != "experts") return param;
    param.from = 1;
    if (!std::isnan(given.to)) return param;
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

result<numeric_param> policy_param(const arguments &given, numeric_param param,
                                   const run_resources &shared, const run_config &config) {
    const std::string &plugin = config.stage(param.section).plugin;
    std::string name = param.key;
    if (const size_t dot = name.find('.'); dot != std::string::npos) {
        if (name.substr(0, dot) != plugin)
            return usage(
                format("--param {}: the {} policy is {}, so this parameter does not count; "
                       "add --set {}.plugin={}",
                       given.param, param.section, plugin, param.section, name.substr(0, dot)));
        name.erase(0, dot + 1);
    }
    const auto found = find_policy(shared.policies(), config.stage(param.section), param.section);
    if (!found) return found.failure();
    std::vector<std::string> names;
    for (const moorage_param &one : (*found)->params) {
        names.emplace_back(one.plugin_key);
        if (name != one.plugin_key) continue;
        if (one.type != MOORAGE_PARAM_REAL && one.type != MOORAGE_PARAM_INTEGER)
            return usage(
                format("--param {}: {} of {} is no number; compare --sweep tries its values",
                       given.param, name, plugin));
        param.whole = one.type == MOORAGE_PARAM_INTEGER;
        const double low = param.whole ? double(one.integer_min) : one.real_min;
        const double high = param.whole ? double(one.integer_max) : one.real_max;
        if (high - low <= declared_width_max) param.from = low, param.to = high;
        return param;
    }
    return usage(format("--param {}: {} policy {} has no parameter {}{}", given.param,
                        param.section, plugin, name, did_you_mean(name, names)));
}

result<numeric_param> find_param(const arguments &given, run_resources &shared,
                                 const run_config &config) {
    const auto parsed = parse_override(given.param + "=0");
    if (!parsed)
        return usage(
            format("--param {}: the form is section.key, for example router.alpha", given.param));
    numeric_param param{parsed->section, parsed->key, true, {}, {}};
    const bool is_stage =
        std::find(std::begin(kinds), std::end(kinds), param.section) != std::end(kinds);
    if (!is_stage || param.key == "substitution_max")
        return host_param(given, std::move(param), shared, config);
    return policy_param(given, std::move(param), shared, config);
}

status find_grid(const arguments &given, const numeric_param &param, value_grid &grid) {
    if (std::isnan(given.from) && !param.from)
        return usage(
            format("--param {}: no range is declared that is worth sampling; give --from "
                   "and --to",
                   given.param));
    grid.from = std::isnan(given.from) ? *param.from : given.from;
    if (std::isnan(given.to) && !param.to)
        return usage(format("--param {}: no largest value is known; give --to", given.param));
    grid.to = std::isnan(given.to) ? *param.to : given.to;
    grid.whole = param.whole;
    if (!std::isfinite(grid.from) || !std::isfinite(grid.to) || !(grid.from < grid.to))
        return usage(
            format("--from {} --to {}: a range that goes up is needed", grid.from, grid.to));
    const double range = grid.to - grid.from;
    // SMoE's step where a share is searched; as fine a one for every other parameter.
    const bool is_share = param.from == 0.0 && param.to == 1.0;
    grid.step = !std::isnan(given.step)    ? given.step
                : is_share && !param.whole ? 0.01
                                           : range / 100;
    if (param.whole)
        grid.step =
            std::max(1.0, std::isnan(given.step) ? std::floor(grid.step) : std::round(grid.step));
    if (!(grid.step > 0) || grid.step > range || range / grid.step > 1e6)
        return usage(format("--step {}: choose from {} to {}", grid.step, range / 1e6, range));
    return success();
}

std::string value_text(double value, bool whole) {
    return whole ? format("{:.0f}", value) : format("{}", value);
}

result<run_config> config_at(const arguments &given, const numeric_param &param, double value) {
    auto overrides = read_overrides(given.overrides);
    if (!overrides) return overrides.failure();
    overrides->push_back({param.section, param.key, value_text(value, param.whole)});
    return load_run_config(given.config, *overrides);
}

// From the smallest to the largest value, evenly.
std::vector<double> sample_values(const value_grid &grid, uint32_t count) {
    value_grid coarse = grid;
    coarse.step = (grid.to - grid.from) / (count - 1);
    return coarse.values();
}

// A run's figure, or why there is none, under the value that was tried. A figure that the report
// does not have is a mistake of the target, and no run's.
result<std::optional<double>> take(const numeric_param &param, double value, run_outcome &row,
                                   tuning &found) {
    if (row.report) {
        const auto figure = figure_of(to_json(*row.report), found.target.metric);
        if (!figure) return figure.failure();
        return std::optional(*figure);
    }
    row.failure.label =
        format("{}.{}={}", param.section, param.key, value_text(value, param.whole));
    found.failed.push_back(std::move(row.failure));
    return std::optional<double>();
}

status measure(const arguments &given, const numeric_param &param, run_resources &shared,
               tuning &found) {
    const std::vector<double> values = sample_values(found.grid, given.samples);
    std::vector<run_config> configs;
    for (const double value : values) {
        auto config = config_at(given, param, value);
        if (!config) return config.failure();
        configs.push_back(std::move(config).value());
    }
    run_many_options options;
    options.what = "tune";
    options.jobs = given.jobs;
    options.optimum = found.target.metric == "opt_misses";
    const std::string &metric = found.target.metric;
    options.own_routing =
        metric.find("nll_change") != metric.npos || metric.find("own_routing") != metric.npos;
    auto rows = run_many(configs, shared, options);
    if (!rows) return rows.failure();
    for (size_t i = 0; i < values.size(); ++i) {
        const auto figure = take(param, values[i], (*rows)[i], found);
        if (!figure) return figure.failure();
        if (*figure) found.samples.push_back({values[i], **figure});
    }
    return success();
}

status verify(const arguments &given, const numeric_param &param, run_resources &shared,
              tuning &found) {
    auto config = config_at(given, param, *found.chosen);
    if (!config) return config.failure();
    run_many_options options;
    options.what = "tune";
    auto rows = run_many({std::move(config).value()}, shared, options);
    if (!rows) return rows.failure();
    const auto figure = take(param, *found.chosen, rows->front(), found);
    if (!figure) return figure.failure();
    found.measured = *figure;
    found.verified = std::move(rows->front().report);
    return success();
}

result<tuning> search(const arguments &given) {
    auto target = parse_target(given.target);
    if (!target) return target.failure();
    const auto overrides = read_overrides(given.overrides);
    if (!overrides) return overrides.failure();
    const auto config = load_run_config(given.config, *overrides);
    if (!config) return config.failure();
    run_resources shared;
    if (const status done = shared.scan(config->plugin_paths); !done) return done.failure();
    const auto param = find_param(given, shared, *config);
    if (!param) return param.failure();
    tuning found;
    found.param = given.param;
    found.target = std::move(target).value();
    found.degree = given.degree;
    found.prefer = preference_of(given.prefer);
    if (const status done = find_grid(given, *param, found.grid); !done) return done.failure();
    if (given.samples <= given.degree || given.samples > 1000)
        return usage(format("--samples {}: a fit of degree {} needs {} to 1000", given.samples,
                            given.degree, given.degree + 1));
    if (const status done = measure(given, *param, shared, found); !done) return done.failure();
    // What is left may be too little for a fit; what failed is shown then, and nothing chosen.
    if (found.samples.size() <= found.degree && !found.failed.empty()) return found;
    if (const status done = settle(found); !done) return done.failure();
    if (!found.chosen) return found;
    if (const status done = verify(given, *param, shared, found); !done) return done.failure();
    return found;
}

int run_tune(const arguments &given) {
    const auto found = search(given);
    if (!found) return fail(found.failure());
    const int code = exit_code_of(found->samples.size(), found->failed);
    if (code == exit_usage) return code;
    // The text first: a file that cannot be written must not take the result with it.
    if (given.json_file != "-") print(to_text(*found));
    if (!given.json_file.empty())
        if (const status done = write_json(given.json_file, to_json(*found)); !done)
            return fail(done.failure());
    return found->met() ? code : exit_failed;
}

}  // namespace

command install_tune(parser &app) {
    parser *sub = app.add_subcommand("tune", "the value of a parameter that meets a target");
    const auto given = std::make_shared<arguments>();
    sub->add_option("config", given->config, "the run's TOML file")
        ->required()
        ->type_name("CONFIG.toml");
    sub->add_option("--param", given->param, "the numeric setting to be chosen: router.alpha")
        ->required()
        ->type_name("SECTION.KEY");
    sub->add_option("--target", given->target,
                    "a figure of the JSON report: tpot_ms=20, ttft_ms.p99=500, hit_rate=0.8")
        ->required()
        ->type_name("METRIC=VALUE");
    sub->add_option("--from", given->from, "smallest value; default: as the policy declares");
    sub->add_option("--to", given->to, "largest value; default: as the policy declares");
    sub->add_option("--samples", given->samples, "values that are run; default 6");
    sub->add_option("--degree", given->degree, "of the polynomial; default 1");
    sub->add_option(
        "--step", given->step,
        "of the values that may be chosen; default: 0.01 where 0 to 1 is declared, else "
        "a hundredth of the range; whole numbers stay whole");
    sub->add_option("--prefer", given->prefer,
                    "which of the values that meet the target; default: the smallest, but the "
                    "largest where larger values make the figure worse")
        ->one_of({"smallest", "largest"})
        ->type_name("smallest|largest");
    sub->add_option("--set", given->overrides, "replace a setting of the file; repeatable")
        ->type_name("SECTION.KEY=VALUE")
        ->take_all()
        ->expected(1);
    sub->add_option("--jobs", given->jobs, "runs at one time; default: one per core")
        ->type_name("N");
    sub->add_option("--json", given->json_file, "write the result as JSON; - for standard output")
        ->type_name("FILE");
    sub->footer(
        "Runs the configuration at evenly spaced values, fits a polynomial to the figure, chooses "
        "by "
        "the\nfit and runs the choice once more. = means at most, but at least for hit_rate, "
        "tokens_per_s and\nother figures that are better when larger; 'metric<=v' and 'metric>=v' "
        "say it outright. Exit code 1:\nno value meets the target, or the run of the choice "
        "missed it, or any run failed; the others count.");
    return [given] { return run_tune(*given); };
}

}  // namespace moorage::tool
