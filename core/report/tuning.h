// tuning.h - which value of a parameter meets a target: figures of a report by name, the rule that
// chooses, and the result as text and JSON.
//
//   tuning found{.param = "router.alpha", .target = *parse_target("tpot_ms<=20")};
//   found.samples = {{0, 25}, {0.5, 20}, {1, 15}};
//   if (settle(found)) ...found.chosen, the value to verify
//
// After SMoE, Section V-C: fit T(parameter), walk over a grid, take the smallest value whose fit
// meets the target.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"
#include "core/report/failed_rows.h"
#include "core/report/fit.h"
#include "core/report/report.h"

namespace moorage::core {

struct metric_target {
    std::string metric;  // as given: "tpot_ms.p99", "hit_rate"
    bool at_least = false;
    double value = 0;
    bool met_by(double figure) const { return at_least ? figure >= value : figure <= value; }
    // Whether `a` is nearer to what is wanted than `b`.
    bool better(double a, double b) const { return at_least ? a > b : a < b; }
    std::string text() const;  // "tpot_ms <= 20"
};
// "metric<=value", "metric>=value", or "metric=value": at most, but at least for what is better the
// larger it is (hit_rate, hits, tokens_per_s, accuracy, agreement, rows_agreement, rows_unchanged,
// prefetch_used).
result<metric_target> parse_target(std::string_view text);

// A figure of a report's JSON: a path ("tpot_ms.p99", "bytes.h2d", "layers.3.hit_rate"); a summary
// stands for its mean ("tpot_ms"); the last key alone will do where it is to be found in one of the
// sections ("hit_rate", "h2d", "perplexity"). Errors name the nearest figure, or that it was not
// measured.
result<double> figure_of(const json &report, const std::string &metric);

// Values of the parameter that may be chosen: from, from + step, ..., and to itself.
struct value_grid {
    double from = 0, to = 1, step = 0.01;
    bool whole = false;  // numbers are rounded to integers
    std::vector<double> values() const;
};

enum class preference : uint8_t { by_fit, smallest, largest };

struct tuning {
    std::string param;  // "router.alpha"
    metric_target target;
    uint32_t degree = 1;
    value_grid grid;
    preference prefer = preference::by_fit;
    std::vector<fit_point> samples;  // value of the parameter, figure
    std::vector<failed_row> failed;  // values without a figure, the choice's own run included
    // settle() fills in:
    std::optional<polynomial> fit;
    bool largest = false;          // the largest value that meets the target is taken
    std::optional<double> chosen;  // none: no value's fit meets it
    double fitted = 0;             // at the chosen value
    // One run at the chosen value; the caller fills these in.
    std::optional<double> measured;
    std::optional<run_report> verified;

    bool met() const { return measured && target.met_by(*measured); }
    // Of the samples and the verification, the one that is nearest to what is wanted. Requires:
    // samples.
    fit_point best() const;
};

// Fits and chooses. The smallest value whose fit meets the target, to a billionth of it; where a
// larger value makes the figure worse, so that the smallest would say nothing, the largest
// (preference::by_fit). Errors are those of the fit.
status settle(tuning &of);

// For a terminal, at most 80 columns.
std::string to_text(const tuning &found);
// {"param", "target": {"metric", "relation", "value"}, "samples": [{"value", "measured",
// "fitted"}],
//  "fit": {"degree", "coefficients", "r2", "error_max"}, "grid": {"from", "to", "step"}, "prefer",
//  "chosen": {"value", "fitted", "measured"} or null, "met", "best": {"value", "measured"},
//  "report": of the run that verified, "failed": values whose runs failed, where there are any}
json to_json(const tuning &found);

}  // namespace moorage::core
