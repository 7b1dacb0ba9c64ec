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
#include "tools/comparison/prediction.h"
#include "tools/validate/validation.h"
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
    std::optional<run_report> predicted;
    // The fastest of several runs in decoding, and the fastest in its prompt.
    std::optional<run_report> measured, prompted;
};

// The median time of a run's tokens, or of its first tokens if none follow.
double time_of(const run_report &report) {
    return report.tpot_ms.p50 > 0 ? report.tpot_ms.p50 : report.ttft_ms.p50;
}

void keep_quickest(composition &compared, run_report report) {
    if (!compared.prompted || report.ttft_ms.p50 < compared.prompted->ttft_ms.p50)
        compared.prompted = report;
    if (!compared.measured || time_of(report) < time_of(*compared.measured))
        compared.measured = std::move(report);
}

result<composition> read_composition(const profile_compare_arguments &arguments,
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
    composition compared;
    compared.name = std::filesystem::path(file).stem().string();
    for (const override_value &setting : swept)
        compared.name += format(" {}={}", setting.key == "plugin" ? setting.section : setting.key,
                                setting.value);
    compared.real = std::move(read).value();
    if (!compared.real.runs_on().real) compared.real.executor = "cpu";
    if (!arguments.profile.empty()) {
        compared.real.profile = arguments.profile;
        // Options name files relative to this folder, a configuration relative to its own.
        if (arguments.profile.ends_with(".toml"))
            compared.real.profile = std::filesystem::absolute(arguments.profile).string();
        compared.real.link.clear();
        compared.real.node.clear();
    }
    // The policies of both runs see the same costs, so they decide alike.
    compared.emulated = compared.real;
    compared.emulated.executor = executors[0].name;
    return compared;
}

result<std::vector<composition>> read_compositions(const profile_compare_arguments &arguments) {
    const auto fixed = read_settings(arguments.settings);
    if (!fixed) return fixed.failure();
    const auto sweeps = read_sweeps(arguments.sweeps);
    if (!sweeps) return sweeps.failure();
    std::vector<composition> compositions;
    for (const std::string &file : arguments.configs)
        for (const auto &swept : combinations(*sweeps)) {
            auto compared = read_composition(arguments, file, *fixed, swept);
            if (!compared) return compared.failure();
            compositions.push_back(std::move(*compared));
        }
    return compositions;
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

status check_offloading(const composition &compared, const run_report &run) {
    const std::string reason = not_offloading(run);
    if (reason.empty()) return success();
    return error{
        format("{} on {}: {}: no figure of offloading; change memory.experts or the source, or "
               "leave --offloading out",
               compared.name, run.executor, reason)};
}

// Other work on the machine can only slow a run, so the fastest run counts. Compositions take turns
// in rounds, so that a busy minute does not hit only one of them.
status run_all(std::vector<composition> &compositions, const profile_compare_arguments &arguments) {
    run_resources shared;
    for (composition &compared : compositions) {
        if (const status done = shared.scan(compared.real.plugin_paths); !done) return done;
        auto predicted = run(compared.emulated, shared, {});
        if (!predicted) return predicted.failure();
        compared.predicted = std::move(*predicted);
        if (arguments.offloading)
            if (const status sound = check_offloading(compared, *compared.predicted); !sound)
                return sound;
    }
    for (uint32_t round = 0; round < arguments.runs; ++round)
        for (composition &compared : compositions) {
            auto report = run(compared.real, shared, {});
            if (!report) return report.failure();
            if (arguments.offloading)
                if (const status sound = check_offloading(compared, *report); !sound) return sound;
            keep_quickest(compared, std::move(*report));
        }
    return success();
}

// The class by which measurements tell where a step's experts were.
figure_class class_of(const composition &compared, bool prompt) {
    const run_report &report = *compared.measured;
    if (prompt) return figure_class::prompt;
    if (report.experts.on_cpu > report.experts.loaded) return figure_class::cpu_layers;
    if (report.experts.loaded + report.experts.on_cpu > 0) return figure_class::pcie;
    return compared.real.batch > 1 ? figure_class::batch : figure_class::resident;
}

validated_row row_of(const composition &compared, bool prompt) {
    validated_row row;
    row.figure.id = compared.name;
    row.figure.group = compared.measured->executor;
    row.figure.engine = "ours";
    row.kind = class_of(compared, prompt);
    row.figure.step_ms = prompt ? compared.prompted->ttft_ms.p50 : compared.measured->tpot_ms.p50;
    row.emulated_ms = (prompt ? compared.predicted->ttft_ms : compared.predicted->tpot_ms).p50;
    return row;
}

validation validation_of(const std::vector<composition> &compositions) {
    validation found;
    found.against = "measured";
    found.file = "runs of this machine";
    for (const composition &compared : compositions) {
        if (compared.measured->tpot_ms.p50 > 0) found.rows.push_back(row_of(compared, false));
        if (compared.measured->ttft_ms.p50 > 0) found.rows.push_back(row_of(compared, true));
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
                  worst.kind == figure_class::prompt ? "prefill" : "decode", worst.ratio());
}

json verdict_json(const validation &found, double within) {
    const size_t beyond = found.rows_beyond(within).size();
    return {{"within", within}, {"rows_off", beyond}, {"ok", beyond == 0}};
}

int compare(const profile_compare_arguments &arguments) {
    auto compositions = read_compositions(arguments);
    if (!compositions) return fail(compositions.failure());
    if (const status done = run_all(*compositions, arguments); !done) return fail(done.failure());
    const validation found = validation_of(*compositions);
    json terms = json::array();
    for (const composition &compared : *compositions) {
        prediction breakdown =
            compare_runs(*compared.predicted, *compared.measured, *compared.prompted);
        for (const run_report *run : {&*compared.predicted, &*compared.measured})
            for (const std::string &warning : run->warnings)
                if (std::ranges::find(breakdown.warnings, warning) == breakdown.warnings.end())
                    breakdown.warnings.push_back(warning);
        if (arguments.json_file != "-")
            print(format("{}\n", compared.name) + to_text(breakdown) + "\n");
        terms.push_back(to_json(breakdown));
    }
    if (arguments.json_file != "-")
        print(to_text(found) + "\n" + verdict_text(found, arguments.within));
    if (!arguments.json_file.empty()) {
        json figures = to_json(found);
        figures["terms"] = terms;
        figures["verdict"] = verdict_json(found, arguments.within);
        const status done = write_json(arguments.json_file, figures);
        if (!done) return fail(done.failure());
    }
    return found.rows_beyond(arguments.within).empty() ? exit_ok : exit_failed;
}

}  // namespace

command install_profile_compare(parser &profile) {
    parser *sub = profile.add_subcommand("compare",
                                         "run on the emulator and on the real machine, and show "
                                         "the difference per term and by class");
    const auto arguments = std::make_shared<profile_compare_arguments>();
    sub->add_option("configs", arguments->configs, "TOML files of runs")
        ->required()
        ->type_name("CONFIG.toml");
    sub->add_option("--profile", arguments->profile,
                    "predict with this profile: a name, or a file of profile measure")
        ->type_name("NAME");
    add_settings(*sub, arguments->settings);
    sub->add_option("--sweep", arguments->sweeps,
                    "run with each of these values; several sweeps make all combinations")
        ->type_name("SECTION.KEY=A,B,...")
        ->take_all()
        ->expected(1);
    sub->add_option("--runs", arguments->runs, "number of real runs; the fastest counts (10)")
        ->type_name("N")
        ->range(1u, 1000u);
    sub->add_option("--within", arguments->within,
                    "largest accepted error as a share; exit code 1 if a row exceeds it (15 %)")
        ->type_name("SHARE")
        ->in_unit(quantity_unit::share)
        ->range(0.0, 1e6);
    sub->add_flag(
        "--offloading", arguments->offloading,
        "refuse runs with less than 50 % or more than 90 % hits, and runs that evict nothing");
    add_json(*sub, arguments->json_file, "rows and terms");
    return [arguments] { return compare(*arguments); };
}

}  // namespace moorage::tool
