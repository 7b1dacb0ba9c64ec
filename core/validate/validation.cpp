// validation.cpp - emulates every row and summarises the errors.
#include "core/validate/validation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "core/base/safetensors.h"
#include "core/base/text.h"
#include "core/validate/emulated_figure.h"

namespace moorage::core {

namespace {

validated_row validate_row(const measurement &figure, const setting_sources &sources) {
    validated_row row;
    row.figure = figure;
    row.reason = figure.unreadable;
    if (!row.reason.empty()) return row;
    const auto to = setting_of(figure, sources);
    if (!to) {
        row.reason = to.failure().text;
        return row;
    }
    row.of = to->of;
    row.assumed = to->assumed;
    row.emulated_ms = emulate(*to);
    return row;
}

// A row's time in the pair's unit. Per token: the step of a batch makes several tokens.
double pair_ms(const validated_row &row, bool per_token) {
    const double batch = row.figure.prompt || !per_token ? 1 : std::max(row.figure.batch, 1.0);
    return row.emulated_ms / batch;
}

std::string near(const std::string &id, const std::map<std::string, const validated_row *> &by_id) {
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
        const auto at = by_id.find(id);
        if (at == by_id.end())
            found.reason = format("row {} is not in the file{}", shown(id), near(id, by_id));
        else if (!at->second->emulated())
            found.reason = "row " + id + ": " + at->second->reason;
        else
            ends[end] = at->second;
        if (!found.reason.empty()) return found;
    }
    found.emulated = pair_ms(*ends[1], pair.per_token) / pair_ms(*ends[0], pair.per_token);
    return found;
}

struct deviation {
    double error, ratio;
    std::string id;
};

double middle(const std::vector<deviation> &sorted, double share) {
    const double at = share * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<size_t>(at);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    const double part = at - static_cast<double>(below);
    return sorted[below].error * (1 - part) + sorted[above].error * part;
}

error_summary summed_up(std::string name, std::vector<deviation> all) {
    error_summary sum;
    sum.name = std::move(name);
    sum.rows = all.size();
    if (all.empty()) return sum;
    std::ranges::stable_sort(all, {}, &deviation::error);
    sum.median = middle(all, 0.5);
    sum.ninth_tenth = middle(all, 0.9);
    sum.worst = all.back().error;
    sum.worst_id = all.back().id;
    std::vector<double> ratios;
    for (const deviation &one : all) ratios.push_back(one.ratio);
    std::ranges::sort(ratios);
    sum.median_ratio = (ratios[(ratios.size() - 1) / 2] + ratios[ratios.size() / 2]) / 2;
    return sum;
}

}  // namespace

size_t validation::emulated() const {
    return static_cast<size_t>(std::ranges::count_if(rows, &validated_row::emulated));
}

std::vector<error_summary> validation::summaries() const {
    std::vector<error_summary> all;
    const auto add = [&](const std::string &name, const auto &counts) {
        std::vector<deviation> of;
        for (const validated_row &row : rows)
            if (row.emulated() && counts(row))
                of.push_back({std::abs(row.ratio() - 1), row.ratio(), row.figure.id});
        if (!of.empty()) all.push_back(summed_up(name, std::move(of)));
    };
    for (size_t which = 0; which < std::size(figure_class_names); ++which)
        add(figure_class_names[which],
            [&](const validated_row &row) { return static_cast<size_t>(row.of) == which; });
    add("all", [](const validated_row &) { return true; });
    return all;
}

std::vector<const validated_row *> validation::rows_beyond(double share) const {
    const auto error = [](const validated_row *row) { return std::abs(row->ratio() - 1); };
    std::vector<const validated_row *> beyond;
    for (const validated_row &row : rows)
        // Includes a row without a time, whose ratio is NaN.
        if (row.emulated() && !(error(&row) <= share)) beyond.push_back(&row);
    std::ranges::stable_sort(beyond, std::greater<>{}, error);
    return beyond;
}

error_summary validation::pair_summary() const {
    std::vector<deviation> of;
    for (const validated_pair &one : pairs)
        if (one.is_emulated())
            of.push_back({std::max(one.ratio(), 1 / one.ratio()) - 1, one.ratio(), one.pair.pair});
    return summed_up("pairs", std::move(of));
}

result<validation> validate(const csv_table &rows, const csv_table *pairs,
                            const setting_sources &sources) {
    validation found;
    found.file = rows.name();
    const auto figures = read_measurements(rows);
    if (!figures) return figures.failure();
    std::vector<measured_pair> read;
    if (pairs) {
        found.pairs_file = pairs->name();
        auto parsed = read_pairs(*pairs);
        if (!parsed) return parsed.failure();
        read = std::move(*parsed);
    }
    for (const measurement &one : *figures) found.rows.push_back(validate_row(one, sources));
    std::map<std::string, const validated_row *> by_id;
    for (const validated_row &row : found.rows) by_id[row.figure.id] = &row;
    for (const measured_pair &one : read) found.pairs.push_back(validate_pair(one, by_id));
    return found;
}

}  // namespace moorage::core
