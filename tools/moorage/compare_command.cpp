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
#include "core/report/comparison.h"
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

struct work {
    std::vector<run_config> configs;                 // a row each
    std::vector<std::vector<override_value>> swept;  // by configuration
    std::vector<run_config> runs;                    // each row's repeats, one after the other
    std::vector<std::string> written;                // the settings of each run
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
    repetition made;
    if (text.empty()) return made;
    if (text.find('=') != std::string::npos) {
        auto values = parse_sweep(text);
        if (!values) return values.failure();
        made.values = std::move(values).value();
        // Repeats must allow a mean: the same configuration with other texts or draws.
        const sweep &of = *made.values;
        if (of.section != "source" && of.key != "seed" && !of.key.ends_with(".seed"))
            return error{format("--repeat {}.{}: repeats differ in their text or their draws "
                                "([source], or a seed); settings to compare are for --sweep",
                                of.section, of.key),
                         true};
    } else {
        const auto [end, wrong] =
            std::from_chars(text.data(), text.data() + text.size(), made.seeds);
        if (wrong != std::errc() || end != text.data() + text.size()) made.seeds = 0;
    }
    if (made.count() < 2 || made.count() > repeats_max)
        return error{format("--repeat {}: 2 to {} seeds, or a setting and its values, for example "
                            "5 or source.trace=a.safetensors,b.safetensors",
                            text, repeats_max),
                     true};
    return made;
}

// The settings by which the row file tells runs apart, beside their files.
std::string settings_text(const std::vector<override_value> &given) {
    std::string text;
    for (const override_value &one : given)
        text += format("{}.{}={}\n", one.section, one.key, one.value);
    return text;
}

result<work> read_configs(const compare_arguments &given) {
    const auto fixed = read_settings(given.settings);
    if (!fixed) return fixed.failure();
    const auto sweeps = read_sweeps(given.sweeps);
    if (!sweeps) return sweeps.failure();
    const auto repeat = read_repeat(given.repeat);
    if (!repeat) return repeat.failure();
    work all;
    all.repeats = repeat->count();
    for (const std::string &file : given.configs) {
        for (const auto &chosen : combinations(*sweeps)) {
            std::vector<override_value> overrides = *fixed;
            overrides.insert(overrides.end(), chosen.begin(), chosen.end());
            for (size_t i = 0; i < all.repeats; ++i) {
                std::vector<override_value> own = overrides;
                if (const auto &of = repeat->values; of)
                    own.push_back({of->section, of->key, of->values[i],
                                   format("--repeat {}.{}", of->section, of->key)});
                auto config = load_run_config(file, own);
                if (!config) return config.failure();
                if (!repeat->values) config->seed += i;
                all.written.push_back(settings_text(own));
                all.runs.push_back(std::move(config).value());
            }
            all.configs.push_back(all.runs[all.runs.size() - all.repeats]);
            all.swept.push_back(chosen);
        }
    }
    return all;
}

// The file's name without its ending, or its path if two files share the name.
std::string name_of(const run_config &config, const std::vector<run_config> &all) {
    const std::filesystem::path stem = config.file.stem();
    for (const run_config &other : all)
        if (other.file.native() != config.file.native() && other.file.stem() == stem)
            return config.file.string();
    return stem.string();
}

// A cluster's report does not repeat its description, but swept keys must be in it.
void note_swept(json &config, const std::vector<override_value> &swept) {
    for (const override_value &one : swept)
        if (one.section == "cluster") config["cluster"][one.key] = one.value;
}

// A row's label: its configuration, if there are several, and its swept values.
std::string label_of(const work &done, size_t row) {
    const std::vector<run_config> &configs = done.configs;
    std::string label;
    const bool several = std::ranges::any_of(configs, [&](const run_config &one) {
        return one.file.native() != configs[0].file.native();
    });
    if (several || done.swept[row].empty()) label = name_of(configs[row], configs);
    for (const override_value &one : done.swept[row])
        label += format("{}{}.{}={}", label.empty() ? "" : ", ", one.section, one.key, one.value);
    return label;
}

// The first run of a row with the figures of all its repeats, or the first failure.
run_outcome joined(std::span<run_outcome> runs, comparison_row &row) {
    for (run_outcome &one : runs)
        if (!one.report) return std::move(one);
    if (runs.size() == 1) return std::move(runs[0]);
    std::vector<json> figures;
    for (const run_outcome &one : runs) {
        row.repeats_ms.push_back(time_ms(*one.report));
        figures.push_back(to_json(*one.report));
        if (figures.size() == 1) continue;
        for (const time_causes &phase : causes_of(*one.report)) row.more_causes += phase;
    }
    row.means = mean_figures(figures);
    return std::move(runs[0]);
}

comparison compare(const work &done, std::vector<run_outcome> runs) {
    const std::vector<run_config> &configs = done.configs;
    comparison all;
    const auto same = [&](const run_config &one) { return one.title == configs[0].title; };
    if (std::all_of(configs.begin(), configs.end(), same)) all.title = configs[0].title;
    for (size_t i = 0; i < configs.size(); ++i) {
        comparison_row row;
        run_outcome ended = joined({&runs[i * done.repeats], done.repeats}, row);
        if (!ended.has_ended) continue;  // interrupted before
        if (!ended.report) {
            all.failed.push_back(std::move(ended.failure));
            all.failed.back().label = label_of(done, i);
            continue;
        }
        run_report &report = *ended.report;
        if (report.cluster) {
            note_swept(*report.config, done.swept[i]);
        } else {
            row.experts_all = report.config["memory"]["experts_all"].get<uint64_t>();
            row.slots = report.config["memory"]["experts"].get<uint64_t>();
        }
        row.offline = ended.is_offline;
        row.config = name_of(configs[i], configs);
        row.report = std::move(report);
        all.rows.push_back(std::move(row));
    }
    if (all.rows.empty()) return all;
    const json source = all.rows[0].report.config->value("source", json::object());
    all.trace = source.value("trace", "");
    all.shape = source.value("shape", source.value("model", ""));
    return all;
}

std::string command_line(const compare_arguments &given) {
    std::string text = "moorage compare";
    for (const std::string &config : given.configs) text += " " + config;
    text += given.settings.text();
    for (const std::string &one : given.sweeps) text += " --sweep " + one;
    if (!given.repeat.empty()) text += " --repeat " + given.repeat;
    return given.what_if ? text + " --what-if" : text;
}

// Rows that failed are left out of `all`; the others keep their order.
status ask_all(const work &done, comparison &all, run_resources &shared) {
    size_t next = 0;
    for (size_t i = 0; i < done.configs.size() && next < all.rows.size(); ++i) {
        const auto same = [&](const failed_row &one) { return one.label == label_of(done, i); };
        if (std::ranges::any_of(all.failed, same)) continue;
        comparison_row &row = all.rows[next++];
        auto answered = ask_what_if(done.configs[i], row.report, shared);
        if (!answered) return answered.failure();
        row.asked = std::move(answered).value();
    }
    return success();
}

status write_all(const compare_arguments &given, const comparison &all) {
    // Prints the text first, so that a file that cannot be written does not lose the result.
    if (given.json_file != "-" && given.csv_file != "-") print(to_text(all, output_columns()));
    if (!given.json_file.empty())
        if (const status done = write_json(given.json_file, to_json(all)); !done) return done;
    if (!given.csv_file.empty())
        if (const status done = write_text(given.csv_file, to_csv(all)); !done) return done;
    if (given.html_file.empty()) return success();
    const status done = write_text(given.html_file, to_html(all, command_line(given)));
    if (done) print_written("HTML report", given.html_file, given.json_file);
    return done;
}

int run_compare(const compare_arguments &given) {
    const auto all_work = read_configs(given);
    if (!all_work) return fail(all_work.failure());
    run_resources shared;
    run_many_options options;
    options.what = "compare";
    options.jobs = given.jobs;
    options.optimum = !given.no_optimum;
    auto kept = row_file::open(given.rows, {given.json_file, given.csv_file, given.html_file});
    if (!kept) return fail(kept.failure());
    options.kept = {&*kept,
                    [&](size_t run) { return label_of(*all_work, run / all_work->repeats); },
                    [&](size_t run) { return all_work->written[run]; }};
    auto rows = run_many(all_work->runs, shared, options);
    if (!rows) return fail(rows.failure());
    const int signal = rows->signal;
    comparison all = compare(*all_work, std::move(rows->rows));
    if (signal != 0)
        all.interrupted = {name_of_signal(signal), all_work->configs.size(), kept->remedy()};
    if (given.what_if && signal == 0)
        if (const status asked = ask_all(*all_work, all, shared); !asked)
            return fail(asked.failure());
    const int code = exit_code_of(all.rows.size(), all.failed);
    if (code == exit_usage) return code;
    if (const status done = write_all(given, all); !done) return fail(done.failure());
    if (signal != 0) return end_interrupted(signal);
    const status closed = kept->finish();
    return closed ? code : fail(closed.failure());
}

}  // namespace

command install_compare(parser &app) {
    parser *sub = app.add_subcommand(
        "compare", "run the same work under several configurations, and compare them");
    const auto given = std::make_shared<compare_arguments>();
    sub->add_option("configs", given->configs, "TOML files")->required()->type_name("CONFIG.toml");
    add_settings(*sub, given->settings);
    sub->add_option("--sweep", given->sweeps,
                    "run with each of these values; several sweeps make all combinations")
        ->type_name("SECTION.KEY=A,B,...")
        ->take_all()
        ->expected(1);
    sub->add_option("--repeat", given->repeat,
                    "run every row with this many random seeds, or with each value of a key; adds "
                    "confidence intervals")
        ->type_name("N|SECTION.KEY=A,B,...");
    sub->add_flag("--what-if", given->what_if,
                  "run every row again with 10 % more of each resource");
    add_json(*sub, given->json_file, "all reports");
    sub->add_option("--csv", given->csv_file,
                    "write a line of comma-separated values for each row; -: standard output")
        ->type_name("FILE");
    sub->add_option("--html", given->html_file, "write a page with table and plots")
        ->type_name("FILE");
    add_row_file(*sub, given->rows);
    sub->add_option("--jobs", given->jobs, "number of runs at the same time; default: one per core")
        ->type_name("N");
    sub->add_flag("--no-optimum", given->no_optimum, "do not count the offline optimum's misses");
    sub->footer(rows_footer);
    return [given] { return run_compare(*given); };
}

}  // namespace moorage::tool
