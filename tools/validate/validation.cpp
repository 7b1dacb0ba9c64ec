// validation.cpp - emulates every row and summarises the errors.
#include "tools/validate/validation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "tools/validate/emulated_figure.h"

namespace moorage::core {

namespace {

validated_row validate_row(const measurement &figure, const setting_sources &sources) {
    validated_row row;
    row.figure = figure;
    row.reason = figure.unreadable;
    if (!row.reason.empty()) return row;
    const auto setting = make_setting(figure, sources);
    if (!setting) {
        row.reason = setting.failure().text;
        return row;
    }
    row.kind = setting->kind;
    row.assumed = setting->assumed;
    row.emulated_ms = emulate(*setting);
    return row;
}

// A row's time in the pair's unit. Per token: the step of a batch makes several tokens.
double pair_ms(const validated_row &row, bool per_token) {
    const double batch = row.figure.prompt || !per_token ? 1 : std::max(row.figure.batch, 1.0);
    return row.emulated_ms / batch;
}

std::string suggest_ids(const std::string &id,
                        const std::map<std::string, const validated_row *> &by_id) {
    std::vector<std::string> names;
    for (const auto &[name, row] : by_id) names.push_back(name);
    return did_you_mean(id, names);
}

validated_pair validate_pair(const measured_pair &pair,
                             const std::map<std::string, const validated_row *> &by_id) {
    validated_pair found{pair, pair.unreadable, 0};
    if (!found.reason.empty()) return found;
    const validated_row *ends[2] = {};
    for (int end = 0; end < 2; ++end) {
        const std::string &id = end == 0 ? pair.row_a : pair.row_b;
        const auto entry = by_id.find(id);
        if (entry == by_id.end())
            found.reason =
                format("row {} is not in the file{}", printable(id), suggest_ids(id, by_id));
        else if (!entry->second->is_emulated())
            found.reason = "row " + id + ": " + entry->second->reason;
        else
            ends[end] = entry->second;
        if (!found.reason.empty()) return found;
    }
    found.emulated = pair_ms(*ends[1], pair.per_token) / pair_ms(*ends[0], pair.per_token);
    return found;
}

struct deviation {
    double error, ratio;
    std::string id;
};

double quantile(const std::vector<deviation> &sorted, double share) {
    const double position = share * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<size_t>(position);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    const double part = position - static_cast<double>(below);
    return sorted[below].error * (1 - part) + sorted[above].error * part;
}

error_summary summarise(std::string name, std::vector<deviation> deviations) {
    error_summary sum;
    sum.name = std::move(name);
    sum.rows = deviations.size();
    if (deviations.empty()) return sum;
    std::ranges::stable_sort(deviations, {}, &deviation::error);
    sum.median = quantile(deviations, 0.5);
    sum.ninth_tenth = quantile(deviations, 0.9);
    sum.worst = deviations.back().error;
    sum.worst_id = deviations.back().id;
    std::vector<double> ratios;
    for (const deviation &deviation : deviations) ratios.push_back(deviation.ratio);
    std::ranges::sort(ratios);
    sum.median_ratio = (ratios[(ratios.size() - 1) / 2] + ratios[ratios.size() / 2]) / 2;
    return sum;
}

}  // namespace

size_t validation::emulated_count() const {
    return static_cast<size_t>(std::ranges::count_if(rows, &validated_row::is_emulated));
}

std::vector<error_summary> validation::summaries() const {
    std::vector<error_summary> by_class;
    const auto add = [&](const std::string &name, const auto &counts) {
        std::vector<deviation> deviations;
        for (const validated_row &row : rows)
            if (row.is_emulated() && counts(row))
                deviations.push_back({std::abs(row.ratio() - 1), row.ratio(), row.figure.id});
        if (!deviations.empty()) by_class.push_back(summarise(name, std::move(deviations)));
    };
    for (size_t kind = 0; kind < std::size(figure_class_names); ++kind)
        add(figure_class_names[kind],
            [&](const validated_row &row) { return static_cast<size_t>(row.kind) == kind; });
    add("all", [](const validated_row &) { return true; });
    return by_class;
}

std::vector<const validated_row *> validation::rows_beyond(double share) const {
    const auto error = [](const validated_row *row) { return std::abs(row->ratio() - 1); };
    std::vector<const validated_row *> beyond;
    for (const validated_row &row : rows)
        // Includes a row without a time, whose ratio is NaN.
        if (row.is_emulated() && !(error(&row) <= share)) beyond.push_back(&row);
    std::ranges::stable_sort(beyond, std::greater<>{}, error);
    return beyond;
}

error_summary validation::pair_summary() const {
    std::vector<deviation> deviations;
    for (const validated_pair &pair : pairs)
        if (pair.is_emulated())
            deviations.push_back(
                {std::max(pair.ratio(), 1 / pair.ratio()) - 1, pair.ratio(), pair.pair.pair});
    return summarise("pairs", std::move(deviations));
}

result<validation> validate(const csv_table &rows, const csv_table *pairs,
                            const setting_sources &sources) {
    validation report;
    report.file = rows.name();
    const auto figures = read_measurements(rows);
    if (!figures) return figures.failure();
    std::vector<measured_pair> measured_pairs;
    if (pairs) {
        report.pairs_file = pairs->name();
        auto parsed = read_pairs(*pairs);
        if (!parsed) return parsed.failure();
        measured_pairs = std::move(*parsed);
    }
    for (const measurement &figure : *figures) report.rows.push_back(validate_row(figure, sources));
    std::map<std::string, const validated_row *> by_id;
    for (const validated_row &row : report.rows) by_id[row.figure.id] = &row;
    for (const measured_pair &pair : measured_pairs)
        report.pairs.push_back(validate_pair(pair, by_id));
    return report;
}

}  // namespace moorage::core
