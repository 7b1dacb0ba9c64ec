// tuning.cpp - the search for values that meet targets.
#include "core/report/tuning_parts.h"

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

double missed(const tuning &of, const trial &one) {
    double sum = 0;
    for (size_t i = 0; i < of.targets.size(); ++i) sum += of.targets[i].missed_by(one.figures[i]);
    return sum;
}

class value_search {
public:
    value_search(tuning &of, const run_points &run, const search_limits &limits)
        : of_(of), run_(run), limits_(limits) {
        for (const tuned_param &param : of.params) {
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

    status try_at(line &on, const std::vector<size_t> &indices);
    status search(line &on);
    void settle_trend(const line &on);
    bool bounds_only() const {
        return std::ranges::all_of(of_.targets,
                                   [](const auto &one) { return one.value.has_value(); });
    }
    bool one_meets(const line &on) const {
        return std::ranges::any_of(on.tried,
                                   [&](const auto &one) { return of_.meets(at(one.second)); });
    }
    std::vector<size_t> beside_valleys(const line &on) const;
    std::vector<size_t> within_edge(const line &on) const;
    const trial &at(size_t number) const { return of_.trials[number]; }

    tuning &of_;
    const run_points &run_;
    const search_limits &limits_;
    std::vector<std::vector<double>> allowed_;  // [params] ascending
    std::map<tuned_point, size_t> known_;       // its trial
};

// Runs the points that were not run before.
status value_search::try_at(line &on, const std::vector<size_t> &indices) {
    std::vector<tuned_point> fresh;
    std::vector<std::pair<size_t, tuned_point>> wanted;
    for (const size_t index : indices) {
        tuned_point point = on.base;
        point[on.param] = allowed_[on.param][index];
        if (!known_.contains(point)) {
            if (known_.size() + fresh.size() == limits_.runs_max) {
                of_.stopped = true;
                continue;
            }
            fresh.push_back(point);
        }
        wanted.emplace_back(index, std::move(point));
    }
    if (!fresh.empty()) {
        auto ran = run_(fresh);
        if (!ran) return ran.failure();
        assert(ran->size() == fresh.size());
        for (trial &one : *ran) {
            known_.emplace(one.at, of_.trials.size());
            of_.trials.push_back(std::move(one));
        }
    }
    for (const auto &[index, point] : wanted) on.tried[index] = known_.at(point);
    return success();
}

// By the first figure that differs between the ends.
void value_search::settle_trend(const line &on) {
    tuned_param &param = of_.params[on.param];
    if (param.prefer != preference::by_trend) return;
    const auto counts = [&](const auto &one) { return at(one.second).counts(); };
    const auto first = std::ranges::find_if(on.tried, counts);
    if (first == on.tried.end()) return;
    const auto last = std::find_if(on.tried.rbegin(), on.tried.rend(), counts);
    param.prefer = preference::smallest;
    for (size_t i = 0; i < of_.targets.size(); ++i) {
        const double low = at(first->second).figures[i], high = at(last->second).figures[i];
        if (low == high) continue;
        if (of_.targets[i].better(low, high)) param.prefer = preference::largest;
        return;
    }
}

// The middles of the gaps beside the best few trials that have no better neighbour.
std::vector<size_t> value_search::beside_valleys(const line &on) const {
    struct valley {
        size_t trial;
        std::vector<size_t> middles;
    };
    std::vector<valley> valleys;
    for (auto here = on.tried.begin(); here != on.tried.end(); ++here) {
        if (!at(here->second).counts()) continue;
        valley one{here->second, {}};
        bool lowest = true;
        const auto look = [&](auto beside) {
            lowest = lowest && !of_.better(at(beside->second), at(here->second));
            const size_t low = std::min(beside->first, here->first);
            const size_t gap = std::max(beside->first, here->first) - low;
            if (gap > 1) one.middles.push_back(low + gap / 2);
        };
        if (here != on.tried.begin()) look(std::prev(here));
        if (std::next(here) != on.tried.end()) look(std::next(here));
        if (lowest && !one.middles.empty()) valleys.push_back(std::move(one));
    }
    std::ranges::sort(valleys, [&](const valley &a, const valley &b) {
        return of_.better(at(a.trial), at(b.trial));
    });
    std::vector<size_t> middles;
    for (size_t i = 0; i < std::min(valleys.size(), valleys_max); ++i)
        middles.insert(middles.end(), valleys[i].middles.begin(), valleys[i].middles.end());
    return middles;
}

// Thirds of the gap before the first value that meets the targets, in the preferred direction.
std::vector<size_t> value_search::within_edge(const line &on) const {
    std::vector<size_t> order;
    for (const auto &one : on.tried) order.push_back(one.first);
    if (of_.params[on.param].prefer == preference::largest) std::ranges::reverse(order);
    const auto first = std::ranges::find_if(
        order, [&](size_t index) { return of_.meets(at(on.tried.at(index))); });
    if (first == order.begin() || first == order.end()) return {};
    const size_t low = std::min(*first, *std::prev(first));
    const size_t gap = std::max(*first, *std::prev(first)) - low;
    if (gap < 2) return {};
    if (gap == 2) return {low + 1};
    return {low + gap / 3, low + gap - gap / 3};
}

status value_search::search(line &on) {
    const size_t count = allowed_[on.param].size();
    const size_t samples = of_.params[on.param].is_number() ? limits_.samples : count;
    std::vector<size_t> next = spread_indices(count, samples);
    if (const status done = try_at(on, next); !done) return done.failure();
    if (!of_.params[on.param].is_number()) return success();
    settle_trend(on);
    while (!of_.stopped) {
        next = bounds_only() && one_meets(on) ? within_edge(on) : beside_valleys(on);
        if (next.empty()) break;
        if (const status done = try_at(on, next); !done) return done.failure();
    }
    return success();
}

status value_search::operator()() {
    tuned_point from;
    for (const auto &values : allowed_) from.push_back(values[values.size() / 2]);
    for (uint32_t round = 0; round < rounds_max && !of_.stopped; ++round) {
        const tuned_point before = from;
        for (size_t param = 0; param < of_.params.size(); ++param) {
            line on{param, from};
            if (const status done = search(on); !done) return done.failure();
            if (const auto best = of_.best()) from = at(*best).at;
        }
        if (of_.params.size() == 1 || (round > 0 && from == before)) break;
    }
    const auto best = of_.best();
    if (best && of_.meets(at(*best))) of_.chosen = best;
    return success();
}

}  // namespace

std::vector<double> value_grid::values() const {
    assert(step > 0 && to >= from);
    std::vector<double> all;
    const auto add = [&](double value) {
        const double kept = whole ? std::round(value) : rounded(value);
        if (all.empty() || kept > all.back()) all.push_back(kept);
    };
    const double steps = std::floor((to - from) / step + tolerance);
    for (double i = 0; i <= steps; ++i) add(std::min(from + i * step, to));
    add(to);
    return all;
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

bool tuning::meets(const trial &one) const { return one.counts() && missed(*this, one) == 0; }

bool tuning::better(const trial &a, const trial &b) const {
    if (!a.counts() || !b.counts()) return a.counts();
    const double short_a = missed(*this, a), short_b = missed(*this, b);
    if (short_a != short_b) return short_a < short_b;
    for (size_t i = 0; i < targets.size(); ++i)
        if (!targets[i].value && a.figures[i] != b.figures[i])
            return targets[i].better(a.figures[i], b.figures[i]);
    for (size_t i = 0; i < params.size(); ++i)
        if (params[i].is_number() && a.at[i] != b.at[i])
            return (a.at[i] < b.at[i]) == (params[i].prefer != preference::largest);
    return false;
}

std::optional<size_t> tuning::best() const {
    std::optional<size_t> found;
    for (size_t i = 0; i < trials.size(); ++i)
        if (trials[i].counts() && (!found || better(trials[i], trials[*found]))) found = i;
    return found;
}

status search_values(tuning &of, const run_points &run, const search_limits &limits) {
    assert(!of.params.empty() && !of.targets.empty() && limits.samples > 1);
    return value_search(of, run, limits)();
}

}  // namespace moorage::core
