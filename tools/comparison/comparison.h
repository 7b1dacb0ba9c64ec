// comparison.h - several runs of the same work side by side: their differences, and the table.
//
//     comparison compared{.title = "...", .trace = "prose.safetensors", .shape = "mixtral-8x7b"};
//     compared.rows.push_back({.report = report, .slots = 64, .experts_all = 256});
//     std::fputs(to_text(compared).c_str(), stdout);
//
// Columns are the settings that differ between the reports' configs. to_html() makes a page of the
// same comparison.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "tools/comparison/failed_rows.h"
#include "core/report/report.h"
#include "tools/comparison/what_if.h"

namespace moorage::core {

struct comparison_row {
    run_report report;
    uint64_t slots = 0;  // cached experts; 0: the sum of the report's layers, or memory.experts
    uint64_t experts_all = 0;  // experts of the model, all layers; 0: not known, no shares are
                               // shown
    // The policy sees the trace's future. So the row is a bound and never called the fastest. Also
    // true for any row whose cache plugin is belady.
    bool offline = false;
    std::string config = {};  // names the row's configuration if several are compared
    // Mean TPOT (latency for clusters) of the same run with other seeds or texts, `report` first.
    // As many for every row, in the same order. Empty: it ran once.
    std::vector<double> repeats_ms = {};
    // For repeated runs: the mean of every figure, in the form of a report's JSON, and the time by
    // causes of all runs but the first.
    json_box means = {};
    time_causes more_causes = {};
    std::optional<what_if> savings = {};  // what more of each resource would save
};

struct comparison {
    std::string title;         // heading
    std::string trace, shape;  // the inputs, for the page's header; may be empty
    std::vector<comparison_row> rows;
    std::vector<failed_row> failed = {};  // rows that failed
    // A comparison that was interrupted before all rows had ended: the signal, the number of rows,
    // and how to go on ("": not possible).
    struct interruption {
        std::string signal;  // "SIGINT"; "": it was not interrupted
        size_t rows = 0;
        std::string remedy;
    } interrupted = {};
};

// "interrupted by SIGINT after 134 of 500 rows; ...".
std::string interrupted_text(const comparison &compared);

// A column that tells rows apart. Each stage has one column: the plugin, and in brackets those of
// its parameters that differ between rows with this plugin, "lfu(half_life=16)".
struct key_column {
    std::string heading;              // "cache", "sharing", "batch"
    std::vector<std::string> values;  // by row
};

// The properties of all rows together that text, JSON and page need. Vectors are by row unless
// noted.
struct comparison_view {
    std::vector<std::string> settings;  // "section.key" of every setting that differs; not by row
    std::vector<key_column> columns;    // without profile and size, which the table always has
    std::vector<std::string> labels;    // the columns' values joined: a line in a plot
    std::vector<uint64_t> slots;
    std::vector<double> share;  // slots / experts_all; 0: not known
    std::vector<bool> offline;
    std::vector<uint64_t> storage_bytes;  // bytes for experts on a cluster's devices; 0: one
                                          // machine
    std::vector<bool> best;               // lowest mean TPOT in its group; lowest latency for
                                          // clusters
    // Rows with equal numbers have equal profile, memory, work and quality. Only these are ranked
    // together.
    std::vector<size_t> group;
    // Pareto-optimal: no row of equal profile and work is at least as good in memory, time and
    // quality, and better in one. And the row itself beats at least one other in this sense. Never
    // a bound, a row that does not fit, or a row that changes the model's output by an unknown
    // amount.
    std::vector<bool> pareto;
    std::vector<std::string> profiles;  // profiles of single machines, in order of appearance; not
                                        // by row
};

comparison_view view_of(const comparison &compared);

// Rows of single machines with this profile.
std::vector<size_t> rows_on(const comparison &compared, const std::string &profile);

// The value of a setting as it was given. "": the row's config has none.
std::string setting_text(const run_report &report, const std::string &key);

// Sentences: the fastest policy of each profile, where its time goes, and what else a reader should
// know before drawing a conclusion (bounds, hit rate against speed). Warnings come last.
std::vector<std::string> reading(const comparison &compared, const comparison_view &view);

// The time by which rows are compared: TPOT, or latency for clusters.
double time_ms(const run_report &report);
// How much worse a run predicts its text than the model's own routing would, or how badly a given
// text is predicted. 0 for lossless runs, larger for others. nullopt: not known.
double shown_ms(const comparison_row &row);
// The means of a row's repeats, for every figure that is a number in all reports' JSON, without
// lists.
json mean_figures(std::span<const json> reports);
// The mean of a row's repeats if it has some, otherwise `fallback`.
double mean_or(const comparison_row &row, std::string_view path, double fallback);
// How much worse the model alone would predict a run's text, or how badly a given text is
// predicted. 0 for lossless runs, larger for others. nullopt: not known.
std::optional<double> quality_of(const run_report &report);
// Half the width of the 95 % interval of the mean (Student's t). Requires: two values or more.
double half_interval(std::span<const double> values);
// Whether `a` is faster than `b`. Rows that ran once are compared by the values in a table.
// Otherwise the interval of the mean of ln(a / b), repeat by repeat, has to exclude 0.
bool is_faster(const comparison_row &a, const comparison_row &b);

// For repeated runs: "lru and lfu are not told apart by 5 repeats", if `fastest` is not. Otherwise
// "".
std::string unsure_sentence(const comparison &compared, const comparison_view &view,
                            const std::vector<size_t> &rows, const std::string &fastest);

// The texts that models wrote: each text once, with the labels of the rows that wrote it.
struct written_text {
    const text_report *text = nullptr;  // borrowed from a row
    std::string labels;                 // "lru; lfu"
    bool every_row = false;
};
std::vector<written_text> written_texts(const comparison &compared, const comparison_view &view);
// Whether any row scored a text, its own or another's.
bool any_scored(const comparison &compared);

// The table and the reading below it, at most `columns_max` wide (80 if all rows are clusters).
// Columns without room are named. Requires: columns_max >= text_columns.
std::string to_text(const comparison &compared, size_t columns_max = 100);
// {"title", "results": [the report of each run, and "settings": {those that differ}]}, and "failed"
// if a row did. Each result has "label", "columns": [[heading, value]...], "group" (equal ones are
// ranked), "offline", "pareto", and "repeats": {"ms", "mean", "half_interval", "means"} if it ran
// again. "interrupted": {"signal", "rows"} if not all rows had ended.
json to_json(const comparison &compared);
// A line for each row, with every figure that is a number. Failed rows have the reason.
std::string to_csv(const comparison &compared);
// `command`: the command line that makes the page again; may be empty.
std::string to_html(const comparison &compared, const std::string &command);

}  // namespace moorage::core
