// tuning.h - finds the values of parameters that meet targets. It runs chosen values until a finer
// step would make no difference.
//
//   tuning found{.params = {{.name = "memory.experts", .grid = {1, 1440, 1, true}}},
//                .targets = *parse_targets("tpot_ms=30")};
//   if (search_values(found, run, {})) ...found.trials[*found.chosen]
//
// Every answer is a value that was run. A number is sampled evenly. If samples meet the targets,
// the edge between the first that does and its neighbour that does not is narrowed down to the
// grid's step. If none does, or if a figure is to be as good as possible, the gaps beside the best
// few samples are halved. So a figure with several valleys is followed into each of them. Words are
// all tried. Several parameters are searched one after the other, with the others at the best
// values seen, until a round of all changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"
#include "tools/comparison/failed_rows.h"
#include "core/report/report.h"
#include "tools/comparison/targets.h"

namespace moorage::core {

// Values of a parameter that may be chosen: first, first + step, ..., and last itself.
struct value_grid {
    double first = 0, last = 1, step = 0.01;
    bool whole = false;  // numbers are rounded to integers
    std::vector<double> values() const;
};

// Which of the values that meet the targets is chosen.
enum class preference : uint8_t {
    by_trend,  // the smallest; but the largest if larger values make the first figure worse
    smallest,
    largest
};

struct tuned_param {
    std::string name;                     // "router.alpha"
    std::vector<std::string> words = {};  // possible words; empty: a number of the grid
    value_grid grid = {};
    preference prefer = preference::by_trend;  // search_values() settles a trend
    bool is_number() const { return words.empty(); }
    // The value as a configuration writes it. `value` is a number of the grid, or the index of a
    // word.
    std::string text_of(double value) const;
};

using tuned_point = std::vector<double>;  // [params]

struct trial {
    tuned_point point;
    std::vector<double> figures;  // [targets]; none: its run failed
    std::string misfit;           // its need beyond the machine; such a value is no answer
    bool counts() const { return !figures.empty() && misfit.empty(); }
};

struct tuning {
    std::vector<tuned_param> params;
    std::vector<metric_target> targets;
    std::vector<trial> trials = {};         // in the order in which they ran
    std::vector<failed_row> failed = {};    // those without figures
    bool stopped = false;                   // the limit of runs was reached, and points were left
    std::optional<size_t> chosen = {};      // a trial; none: no run meets the targets
    std::optional<run_report> report = {};  // report of the chosen trial

    bool meets(const trial &trial) const;
    // The trial that is nearest to the targets. none: no trial counts.
    std::optional<size_t> best() const;
    // Whether `a` is nearer than `b`. These count in order: the targets are missed by less, then
    // figures that are to be as good as possible, then preferred values, in the order of targets
    // and parameters.
    bool better(const trial &a, const trial &b) const;
};

// Runs one trial for each point, in their order. The callee adds failed ones to tuning::failed.
using run_points = std::function<result<std::vector<trial>>(std::span<const tuned_point>)>;

struct search_limits {
    uint32_t samples = 6;     // of a number, at first; two or more
    uint32_t runs_max = 100;  // points
};

// Fills in trials, stopped, chosen and the trend. Errors are those of `run`.
status search_values(tuning &tuning, const run_points &run, const search_limits &limits);

// For a terminal, at most 80 columns.
std::string to_text(const tuning &found);
// {"params": [{"name", "from", "to", "step", "prefer" or "words"}], "targets": [{"metric",
// "relation", "value"}], "samples": [{"values": {name: value}, "figures": {metric: figure}, "fits",
// "met"}], "chosen": a sample or null, "met", "best": a sample or null, "stopped", "report": of the
// chosen run, "failed": values whose runs failed, if there are any}. With one parameter and one
// target, "param", "target", "prefer" and "grid" stand beside them, and "value" and "measured" in
// each sample.
json to_json(const tuning &found);

}  // namespace moorage::core
