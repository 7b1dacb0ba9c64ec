// comparison.cpp - finds the differences between runs, decides which are comparable, and writes
// them as JSON.
#include "tools/comparison/comparison.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/host/kinds.h"
#include "tools/comparison/cluster_comparison.h"
#include "core/report/figure_table.h"
#include "core/report/figures.h"
#include "tools/comparison/page.h"

namespace moorage::core {

namespace {

std::string text_of(const json &value) {
    if (value.is_number_float()) return format("{}", value.get<double>());  // 16, not 16.0
    return value.is_string() ? value.get<std::string>() : value.dump();
}

using flat_config = std::map<std::string, std::string>;

// "section.key" to text. A value deeper than one section is one value.
flat_config flattened(const json &config) {
    flat_config flat;
    if (!config.is_object()) return flat;
    for (const auto &[section, keys] : config.items()) {
        if (!keys.is_object()) {
            flat[section] = text_of(keys);
            continue;
        }
        for (const auto &[key, value] : keys.items()) flat[section + "." + key] = text_of(value);
    }
    return flat;
}

std::string value_at(const flat_config &flat, const std::string &key) {
    const auto entry = flat.find(key);
    return entry == flat.end() ? "" : entry->second;
}

bool starts_with_stage(const std::string &key) {
    return std::ranges::any_of(stage_kinds, [&](std::string_view stage) {
        return key.starts_with(stage) && key.size() > stage.size() && key[stage.size()] == '.';
    });
}

// The keys with different values, in the order of the first config that has them.
std::vector<std::string> differing_keys(const comparison &compared,
                                        const std::vector<flat_config> &flats) {
    std::vector<std::string> order;
    std::set<std::string> seen;
    for (const comparison_row &row : compared.rows) {
        if (!row.report.config->is_object()) continue;
        for (const auto &[section, keys] : row.report.config->items()) {
            if (!keys.is_object() && seen.insert(section).second) order.push_back(section);
            if (!keys.is_object()) continue;
            for (const auto &[key, value] : keys.items())
                if (seen.insert(section + "." + key).second) order.push_back(section + "." + key);
        }
    }
    std::erase_if(order, [&](const std::string &key) {
        return key == "report.title" ||
               std::all_of(flats.begin(), flats.end(), [&](const flat_config &flat) {
                   return value_at(flat, key) == value_at(flats.front(), key) &&
                          flat.contains(key) == flats.front().contains(key);
               });
    });
    return order;
}

// The plugin of a stage, with those parameters that differ between the rows which have this plugin.
std::vector<std::string> stage_values(const std::string &stage,
                                      const std::vector<std::string> &settings,
                                      const std::vector<flat_config> &flats) {
    // The name of the host cache's stage begins with that of the cache.
    const std::string of_host = format("{}.", host_cache_stage);
    std::vector<std::string> values;
    for (const flat_config &flat : flats) {
        const std::string plugin = value_at(flat, stage + ".plugin");
        std::string params;
        for (const std::string &key : settings) {
            if (!key.starts_with(stage + ".") || key == stage + ".plugin") continue;
            if (stage != host_cache_stage && key.starts_with(of_host)) continue;
            const bool differs = std::any_of(flats.begin(), flats.end(), [&](const auto &peer) {
                return value_at(peer, stage + ".plugin") == plugin &&
                       value_at(peer, key) != value_at(flat, key);
            });
            if (differs && flat.contains(key))
                params += (params.empty() ? "" : ", ") + key.substr(stage.size() + 1) + "=" +
                          flat.at(key);
        }
        const std::string name = plugin.empty() ? "none" : plugin;
        values.push_back(params.empty() ? name : name + "(" + params + ")");
    }
    return values;
}

bool all_equal(const std::vector<std::string> &values) {
    return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

// Whether `values` differ somewhere between rows that agree in `keys`.
template <class Given>
bool adds_to(const std::vector<Given> &keys, const std::vector<std::string> &values) {
    std::map<Given, std::string> first;
    for (size_t i = 0; i < values.size(); ++i)
        if (first.emplace(keys[i], values[i]).first->second != values[i]) return true;
    return false;
}

void add_stage_columns(comparison_view &view, const std::vector<flat_config> &flats) {
    std::vector<std::string> stages(stage_kinds.begin(), stage_kinds.end());
    stages.emplace_back(host_cache_stage);
    for (const std::string &stage : stages) {
        key_column column{stage, stage_values(stage, view.settings, flats)};
        if (!all_equal(column.values)) view.columns.push_back(std::move(column));
    }
}

void add_other_columns(comparison_view &view, const comparison &compared,
                       const std::vector<flat_config> &flats) {
    std::vector<std::string> profiles;
    for (const comparison_row &row : compared.rows) profiles.push_back(row.report.profile);
    for (const std::string &key : view.settings) {
        if (starts_with_stage(key)) continue;
        std::vector<std::string> values;
        for (const flat_config &flat : flats) values.push_back(value_at(flat, key));
        // The table shows profile and size anyway; their settings get a column only if they say
        // more.
        if (key.starts_with("hardware.") && !adds_to(profiles, values)) continue;
        const bool is_size = key == "memory.experts" || key == "memory.bytes";
        if (is_size && !adds_to(view.slots, values)) continue;
        const bool is_storage = key.starts_with("cluster.servers.expert_memory_");
        if (is_storage && !adds_to(view.storage_bytes, values)) continue;
        if (key == "source.trace")
            for (std::string &value : values) value = std::filesystem::path(value).stem().string();
        // "links.bits_per_s" of a cluster is its last word in a heading.
        const bool of_cluster = key.starts_with("cluster.");
        const std::string name = key.substr((of_cluster ? key.rfind('.') : key.find('.')) + 1);
        const bool taken =
            std::any_of(view.columns.begin(), view.columns.end(),
                        [&](const key_column &column) { return column.heading == name; });
        view.columns.push_back({taken ? key : name, std::move(values)});
    }
}

// Bytes for experts on a cluster's devices. 0 for a single machine.
uint64_t storage_of(const run_report &report) {
    uint64_t sum = 0;
    if (report.cluster)
        for (const cluster_report::device &device : report.cluster->devices) sum += device.bytes;
    return sum;
}

uint64_t slots_of(const comparison_row &row, const flat_config &flat) {
    if (row.report.cluster) return 0;  // homes share what there is
    if (row.slots != 0) return row.slots;
    uint64_t sum = 0;
    for (const layer_report &layer : row.report.layers) sum += layer.slots;
    if (sum != 0) return sum;
    const std::string experts = value_at(flat, "memory.experts");
    return experts.find_first_not_of("0123456789") == std::string::npos && !experts.empty() &&
                   experts.size() < 19
               ? std::stoull(experts)
               : 0;
}

// Rounded to the three digits that a table shows: equal texts count as equal.
double ranked_ms(const comparison_row &row) {
    const double ms = shown_ms(row);
    if (ms <= 0) return 0;
    const double unit = std::pow(10.0, std::floor(std::log10(ms)) - 2);
    return stable(std::round(ms / unit) * unit);
}

// The lowest TPOT, or latency of clusters, of each group is best, unless there is nothing to be
// better than.
void mark_best(comparison_view &view, const comparison &compared) {
    std::map<size_t, std::vector<size_t>> groups;
    for (size_t i = 0; i < compared.rows.size(); ++i)
        if (!view.offline[i] && compared.rows[i].report.misfit.empty())
            groups[view.group[i]].push_back(i);
    for (const auto &[group, members] : groups) {
        const auto time = [&](size_t i) { return ranked_ms(compared.rows[i]); };
        const auto [low, high] = std::minmax_element(
            members.begin(), members.end(), [&](size_t a, size_t b) { return time(a) < time(b); });
        if (time(*low) == time(*high)) continue;
        for (const size_t i : members) view.best[i] = time(i) == time(*low);
    }
}

// The cost and the worth of a row. Less is better in each.
struct worth {
    uint64_t memory;
    const comparison_row *row;
    double quality;
    bool beats(const worth &right) const {
        const bool faster = is_faster(*row, *right.row);
        const bool as_good =
            memory <= right.memory && quality <= right.quality && !is_faster(*right.row, *row);
        return as_good && (memory < right.memory || faster || quality < right.quality);
    }
};

void mark_pareto(comparison_view &view, const comparison &compared,
                 const std::vector<size_t> &fields) {
    std::map<size_t, std::vector<std::pair<size_t, worth>>> by_field;
    for (size_t i = 0; i < compared.rows.size(); ++i) {
        const run_report &report = compared.rows[i].report;
        const auto quality = quality_of(report);
        if (view.offline[i] || !report.misfit.empty() || !quality || time_ms(report) <= 0) continue;
        by_field[fields[i]].push_back(
            {i, {view.slots[i] + view.storage_bytes[i], &compared.rows[i], stable(*quality)}});
    }
    for (const auto &entry : by_field) {
        const auto &rows = entry.second;
        std::vector<size_t> left;
        for (const auto &[row, worth] : rows)
            if (std::ranges::none_of(rows, [&challenged = worth](const auto &peer) {
                    return peer.second.beats(challenged);
                }))
                left.push_back(row);
        if (left.size() == rows.size()) continue;  // nothing is told apart
        for (const size_t row : left) view.pareto[row] = true;
    }
}

std::string joined_label(const std::vector<key_column> &columns, size_t row) {
    std::string label;
    for (const key_column &column : columns) {
        if (column.values[row].empty()) continue;
        // A bare number or truth value says nothing without its name.
        const std::string &value = column.values[row];
        const bool bare = value.find_first_not_of("0123456789.-+e") == std::string::npos ||
                          value == "true" || value == "false";
        // In sentences a comma would make one row read as two.
        label += (label.empty() ? "" : " + ") + (bare ? column.heading + " " : "") + value;
    }
    return label.empty() ? "as configured" : label;
}

// The work of a run, out of all that its configuration says.
std::string work_of(const run_report &report) {
    const json &config = *report.config;
    if (!config.is_object()) return "";
    if (report.cluster) return config.value("cluster", json()).dump();
    const json run = config.value("run", json::object());
    return config.value("source", json()).dump() + run.value("batch", json()).dump() +
           run.value("prefill", json()).dump() + format(" {}", report.tokens);
}

// Numbers that are equal where the keys are.
template <class Key>
std::vector<size_t> numbered(const std::vector<Key> &keys) {
    std::map<Key, size_t> known;
    std::vector<size_t> numbers;
    for (const Key &key : keys)
        numbers.push_back(known.try_emplace(key, known.size()).first->second);
    return numbers;
}

void group_rows(comparison_view &view, const comparison &compared) {
    std::vector<std::tuple<std::string, std::string>> fields;
    std::vector<std::tuple<std::string, std::string, uint64_t, bool, double>> groups;
    for (size_t i = 0; i < compared.rows.size(); ++i) {
        const run_report &report = compared.rows[i].report;
        const auto quality = quality_of(report);
        // With two clocks, neither row is faster.
        const std::string clock = report.profile + (report.virtual_time ? "" : "\n");
        fields.emplace_back(clock, work_of(report));
        groups.emplace_back(clock, work_of(report), view.slots[i] + view.storage_bytes[i],
                            quality.has_value(), quality ? stable(*quality) : 0);
    }
    view.group = numbered(groups);
    view.best.assign(fields.size(), false);
    view.pareto.assign(fields.size(), false);
    mark_best(view, compared);
    mark_pareto(view, compared, numbered(fields));
}

// 97.5 % of Student's t with so many degrees of freedom lie below.
double student_t(size_t freedom) {
    static constexpr double table[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                                       2.306,  2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
                                       2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
    if (freedom <= std::size(table)) return table[freedom - 1];
    // Between 20 and infinity the quantile is near 1.96 + 2.4 / freedom, by less than 0.01.
    return 1.96 + 2.4 / static_cast<double>(freedom);
}

double mean_of(std::span<const double> values) {
    double sum = 0;
    for (const double value : values) sum += value;
    return sum / static_cast<double>(values.size());
}

}  // namespace

comparison_view view_of(const comparison &compared) {
    comparison_view view;
    std::vector<flat_config> flats;
    for (const comparison_row &row : compared.rows) flats.push_back(flattened(*row.report.config));
    if (flats.empty()) return view;
    view.settings = differing_keys(compared, flats);
    for (size_t i = 0; i < flats.size(); ++i) {
        const comparison_row &row = compared.rows[i];
        const uint64_t slots = slots_of(row, flats[i]);
        view.slots.push_back(slots);
        view.share.push_back(row.experts_all == 0 ? 0 : double(slots) / double(row.experts_all));
        view.storage_bytes.push_back(storage_of(row.report));
        view.offline.push_back(row.offline || value_at(flats[i], "cache.plugin") == "belady");
        if (!row.report.cluster && std::find(view.profiles.begin(), view.profiles.end(),
                                             row.report.profile) == view.profiles.end())
            view.profiles.push_back(row.report.profile);
    }
    std::vector<std::string> names;
    for (const comparison_row &row : compared.rows) names.push_back(row.config);
    const bool named = !all_equal(names);
    if (named) view.columns.push_back({"config", names});
    add_stage_columns(view, flats);
    add_other_columns(view, compared, flats);
    // The name of a configuration stands for all that is set in it.
    if (named)
        std::erase_if(view.columns, [&](const key_column &column) {
            return column.heading != "config" && !adds_to(names, column.values);
        });
    // Rows that differ in nothing but profile and size still want a name.
    if (view.columns.empty()) {
        const std::string stage = all_clusters(compared) ? "placement" : "cache";
        view.columns.push_back({stage, stage_values(stage, {}, flats)});
    }
    for (size_t i = 0; i < flats.size(); ++i) view.labels.push_back(joined_label(view.columns, i));
    group_rows(view, compared);
    return view;
}

double time_ms(const run_report &report) {
    return report.cluster ? report.cluster->latency_ms.mean : report.tpot_ms.mean;
}

std::optional<double> quality_of(const run_report &report) {
    // A given text is the same in every row. A written text is not.
    if (report.text.scored != 0 && report.text.texts.empty()) return report.text.nll;
    if (!report.lossy) return 0;
    // A choice that is not the model's is never worth more than the model's own, whatever one text
    // says of it.
    constexpr double lossy_least = 1e-6;
    if (report.text.own_nll) return std::max(lossy_least, report.text.nll_change());
    return {};
}

double shown_ms(const comparison_row &row) {
    return row.repeats_ms.size() > 1 ? mean_of(row.repeats_ms) : time_ms(row.report);
}

namespace {

json mean_of_all(std::span<const json *const> values) {
    double sum = 0;
    for (const json *value : values) {
        if (!value->is_number()) return {};
        sum += value->get<double>();
    }
    return stable(sum / static_cast<double>(values.size()));
}

json means_of(std::span<const json *const> reports) {
    json means = json::object();
    for (const auto &[key, value] : reports[0]->items()) {
        if (key == "config") continue;
        std::vector<const json *> same;
        for (const json *report : reports)
            if (const auto found = report->find(key); found != report->end())
                same.push_back(&*found);
        if (same.size() < reports.size()) continue;
        const bool objects =
            std::ranges::all_of(same, [](const json *value) { return value->is_object(); });
        json mean = objects ? means_of(same) : mean_of_all(same);
        if (!mean.is_null() && !(objects && mean.empty())) means[key] = std::move(mean);
    }
    return means;
}

}  // namespace

json mean_figures(std::span<const json> reports) {
    std::vector<const json *> pointers;
    for (const json &report : reports) pointers.push_back(&report);
    return means_of(pointers);
}

double mean_or(const comparison_row &row, std::string_view path, double fallback) {
    const json *mean = at_path(*row.means, path);
    return mean && mean->is_number() ? mean->get<double>() : fallback;
}

double half_interval(std::span<const double> values) {
    assert(values.size() >= 2);
    // Their mean is rounded. Equal values have no spread.
    if (std::ranges::all_of(values, [&](double value) { return value == values[0]; })) return 0;
    const auto count = static_cast<double>(values.size());
    const double mean = mean_of(values);
    double squares = 0;
    for (const double value : values) squares += (value - mean) * (value - mean);
    return student_t(values.size() - 1) * std::sqrt(squares / (count - 1) / count);
}

bool is_faster(const comparison_row &a, const comparison_row &b) {
    if (a.repeats_ms.size() < 2 || a.repeats_ms.size() != b.repeats_ms.size())
        return ranked_ms(a) < ranked_ms(b);
    std::vector<double> ratios;
    for (size_t i = 0; i < a.repeats_ms.size(); ++i) {
        if (a.repeats_ms[i] <= 0 || b.repeats_ms[i] <= 0) return false;
        ratios.push_back(std::log(a.repeats_ms[i] / b.repeats_ms[i]));
    }
    return mean_of(ratios) + half_interval(ratios) < 0;
}

std::vector<size_t> rows_on(const comparison &compared, const std::string &profile) {
    std::vector<size_t> rows;
    for (size_t i = 0; i < compared.rows.size(); ++i)
        if (!compared.rows[i].report.cluster && compared.rows[i].report.profile == profile)
            rows.push_back(i);
    return rows;
}

std::string setting_text(const run_report &report, const std::string &key) {
    return value_at(flattened(*report.config), key);
}

json to_json(const comparison &compared) {
    const comparison_view view = view_of(compared);
    json results = json::array();
    for (const comparison_row &row : compared.rows) {
        json result = to_json(row.report);
        json settings = json::object();
        for (const std::string &key : view.settings) {
            const size_t dot = key.find('.');
            const json &config = *row.report.config;
            const auto section = config.find(key.substr(0, dot));
            if (section == config.end()) continue;
            if (dot == std::string::npos)
                settings[key] = *section;
            else if (section->is_object() && section->contains(key.substr(dot + 1)))
                settings[key] = (*section)[key.substr(dot + 1)];
        }
        const size_t index = results.size();
        result["slots"] = view.slots[index];
        result["experts_all"] = row.experts_all;
        result["settings"] = std::move(settings);
        result["label"] = view.labels[index];
        result["columns"] = json::array();
        for (const key_column &column : view.columns)
            result["columns"].push_back({column.heading, column.values[index]});
        result["group"] = view.group[index];
        result["offline"] = bool{view.offline[index]};
        result["pareto"] = bool{view.pareto[index]};
        if (row.repeats_ms.size() > 1)
            result["repeats"] = {{"ms", row.repeats_ms},
                                 {"mean", stable(mean_of(row.repeats_ms))},
                                 {"half_interval", stable(half_interval(row.repeats_ms))},
                                 {"means", *row.means}};
        if (row.savings) result["what_if"] = to_json(*row.savings);
        results.push_back(std::move(result));
    }
    json root = {{"title", compared.title}, {"results", std::move(results)}};
    if (!compared.failed.empty()) root["failed"] = failed_json(compared.failed);
    if (!compared.interrupted.signal.empty())
        root["interrupted"] = {{"signal", compared.interrupted.signal},
                               {"rows", compared.interrupted.rows}};
    return root;
}

std::string to_html(const comparison &compared, const std::string &command) {
    json data = to_json(compared);
    data["trace"] = compared.trace;
    data["shape"] = compared.shape;
    const bool has_rows = !compared.rows.empty();
    return to_html(
        {.title = !compared.title.empty()     ? compared.title
                  : compared.rows.size() == 1 ? "moorage run"
                                              : "moorage comparison",
         .kind = "comparison",
         .command = command,
         .reading = has_rows ? reading(compared, view_of(compared)) : std::vector<std::string>{},
         .failed = compared.failed,
         .text = to_text(compared),
         .data = std::move(data)});
}

std::vector<written_text> written_texts(const comparison &compared, const comparison_view &view) {
    std::vector<written_text> texts;
    std::vector<bool> reported(compared.rows.size(), false);
    for (size_t i = 0; i < compared.rows.size(); ++i) {
        const text_report &wrote = compared.rows[i].report.text;
        if (reported[i] || wrote.texts.empty()) continue;
        written_text text{&wrote, "", false};
        size_t count = 0;
        for (size_t j = i; j < compared.rows.size(); ++j) {
            const text_report &candidate = compared.rows[j].report.text;
            if (candidate.texts != wrote.texts || candidate.prompts != wrote.prompts) continue;
            reported[j] = true;
            text.labels += (count++ ? "; " : "") + view.labels[j];
        }
        text.every_row = count == compared.rows.size();
        texts.push_back(std::move(text));
    }
    return texts;
}

bool any_scored(const comparison &compared) {
    return std::any_of(compared.rows.begin(), compared.rows.end(),
                       [](const comparison_row &row) { return row.report.text.scored != 0; });
}

}  // namespace moorage::core
