// profile_command.cpp - moorage profile measure and compare: a profile of this machine, and how
// well it foretells runs on it.
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/hardware.h"
#include "core/execute/cpu/measure.h"
#include "core/execute/cuda/cuda_measure.h"
#include "core/pipeline/run.h"
#include "core/report/prediction.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/profile_json.h"
#include "tools/moorage/profile_probe.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct measure_arguments {
    std::string out_file, executor = "cpu", json_file;
    double seconds = 20;
    uint32_t threads = 0;
};

struct compare_arguments {
    std::string config, profile, json_file;
    std::vector<std::string> overrides;
    uint32_t runs = 10;
};

std::string today() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    return format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

result<measured_machine> measure_machine(const measure_arguments &given) {
    measure_options options;
    options.seconds = given.seconds;
    options.threads = given.threads;
    options.progress = [](const std::string &what) { print_error(format("measuring {}\n", what)); };
    const bool on_gpu = find_executor(given.executor)->memory == fast_memory::gpu;
    auto machine = on_gpu ? measure_cuda({.common = options}) : measure_cpu(options);
    if (!machine) return machine.failure();
    machine->date = today();
    options.progress("whole tokens");
    if (const status done = measure_tokens(given.seconds / 10, given.threads, *machine); !done)
        return done.failure();
    if (on_gpu) return machine;
    options.progress("loads");
    if (const status done = measure_loads(given.seconds / 20, given.threads, *machine); !done)
        return done.failure();
    return machine;
}

int measure(const measure_arguments &given) {
    const auto machine = measure_machine(given);
    if (!machine) return fail(machine.failure());
    const measured_profile made = profile_of(*machine);
    const std::string text = to_toml(made.profile, made.sources, made.notes);
    if (const status done = write_text(given.out_file, text); !done) return fail(done.failure());
    if (given.json_file != "-" && given.out_file != "-") {
        for (const std::string &line : made.notes) print(line + "\n");
        print(format("\nprofile: {0} (use it with --set hardware.profile={0})\n", given.out_file));
    }
    if (!given.json_file.empty())
        if (const status done = write_json(given.json_file, json_of(*machine, made.profile)); !done)
            return fail(done.failure());
    return exit_ok;
}

// The quickest of several runs, by the median time of its tokens (of the first ones, where none
// follow): what else the machine does only ever slows it.
result<run_report> quickest_run(const run_config &config, run_resources &shared, uint32_t runs) {
    std::optional<run_report> best;
    const auto time_of = [](const run_report &one) {
        return one.tpot_ms.p50 > 0 ? one.tpot_ms.p50 : one.ttft_ms.p50;
    };
    for (uint32_t i = 0; i < runs; ++i) {
        auto report = run(config, shared, {});
        if (!report) return report.failure();
        if (!best || time_of(*report) < time_of(*best)) best = std::move(report).value();
    }
    return std::move(*best);
}

result<prediction> compare(const compare_arguments &given) {
    auto overrides = read_overrides(given.overrides);
    if (!overrides) return overrides.failure();
    auto read = load_run_config(given.config, *overrides);
    if (!read) return read.failure();
    run_config real = std::move(read).value();
    if (!real.runs_on().real) real.executor = "cpu";
    if (!given.profile.empty()) {
        real.profile = given.profile;
        // Names of files are given from here, those of the configuration from its folder.
        if (given.profile.ends_with(".toml"))
            real.profile = std::filesystem::absolute(given.profile).string();
        real.link.clear();
        real.node.clear();
    }
    // The policies of both runs see the same costs, so that they decide alike.
    run_config emulated = real;
    emulated.executor = executors[0].name;
    run_resources shared;
    if (const status done = shared.scan(real.plugin_paths); !done) return done.failure();
    const auto foretold = run(emulated, shared, {});
    if (!foretold) return foretold.failure();
    const auto measured = quickest_run(real, shared, given.runs);
    if (!measured) return measured.failure();
    prediction found = compare_runs(*foretold, *measured);
    for (const run_report *one : {&*foretold, &*measured})
        for (const std::string &warning : one->warnings)
            if (std::ranges::find(found.warnings, warning) == found.warnings.end())
                found.warnings.push_back(warning);
    return found;
}

int compare_runs_of(const compare_arguments &given) {
    const auto found = compare(given);
    if (!found) return fail(found.failure());
    if (given.json_file != "-") print(to_text(*found));
    if (!given.json_file.empty())
        if (const status done = write_json(given.json_file, to_json(*found)); !done)
            return fail(done.failure());
    return exit_ok;
}

void add_measure(parser &sub, measure_arguments &given) {
    sub.add_option("--out", given.out_file, "the profile to write; - for standard output")
        ->required()
        ->type_name("FILE.toml");
    sub.add_option("--executor", given.executor, "whose costs: cpu (default) or cuda")
        ->type_name("NAME")
        ->one_of({"cpu", "cuda"});
    sub.add_option("--seconds", given.seconds, "how long to measure, about (20)")
        ->type_name("S")
        ->range(0.01, 3600.0);
    sub.add_option("--threads", given.threads, "threads of the arithmetic (one a core)")
        ->type_name("N")
        ->range(1u, 1024u);
    sub.add_option("--json", given.json_file, "write all samples as JSON; - for standard output")
        ->type_name("FILE");
}

void add_compare(parser &sub, compare_arguments &given) {
    sub.add_option("config", given.config, "the run's TOML file")
        ->required()
        ->type_name("CONFIG.toml");
    sub.add_option("--profile", given.profile,
                   "foretell with this profile: a name, or a file of profile measure")
        ->type_name("NAME");
    sub.add_option("--set", given.overrides, "replace a setting of the file; repeatable")
        ->type_name("SECTION.KEY=VALUE")
        ->take_all()
        ->expected(1);
    sub.add_option("--runs", given.runs, "real runs, of which the quickest counts (10)")
        ->type_name("N")
        ->range(1u, 1000u);
    sub.add_option("--json", given.json_file, "write the terms as JSON; - for standard output")
        ->type_name("FILE");
}

}  // namespace

command install_profile(parser &app) {
    parser *profile = app.add_subcommand(
        "profile", "hardware profiles: measure this machine, compare the emulator with it");
    profile->require_subcommand(1);
    const auto to_measure = std::make_shared<measure_arguments>();
    parser *measuring =
        profile->add_subcommand("measure", "measure this machine and write its profile");
    add_measure(*measuring, *to_measure);
    const auto to_compare = std::make_shared<compare_arguments>();
    parser *comparing = profile->add_subcommand(
        "compare", "a run on the emulator and for real: the difference per term");
    add_compare(*comparing, *to_compare);
    return
        [=] { return measuring->parsed() ? measure(*to_measure) : compare_runs_of(*to_compare); };
}

}  // namespace moorage::tool
