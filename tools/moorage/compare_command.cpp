// compare_command.cpp - moorage compare: the same work under several configurations, side by side.
#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/pipeline/run.h"
#include "tools/comparison/comparison.h"
#include "core/report/time_parts.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"
#include "tools/moorage/rows.h"
#include "tools/moorage/run_many.h"
#include "tools/moorage/sweeps.h"
#include "tools/moorage/what_if_rows.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct compare_arguments {
    std::vector<std::string> configs, sweeps;
    setting_options settings;
    std::string json_file, html_file, csv_file;
    row_file_options rows;
    uint32_t jobs = 0;
    std::string repeat;
    bool no_optimum = false, what_if = false;
};

struct compared_work {
    std::vector<run_config> configs;                 // a row each
    std::vector<std::vector<override_value>> swept;  // by configuration
    std::vector<run_config> runs;                    // each row's repeats, one after the other
    std::vector<std::string> settings;               // the settings of each run
    size_t repeats = 1;
};

constexpr uint64_t repeats_max = 1000;

// The difference between the repeats of a row: seeds, or the values of a setting.
struct repetition {
    uint64_t seeds = 1;
    std::optional<sweep> values;
    size_t count() const { return values ? values->values.size() : seeds; }
};

result<repetition> read_repeat(const std::string &text) {
    repetition repeats;
    if (text.empty()) return repeats;
    if (text.find('=') != std::string::npos) {
        auto values = parse_sweep(text);
        if (!values) return values.failure();
        repeats.values = std::move(values).value();
        // Repeats must allow a mean: the same configuration with other texts or draws.
        const sweep &swept = *repeats.values;
        if (swept.section != "source" && swept.key != "seed" && !swept.key.ends_with(".seed"))
            return error{format("--repeat {}.{}: repeats differ in their text or their draws "
                                "([source], or a seed); settings to compare are for --sweep",
                                swept.section, swept.key),
                         true};
    } else {
        const auto [end, code] =
            std::from_chars(text.data(), text.data() + text.size(), repeats.seeds);
        if (code != std::errc() || end != text.data() + text.size()) repeats.seeds = 0;
    }
    if (repeats.count() < 2 || repeats.count() > repeats_max)
        return error{format("--repeat {}: 2 to {} seeds, or a setting and its values, for example "
                            "5 or source.trace=a.safetensors,b.safetensors",
                            text, repeats_max),
                     true};
    return repeats;
}

// The settings by which the row file tells runs apart, beside their files.
std::string settings_text(const std::vector<override_value> &settings) {
    std::string text;
    for (const override_value &setting : settings)
        text += format("{}.{}={}\n", setting.section, setting.key, setting.value);
    return text;
}

result<compared_work> read_configs(const compare_arguments &arguments) {
    const auto fixed = read_settings(arguments.settings);
    if (!fixed) return fixed.failure();
    const auto sweeps = read_sweeps(arguments.sweeps);
    if (!sweeps) return sweeps.failure();
    const auto repeat = read_repeat(arguments.repeat);
    if (!repeat) return repeat.failure();
    compared_work all_work;
    all_work.repeats = repeat->count();
    for (const std::string &file : arguments.configs) {
        for (const auto &chosen : combinations(*sweeps)) {
            std::vector<override_value> overrides = *fixed;
            overrides.insert(overrides.end(), chosen.begin(), chosen.end());
            for (size_t i = 0; i < all_work.repeats; ++i) {
                std::vector<override_value> run_overrides = overrides;
                if (const auto &repeated = repeat->values; repeated)
                    run_overrides.push_back(
                        {repeated->section, repeated->key, repeated->values[i],
                         format("--repeat {}.{}", repeated->section, repeated->key)});
                auto config = load_run_config(file, run_overrides);
                if (!config) return config.failure();
                if (!repeat->values) config->seed += i;
                all_work.settings.push_back(settings_text(run_overrides));
                all_work.runs.push_back(std::move(config).value());
            }
            all_work.configs.push_back(all_work.runs[all_work.runs.size() - all_work.repeats]);
            all_work.swept.push_back(chosen);
        }
    }
    return all_work;
}

// The file's name without its ending, or its path if two files share the name.
std::string name_of(const run_config &config, const std::vector<run_config> &configs) {
    const std::filesystem::path stem = config.file.stem();
    for (const run_config &candidate : configs)
        if (candidate.file.native() != config.file.native() && candidate.file.stem() == stem)
            return config.file.string();
    return stem.string();
}

// A cluster's report does not repeat its description, but swept keys must be in it.
void note_swept(json &config, const std::vector<override_value> &swept) {
    for (const override_value &setting : swept)
        if (setting.section == "cluster") config["cluster"][setting.key] = setting.value;
}

// A row's label: its configuration, if there are several, and its swept values.
std::string label_of(const compared_work &all_work, size_t row) {
    const std::vector<run_config> &configs = all_work.configs;
    std::string label;
    const bool several = std::ranges::any_of(configs, [&](const run_config &config) {
        return config.file.native() != configs[0].file.native();
    });
    if (several || all_work.swept[row].empty()) label = name_of(configs[row], configs);
    for (const override_value &setting : all_work.swept[row])
        label += format("{}{}.{}={}", label.empty() ? "" : ", ", setting.section, setting.key,
                        setting.value);
    return label;
}

// The first run of a row with the figures of all its repeats, or the first failure.
run_outcome joined(std::span<run_outcome> runs, comparison_row &row) {
    for (run_outcome &run : runs)
        if (!run.report) return std::move(run);
    if (runs.size() == 1) return std::move(runs[0]);
    std::vector<json> figures;
    for (const run_outcome &run : runs) {
        row.repeats_ms.push_back(time_ms(*run.report));
        figures.push_back(to_json(*run.report));
        if (figures.size() == 1) continue;
        for (const time_causes &phase : causes_of(*run.report)) row.more_causes += phase;
    }
    row.means = mean_figures(figures);
    return std::move(runs[0]);
}

comparison compare(const compared_work &all_work, std::vector<run_outcome> runs) {
    const std::vector<run_config> &configs = all_work.configs;
    comparison table;
    const auto same = [&](const run_config &config) { return config.title == configs[0].title; };
    if (std::all_of(configs.begin(), configs.end(), same)) table.title = configs[0].title;
    for (size_t i = 0; i < configs.size(); ++i) {
        comparison_row row;
        run_outcome first_run = joined({&runs[i * all_work.repeats], all_work.repeats}, row);
        if (!first_run.has_ended) continue;  // interrupted before
        if (!first_run.report) {
            table.failed.push_back(std::move(first_run.failure));
            table.failed.back().label = label_of(all_work, i);
            continue;
        }
        run_report &report = *first_run.report;
        if (report.cluster) {
            note_swept(*report.config, all_work.swept[i]);
        } else {
            row.experts_all = report.config["memory"]["experts_all"].get<uint64_t>();
            row.slots = report.config["memory"]["experts"].get<uint64_t>();
        }
        row.offline = first_run.is_offline;
        row.config = name_of(configs[i], configs);
        row.report = std::move(report);
        table.rows.push_back(std::move(row));
    }
    if (table.rows.empty()) return table;
    const json source = table.rows[0].report.config->value("source", json::object());
    table.trace = source.value("trace", "");
    table.shape = source.value("shape", source.value("model", ""));
    return table;
}

std::string command_line(const compare_arguments &arguments) {
    std::string text = "moorage compare";
    for (const std::string &config : arguments.configs) text += " " + config;
    text += arguments.settings.text();
    for (const std::string &sweep : arguments.sweeps) text += " --sweep " + sweep;
    if (!arguments.repeat.empty()) text += " --repeat " + arguments.repeat;
    return arguments.what_if ? text + " --what-if" : text;
}

// Rows that failed are left out of `table`; the others keep their order.
status add_what_ifs(const compared_work &all_work, comparison &table, run_resources &shared) {
    size_t next = 0;
    for (size_t i = 0; i < all_work.configs.size() && next < table.rows.size(); ++i) {
        const auto same = [&](const failed_row &failure) {
            return failure.label == label_of(all_work, i);
        };
        if (std::ranges::any_of(table.failed, same)) continue;
        comparison_row &row = table.rows[next++];
        auto answered = ask_what_if(all_work.configs[i], row.report, shared);
        if (!answered) return answered.failure();
        row.savings = std::move(answered).value();
    }
    return success();
}

status write_outputs(const compare_arguments &arguments, const comparison &table) {
    // Prints the text first, so that a file that cannot be written does not lose the result.
    if (arguments.json_file != "-" && arguments.csv_file != "-")
        print(to_text(table, output_columns()));
    if (!arguments.json_file.empty())
        if (const status done = write_json(arguments.json_file, to_json(table)); !done) return done;
    if (!arguments.csv_file.empty())
        if (const status done = write_text(arguments.csv_file, to_csv(table)); !done) return done;
    if (arguments.html_file.empty()) return success();
    const status done = write_text(arguments.html_file, to_html(table, command_line(arguments)));
    if (done) print_written("HTML report", arguments.html_file, arguments.json_file);
    return done;
}

int run_compare(const compare_arguments &arguments) {
    const auto all_work = read_configs(arguments);
    if (!all_work) return fail(all_work.failure());
    run_resources shared;
    run_many_options options;
    options.progress_label = "compare";
    options.jobs = arguments.jobs;
    options.optimum = !arguments.no_optimum;
    auto kept = row_file::open(arguments.rows,
                               {arguments.json_file, arguments.csv_file, arguments.html_file});
    if (!kept) return fail(kept.failure());
    options.kept = {&*kept,
                    [&](size_t run) { return label_of(*all_work, run / all_work->repeats); },
                    [&](size_t run) { return all_work->settings[run]; }};
    auto rows = run_many(all_work->runs, shared, options);
    if (!rows) return fail(rows.failure());
    const int signal = rows->signal;
    comparison table = compare(*all_work, std::move(rows->rows));
    if (signal != 0)
        table.interrupted = {name_of_signal(signal), all_work->configs.size(), kept->remedy()};
    if (arguments.what_if && signal == 0)
        if (const status asked = add_what_ifs(*all_work, table, shared); !asked)
            return fail(asked.failure());
    const int code = exit_code_of(table.rows.size(), table.failed);
    if (code == exit_usage) return code;
    if (const status done = write_outputs(arguments, table); !done) return fail(done.failure());
    if (signal != 0) return end_interrupted(signal);
    const status closed = kept->finish(code == exit_ok);
    return closed ? code : fail(closed.failure());
}

}  // namespace

command install_compare(parser &app) {
    parser *sub = app.add_subcommand(
        "compare", "run the same work under several configurations, and compare them");
    const auto arguments = std::make_shared<compare_arguments>();
    sub->add_option("configs", arguments->configs, "TOML files")
        ->required()
        ->type_name("CONFIG.toml");
    add_settings(*sub, arguments->settings);
    sub->add_option("--sweep", arguments->sweeps,
                    "run with each of these values; several sweeps make all combinations")
        ->type_name("SECTION.KEY=A,B,...")
        ->take_all()
        ->expected(1);
    sub->add_option("--repeat", arguments->repeat,
                    "run every row with this many random seeds, or with each value of a key; adds "
                    "confidence intervals")
        ->type_name("N|SECTION.KEY=A,B,...");
    sub->add_flag("--what-if", arguments->what_if,
                  "run every row again with 10 % more of each resource");
    add_json(*sub, arguments->json_file, "all reports");
    sub->add_option("--csv", arguments->csv_file,
                    "write a line of comma-separated values for each row; -: standard output")
        ->type_name("FILE");
    sub->add_option("--html", arguments->html_file, "write a page with table and plots")
        ->type_name("FILE");
    add_row_file(*sub, arguments->rows);
    sub->add_option("--jobs", arguments->jobs,
                    "number of runs at the same time; default: one per core")
        ->type_name("N");
    sub->add_flag("--no-optimum", arguments->no_optimum,
                  "do not count the offline optimum's misses");
    sub->footer(rows_footer);
    return [arguments] { return run_compare(*arguments); };
}

}  // namespace moorage::tool
