// tuning.cpp - targets, figures by name, and the rule that chooses a value.
#include "core/report/tuning.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cmath>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "core/report/substitution.h"

namespace moorage::core {

namespace {

constexpr std::array<std::string_view, 9> better_when_larger = {
    "hit_rate",       "hits",           "tokens_per_s",  "accuracy",           "agreement",
    "rows_agreement", "rows_unchanged", "prefetch_used", "prediction_accuracy"};
// What a tolerance does: a fit of exact figures is off by rounding, and must not cost a step.
constexpr double tolerance = 1e-9;

std::string_view last_key(std::string_view metric) {
    if (const size_t dot = metric.rfind('.'); dot != std::string_view::npos)
        metric.remove_prefix(dot + 1);
    return metric;
}

std::string_view trimmed(std::string_view text) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    return text;
}

// Sections of a report whose keys are known by themselves, in the order of the search.
constexpr std::array<const char *, 6> sections = {"experts", "text",       "bytes",
                                                  "time_ms", "prediction", "routing"};

void add_figures(const json &of, const std::string &path, std::vector<std::string> &names) {
    for (const auto &[key, value] : of.items()) {
        const std::string name = path.empty() ? key : path + "." + key;
        const bool is_summary = value.is_object() && value.contains("mean");
        if (value.is_number() || is_summary) names.push_back(name);
        if (value.is_object() && name != "config" && name != "faults")
            add_figures(value, name, names);
    }
}

const json *at_path(const json &report, const std::string &metric) {
    const json *at = &report;
    for (const std::string &key : split(metric, '.')) {
        if (at->is_array()) {
            size_t index = 0;
            const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), index);
            if (failure != std::errc() || end != key.data() + key.size() || index >= at->size())
                return nullptr;
            at = &(*at)[index];
        } else if (at->is_object() && at->contains(key)) {
            at = &at->at(key);
        } else {
            return nullptr;
        }
    }
    return at;
}

double rounded(double value) { return std::round(value * 1e12) / 1e12 + 0.0; }

}  // namespace

std::string metric_target::text() const {
    return format("{} {} {}", metric, at_least ? ">=" : "<=", value);
}

result<metric_target> parse_target(std::string_view text) {
    const auto wrong = [&](std::string_view why) {
        return error{format("--target {}: {}; the form is metric=value, metric<=value or "
                            "metric>=value, for example tpot_ms=20",
                            text, why),
                     true};
    };
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) return wrong("no = in it");
    std::string_view name = text.substr(0, equals);
    const char relation = name.empty() ? ' ' : name.back();
    if (relation == '<' || relation == '>') name.remove_suffix(1);
    metric_target target;
    target.metric = trimmed(name);
    if (target.metric.empty()) return wrong("no metric before the =");
    const std::string_view value = trimmed(text.substr(equals + 1));
    const auto [end, failure] =
        std::from_chars(value.data(), value.data() + value.size(), target.value);
    if (failure != std::errc() || end != value.data() + value.size() ||
        !std::isfinite(target.value))
        return wrong(format("\"{}\" is no number", value));
    const bool larger = std::find(better_when_larger.begin(), better_when_larger.end(),
                                  last_key(target.metric)) != better_when_larger.end();
    target.at_least = relation == '>' || (relation != '<' && larger);
    return target;
}

result<double> figure_of(const json &report, const std::string &metric) {
    const json *at = at_path(report, metric);
    for (const char *section : sections)
        if (!at) at = at_path(report, std::string(section) + "." + metric);
    // A time of nothing is 0 in the report; taken for a figure it would meet every target.
    const std::string summary = metric.substr(0, metric.find('.'));
    if ((summary == "tpot_ms" || summary == "ttft_ms") && at && report[summary]["mean"] == 0)
        return error{format("{} was not measured by this run: no token was decoded after a first "
                            "one; for a scored text set run.prefill=0",
                            metric),
                     true};
    if (at && at->is_object() && at->contains("mean")) at = &at->at("mean");
    if (at && at->is_number()) return at->get<double>();
    if (at && at->is_null())
        return error{format("{} was not measured by this run; choose another metric", metric)};
    if (last_key(metric) == "perplexity" || last_key(metric) == "nll")
        return error{format("{} is known of a text alone: give [source] model and text", metric),
                     true};
    std::vector<std::string> names;
    add_figures(report, "", names);
    std::string hint = did_you_mean(metric, names);
    if (hint.empty())
        hint =
            "; there are tpot_ms, ttft_ms, tokens_per_s, hit_rate, misses, bytes.h2d and the "
            "other figures of the JSON report";
    return error{format("{} is no figure of the report{}", metric, hint), true};
}

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

fit_point tuning::best() const {
    assert(!samples.empty());
    fit_point best = samples.front();
    for (const fit_point &one : samples)
        if (target.better(one.y, best.y)) best = one;
    if (measured && chosen && target.better(*measured, best.y)) best = {*chosen, *measured};
    return best;
}

status settle(tuning &of) {
    auto fit = fit_polynomial(of.samples, of.degree);
    if (!fit) return fit.failure();
    of.fit = *fit;
    std::vector<double> values = of.grid.values();
    const double first = (*fit)(values.front()), last = (*fit)(values.back());
    of.largest = of.prefer == preference::largest ||
                 (of.prefer == preference::by_fit && of.target.better(first, last));
    if (of.largest) std::reverse(values.begin(), values.end());
    const double slack = tolerance * std::max(std::abs(of.target.value), 1e-300);
    const double limit = of.target.value + (of.target.at_least ? -slack : slack);
    of.chosen.reset();
    for (const double value : values) {
        const double fitted = (*fit)(value);
        if (of.target.at_least ? fitted < limit : fitted > limit) continue;
        of.chosen = value;
        of.fitted = fitted;
        break;
    }
    return success();
}

json to_json(const tuning &found) {
    json samples = json::array();
    for (const fit_point &one : found.samples)
        samples.push_back({{"value", one.x},
                           {"measured", stable(one.y)},
                           {"fitted", found.fit ? json(stable((*found.fit)(one.x))) : json()}});
    json all = {{"param", found.param},
                {"target",
                 {{"metric", found.target.metric},
                  {"relation", found.target.at_least ? ">=" : "<="},
                  {"value", found.target.value}}},
                {"samples", std::move(samples)}};
    if (found.fit) {
        const fit_quality quality = quality_of(*found.fit, found.samples);
        all["fit"] = {{"degree", found.fit->degree()},
                      {"coefficients", found.fit->coefficients()},
                      {"r2", stable(quality.r2)},
                      {"error_max", stable(quality.error_max)}};
    }
    all["grid"] = {{"from", found.grid.from}, {"to", found.grid.to}, {"step", found.grid.step}};
    all["prefer"] = found.largest ? "largest" : "smallest";
    all["chosen"] = json();
    if (found.chosen)
        all["chosen"] = {{"value", *found.chosen},
                         {"fitted", stable(found.fitted)},
                         {"measured", found.measured ? json(stable(*found.measured)) : json()}};
    all["met"] = found.met();
    all["best"] = json();
    if (!found.samples.empty()) {
        const fit_point best = found.best();
        all["best"] = {{"value", best.x}, {"measured", stable(best.y)}};
    }
    if (!found.failed.empty()) all["failed"] = failed_json(found.failed);
    if (found.verified) all["report"] = to_json(*found.verified);
    return all;
}

}  // namespace moorage::core
