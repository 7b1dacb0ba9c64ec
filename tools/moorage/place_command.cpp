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
#include "core/placement/placement_stage.h"
#include "core/placement/zones.h"
#include "core/report/placement_packing.h"
#include "core/report/odd_figure.h"
#include "core/report/placement_report.h"
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

result<std::vector<job>> read_jobs(const place_arguments &given, placement_report &report) {
    const auto fixed = read_settings(given.settings);
    if (!fixed) return fixed.failure();
    const auto sweeps = read_sweeps(given.sweeps);
    if (!sweeps) return sweeps.failure();
    std::vector<job> jobs;
    for (const auto &chosen : combinations(*sweeps)) {
        std::vector<override_value> overrides = *fixed;
        overrides.insert(overrides.end(), chosen.begin(), chosen.end());
        auto config = load_run_config(given.config, overrides);
        if (!config) return config.failure();
        if (!config->cluster)
            return error{format("{}: no [cluster], so there is nothing to place; it says servers, "
                                "links, models and workloads",
                                given.config),
                         true};
        if (jobs.empty())
            for (const std::string &warning : config->warnings) print_error(warning + "\n");
        jobs.push_back({std::move(config).value(), std::move(overrides)});
        placement_scene &at = report.scenes.emplace_back();
        for (const override_value &one : chosen)
            at.settings.emplace_back(one.section + "." + one.key, one.value);
    }
    return jobs;
}

// The policies of --policies; `all` is every placement policy.
std::vector<std::string> policies_of(const place_arguments &given, const registry &known) {
    if (given.policies != "all") return split(given.policies, ',');
    std::vector<std::string> names;
    for (const policy &one : known.policies())
        if (one.is("placement")) names.emplace_back(one.name());
    std::ranges::sort(names);
    return names;
}

result<std::vector<contender>> contenders(const place_arguments &given, const job &from,
                                          const std::vector<std::string> &policies) {
    std::vector<contender> all;
    if (!given.plan_file.empty()) return {{contender{{}, given.plan_file}}};
    const std::filesystem::path &plan = from.config.cluster->plan;
    if (given.policies.empty() && !plan.empty()) return {{contender{{}, plan.string()}}};
    if (given.policies.empty()) {
        if (from.config.placement.plugin.empty())
            return error{format("{}: no [placement] plugin; name one there or with --policies",
                                given.config),
                         true};
        return {{contender{from.config.placement, ""}}};
    }
    for (const std::string &label : policies) {
        // Works like --set, so that each policy gets its parameters of the file.
        std::vector<override_value> overrides = from.overrides;
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
        auto config = load_run_config(given.config, overrides);
        if (!config) return config.failure();
        all.push_back({std::move(config->placement), "", label});
    }
    return all;
}

std::vector<std::string> statistics_of(const run_config &config) {
    std::vector<std::string> sentences;
    for (const cluster_workload &one : config.cluster->workloads) {
        std::string text = one.name + ": ";
        const std::string drawn =
            format("drawn, popularity by Zipf {}, seed {}", one.zipf, one.draw_seed);
        if (!one.trace.empty())
            text += "measured in " + one.trace.filename().string();
        else if (!one.frequency.empty())
            text += "shares of " + one.frequency.filename().string();
        else
            text += drawn;
        std::string domains;
        for (const std::string &domain : one.domains)
            domains += (domains.empty() ? ", of " : " and ") + domain;
        text += domains;
        if (one.request_step > 1)
            text +=
                format(", every {}th request from request {}", one.request_step, one.request_first);
        if ((!one.trace.empty() || !one.frequency.empty()) && one.zipf >= 0)
            text += "; models that it does not fit are " + drawn;
        if (one.models_per_user_max > 0)
            text += format("; models of each home drawn, Zipf {}, seed {}", one.model_zipf,
                           one.model_seed);
        sentences.push_back(std::move(text));
    }
    if (const auto &radio = config.cluster->radio; radio && radio->area_m > 0)
        sentences.push_back(
            format("positions that are not given: drawn in a square of {} m, seed {}",
                   radio->area_m, radio->position_seed));
    return sentences;
}

std::string name_of(const contender &one) {
    if (!one.plan_file.empty()) return one.plan_file;
    return one.label.empty() ? one.stage.plugin : one.label;
}

// A refusal is sent too, beside a plan without copies.
result<std::string> sent(const result<plan> &made, const contender &one, const scene &of) {
    const plan none{one.stage.plugin, {}, {}, 0};
    if (!made) return packed(none, made.failure().text, latency_figures());
    return packed(*made, std::string(), predict(of, *made));
}

result<std::string> place_by_policy(const contender &one, const run_config &config,
                                    const registry &policies, const scene &of) {
    auto stage = placement_stage::open(one.stage, policies, of, config.seed);
    if (!stage) return stage.failure();
    return sent((*stage)->make(of, {}), one, of);
}

// The bytes that the process of one zone sends. `given`: the plan of a file, for the whole cluster.
result<std::string> place_zone(const contender &one, const run_config &config,
                               const registry &policies, const scene &whole, const plan &given,
                               uint32_t zone) {
    const bool parted = zones_of(*config.cluster) > 1;
    if (!parted && one.plan_file.empty()) return place_by_policy(one, config, policies, whole);
    if (!parted) return sent(given, one, whole);
    const auto of = make_zone(*config.cluster, config.file.parent_path(), zone);
    if (!of) return sent(of.failure(), one, whole);
    if (one.plan_file.empty()) return place_by_policy(one, config, policies, *of);
    plan part = plan_of_zone(*config.cluster, whole, given, zone);
    const status sound = check_plan(*of, part);
    return sent(sound ? result<plan>(std::move(part)) : sound.failure(), one, *of);
}

// Results of a row's zones so far.
struct row_parts {
    explicit row_parts(uint32_t zones) : plans(zones), refusals(zones), failures(zones) {}
    std::vector<zoned_plan> plans;  // [zones], as all others
    std::vector<std::string> refusals;
    std::vector<std::optional<failed_row>> failures;

    void take(uint32_t zone, row_end how) {
        zoned_plan &of = plans[zone];
        if (!how.failure && !unpack(how.bytes, of.made, refusals[zone], of.figures))
            how.failure = failed_row{"", "its plan did not arrive whole", {}, false};
        const std::string which =
            plans.size() > 1 ? format("zone {} of {}: ", zone + 1, plans.size()) : "";
        if (!refusals[zone].empty()) refusals[zone].insert(0, which);
        if (how.failure) how.failure->why.insert(0, which);
        failures[zone] = std::move(how.failure);
    }
};

placement_row failed_one(const contender &one, const failed_row &how) {
    placement_row row;
    row.made.policy = name_of(one);
    row.failed = true;
    row.refusal = how.why, row.death = how.death;
    return row;
}

// "prism, cluster.servers.expert_memory_bytes=1e6"
std::string label_of(const contender &one, const placement_scene &at) {
    std::string label = name_of(one);
    for (const auto &[key, value] : at.settings) label += format(", {}={}", key, value);
    return label;
}

// The kept rows of a command, and their identities.
struct kept_plans {
    row_file &file;
    run_resources &shared;

    // Identity of a row's zone. The hash covers the settings of the row.
    row_identity identity(const std::string &label, const contender &one, const job &from,
                          uint32_t zone) const {
        run_config config = from.config;
        config.placement = one.stage;
        config.cluster->plan = one.plan_file;
        std::string settings = label + format(", zone {}", zone);
        for (const override_value &value : from.overrides)
            settings += format("; {}.{}={}", value.section, value.key, value.value);
        return {label, hash_of_run(config, settings, shared)};
    }
};

// A failed row says so in the table. Zones are placed side by side. A cluster without zones has the
// machine to itself, since a policy's own time is among the figures.
placement_row make_row(const contender &one, const job &from, const placement_scene &at,
                       const kept_plans &kept, std::optional<failed_row> &failed, int &signal) {
    const run_config &config = from.config;
    const registry &policies = kept.shared.policies();
    const scene &whole = at.of;
    placement_row row;
    row.made.policy = name_of(one);
    result<plan> given = plan{};
    if (!one.plan_file.empty()) given = read_plan(one.plan_file, whole);
    const std::vector<uint32_t> leading = leading_zones(
        *config.cluster, one.plan_file.empty() ? zone_plans::of_scenes : zone_plans::each);
    std::vector<uint32_t> planned;
    for (uint32_t zone = 0; zone < leading.size() && given; ++zone)
        if (leading[zone] == zone) planned.push_back(zone);
    row_parts parts(static_cast<uint32_t>(leading.size()));
    // A policy's own time is among the figures, so each plan is made in a process of its own.
    const std::string label = label_of(one, at);
    rows_options how{.at_once = leading.size() > 1 ? 0u : 1u, .is_measured = true};
    if (kept.file.is_open()) {
        how.kept = &kept.file;
        how.identity = [&](size_t i) { return kept.identity(label, one, from, planned[i]); };
        how.figures = [](const std::string &) { return json(); };
    }
    signal = run_rows(
        planned.size(), how,
        [&](size_t i) { return place_zone(one, config, policies, whole, *given, planned[i]); },
        [&](size_t i, row_end how) { parts.take(planned[i], std::move(how)); });
    if (signal != 0) return row;
    if (!given) failed = failed_row{"", given.failure().text, {}, given.failure().usage};
    for (auto &failure : parts.failures)
        if (failure && !failed) failed = std::move(failure);
    if (failed) return failed_one(one, *failed);
    for (std::string &refusal : parts.refusals)
        if (row.refusal.empty()) row.refusal = std::move(refusal);
    if (!row.refusal.empty()) return row;
    zoned_plan all =
        leading.size() > 1 ? join_zones(whole, parts.plans, leading) : std::move(parts.plans[0]);
    row.made = std::move(all.made), row.figures = std::move(all.figures);
    if (!one.label.empty()) row.made.policy = one.label;
    return row;
}

// The rows to make, in the order of the report.
struct row_request {
    contender by;
    size_t job = 0;
    std::optional<failed_row> failed;  // its cluster already has
};

result<std::vector<row_request>> find_rows(const place_arguments &given,
                                           const std::vector<job> &jobs, const registry &known,
                                           placement_report &report) {
    std::vector<row_request> rows;
    for (size_t i = 0; i < jobs.size(); ++i) {
        const run_config &config = jobs[i].config;
        const bool zoned = zones_of(*config.cluster) > 1;
        auto made = (zoned ? make_outline : make_scene)(*config.cluster, config.file.parent_path());
        std::optional<failed_row> failed;
        if (made)
            report.scenes[i].of = std::move(made).value();
        else
            failed = failed_row{"", made.failure().text, {}, made.failure().usage};
        auto all = contenders(given, jobs[i], policies_of(given, known));
        if (!all) return all.failure();
        for (contender &one : *all) rows.push_back({std::move(one), i, failed});
    }
    return rows;
}

// Returns the exit code. A failed row says so in `report`, beside the others.
result<int> make_rows(const place_arguments &given, const std::vector<job> &jobs,
                      placement_report &report, row_file &file, int &signal) {
    run_resources shared;
    if (const status scanned = shared.scan(jobs[0].config.plugin_paths); !scanned)
        return scanned.failure();
    const kept_plans kept{file, shared};
    const auto rows = find_rows(given, jobs, shared.policies(), report);
    if (!rows) return rows.failure();
    std::vector<failed_row> failed;
    for (const row_request &one : *rows) {
        const placement_scene &at = report.scenes[one.job];
        std::optional<failed_row> failure = one.failed;
        placement_row row = failure ? failed_one(one.by, *failure)
                                    : make_row(one.by, jobs[one.job], at, kept, failure, signal);
        if (signal != 0) {
            print_error(format("moorage: interrupted by {} after {} of {} rows; {}\n",
                               name_of_signal(signal), report.rows.size(), rows->size(),
                               file.remedy()));
            break;
        }
        report.rows.push_back(std::move(row));
        report.rows.back().scene = one.job;
        if (!failure) continue;
        failed.push_back(std::move(*failure));
        failed.back().label = label_of(one.by, at);
    }
    if (signal != 0) return exit_failed;
    // The error of the only row is the error of the command.
    if (rows->size() == 1 && failed.empty() && !report.rows[0].refusal.empty())
        return error{report.rows[0].refusal};
    if (rows->size() == 1 && !failed.empty() && failed[0].death->is_null())
        return error{failed[0].why, failed[0].usage};
    return exit_code_of(rows->size() - failed.size(), failed);
}

std::string command_line(const place_arguments &given) {
    std::string text = "moorage place " + given.config;
    if (!given.policies.empty()) text += " --policies " + given.policies;
    if (!given.plan_file.empty()) text += " --plan " + given.plan_file;
    text += given.settings.text();
    for (const std::string &one : given.sweeps) text += " --sweep " + one;
    return text;
}

status write_files(const place_arguments &given, const placement_report &report) {
    if (!given.out_file.empty()) {
        if (report.rows.size() != 1)
            return error{format("--out writes one plan, and there are {}; give one policy and no "
                                "--sweep, or --json",
                                report.rows.size()),
                         true};
        if (const status done = write_json(given.out_file, to_json(report)); !done) return done;
    }
    if (!given.json_file.empty())
        if (const status done = write_json(given.json_file, to_json(report)); !done) return done;
    if (given.html_file.empty()) return success();
    const status done = write_text(given.html_file, to_html(report, command_line(given)));
    if (done) print_written("HTML report", given.html_file, given.json_file);
    return done;
}

int run_place(const place_arguments &given) {
    placement_report report;
    const auto jobs = read_jobs(given, report);
    if (!jobs) return fail(jobs.failure());
    report.title = jobs->front().config.title;
    report.statistics = statistics_of(jobs->front().config);
    auto file = row_file::open(given.rows, {given.out_file, given.json_file, given.html_file});
    if (!file) return fail(file.failure());
    int signal = 0;
    const auto code = make_rows(given, *jobs, report, *file, signal);
    if (!code) return fail(code.failure());
    if (*code == exit_usage) return *code;
    if (signal != 0 && report.rows.empty()) return end_interrupted(signal);
    if (const std::string odd = odd_figure(to_json(report)); !odd.empty())
        return fail(error{format("{}: the figure {} is no finite number", given.config, odd)});
    // The text first: a file that cannot be written must not take the result with it.
    if (given.json_file != "-") print(to_text(report));
    if (const status done = write_files(given, report); !done) return fail(done.failure());
    if (signal != 0) return end_interrupted(signal);
    if (const status closed = file->finish(); !closed) return fail(closed.failure());
    // A row without a plan is a failure of the command.
    for (const placement_row &row : report.rows)
        if (!row.refusal.empty()) return exit_failed;
    return *code;
}

}  // namespace

command install_place(parser &app) {
    parser *sub = app.add_subcommand(
        "place", "place experts on the servers of a cluster, and show the expected latency");
    const auto given = std::make_shared<place_arguments>();
    sub->add_option("config", given->config, "the cluster's TOML file")
        ->required()
        ->type_name("CONFIG.toml");
    add_settings(*sub, given->settings);
    sub->add_option("--sweep", given->sweeps,
                    "place with each of these values; several sweeps make all combinations")
        ->type_name("SECTION.KEY=A,B,...")
        ->take_all()
        ->expected(1);
    auto *policies =
        sub->add_option("--policies", given->policies,
                        "placement policies to compare; `all`: every one found; lfu:KEY=VALUE sets "
                        "a parameter; default: that of [placement]");
    policies->type_name("A,B,...");
    sub->add_option("--plan", given->plan_file, "plan file of --out, instead of a policy")
        ->type_name("PLAN.json")
        ->excludes(policies);
    sub->add_option("--out", given->out_file, "write the plan; [placement] plan of a run takes it")
        ->type_name("PLAN.json");
    add_json(*sub, given->json_file, "all figures");
    sub->add_option("--html", given->html_file, "write a page with maps, plots and a table")
        ->type_name("FILE");
    add_row_file(*sub, given->rows);
    sub->footer(rows_footer);
    return [given] { return run_place(*given); };
}

}  // namespace moorage::tool
