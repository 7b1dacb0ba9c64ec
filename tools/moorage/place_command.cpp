// place_command.cpp - moorage place: places experts on the servers of a cluster, and predicts the
// result.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/run_config.h"
#include "core/pipeline/run.h"
#include "tools/placement/placement_stage.h"
#include "tools/placement/zones.h"
#include "tools/comparison/placement_packing.h"
#include "core/report/odd_figure.h"
#include "tools/comparison/placement_report.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/row_file.h"
#include "tools/moorage/settings.h"
#include "tools/moorage/rows.h"
#include "tools/moorage/sweeps.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct place_arguments {
    std::string config, policies, plan_file, out_file, json_file, html_file;
    std::vector<std::string> sweeps;
    setting_options settings;
    row_file_options rows;
};

// A policy to try, with its parameters; or an existing plan.
struct contender {
    stage_config stage;
    std::string plan_file;
    std::string label = {};  // of --policies
};

// One cluster: its configuration, and the settings behind it.
struct job {
    run_config config;
    std::vector<override_value> overrides;
};

result<std::vector<job>> read_jobs(const place_arguments &arguments, placement_report &report) {
    const auto fixed = read_settings(arguments.settings);
    if (!fixed) return fixed.failure();
    const auto sweeps = read_sweeps(arguments.sweeps);
    if (!sweeps) return sweeps.failure();
    std::vector<job> jobs;
    for (const auto &chosen : combinations(*sweeps)) {
        std::vector<override_value> overrides = *fixed;
        overrides.insert(overrides.end(), chosen.begin(), chosen.end());
        auto config = load_run_config(arguments.config, overrides);
        if (!config) return config.failure();
        if (!config->cluster)
            return error{format("{}: no [cluster], so there is nothing to place; it says servers, "
                                "links, models and workloads",
                                arguments.config),
                         true};
        if (jobs.empty())
            for (const std::string &warning : config->warnings) print_error(warning + "\n");
        jobs.push_back({std::move(config).value(), std::move(overrides)});
        placement_scene &report_scene = report.scenes.emplace_back();
        for (const override_value &setting : chosen)
            report_scene.settings.emplace_back(setting.section + "." + setting.key, setting.value);
    }
    return jobs;
}

// The policies of --policies; `all` is every placement policy.
std::vector<std::string> policies_of(const place_arguments &arguments, const registry &known) {
    if (arguments.policies != "all") return split(arguments.policies, ',');
    std::vector<std::string> names;
    for (const policy &loaded_policy : known.policies())
        if (loaded_policy.is("placement")) names.emplace_back(loaded_policy.name());
    std::ranges::sort(names);
    return names;
}

result<std::vector<contender>> contenders(const place_arguments &arguments, const job &cluster_job,
                                          const std::vector<std::string> &policies) {
    std::vector<contender> found;
    if (!arguments.plan_file.empty()) return {{contender{{}, arguments.plan_file}}};
    const std::filesystem::path &plan = cluster_job.config.cluster->plan;
    if (arguments.policies.empty() && !plan.empty()) return {{contender{{}, plan.string()}}};
    if (arguments.policies.empty()) {
        if (cluster_job.config.placement.plugin.empty())
            return error{format("{}: no [placement] plugin; name one there or with --policies",
                                arguments.config),
                         true};
        return {{contender{cluster_job.config.placement, ""}}};
    }
    for (const std::string &label : policies) {
        // Works like --set, so that each policy gets its parameters of the file.
        std::vector<override_value> overrides = cluster_job.overrides;
        const std::vector<std::string> parts = split(label, ':');
        overrides.push_back({"placement", "plugin", parts[0], "--policies " + label});
        for (size_t i = 1; i < parts.size(); ++i) {
            const size_t equals = parts[i].find('=');
            if (equals == 0 || equals == std::string::npos)
                return error{
                    format("--policies {}: {} is not of the form key=value", label, parts[i]),
                    true};
            overrides.push_back({"placement", parts[i].substr(0, equals),
                                 parts[i].substr(equals + 1), "--policies " + label});
        }
        auto config = load_run_config(arguments.config, overrides);
        if (!config) return config.failure();
        found.push_back({std::move(config->placement), "", label});
    }
    return found;
}

std::vector<std::string> statistics_of(const run_config &config) {
    std::vector<std::string> sentences;
    for (const cluster_workload &workload : config.cluster->workloads) {
        std::string text = workload.name + ": ";
        const std::string drawn =
            format("drawn, popularity by Zipf {}, seed {}", workload.zipf, workload.draw_seed);
        if (!workload.trace.empty())
            text += "measured in " + workload.trace.filename().string();
        else if (!workload.frequency.empty())
            text += "shares of " + workload.frequency.filename().string();
        else
            text += drawn;
        std::string domains;
        for (const std::string &domain : workload.domains)
            domains += (domains.empty() ? ", of " : " and ") + domain;
        text += domains;
        if (workload.request_step > 1)
            text += format(", every {}th request from request {}", workload.request_step,
                           workload.request_first);
        if ((!workload.trace.empty() || !workload.frequency.empty()) && workload.zipf >= 0)
            text += "; models that it does not fit are " + drawn;
        if (workload.models_per_user_max > 0)
            text += format("; models of each home drawn, Zipf {}, seed {}", workload.model_zipf,
                           workload.model_seed);
        sentences.push_back(std::move(text));
    }
    if (const auto &radio = config.cluster->radio; radio && radio->area_m > 0)
        sentences.push_back(
            format("positions that are not given: drawn in a square of {} m, seed {}",
                   radio->area_m, radio->position_seed));
    return sentences;
}

std::string name_of(const contender &candidate) {
    if (!candidate.plan_file.empty()) return candidate.plan_file;
    return candidate.label.empty() ? candidate.stage.plugin : candidate.label;
}

// A refusal is sent too, beside a plan without copies.
result<std::string> encode_plan(const result<plan> &planned, const contender &candidate,
                                const scene &cluster_scene) {
    const plan none{candidate.stage.plugin, {}, {}, 0};
    if (!planned) return packed(none, planned.failure().text, latency_figures());
    return packed(*planned, std::string(), predict(cluster_scene, *planned));
}

result<std::string> place_by_policy(const contender &candidate, const run_config &config,
                                    const registry &policies, const scene &cluster_scene) {
    auto stage = placement_stage::open(candidate.stage, policies, cluster_scene, config.seed);
    if (!stage) return stage.failure();
    return encode_plan((*stage)->make(cluster_scene, {}), candidate, cluster_scene);
}

// The bytes that the process of one zone sends. `file_plan`: the plan of a file, for the whole
// cluster.
result<std::string> place_zone(const contender &candidate, const run_config &config,
                               const registry &policies, const scene &whole, const plan &file_plan,
                               uint32_t zone) {
    const bool parted = zones_of(*config.cluster) > 1;
    if (!parted && candidate.plan_file.empty())
        return place_by_policy(candidate, config, policies, whole);
    if (!parted) return encode_plan(file_plan, candidate, whole);
    const auto zone_scene = make_zone(*config.cluster, config.file.parent_path(), zone);
    if (!zone_scene) return encode_plan(zone_scene.failure(), candidate, whole);
    if (candidate.plan_file.empty())
        return place_by_policy(candidate, config, policies, *zone_scene);
    plan part = plan_of_zone(*config.cluster, whole, file_plan, zone);
    const status sound = check_plan(*zone_scene, part);
    return encode_plan(sound ? result<plan>(std::move(part)) : sound.failure(), candidate,
                       *zone_scene);
}

// Results of a row's zones so far.
struct row_parts {
    explicit row_parts(uint32_t zones) : plans(zones), refusals(zones), failures(zones) {}
    std::vector<zoned_plan> plans;  // [zones], as all others
    std::vector<std::string> refusals;
    std::vector<std::optional<failed_row>> failures;

    void add_zone(uint32_t zone, row_end finished_row) {
        zoned_plan &zone_plan = plans[zone];
        if (!finished_row.failure &&
            !unpack(finished_row.bytes, zone_plan.placement, refusals[zone], zone_plan.figures))
            finished_row.failure = failed_row{"", "its plan did not arrive whole", {}, false};
        const std::string which =
            plans.size() > 1 ? format("zone {} of {}: ", zone + 1, plans.size()) : "";
        if (!refusals[zone].empty()) refusals[zone].insert(0, which);
        if (finished_row.failure) finished_row.failure->reason.insert(0, which);
        failures[zone] = std::move(finished_row.failure);
    }
};

placement_row failed_placement_row(const contender &candidate, const failed_row &failure) {
    placement_row row;
    row.placement.policy = name_of(candidate);
    row.failed = true;
    row.refusal = failure.reason, row.death = failure.death;
    return row;
}

// "prism, cluster.servers.expert_memory_bytes=1e6"
std::string label_of(const contender &candidate, const placement_scene &report_scene) {
    std::string label = name_of(candidate);
    for (const auto &[key, value] : report_scene.settings) label += format(", {}={}", key, value);
    return label;
}

// The kept rows of a command, and their identities.
struct kept_plans {
    row_file &file;
    run_resources &shared;

    // Identity of a row's zone. The hash covers the settings of the row.
    row_identity identity(const std::string &label, const contender &candidate,
                          const job &cluster_job, uint32_t zone) const {
        run_config config = cluster_job.config;
        config.placement = candidate.stage;
        config.cluster->plan = candidate.plan_file;
        std::string settings = label + format(", zone {}", zone);
        for (const override_value &value : cluster_job.overrides)
            settings += format("; {}.{}={}", value.section, value.key, value.value);
        return {label, hash_of_run(config, settings, shared)};
    }
};

// A failed row says so in the table. Zones are placed side by side. A cluster without zones has the
// machine to itself, since a policy's own time is among the figures.
placement_row make_row(const contender &candidate, const job &cluster_job,
                       const placement_scene &report_scene, const kept_plans &kept,
                       std::optional<failed_row> &failed, int &signal) {
    const run_config &config = cluster_job.config;
    const registry &policies = kept.shared.policies();
    const scene &whole = report_scene.setup;
    placement_row row;
    row.placement.policy = name_of(candidate);
    result<plan> file_plan = plan{};
    if (!candidate.plan_file.empty()) file_plan = read_plan(candidate.plan_file, whole);
    const std::vector<uint32_t> leading = leading_zones(
        *config.cluster, candidate.plan_file.empty() ? zone_plans::of_scenes : zone_plans::each);
    std::vector<uint32_t> planned;
    for (uint32_t zone = 0; zone < leading.size() && file_plan; ++zone)
        if (leading[zone] == zone) planned.push_back(zone);
    row_parts parts(static_cast<uint32_t>(leading.size()));
    // A policy's own time is among the figures, so each plan is made in a process of its own.
    const std::string label = label_of(candidate, report_scene);
    rows_options options{.at_once = leading.size() > 1 ? 0u : 1u, .is_measured = true};
    if (kept.file.is_open()) {
        options.kept = &kept.file;
        options.identity = [&](size_t i) {
            return kept.identity(label, candidate, cluster_job, planned[i]);
        };
        options.figures = [](const std::string &) { return json(); };
    }
    signal = run_rows(
        planned.size(), options,
        [&](size_t i) {
            return place_zone(candidate, config, policies, whole, *file_plan, planned[i]);
        },
        [&](size_t i, row_end finished_row) {
            parts.add_zone(planned[i], std::move(finished_row));
        });
    if (signal != 0) return row;
    if (!file_plan)
        failed = failed_row{"", file_plan.failure().text, {}, file_plan.failure().usage};
    for (auto &failure : parts.failures)
        if (failure && !failed) failed = std::move(failure);
    if (failed) return failed_placement_row(candidate, *failed);
    for (std::string &refusal : parts.refusals)
        if (row.refusal.empty()) row.refusal = std::move(refusal);
    if (!row.refusal.empty()) return row;
    zoned_plan joined =
        leading.size() > 1 ? join_zones(whole, parts.plans, leading) : std::move(parts.plans[0]);
    row.placement = std::move(joined.placement), row.figures = std::move(joined.figures);
    if (!candidate.label.empty()) row.placement.policy = candidate.label;
    return row;
}

// The rows to make, in the order of the report.
struct row_request {
    contender candidate;
    size_t job = 0;
    std::optional<failed_row> failed;  // its cluster already has
};

result<std::vector<row_request>> find_rows(const place_arguments &arguments,
                                           const std::vector<job> &jobs, const registry &known,
                                           placement_report &report) {
    std::vector<row_request> rows;
    for (size_t i = 0; i < jobs.size(); ++i) {
        const run_config &config = jobs[i].config;
        const bool zoned = zones_of(*config.cluster) > 1;
        auto opened_scene =
            (zoned ? make_outline : make_scene)(*config.cluster, config.file.parent_path());
        std::optional<failed_row> failed;
        if (opened_scene)
            report.scenes[i].setup = std::move(opened_scene).value();
        else
            failed = failed_row{"", opened_scene.failure().text, {}, opened_scene.failure().usage};
        auto found = contenders(arguments, jobs[i], policies_of(arguments, known));
        if (!found) return found.failure();
        for (contender &candidate : *found) rows.push_back({std::move(candidate), i, failed});
    }
    return rows;
}

// Returns the exit code. A failed row says so in `report`, beside the others.
result<int> make_rows(const place_arguments &arguments, const std::vector<job> &jobs,
                      placement_report &report, row_file &file, int &signal) {
    run_resources shared;
    if (const status scanned = shared.scan(jobs[0].config.plugin_paths); !scanned)
        return scanned.failure();
    const kept_plans kept{file, shared};
    const auto rows = find_rows(arguments, jobs, shared.policies(), report);
    if (!rows) return rows.failure();
    std::vector<failed_row> failed;
    for (const row_request &request : *rows) {
        const placement_scene &report_scene = report.scenes[request.job];
        std::optional<failed_row> failure = request.failed;
        placement_row row = failure ? failed_placement_row(request.candidate, *failure)
                                    : make_row(request.candidate, jobs[request.job], report_scene,
                                               kept, failure, signal);
        if (signal != 0) {
            print_error(format("moorage: interrupted by {} after {} of {} rows; {}\n",
                               name_of_signal(signal), report.rows.size(), rows->size(),
                               file.remedy()));
            break;
        }
        report.rows.push_back(std::move(row));
        report.rows.back().scene = request.job;
        if (!failure) continue;
        failed.push_back(std::move(*failure));
        failed.back().label = label_of(request.candidate, report_scene);
    }
    if (signal != 0) return exit_failed;
    // The error of the only row is the error of the command.
    if (rows->size() == 1 && failed.empty() && !report.rows[0].refusal.empty())
        return error{report.rows[0].refusal};
    if (rows->size() == 1 && !failed.empty() && failed[0].death->is_null())
        return error{failed[0].reason, failed[0].usage};
    return exit_code_of(rows->size() - failed.size(), failed);
}

std::string command_line(const place_arguments &arguments) {
    std::string text = "moorage place " + arguments.config;
    if (!arguments.policies.empty()) text += " --policies " + arguments.policies;
    if (!arguments.plan_file.empty()) text += " --plan " + arguments.plan_file;
    text += arguments.settings.text();
    for (const std::string &sweep : arguments.sweeps) text += " --sweep " + sweep;
    return text;
}

status write_files(const place_arguments &arguments, const placement_report &report) {
    if (!arguments.out_file.empty()) {
        if (report.rows.size() != 1)
            return error{format("--out writes one plan, and there are {}; give one policy and no "
                                "--sweep, or --json",
                                report.rows.size()),
                         true};
        if (const status done = write_json(arguments.out_file, to_json(report)); !done) return done;
    }
    if (!arguments.json_file.empty())
        if (const status done = write_json(arguments.json_file, to_json(report)); !done)
            return done;
    if (arguments.html_file.empty()) return success();
    const status done = write_text(arguments.html_file, to_html(report, command_line(arguments)));
    if (done) print_written("HTML report", arguments.html_file, arguments.json_file);
    return done;
}

int run_place(const place_arguments &arguments) {
    placement_report report;
    const auto jobs = read_jobs(arguments, report);
    if (!jobs) return fail(jobs.failure());
    report.title = jobs->front().config.title;
    report.statistics = statistics_of(jobs->front().config);
    auto file = row_file::open(arguments.rows,
                               {arguments.out_file, arguments.json_file, arguments.html_file});
    if (!file) return fail(file.failure());
    int signal = 0;
    const auto code = make_rows(arguments, *jobs, report, *file, signal);
    if (!code) return fail(code.failure());
    if (*code == exit_usage) return *code;
    if (signal != 0 && report.rows.empty()) return end_interrupted(signal);
    if (const std::string odd = odd_figure(to_json(report)); !odd.empty())
        return fail(error{format("{}: the figure {} is no finite number", arguments.config, odd)});
    // The text first: a file that cannot be written must not take the result with it.
    if (arguments.json_file != "-") print(to_text(report));
    if (const status done = write_files(arguments, report); !done) return fail(done.failure());
    if (signal != 0) return end_interrupted(signal);
    if (const status closed = file->finish(*code == exit_ok); !closed)
        return fail(closed.failure());
    // A row without a plan is a failure of the command.
    for (const placement_row &row : report.rows)
        if (!row.refusal.empty()) return exit_failed;
    return *code;
}

}  // namespace

command install_place(parser &app) {
    parser *sub = app.add_subcommand(
        "place", "place experts on the servers of a cluster, and show the expected latency");
    const auto arguments = std::make_shared<place_arguments>();
    sub->add_option("config", arguments->config, "the cluster's TOML file")
        ->required()
        ->type_name("CONFIG.toml");
    add_settings(*sub, arguments->settings);
    sub->add_option("--sweep", arguments->sweeps,
                    "place with each of these values; several sweeps make all combinations")
        ->type_name("SECTION.KEY=A,B,...")
        ->take_all()
        ->expected(1);
    auto *policies =
        sub->add_option("--policies", arguments->policies,
                        "placement policies to compare; `all`: every one found; lfu:KEY=VALUE sets "
                        "a parameter; default: that of [placement]");
    policies->type_name("A,B,...");
    sub->add_option("--plan", arguments->plan_file, "plan file of --out, instead of a policy")
        ->type_name("PLAN.json")
        ->excludes(policies);
    sub->add_option("--out", arguments->out_file,
                    "write the plan; [placement] plan of a run takes it")
        ->type_name("PLAN.json");
    add_json(*sub, arguments->json_file, "all figures");
    sub->add_option("--html", arguments->html_file, "write a page with maps, plots and a table")
        ->type_name("FILE");
    add_row_file(*sub, arguments->rows);
    sub->footer(rows_footer);
    return [arguments] { return run_place(*arguments); };
}

}  // namespace moorage::tool
