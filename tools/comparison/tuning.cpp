// tuning.cpp - the search for values that meet targets.
#include "tools/comparison/tuning_parts.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>
#include <utility>

#include "core/base/text.h"

namespace moorage::core {

namespace {

// A grid's last value is off by rounding, and must not cost a step.
constexpr double tolerance = 1e-9;
// Valleys that are followed at one time.
constexpr size_t valleys_max = 3;
// Rounds over all parameters.
constexpr uint32_t rounds_max = 8;

double rounded(double value) { return std::round(value * 1e12) / 1e12 + 0.0; }

double missed(const tuning &tuning, const trial &trial) {
    double sum = 0;
    for (size_t i = 0; i < tuning.targets.size(); ++i)
        sum += tuning.targets[i].missed_by(trial.figures[i]);
    return sum;
}

class value_search {
public:
    value_search(tuning &tuning, const run_points &run, const search_limits &limits)
        : tuning_(tuning), run_(run), limits_(limits) {
        for (const tuned_param &param : tuning.params) {
            allowed_.push_back(param.is_number() ? param.grid.values() : std::vector<double>());
            for (size_t i = 0; i < param.words.size(); ++i)
                allowed_.back().push_back(static_cast<double>(i));
        }
    }

    status operator()();

private:
    // Trials along one parameter, the others held: by the index of its value.
    struct line {
        size_t param;
        tuned_point base;
        std::map<size_t, size_t> tried = {};
    };

    status run_line_points(line &line, const std::vector<size_t> &indices);
    status search(line &line);
    void settle_trend(const line &line);
    bool bounds_only() const {
        return std::ranges::all_of(tuning_.targets,
                                   [](const auto &target) { return target.value.has_value(); });
    }
    bool one_meets(const line &line) const {
        return std::ranges::any_of(
            line.tried, [&](const auto &entry) { return tuning_.meets(trial_of(entry.second)); });
    }
    std::vector<size_t> beside_valleys(const line &line) const;
    std::vector<size_t> within_edge(const line &line) const;
    const trial &trial_of(size_t number) const { return tuning_.trials[number]; }

    tuning &tuning_;
    const run_points &run_;
    const search_limits &limits_;
    std::vector<std::vector<double>> allowed_;  // [params] ascending
    std::map<tuned_point, size_t> known_;       // its trial
};

// Runs the points that were not run before.
status value_search::run_line_points(line &line, const std::vector<size_t> &indices) {
    std::vector<tuned_point> fresh;
    std::vector<std::pair<size_t, tuned_point>> points;
    for (const size_t index : indices) {
        tuned_point point = line.base;
        point[line.param] = allowed_[line.param][index];
        if (!known_.contains(point)) {
            if (known_.size() + fresh.size() == limits_.runs_max) {
                tuning_.stopped = true;
                continue;
            }
            fresh.push_back(point);
        }
        points.emplace_back(index, std::move(point));
    }
    if (!fresh.empty()) {
        auto ran = run_(fresh);
        if (!ran) return ran.failure();
        assert(ran->size() == fresh.size());
        for (trial &trial : *ran) {
            known_.emplace(trial.point, tuning_.trials.size());
            tuning_.trials.push_back(std::move(trial));
        }
    }
    for (const auto &[index, point] : points) line.tried[index] = known_.at(point);
    return success();
}

// By the first figure that differs between the ends.
void value_search::settle_trend(const line &line) {
    tuned_param &param = tuning_.params[line.param];
    if (param.prefer != preference::by_trend) return;
    const auto counts = [&](const auto &entry) { return trial_of(entry.second).counts(); };
    const auto first = std::ranges::find_if(line.tried, counts);
    if (first == line.tried.end()) return;
    const auto last = std::find_if(line.tried.rbegin(), line.tried.rend(), counts);
    param.prefer = preference::smallest;
    for (size_t i = 0; i < tuning_.targets.size(); ++i) {
        const double low = trial_of(first->second).figures[i],
                     high = trial_of(last->second).figures[i];
        if (low == high) continue;
        if (tuning_.targets[i].better(low, high)) param.prefer = preference::largest;
        return;
    }
}

// The middles of the gaps beside the best few trials that have no better neighbour.
std::vector<size_t> value_search::beside_valleys(const line &line) const {
    struct valley {
        size_t trial;
        std::vector<size_t> middles;
    };
    std::vector<valley> valleys;
    for (auto current = line.tried.begin(); current != line.tried.end(); ++current) {
        if (!trial_of(current->second).counts()) continue;
        valley candidate{current->second, {}};
        bool lowest = true;
        const auto look = [&](auto beside) {
            lowest = lowest && !tuning_.better(trial_of(beside->second), trial_of(current->second));
            const size_t low = std::min(beside->first, current->first);
            const size_t gap = std::max(beside->first, current->first) - low;
            if (gap > 1) candidate.middles.push_back(low + gap / 2);
        };
        if (current != line.tried.begin()) look(std::prev(current));
        if (std::next(current) != line.tried.end()) look(std::next(current));
        if (lowest && !candidate.middles.empty()) valleys.push_back(std::move(candidate));
    }
    std::ranges::sort(valleys, [&](const valley &a, const valley &b) {
        return tuning_.better(trial_of(a.trial), trial_of(b.trial));
    });
    std::vector<size_t> middles;
    for (size_t i = 0; i < std::min(valleys.size(), valleys_max); ++i)
        middles.insert(middles.end(), valleys[i].middles.begin(), valleys[i].middles.end());
    return middles;
}

// Thirds of the gap before the first value that meets the targets, in the preferred direction.
std::vector<size_t> value_search::within_edge(const line &line) const {
    std::vector<size_t> order;
    for (const auto &entry : line.tried) order.push_back(entry.first);
    if (tuning_.params[line.param].prefer == preference::largest) std::ranges::reverse(order);
    const auto first = std::ranges::find_if(
        order, [&](size_t index) { return tuning_.meets(trial_of(line.tried.at(index))); });
    if (first == order.begin() || first == order.end()) return {};
    const size_t low = std::min(*first, *std::prev(first));
    const size_t gap = std::max(*first, *std::prev(first)) - low;
    if (gap < 2) return {};
    if (gap == 2) return {low + 1};
    return {low + gap / 3, low + gap - gap / 3};
}

status value_search::search(line &line) {
    const size_t count = allowed_[line.param].size();
    const size_t samples = tuning_.params[line.param].is_number() ? limits_.samples : count;
    std::vector<size_t> next = spread_indices(count, samples);
    if (const status done = run_line_points(line, next); !done) return done.failure();
    if (!tuning_.params[line.param].is_number()) return success();
    settle_trend(line);
    while (!tuning_.stopped) {
        next = bounds_only() && one_meets(line) ? within_edge(line) : beside_valleys(line);
        if (next.empty()) break;
        if (const status done = run_line_points(line, next); !done) return done.failure();
    }
    return success();
}

status value_search::operator()() {
    tuned_point start;
    for (const auto &values : allowed_) start.push_back(values[values.size() / 2]);
    for (uint32_t round = 0; round < rounds_max && !tuning_.stopped; ++round) {
        const tuned_point previous = start;
        for (size_t param = 0; param < tuning_.params.size(); ++param) {
            line line{param, start};
            if (const status done = search(line); !done) return done.failure();
            if (const auto best = tuning_.best()) start = trial_of(*best).point;
        }
        if (tuning_.params.size() == 1 || (round > 0 && start == previous)) break;
    }
    const auto best = tuning_.best();
    if (best && tuning_.meets(trial_of(*best))) tuning_.chosen = best;
    return success();
}

}  // namespace

std::vector<double> value_grid::values() const {
    assert(step > 0 && last >= first);
    std::vector<double> values;
    const auto add = [&](double value) {
        const double kept = whole ? std::round(value) : rounded(value);
        if (values.empty() || kept > values.back()) values.push_back(kept);
    };
    const double steps = std::floor((last - first) / step + tolerance);
    for (double i = 0; i <= steps; ++i) add(std::min(first + i * step, last));
    add(last);
    return values;
}

std::vector<size_t> spread_indices(size_t count, size_t samples) {
    const size_t taken = std::min(count, samples);
    std::vector<size_t> indices;
    for (size_t i = 0; i < taken; ++i)
        indices.push_back(taken == 1 ? 0 : i * (count - 1) / (taken - 1));
    return indices;
}

std::string tuned_param::text_of(double value) const {
    if (!is_number()) return words[static_cast<size_t>(value)];
    return grid.whole ? format("{:.0f}", value) : format("{}", value);
}

bool tuning::meets(const trial &trial) const { return trial.counts() && missed(*this, trial) == 0; }

bool tuning::better(const trial &a, const trial &b) const {
    if (!a.counts() || !b.counts()) return a.counts();
    const double short_a = missed(*this, a), short_b = missed(*this, b);
    if (short_a != short_b) return short_a < short_b;
    for (size_t i = 0; i < targets.size(); ++i)
        if (!targets[i].value && a.figures[i] != b.figures[i])
            return targets[i].better(a.figures[i], b.figures[i]);
    for (size_t i = 0; i < params.size(); ++i)
        if (params[i].is_number() && a.point[i] != b.point[i])
            return (a.point[i] < b.point[i]) == (params[i].prefer != preference::largest);
    return false;
}

std::optional<size_t> tuning::best() const {
    std::optional<size_t> found;
    for (size_t i = 0; i < trials.size(); ++i)
        if (trials[i].counts() && (!found || better(trials[i], trials[*found]))) found = i;
    return found;
}

status search_values(tuning &tuning, const run_points &run, const search_limits &limits) {
    assert(!tuning.params.empty() && !tuning.targets.empty() && limits.samples > 1);
    return value_search(tuning, run, limits)();
}

}  // namespace moorage::core
