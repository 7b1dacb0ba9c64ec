// targets.h - the targets of a search: figures of a report by name, and their bounds.
//
//   const auto wanted = parse_targets("tpot_ms<=30,perplexity<=6.4");
//   const auto figure = figure_of(to_json(report), (*wanted)[0].metric);
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_fwd.h"
#include "core/base/result.h"

namespace moorage::core {

struct metric_target {
    std::string metric;  // as given: "tpot_ms.p99", "hit_rate"
    bool at_least = false;
    std::optional<double> value = {};  // none: as good as possible

    bool met_by(double figure) const { return missed_by(figure) == 0; }
    // How far the figure is beyond the bound, as a share of the bound; 0: it is met.
    double missed_by(double figure) const;
    // Whether `a` is nearer to the target than `b`.
    bool better(double a, double b) const { return at_least ? a > b : a < b; }
    std::string text() const;  // "tpot_ms <= 20", "smallest tpot_ms"
};

// "metric<=value", "metric>=value". "metric=value" means at most; for a figure that is better the
// larger it is, it means at least (figure_table.h says which). "metric": the best possible value.
result<metric_target> parse_target(std::string_view text);
// Several targets, with commas between them.
result<std::vector<metric_target>> parse_targets(std::string_view text);

// A figure of a report's JSON, by a path ("tpot_ms.p99", "bytes.h2d", "layers.3.hit_rate"). A
// summary stands for its mean ("tpot_ms"). The last key alone is enough if one of the sections has
// it ("hit_rate", "h2d", "perplexity"). Errors name the nearest figure, or say that it was not
// measured.
result<double> figure_of(const json &report, const std::string &metric);

}  // namespace moorage::core
