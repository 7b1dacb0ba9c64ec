// tune_command.cpp - moorage tune: finds values of parameters that meet targets, and the price of a
// figure.
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "tools/comparison/frontier.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"
#include "tools/moorage/rows.h"
#include "tools/moorage/run_many.h"
#include "tools/moorage/tune_params.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct tune_arguments {
    std::string config, frontier, json_file, html_file;
    row_file_options rows;
    std::vector<std::string> params, targets;
    setting_options settings;
    option_range range;
    uint32_t samples = 6, runs = 0, degree = 0, jobs = 0;
    std::string prefer;  // empty: by the trend
};

constexpr uint32_t search_runs = 100, frontier_runs = 32;

preference preference_of(const std::string &word) {
    if (word.empty()) return preference::by_trend;
    return word == "smallest" ? preference::smallest : preference::largest;
}

// Runs of the configuration at the points of a search.
class points_runner {
public:
    points_runner(const tune_arguments &arguments, run_resources &shared, tuning &found,
                  row_file &kept)
        : arguments_(arguments), shared_(shared), found_(found), kept_(kept) {
        options_.progress_label = "tune";
        options_.jobs = arguments.jobs;
        options_.optimum = false;
        options_.own_routing = false;
        for (const metric_target &target : found.targets) {
            const std::string &metric = target.metric;
            options_.optimum |= metric == "opt_misses";
            options_.own_routing |= metric.find("nll_change") != metric.npos ||
                                    metric.find("own_routing") != metric.npos;
        }
    }

    result<std::vector<trial>> operator()(std::span<const tuned_point> points) {
        std::vector<run_config> configs;
        for (const tuned_point &point : points) {
            auto config = config_at(point);
            if (!config) return config.failure();
            configs.push_back(std::move(config).value());
        }
        options_.kept = {
            &kept_, [&](size_t i) { return label_of(points[i]); },
            [&](size_t i) { return arguments_.settings.text() + label_of(points[i]); }};
        auto rows = run_many(configs, shared_, options_);
        if (!rows) return rows.failure();
        std::vector<trial> trials;
        for (size_t i = 0; i < points.size(); ++i) {
            if (!rows->rows[i].has_ended) continue;  // interrupted before
            auto finished_trial = make_trial(points[i], rows->rows[i]);
            if (!finished_trial) return finished_trial.failure();
            trials.push_back(std::move(finished_trial).value());
        }
        signal_ = rows->signal;
        if (signal_ == 0) return trials;
        found_.trials.insert(found_.trials.end(), trials.begin(), trials.end());
        found_.stopped = true;
        return error{format("interrupted by {} after {} runs; {}", name_of_signal(signal_),
                            found_.trials.size(), kept_.remedy())};
    }
    // The signal that interrupted the search. The trials have the results so far.
    int signal() const { return signal_; }

    // The report of a trial that has figures.
    run_report report_at(const tuned_point &point) const { return reports_.at(point); }

private:
    std::string label_of(const tuned_point &point) const {
        std::string label;
        for (size_t i = 0; i < point.size(); ++i)
            label += format("{}{}={}", i == 0 ? "" : ", ", found_.params[i].name,
                            found_.params[i].text_of(point[i]));
        return label;
    }
    result<run_config> config_at(const tuned_point &point) const {
        auto overrides = read_settings(arguments_.settings);
        if (!overrides) return overrides.failure();
        for (size_t i = 0; i < point.size(); ++i) {
            auto parsed =
                parse_override(found_.params[i].name + "=" + found_.params[i].text_of(point[i]));
            if (!parsed) return parsed.failure();
            parsed->place = "--param " + found_.params[i].name;
            overrides->push_back(std::move(parsed).value());
        }
        return load_run_config(arguments_.config, *overrides);
    }

    // If the report lacks the figure, the target is wrong, not the run.
    result<trial> make_trial(const tuned_point &point, run_outcome &row) {
        trial new_trial{.point = point, .figures = {}, .misfit = {}};
        if (!row.report) {
            row.failure.label = label_of(point);
            found_.failed.push_back(std::move(row.failure));
            return new_trial;
        }
        const json figures = to_json(*row.report);
        for (const metric_target &target : found_.targets) {
            const auto figure = figure_of(figures, target.metric);
            if (!figure) return figure.failure();
            new_trial.figures.push_back(*figure);
        }
        new_trial.misfit = row.report->misfit;
        reports_.emplace(point, std::move(*row.report));
        return new_trial;
    }

    const tune_arguments &arguments_;
    run_resources &shared_;
    tuning &found_;
    row_file &kept_;
    int signal_ = 0;
    run_many_options options_;
    std::map<tuned_point, run_report> reports_;
};

status read_targets(const tune_arguments &arguments, tuning &found) {
    std::vector<std::string> texts = arguments.targets;
    if (!arguments.frontier.empty()) {
        const size_t colon = arguments.frontier.find(':');
        if (colon == std::string::npos || !texts.empty())
            return usage(format("--frontier {}: the form is section.key:metric, without --target",
                                arguments.frontier));
        texts = {arguments.frontier.substr(colon + 1)};
    }
    if (texts.empty()) return usage("--target: what is to be met? for example tpot_ms=20");
    std::string joined;
    for (const std::string &text : texts) joined += (joined.empty() ? "" : ",") + text;
    auto targets = parse_targets(joined);
    if (!targets) return targets.failure();
    found.targets = std::move(targets).value();
    if (!arguments.frontier.empty() && (found.targets.size() != 1 || found.targets[0].value))
        return usage(format("--frontier {}: one figure and no bound of it", arguments.frontier));
    return success();
}

status read_params(const tune_arguments &arguments, run_resources &shared, const run_config &config,
                   tuning &found) {
    std::vector<std::string> texts = arguments.params;
    if (!arguments.frontier.empty())
        texts.insert(texts.begin(), arguments.frontier.substr(0, arguments.frontier.find(':')));
    if (texts.empty()) return usage("--param: which setting? for example memory.experts");
    for (const std::string &text : texts) {
        auto param = read_param(text, arguments.range, shared, config);
        if (!param) return param.failure();
        param->prefer = preference_of(arguments.prefer);
        for (const tuned_param &earlier : found.params)
            if (earlier.name == param->name)
                return usage(format("--param {}: it is given twice", param->name));
        if (!arguments.frontier.empty() && param->is_number() != found.params.empty())
            return usage(
                format("--param {}: a frontier is over one number; beside it words, as "
                       "in cache.plugin=lru,lfu",
                       text));
        found.params.push_back(std::move(param).value());
    }
    return success();
}

// `signal`: the signal that interrupted the search. The result then has the finished runs.
result<tuning> search(const tune_arguments &arguments, row_file &kept, int &signal) {
    tuning found;
    if (const status done = read_targets(arguments, found); !done) return done.failure();
    const auto overrides = read_settings(arguments.settings);
    if (!overrides) return overrides.failure();
    const auto config = load_run_config(arguments.config, *overrides);
    if (!config) return config.failure();
    run_resources shared;
    if (const status done = shared.scan(config->plugin_paths); !done) return done.failure();
    if (const status done = read_params(arguments, shared, *config, found); !done)
        return done.failure();
    if (arguments.samples < 2 || arguments.samples > 1000)
        return usage(format("--samples {}: from 2 to 1000", arguments.samples));
    const bool frontier = !arguments.frontier.empty();
    const search_limits limits{.samples = arguments.samples,
                               .runs_max = arguments.runs != 0 ? arguments.runs
                                           : frontier          ? frontier_runs
                                                               : search_runs};
    points_runner runner(arguments, shared, found, kept);
    const run_points run = [&](std::span<const tuned_point> points) { return runner(points); };
    const status done =
        frontier ? trace_frontier(found, run, limits) : search_values(found, run, limits);
    signal = runner.signal();
    if (signal != 0) {
        print_error(format("moorage: {}\n", done.failure().text));
        found.stopped = false;  // by the signal, not by --runs
        return found;
    }
    if (!done) return done.failure();
    if (found.chosen) found.report = runner.report_at(found.trials[*found.chosen].point);
    return found;
}

int run_tune(const tune_arguments &arguments) {
    const bool frontier = !arguments.frontier.empty();
    if (!frontier && !arguments.html_file.empty())
        return fail(usage("--html: a page is drawn of a --frontier alone"));
    if (arguments.degree != 0)
        print_error("--degree has no effect any more: every answer is a value that was run\n");
    auto kept = row_file::open(arguments.rows, {arguments.json_file, arguments.html_file});
    if (!kept) return fail(kept.failure());
    int signal = 0;
    const auto found = search(arguments, *kept, signal);
    if (!found) return fail(found.failure());
    const size_t counted = found->trials.size() - found->failed.size();
    const int code = exit_code_of(counted, found->failed);
    if (code == exit_usage) return code;
    // The text first: a file that cannot be written must not take the result with it.
    if (arguments.json_file != "-") print(frontier ? frontier_text(*found) : to_text(*found));
    if (!arguments.json_file.empty())
        if (const status done =
                write_json(arguments.json_file, frontier ? frontier_json(*found) : to_json(*found));
            !done)
            return fail(done.failure());
    if (!arguments.html_file.empty()) {
        if (const status done = write_text(arguments.html_file, frontier_html(*found)); !done)
            return fail(done.failure());
        print_written("HTML page", arguments.html_file, arguments.json_file);
    }
    if (signal != 0) return end_interrupted(signal);
    if (const status closed = kept->finish(code == exit_ok); !closed) return fail(closed.failure());
    return frontier || found->chosen ? code : exit_failed;
}

void add_values(parser &sub, tune_arguments &arguments) {
    sub.add_option("--param", arguments.params,
                   "key to choose a value for: router.alpha, router.alpha=0:1:0.05, "
                   "cache.plugin=lru,lfu; repeatable; the first matters most")
        ->type_name("SECTION.KEY")
        ->take_all()
        ->expected(1);
    sub.add_option("--target", arguments.targets,
                   "target for figures of the JSON report: tpot_ms=20, "
                   "ttft_ms.p99<=500,perplexity<=6.4; tpot_ms alone: its best value; repeatable")
        ->type_name("METRIC=VALUE")
        ->take_all()
        ->expected(1);
    sub.add_option("--frontier", arguments.frontier,
                   "find the Pareto-optimal values of a number and a figure instead: "
                   "memory.experts:tpot_ms")
        ->type_name("SECTION.KEY:METRIC");
    sub.add_option("--from", arguments.range.smallest,
                   "smallest value; default: the limit that the policy declares");
    sub.add_option("--to", arguments.range.largest,
                   "largest value; default: the limit that the policy declares");
    sub.add_option("--step", arguments.range.step,
                   "step between values; default: 0.01 if the range is 0 to 1, 1 for whole "
                   "numbers, else a hundredth of the range");
}

}  // namespace

command install_tune(parser &app) {
    parser *sub = app.add_subcommand("tune", "find values of parameters that meet targets");
    const auto arguments = std::make_shared<tune_arguments>();
    sub->add_option("config", arguments->config, "the run's TOML file")
        ->required()
        ->type_name("CONFIG.toml");
    add_values(*sub, *arguments);
    sub->add_option("--samples", arguments->samples,
                    "number of values that are run first; default 6");
    sub->add_option("--runs", arguments->runs,
                    "largest number of runs; default 100, or 32 with --frontier")
        ->range(1u, 1'000'000u);
    sub->add_option("--degree", arguments->degree, "no effect; kept for older scripts");
    sub->add_option("--prefer", arguments->prefer,
                    "value to choose among those that meet the target; default: the smallest, or "
                    "the largest if larger values make the figure worse")
        ->one_of({"smallest", "largest"})
        ->type_name("smallest|largest");
    add_settings(*sub, arguments->settings);
    sub->add_option("--jobs", arguments->jobs,
                    "number of runs at the same time; default: one per core")
        ->type_name("N");
    add_json(*sub, arguments->json_file, "the result");
    sub->add_option("--html", arguments->html_file, "draw the frontier")->type_name("FILE");
    add_row_file(*sub, arguments->rows);
    sub->footer(
        "Runs the configuration at evenly spaced values, then between the values that decide, so "
        "every answer\n"
        "was run. A run that does not fit the emulated machine's memory is never an answer. = "
        "means at most;\n"
        "for hit_rate, tokens_per_s and other figures that are better when larger, it means at "
        "least. To say it\n"
        "directly, write 'metric<=v' or 'metric>=v'. Exit code 1: no run meets the targets, or "
        "some run failed;\n"
        "the others count.");
    return [arguments] { return run_tune(*arguments); };
}

}  // namespace moorage::tool
