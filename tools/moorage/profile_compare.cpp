// profile_compare.cpp - emulates each composition once, and runs all of them for real in each
// round. The comparison is that of `moorage validate`, with measured in place of published figures.
#include "tools/moorage/profile_compare.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/pipeline/run.h"
#include "core/report/figures.h"
#include "core/report/prediction.h"
#include "core/validate/validation.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"
#include "tools/moorage/sweeps.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct profile_compare_arguments {
    std::vector<std::string> configs, sweeps;
    setting_options settings;
    std::string profile, json_file;
    uint32_t runs = 10;
    double within = 0.15;
    bool offloading = false;
};

struct composition {
    std::string name;
    run_config real, emulated;
    std::optional<run_report> foretold;
    // The fastest of several runs in decoding, and the fastest in its prompt.
    std::optional<run_report> measured, prompted;
};

// The median time of a run's tokens, or of its first tokens if none follow.
double time_of(const run_report &one) {
    return one.tpot_ms.p50 > 0 ? one.tpot_ms.p50 : one.ttft_ms.p50;
}

void keep_quickest(composition &of, run_report made) {
    if (!of.prompted || made.ttft_ms.p50 < of.prompted->ttft_ms.p50) of.prompted = made;
    if (!of.measured || time_of(made) < time_of(*of.measured)) of.measured = std::move(made);
}

result<composition> read_composition(const profile_compare_arguments &given,
                                     const std::string &file, std::vector<override_value> overrides,
                                     const std::vector<override_value> &swept) {
    overrides.insert(overrides.end(), swept.begin(), swept.end());
    auto read = load_run_config(file, overrides);
    if (!read) return read.failure();
    if (read->cluster)
        return error{format("{}: it has a [cluster], and runs of one machine are compared; name a "
                            "configuration with a [source] alone, or take moorage load --emulate",
                            file),
                     true};
    composition made;
    made.name = std::filesystem::path(file).stem().string();
    for (const override_value &one : swept)
        made.name += format(" {}={}", one.key == "plugin" ? one.section : one.key, one.value);
    made.real = std::move(read).value();
    if (!made.real.runs_on().real) made.real.executor = "cpu";
    if (!given.profile.empty()) {
        made.real.profile = given.profile;
        // Options name files relative to this folder, a configuration relative to its own.
        if (given.profile.ends_with(".toml"))
            made.real.profile = std::filesystem::absolute(given.profile).string();
        made.real.link.clear();
        made.real.node.clear();
    }
    // The policies of both runs see the same costs, so they decide alike.
    made.emulated = made.real;
    made.emulated.executor = executors[0].name;
    return made;
}

result<std::vector<composition>> read_compositions(const profile_compare_arguments &given) {
    const auto fixed = read_settings(given.settings);
    if (!fixed) return fixed.failure();
    const auto sweeps = read_sweeps(given.sweeps);
    if (!sweeps) return sweeps.failure();
    std::vector<composition> all;
    for (const std::string &file : given.configs)
        for (const auto &swept : combinations(*sweeps)) {
            auto one = read_composition(given, file, *fixed, swept);
            if (!one) return one.failure();
            all.push_back(std::move(*one));
        }
    return all;
}

// Why the times of a run say nothing about offloading; empty if they do.
std::string not_offloading(const run_report &run) {
    constexpr double hits_min = 0.5, hits_max = 0.9;
    // With split experts hardly any expert is resident as a whole.
    const bool split =
        std::ranges::any_of(run.layers, [](const layer_report &layer) { return layer.split < 1; });
    const double hits = run.experts.hit_rate();
    if (!split && (hits < hits_min || hits > hits_max))
        return format("{} of the experts were there, not {} to {}", percent(hits, 1),
                      percent(hits_min, 1), percent(hits_max, 1));
    const json &memory = run.config["memory"];
    const byte_counts &bytes = run.bytes;
    if (bytes.demand + bytes.prefetch_used + bytes.behind <= memory.value("bytes", UINT64_MAX))
        return "no more was brought than there is room for, so nothing was evicted";
    return {};
}

status check_offloading(const composition &of, const run_report &run) {
    const std::string why = not_offloading(run);
    if (why.empty()) return success();
    return error{
        format("{} on {}: {}: no figure of offloading; change memory.experts or the source, or "
               "leave --offloading out",
               of.name, run.executor, why)};
}

// Other work on the machine can only slow a run, so the fastest run counts. Compositions take turns
// in rounds, so that a busy minute does not hit only one of them.
status run_all(std::vector<composition> &all, const profile_compare_arguments &given) {
    run_resources shared;
    for (composition &one : all) {
        if (const status done = shared.scan(one.real.plugin_paths); !done) return done;
        auto foretold = run(one.emulated, shared, {});
        if (!foretold) return foretold.failure();
        one.foretold = std::move(*foretold);
        if (given.offloading)
            if (const status sound = check_offloading(one, *one.foretold); !sound) return sound;
    }
    for (uint32_t round = 0; round < given.runs; ++round)
        for (composition &one : all) {
            auto report = run(one.real, shared, {});
            if (!report) return report.failure();
            if (given.offloading)
                if (const status sound = check_offloading(one, *report); !sound) return sound;
            keep_quickest(one, std::move(*report));
        }
    return success();
}

// The class by which measurements tell where a step's experts were.
figure_class class_of(const composition &one, bool prompt) {
    const run_report &report = *one.measured;
    if (prompt) return figure_class::prompt;
    if (report.experts.on_cpu > report.experts.loaded) return figure_class::cpu_layers;
    if (report.experts.loaded + report.experts.on_cpu > 0) return figure_class::pcie;
    return one.real.batch > 1 ? figure_class::batch : figure_class::resident;
}

validated_row row_of(const composition &one, bool prompt) {
    validated_row row;
    row.figure.id = one.name;
    row.figure.group = one.measured->executor;
    row.figure.engine = "ours";
    row.of = class_of(one, prompt);
    row.figure.step_ms = prompt ? one.prompted->ttft_ms.p50 : one.measured->tpot_ms.p50;
    row.emulated_ms = (prompt ? one.foretold->ttft_ms : one.foretold->tpot_ms).p50;
    return row;
}

validation validation_of(const std::vector<composition> &all) {
    validation found;
    found.against = "measured";
    found.file = "runs of this machine";
    for (const composition &one : all) {
        if (one.measured->tpot_ms.p50 > 0) found.rows.push_back(row_of(one, false));
        if (one.measured->ttft_ms.p50 > 0) found.rows.push_back(row_of(one, true));
    }
    return found;
}

// The command fails if any row is further off than `within`.
std::string verdict_text(const validation &found, double within) {
    const auto beyond = found.rows_beyond(within);
    const std::string share = percent(within, 1);
    if (beyond.empty())
        return format("verdict: ok, none of {} rows off by more than {}\n", found.rows.size(),
                      share);
    const validated_row &worst = *beyond.front();
    return format("verdict: off, {} of {} rows by more than {}; worst {} ({}), ratio {:.2f}\n",
                  beyond.size(), found.rows.size(), share, worst.figure.id,
                  worst.of == figure_class::prompt ? "prefill" : "decode", worst.ratio());
}

json verdict_json(const validation &found, double within) {
    const size_t beyond = found.rows_beyond(within).size();
    return {{"within", within}, {"rows_off", beyond}, {"ok", beyond == 0}};
}

int compare(const profile_compare_arguments &given) {
    auto all = read_compositions(given);
    if (!all) return fail(all.failure());
    if (const status done = run_all(*all, given); !done) return fail(done.failure());
    const validation found = validation_of(*all);
    json terms = json::array();
    for (const composition &one : *all) {
        prediction of = compare_runs(*one.foretold, *one.measured, *one.prompted);
        for (const run_report *run : {&*one.foretold, &*one.measured})
            for (const std::string &warning : run->warnings)
                if (std::ranges::find(of.warnings, warning) == of.warnings.end())
                    of.warnings.push_back(warning);
        if (given.json_file != "-") print(format("{}\n", one.name) + to_text(of) + "\n");
        terms.push_back(to_json(of));
    }
    if (given.json_file != "-") print(to_text(found) + "\n" + verdict_text(found, given.within));
    if (!given.json_file.empty()) {
        json figures = to_json(found);
        figures["terms"] = terms;
        figures["verdict"] = verdict_json(found, given.within);
        const status done = write_json(given.json_file, figures);
        if (!done) return fail(done.failure());
    }
    return found.rows_beyond(given.within).empty() ? exit_ok : exit_failed;
}

}  // namespace

command install_profile_compare(parser &profile) {
    parser *sub = profile.add_subcommand("compare",
                                         "run on the emulator and on the real machine, and show "
                                         "the difference per term and by class");
    const auto given = std::make_shared<profile_compare_arguments>();
    sub->add_option("configs", given->configs, "TOML files of runs")
        ->required()
        ->type_name("CONFIG.toml");
    sub->add_option("--profile", given->profile,
                    "predict with this profile: a name, or a file of profile measure")
        ->type_name("NAME");
    add_settings(*sub, given->settings);
    sub->add_option("--sweep", given->sweeps,
                    "run with each of these values; several sweeps make all combinations")
        ->type_name("SECTION.KEY=A,B,...")
        ->take_all()
        ->expected(1);
    sub->add_option("--runs", given->runs, "number of real runs; the fastest counts (10)")
        ->type_name("N")
        ->range(1u, 1000u);
    sub->add_option("--within", given->within,
                    "largest accepted error as a share; exit code 1 if a row exceeds it (15 %)")
        ->type_name("SHARE")
        ->in(quantity_unit::share)
        ->range(0.0, 1e6);
    sub->add_flag(
        "--offloading", given->offloading,
        "refuse runs with less than 50 % or more than 90 % hits, and runs that evict nothing");
    add_json(*sub, given->json_file, "rows and terms");
    return [given] { return compare(*given); };
}

}  // namespace moorage::tool
