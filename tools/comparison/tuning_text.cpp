// tuning_text.cpp - the runs and the answer of a search: a table with sentences below it, and JSON.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"
#include "core/report/substitution.h"
#include "tools/comparison/tuning_parts.h"

namespace moorage::core {

namespace {

constexpr size_t tuning_bar_columns = 24;

// Six significant digits, without exponents where they can be avoided.
std::string shown(double value) { return format("{:.6g}", value); }

std::string targets_text(const tuning &found) {
    std::vector<std::string> texts;
    for (const metric_target &target : found.targets) texts.push_back(target.text());
    return listed(texts, "and");
}

// "cache.plugin = lfu, memory.experts = 640"
std::string point_text(const tuning &found, const tuned_point &point) {
    std::string text;
    for (size_t i = 0; i < point.size(); ++i)
        text += format("{}{} = {}", i == 0 ? "" : ", ", found.params[i].name,
                       found.params[i].text_of(point[i]));
    return text;
}

std::string figures_text(const tuning &found, const trial &trial) {
    std::string text;
    for (size_t i = 0; i < trial.figures.size(); ++i)
        text +=
            format("{}{} {}", i == 0 ? "" : ", ", found.targets[i].metric, shown(trial.figures[i]));
    return text;
}

// By value, parameters in their order.
std::vector<size_t> rows_of(const tuning &found) {
    std::vector<size_t> rows(found.trials.size());
    std::iota(rows.begin(), rows.end(), size_t{0});
    std::erase_if(rows, [&](size_t i) { return found.trials[i].figures.empty(); });
    std::ranges::sort(rows, {}, [&](size_t i) { return found.trials[i].point; });
    return rows;
}

// Every run meets a target that has no bound: then only the best one is marked.
bool marked(const tuning &found, size_t trial) {
    const bool bounded = std::ranges::any_of(
        found.targets, [](const metric_target &target) { return target.value.has_value(); });
    return bounded ? found.meets(found.trials[trial]) : found.chosen == trial;
}

std::string table_of(const tuning &found) {
    const std::vector<size_t> rows = rows_of(found);
    if (rows.empty()) return "";
    const std::vector<table_column> columns = trial_columns(found, rows);
    const std::vector<size_t> widths = fitted_widths(columns, text_columns - 20);
    double top = 0;
    for (const size_t row : rows) top = std::max(top, std::abs(found.trials[row].figures[0]));
    std::string text = heading_line(columns, widths);
    for (size_t i = 0; i < rows.size(); ++i) {
        const trial &trial = found.trials[rows[i]];
        std::string line = row_line(columns, widths, i);
        if (line.ends_with('\n')) line.pop_back();
        line += trial.misfit.empty() ? "  " : "  does not fit";
        const size_t left = text_columns - std::min<size_t>(text_columns, columns_of(line) + 2);
        if (trial.misfit.empty() && top > 0)
            line += block_bar(std::abs(trial.figures[0]) / top, std::min(left, tuning_bar_columns));
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + (marked(found, rows[i]) ? " *\n" : "\n");
    }
    return text + "  * meets " + shortened(targets_text(found), text_columns - 10) + "\n";
}

// The nearest value on the side that is preferred, where it was run.
std::string neighbour_text(const tuning &found, const trial &chosen) {
    if (found.params.size() != 1 || !found.params[0].is_number()) return "";
    const bool smallest = found.params[0].prefer != preference::largest;
    const trial *nearest = nullptr;
    for (const trial &trial : found.trials) {
        if (trial.figures.empty() || trial.point[0] == chosen.point[0]) continue;
        if ((trial.point[0] < chosen.point[0]) != smallest) continue;
        if (!nearest || (trial.point[0] > nearest->point[0]) == smallest) nearest = &trial;
    }
    if (!nearest) return "";
    return format("; {} gives {}", found.params[0].text_of(nearest->point[0]),
                  figures_text(found, *nearest));
}

std::string range_text(const tuned_param &param) {
    return format("from {} to {} by {}", shown(param.grid.first), shown(param.grid.last),
                  shown(param.grid.step));
}

std::string chosen_text(const tuning &found) {
    if (found.trials.empty()) return "none: no run gave figures";
    if (!found.chosen)
        return format("none: none of {} runs meets {}", found.trials.size(), targets_text(found));
    const trial &chosen = found.trials[*found.chosen];
    const tuned_param &first = found.params[0];
    std::string text = point_text(found, chosen.point);
    if (found.params.size() == 1 && first.is_number())
        text += format(", the {} value {} that meets {}",
                       first.prefer == preference::largest ? "largest" : "smallest",
                       range_text(first), targets_text(found));
    else
        text += format(", the best of {} runs for {}", found.trials.size(), targets_text(found));
    return text + ": " + figures_text(found, chosen) + neighbour_text(found, chosen);
}

// The chosen number of experts in other units, and the cache policy for which it holds. "": the
// report does not know.
std::string room_text(const tuning &found) {
    const bool sized = std::ranges::any_of(
        found.params, [](const tuned_param &param) { return param.name == "memory.experts"; });
    const json config = sized && found.report ? *found.report->config : json();
    if (!config.is_object() || !config.contains("memory")) return "";
    const json &memory = config["memory"];
    if (!memory.contains("experts_all") || !memory.contains("bytes")) return "";
    const auto total_experts = memory["experts_all"].get<uint64_t>();
    return format("{} of all {} experts, {}; for cache policy {}",
                  percent(memory["experts"].get<double>(), static_cast<double>(total_experts)),
                  with_commas(total_experts), human_bytes(memory["bytes"].get<double>()),
                  config["cache"]["plugin"].get<std::string>());
}

// Explains, for the least value that does not fit, what it lacks. "": all fit.
std::string misfit_text(const tuning &found) {
    const trial *least = nullptr;
    for (const trial &trial : found.trials)
        if (!trial.misfit.empty() && (!least || trial.point < least->point)) least = &trial;
    return least ? point_text(found, least->point) + ": " + least->misfit : "";
}

json param_json(const tuned_param &param) {
    if (!param.is_number()) return {{"name", param.name}, {"words", param.words}};
    return {{"name", param.name},
            {"from", param.grid.first},
            {"to", param.grid.last},
            {"step", param.grid.step},
            {"prefer", param.prefer == preference::largest ? "largest" : "smallest"}};
}

json target_json(const metric_target &target) {
    return {{"metric", target.metric},
            {"relation", target.at_least ? ">=" : "<="},
            {"value", target.value ? json(*target.value) : json()}};
}

}  // namespace

std::vector<table_column> trial_columns(const tuning &found, const std::vector<size_t> &rows) {
    std::vector<table_column> columns;
    for (size_t param = 0; param < found.params.size(); ++param) {
        table_column column{found.params[param].name, {}, true};
        for (const size_t row : rows)
            column.cells.push_back(found.params[param].text_of(found.trials[row].point[param]));
        columns.push_back(std::move(column));
    }
    for (size_t target = 0; target < found.targets.size(); ++target) {
        table_column column{found.targets[target].metric, {}, false};
        for (const size_t row : rows)
            column.cells.push_back(shown(found.trials[row].figures[target]));
        columns.push_back(std::move(column));
    }
    return columns;
}

json trial_json(const tuning &found, const trial &trial) {
    json values = json::object(), figures = json::object();
    for (size_t i = 0; i < trial.point.size(); ++i) {
        const tuned_param &param = found.params[i];
        values[param.name] =
            param.is_number() ? json(trial.point[i]) : json(param.text_of(trial.point[i]));
    }
    for (size_t i = 0; i < trial.figures.size(); ++i)
        figures[found.targets[i].metric] = stable(trial.figures[i]);
    json sample = {{"values", std::move(values)},
                   {"figures", std::move(figures)},
                   {"fits", trial.misfit.empty()},
                   {"met", found.meets(trial)}};
    if (found.params.size() == 1) sample["value"] = sample["values"][found.params[0].name];
    if (found.targets.size() == 1 && !trial.figures.empty())
        sample["measured"] = stable(trial.figures[0]);
    return sample;
}

std::string to_text(const tuning &found) {
    std::string text = table_of(found);
    if (!text.empty()) text += "\n";
    if (!found.failed.empty()) text += failed_text(found.failed, text_columns) + "\n";
    text += labelled("chosen", chosen_text(found));
    if (const std::string room = room_text(found); !room.empty()) text += labelled("that is", room);
    const auto best = found.best();
    if (!found.chosen && best)
        text += labelled("best seen", format("{} at {}", figures_text(found, found.trials[*best]),
                                             point_text(found, found.trials[*best].point)));
    if (const std::string misfit = misfit_text(found); !misfit.empty())
        text += labelled("too large", misfit);
    if (found.stopped)
        text += labelled("stopped",
                         format("after {} runs; with more --runs it goes on", found.trials.size()));
    if (found.report)
        for (const auto &[label, said] : routing_lines(*found.report))
            text += labelled(label, said);
    return text;
}

json to_json(const tuning &found) {
    json root = {{"params", json::array()}, {"targets", json::array()}, {"samples", json::array()}};
    for (const tuned_param &param : found.params) root["params"].push_back(param_json(param));
    for (const metric_target &target : found.targets)
        root["targets"].push_back(target_json(target));
    for (const size_t row : rows_of(found))
        root["samples"].push_back(trial_json(found, found.trials[row]));
    const auto best = found.best();
    root["chosen"] = found.chosen ? trial_json(found, found.trials[*found.chosen]) : json();
    root["met"] = found.chosen.has_value();
    root["best"] = best ? trial_json(found, found.trials[*best]) : json();
    root["stopped"] = found.stopped;
    if (found.params.size() == 1) {
        root["param"] = found.params[0].name;
        if (found.params[0].is_number()) {
            const json param = param_json(found.params[0]);
            root["prefer"] = param["prefer"];
            root["grid"] = {{"from", param["from"]}, {"to", param["to"]}, {"step", param["step"]}};
        }
    }
    if (found.targets.size() == 1) root["target"] = root["targets"][0];
    if (!found.failed.empty()) root["failed"] = failed_json(found.failed);
    if (found.report) root["report"] = to_json(*found.report);
    return root;
}

}  // namespace moorage::core
