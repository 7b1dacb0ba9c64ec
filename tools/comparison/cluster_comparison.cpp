// cluster_comparison.cpp - the table of runs over clusters for a terminal, and the sentences below.
#include "tools/comparison/cluster_comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "core/base/text.h"
#include "core/report/figures.h"
#include "tools/comparison/text_table.h"

namespace moorage::core {

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

uint64_t adopted_of(const cluster_report &report) {
    return static_cast<uint64_t>(std::count_if(
        report.migrations.begin(), report.migrations.end(),
        [](const cluster_report::migration &migration) { return migration.adopted; }));
}

double storage_gb(const comparison_row &row, const comparison_view &view, size_t index) {
    const size_t devices = std::max<size_t>(1, row.report.cluster->devices.size());
    return static_cast<double>(view.storage_bytes[index]) / 1e9 / static_cast<double>(devices);
}

std::vector<table_column> cluster_columns_for(const comparison &compared,
                                              const comparison_view &view) {
    std::vector<table_column> columns;
    for (const key_column &key : view.columns) columns.push_back({key.heading, key.values, true});
    std::vector<double> latency, p99, ttft, tpot, experts;
    table_column local{"local", {}}, network{"network", {}}, moves{"moves", {}};
    for (const comparison_row &row : compared.rows) {
        const cluster_report *cluster = row.report.cluster ? &*row.report.cluster : nullptr;
        latency.push_back(cluster ? shown_ms(row) : none);
        const auto mean = [&](std::string_view path, double fallback) {
            return mean_or(row, path, fallback);
        };
        p99.push_back(cluster ? mean("cluster.latency_ms.p99", cluster->latency_ms.p99) : none);
        ttft.push_back(mean("ttft_ms.mean", row.report.ttft_ms.mean));
        tpot.push_back(mean("tpot_ms.mean", row.report.tpot_ms.mean));
        experts.push_back(cluster && cluster->experts_ms_per_token
                              ? mean("cluster.experts_ms_per_token", *cluster->experts_ms_per_token)
                              : none);
        local.cells.push_back(
            cluster ? percent(mean("cluster.local_ratio", cluster->local_ratio), 1) : "-");
        network.cells.push_back(
            cluster ? human_bytes(mean("bytes.network", double(row.report.bytes.network))) : "-");
        moves.cells.push_back(cluster ? format("{}", adopted_of(*cluster)) : "-");
    }
    table_column first{"latency  ", aligned(latency)};
    for (size_t i = 0; i < first.cells.size(); ++i)
        first.cells[i] += view.pareto[i] && compared.rows[i].report.cluster ? " *" : "  ";
    columns.push_back(std::move(first));
    // The column that both kinds of runs have takes the place of the percentile. So does the
    // interval of repeats.
    if (auto interval = interval_column(compared))
        columns.push_back(std::move(*interval));
    else if (all_clusters(compared))
        columns.push_back({"p99", aligned(p99)});
    else
        columns.push_back({"TPOT", aligned(tpot)});
    columns.push_back({"TTFT", aligned(ttft)});
    columns.push_back({"experts", aligned(experts)});
    for (table_column *column : {&local, &network, &moves}) columns.push_back(std::move(*column));
    return columns;
}

// One label's mean of ln(own latency / the leader's), over the groups that have both.
struct distance {
    std::string label;
    double log_ratio = 0;
    size_t groups = 0;
    double mean() const { return groups == 0 ? 0 : log_ratio / static_cast<double>(groups); }
};

using latencies = std::map<size_t, std::map<std::string, double>>;  // by group and label

std::optional<std::string> leader_of(const comparison_view &view, const latencies &known,
                                     const std::vector<size_t> &rows) {
    std::map<std::string, size_t> wins;
    for (const size_t i : rows) wins[view.labels[i]] += view.best[i];
    std::optional<std::string> leader;
    for (const size_t i : rows)
        if (wins[view.labels[i]] > (leader ? wins[*leader] : 0)) leader = view.labels[i];
    return known.empty() ? std::nullopt : leader;
}

// Distances of every other label, nearest first.
std::vector<distance> distances_to(const std::string &leader, const latencies &known) {
    std::vector<distance> distances;
    for (const auto &[group, by_label] : known) {
        const auto leader_entry = by_label.find(leader);
        if (leader_entry == by_label.end() || leader_entry->second <= 0) continue;
        for (const auto &entry : by_label) {
            const auto &[label, latency_ms] = entry;
            if (label == leader || latency_ms <= 0) continue;
            auto found = std::find_if(
                distances.begin(), distances.end(),
                [&](const distance &candidate) { return candidate.label == entry.first; });
            if (found == distances.end()) found = distances.insert(distances.end(), {label, 0, 0});
            found->log_ratio += std::log(latency_ms / leader_entry->second);
            ++found->groups;
        }
    }
    std::stable_sort(distances.begin(), distances.end(),
                     [](const distance &a, const distance &b) { return a.mean() < b.mean(); });
    return distances;
}

// "12.3 %": how far the leader is below it.
std::string lead_text(const distance &distance) {
    return percent(1 - std::exp(-distance.mean()), 1);
}

std::string fastest_sentence(const comparison_view &view, const std::vector<size_t> &rows,
                             const std::string &leader, const latencies &known) {
    const std::vector<distance> others = distances_to(leader, known);
    if (others.empty()) return "";
    size_t wins = 0;
    for (const size_t i : rows) wins += view.best[i] && view.labels[i] == leader;
    std::string text = leader + " has the lowest latency";
    if (known.size() > 1) text += format(" at {} of {} settings", wins, known.size());
    const bool many = known.size() > 1;
    // On average the leader of most settings may still be behind.
    if (others.front().mean() > 0)
        text += format(", {} below {}", lead_text(others.front()), others.front().label);
    if (others.size() > 1 && others.back().mean() > 0)
        text += format("{} {} below {}", others.front().mean() > 0 ? " and" : ",",
                       lead_text(others.back()), others.back().label);
    return many ? text + " on average" : text;
}

// Where the run with the most local calls is not the fastest, once.
std::string local_sentence(const comparison &compared, const comparison_view &view,
                           const std::vector<size_t> &rows) {
    std::map<size_t, std::pair<size_t, size_t>> leaders;  // group: (most local, fastest)
    const auto cluster_of = [&](size_t i) -> const cluster_report & {
        return *compared.rows[i].report.cluster;
    };
    for (const size_t i : rows) {
        auto &[local, fast] = leaders.try_emplace(view.group[i], i, i).first->second;
        if (cluster_of(i).local_ratio > cluster_of(local).local_ratio) local = i;
        if (cluster_of(i).latency_ms.mean < cluster_of(fast).latency_ms.mean) fast = i;
    }
    for (const auto &[group, pair] : leaders) {
        const auto &[local, fast] = pair;
        if (cluster_of(local).latency_ms.mean <= cluster_of(fast).latency_ms.mean * 1.01) continue;
        if (cluster_of(local).local_ratio < cluster_of(fast).local_ratio + 0.001) continue;
        return format(
            "more local calls are not more speed: {} keeps most ({}), yet {} ({}) is "
            "faster",
            view.labels[local], percent(cluster_of(local).local_ratio, 1), view.labels[fast],
            percent(cluster_of(fast).local_ratio, 1));
    }
    return "";
}

std::string unfinished_sentence(const comparison &compared) {
    size_t adopted = 0, open = 0;
    for (const comparison_row &row : compared.rows) {
        if (!row.report.cluster) continue;
        for (const cluster_report::migration &migration : row.report.cluster->migrations) {
            adopted += migration.adopted;
            open += migration.adopted && migration.done_s < 0;
        }
    }
    if (open == 0) return "";
    return format("{} of {} migrations were not done at the end", open, adopted);
}

}  // namespace

bool any_cluster(const comparison &compared) {
    return std::any_of(compared.rows.begin(), compared.rows.end(),
                       [](const comparison_row &row) { return row.report.cluster.has_value(); });
}

bool all_clusters(const comparison &compared) {
    return !compared.rows.empty() &&
           std::all_of(compared.rows.begin(), compared.rows.end(),
                       [](const comparison_row &row) { return row.report.cluster.has_value(); });
}

std::vector<uint64_t> memory_sizes(const comparison_view &view) {
    std::vector<uint64_t> sizes;
    for (const uint64_t size : view.storage_bytes)
        if (std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
    return sizes;
}

std::optional<table_column> interval_column(const comparison &compared) {
    table_column column{"95 %", {}};
    bool has_repeats = false;
    for (const comparison_row &row : compared.rows) {
        const bool several = row.repeats_ms.size() > 1;
        has_repeats |= several;
        column.cells.push_back(several ? "± " + three_digits(half_interval(row.repeats_ms)) : "-");
    }
    return has_repeats ? std::optional(column) : std::nullopt;
}

std::string cluster_table(const comparison &compared, const comparison_view &view) {
    const std::vector<table_column> columns = cluster_columns_for(compared, view);
    const std::vector<size_t> widths = fitted_widths(columns, text_columns);
    const std::vector<uint64_t> sizes = memory_sizes(view);  // equal ones stand together
    const size_t cluster_sizes = sizes.size() - (all_clusters(compared) ? 0 : 1);
    std::string text = "  milliseconds: latency, p99 and TTFT a request; experts a token\n";
    if (!all_clusters(compared))
        text = "  milliseconds: latency and TTFT a request; TPOT and experts a token\n";
    text += heading_line(columns, widths);
    for (const uint64_t size : sizes) {
        bool named = cluster_sizes < 2;
        for (size_t i = 0; i < compared.rows.size(); ++i) {
            if (view.storage_bytes[i] != size) continue;
            if (!named)
                text += size != 0 ? format("\n  {} GB for experts a device\n",
                                           three_digits(storage_gb(compared.rows[i], view, i)))
                                  : "\n  one machine\n";
            named = true;
            text += row_line(columns, widths, i);
        }
    }
    return text;
}

std::vector<std::string> cluster_reading(const comparison &compared, const comparison_view &view) {
    std::vector<size_t> rows;
    latencies known;
    for (size_t i = 0; i < compared.rows.size(); ++i) {
        if (!compared.rows[i].report.cluster) continue;
        rows.push_back(i);
        known[view.group[i]].try_emplace(view.labels[i], shown_ms(compared.rows[i]));
    }
    std::vector<std::string> lines;
    // Settings that only one run has compare nothing.
    std::erase_if(known, [](const auto &group) { return group.second.size() < 2; });
    const auto leader = leader_of(view, known, rows);
    const auto add = [&](std::string text) {
        if (!text.empty()) lines.push_back(std::move(text));
    };
    if (leader) {
        const std::string unsure = unsure_sentence(compared, view, rows, *leader);
        add(unsure.empty() ? fastest_sentence(view, rows, *leader, known) : unsure);
    }
    if (leader) add(local_sentence(compared, view, rows));
    add(unfinished_sentence(compared));
    return lines;
}

}  // namespace moorage::core
