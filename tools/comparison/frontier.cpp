// frontier.cpp - curves over a parameter, the Pareto set, and how they are shown.
#include "tools/comparison/frontier.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "tools/comparison/page.h"
#include "tools/comparison/tuning_parts.h"

namespace moorage::core {

namespace {

constexpr size_t frontier_bar_columns = 24;

bool prefers_large(const tuning &tuning) { return tuning.params[0].prefer == preference::largest; }

double figure_at(const tuning &tuning, size_t trial) { return tuning.trials[trial].figures[0]; }

// Words of the other parameters: a curve each.
std::vector<tuned_point> combinations_of(const tuning &tuning) {
    std::vector<tuned_point> points = {{0}};
    for (size_t param = 1; param < tuning.params.size(); ++param) {
        std::vector<tuned_point> longer;
        for (const tuned_point &point : points)
            for (size_t word = 0; word < tuning.params[param].words.size(); ++word) {
                longer.push_back(point);
                longer.back().push_back(static_cast<double>(word));
            }
        points = std::move(longer);
    }
    return points;
}

class curves {
public:
    curves(tuning &tuning, const run_points &run, const search_limits &limits)
        : tuning_(tuning), run_(run), limits_(limits), allowed_(tuning.params[0].grid.values()) {}

    status operator()() {
        std::vector<std::pair<size_t, size_t>> next;  // curve, index of the value
        for (const tuned_point &base : combinations_of(tuning_)) curves_.push_back({base, {}});
        for (const size_t index : spread_indices(allowed_.size(), limits_.samples))
            for (size_t curve = 0; curve < curves_.size(); ++curve) next.emplace_back(curve, index);
        while (!next.empty() && tuning_.trials.size() < limits_.runs_max) {
            next.resize(std::min(next.size(), limits_.runs_max - tuning_.trials.size()));
            if (const status done = try_all(next); !done) return done.failure();
            next = widest_gaps();
        }
        tuning_.stopped = !next.empty();
        return success();
    }

private:
    struct curve {
        tuned_point base;
        std::map<size_t, size_t> tried;  // index of the value to its trial
    };
    status try_all(const std::vector<std::pair<size_t, size_t>> &which) {
        std::vector<tuned_point> points;
        for (const auto &[curve, index] : which) {
            points.push_back(curves_[curve].base);
            points.back()[0] = allowed_[index];
        }
        auto ran = run_(points);
        if (!ran) return ran.failure();
        for (size_t i = 0; i < which.size(); ++i) {
            curves_[which[i].first].tried[which[i].second] = tuning_.trials.size();
            tuning_.trials.push_back(std::move((*ran)[i]));
        }
        return success();
    }
    // The middles of the two gaps that leave most open.
    std::vector<std::pair<size_t, size_t>> widest_gaps() const;

    tuning &tuning_;
    const run_points &run_;
    const search_limits &limits_;
    std::vector<double> allowed_;
    std::vector<curve> curves_;
};

std::vector<std::pair<size_t, size_t>> curves::widest_gaps() const {
    double low = INFINITY, high = -INFINITY;
    for (const trial &sample : tuning_.trials) {
        if (!sample.counts()) continue;
        low = std::min(low, sample.figures[0]);
        high = std::max(high, sample.figures[0]);
    }
    if (!(low <= high)) return {};  // nothing counts
    const double height = std::max(high - low, 1e-300);
    const double width = static_cast<double>(allowed_.size());
    struct gap {
        double open;
        size_t curve, middle;
    };
    std::vector<gap> gaps;
    for (size_t number = 0; number < curves_.size(); ++number) {
        const auto &tried = curves_[number].tried;
        for (auto left = tried.begin(); std::next(left) != tried.end(); ++left) {
            const auto right = std::next(left);
            const trial &a = tuning_.trials[left->second], &b = tuning_.trials[right->second];
            if (right->first - left->first < 2 || (!a.counts() && !b.counts())) continue;
            const double across = static_cast<double>(right->first - left->first) / width;
            const double rise =
                a.counts() && b.counts() ? std::abs(a.figures[0] - b.figures[0]) / height : 0;
            gaps.push_back({across + rise, number, left->first + (right->first - left->first) / 2});
        }
    }
    std::ranges::stable_sort(gaps, [](const gap &a, const gap &b) { return a.open > b.open; });
    std::vector<std::pair<size_t, size_t>> middles;
    for (size_t i = 0; i < std::min<size_t>(gaps.size(), 2); ++i)
        middles.emplace_back(gaps[i].curve, gaps[i].middle);
    return middles;
}

}  // namespace

status trace_frontier(tuning &tuning, const run_points &run, const search_limits &limits) {
    assert(tuning.params[0].is_number() && tuning.targets.size() == 1 && limits.samples > 1);
    if (tuning.params[0].prefer == preference::by_trend)
        tuning.params[0].prefer = preference::smallest;
    return curves(tuning, run, limits)();
}

std::vector<size_t> pareto_set(const tuning &tuning) {
    std::vector<size_t> order;
    for (size_t i = 0; i < tuning.trials.size(); ++i)
        if (tuning.trials[i].counts()) order.push_back(i);
    const bool large = prefers_large(tuning);
    const metric_target &goal = tuning.targets[0];
    std::ranges::stable_sort(order, [&](size_t a, size_t b) {
        const double x = tuning.trials[a].point[0], y = tuning.trials[b].point[0];
        if (x != y) return (x < y) != large;
        return goal.better(figure_at(tuning, a), figure_at(tuning, b));
    });
    // From the cheapest on: every trial that is better than all before it. All of equal ones.
    std::vector<size_t> front;
    for (const size_t i : order) {
        const bool equal = !front.empty() &&
                           tuning.trials[i].point[0] == tuning.trials[front.back()].point[0] &&
                           figure_at(tuning, i) == figure_at(tuning, front.back());
        if (front.empty() || equal ||
            goal.better(figure_at(tuning, i), figure_at(tuning, front.back())))
            front.push_back(i);
    }
    return front;
}

std::string frontier_text(const tuning &tuning) {
    const std::vector<size_t> front = pareto_set(tuning);
    std::string text = format("{} runs; Pareto-optimal in {} and {}:\n\n", tuning.trials.size(),
                              tuning.params[0].name, tuning.targets[0].metric);
    const std::vector<table_column> columns = trial_columns(tuning, front);
    double top = 0;
    for (const size_t i : front) top = std::max(top, std::abs(figure_at(tuning, i)));
    const std::vector<size_t> widths =
        fitted_widths(columns, text_columns - frontier_bar_columns - 4);
    text += heading_line(columns, widths);
    for (size_t row = 0; row < front.size(); ++row) {
        std::string line = row_line(columns, widths, row);
        if (line.ends_with('\n')) line.pop_back();
        if (top > 0)
            line += "  " +
                    block_bar(std::abs(figure_at(tuning, front[row])) / top, frontier_bar_columns);
        text += line + "\n";
    }
    if (!tuning.failed.empty()) text += "\n" + failed_text(tuning.failed, text_columns);
    const auto unfit = static_cast<size_t>(std::ranges::count_if(
        tuning.trials, [](const trial &trial) { return !trial.misfit.empty(); }));
    if (unfit != 0)
        text += "\n" + labelled("too large", format("{} of the values run do not fit", unfit));
    return text;
}

json frontier_json(const tuning &tuning) {
    const json whole = to_json(tuning);
    json root = {{"params", whole["params"]},
                 {"targets", whole["targets"]},
                 {"samples", whole["samples"]},
                 {"stopped", whole["stopped"]},
                 {"frontier", json::array()}};
    for (const size_t i : pareto_set(tuning))
        root["frontier"].push_back(trial_json(tuning, tuning.trials[i]));
    if (whole.contains("failed")) root["failed"] = whole["failed"];
    return root;
}

std::string frontier_html(const tuning &tuning) {
    return to_html({.title = tuning.targets[0].metric + " against " + tuning.params[0].name,
                    .kind = "frontier",
                    .text = frontier_text(tuning),
                    .data = frontier_json(tuning)});
}

}  // namespace moorage::core
