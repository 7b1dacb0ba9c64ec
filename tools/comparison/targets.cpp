// targets.cpp - targets as they are written, and figures by name.
#include "tools/comparison/targets.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figure_table.h"

namespace moorage::core {

namespace {

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

void add_figures(const json &object, const std::string &path, std::vector<std::string> &names) {
    for (const auto &[key, value] : object.items()) {
        const std::string name = path.empty() ? key : path + "." + key;
        const bool is_summary = value.is_object() && value.contains("mean");
        if (value.is_number() || is_summary) names.push_back(name);
        if (value.is_object() && name != "config" && name != "faults")
            add_figures(value, name, names);
    }
}

}  // namespace

double metric_target::missed_by(double figure) const {
    if (!value) return 0;
    const double beyond = at_least ? *value - figure : figure - *value;
    return beyond <= 0 ? 0 : beyond / std::max(std::abs(*value), 1e-12);
}

std::string metric_target::text() const {
    if (!value) return format("{} {}", at_least ? "largest" : "smallest", metric);
    return format("{} {} {}", metric, at_least ? ">=" : "<=", *value);
}

result<metric_target> parse_target(std::string_view text) {
    const auto wrong = [&](std::string_view reason) {
        return error{format("--target {}: {}; the form is metric=value, metric<=value, "
                            "metric>=value, for example tpot_ms=20, or metric alone for its best",
                            text, reason),
                     true};
    };
    const size_t equals = text.find('=');
    std::string_view name = text.substr(0, equals);
    const char relation = name.empty() ? ' ' : name.back();
    if (relation == '<' || relation == '>') name.remove_suffix(1);
    metric_target target;
    target.metric = trimmed(name);
    if (target.metric.empty()) return wrong("no metric in it");
    if (target.metric.find_first_of("<> ") != std::string::npos) return wrong("= is missing");
    const figure *known = find_figure(target.metric);
    const bool larger = known && known->better == better_when::larger;
    target.at_least = relation == '>' || (relation != '<' && larger);
    if (equals == std::string_view::npos) {
        if (relation == '<' || relation == '>') return wrong("= is missing");
        return target;
    }
    const std::string_view value = trimmed(text.substr(equals + 1));
    double bound = 0;
    const auto [end, failure] = std::from_chars(value.data(), value.data() + value.size(), bound);
    if (failure != std::errc() || end != value.data() + value.size() || !std::isfinite(bound))
        return wrong(format("\"{}\" is no number", value));
    target.value = bound;
    return target;
}

result<std::vector<metric_target>> parse_targets(std::string_view text) {
    std::vector<metric_target> targets;
    for (const std::string &part : split(text, ',')) {
        auto target = parse_target(trimmed(part));
        if (!target) return target.failure();
        for (const metric_target &known : targets)
            if (known.metric == target->metric && known.at_least == target->at_least)
                return error{format("--target {}: {} is bounded twice", text, target->metric),
                             true};
        targets.push_back(std::move(target).value());
    }
    return targets;
}

result<double> figure_of(const json &report, const std::string &metric) {
    const json *value = at_path(report, metric);
    if (const auto path = path_of_figure(metric); !value && path) value = at_path(report, *path);
    const std::string summary = metric.substr(0, metric.find('.'));
    if ((summary == "tpot_ms" || summary == "ttft_ms") && value &&
        report[summary]["mean"].is_null())
        return error{format("{} was not measured by this run: no token was decoded after a first "
                            "one; for a scored text set run.prefill=0",
                            metric),
                     true};
    if (value && value->is_object() && value->contains("mean")) value = &value->at("mean");
    if (value && value->is_number()) return value->get<double>();
    if (value && value->is_null())
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

}  // namespace moorage::core
