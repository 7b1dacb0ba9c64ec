// replay_table.cpp - lays out the results of a replay.
#include "tools/moorage/replay_table.h"

#include <algorithm>
#include <map>
#include <variant>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"

namespace moorage::tool {

using core::format, core::padded_left, core::padded_right;

namespace {

constexpr size_t line_columns = 100, label_columns_max = 34;
constexpr size_t misses_columns = 11, rate_columns = 7, ratio_columns = 7;

double ratio(const replay_row &row) {
    return static_cast<double>(row.counted.misses) / static_cast<double>(*row.opt_misses);
}

core::json row_json(const replay_report &report, const replay_row &row) {
    const core::replay_result &counted = row.counted;
    const bool has_ratio = row.opt_misses && *row.opt_misses > 0;
    core::json parameters = core::json::object();
    for (const auto &parameter : counted.parameters)
        parameters[parameter.first] = core::json_of(parameter.second);
    core::json document;
    document["policy"] = row.label;
    document["parameters"] = std::move(parameters);
    document["slots"] = row.slots;
    document["sharing"] = core::name_of(row.pools);
    document["order"] = core::name_of(report.requests);
    document["seed"] = report.seed;
    document["requests"] = counted.requests;
    document["hits"] = counted.hits;
    document["misses"] = counted.misses;
    document["bypasses"] = counted.bypasses;
    document["hit_rate"] =
        core::stable(static_cast<double>(counted.hits) /
                     static_cast<double>(std::max<uint64_t>(1, counted.requests)));
    document["opt_misses"] = row.opt_misses ? core::json(*row.opt_misses) : core::json();
    document["opt_ratio"] = has_ratio ? core::json(core::stable(ratio(row))) : core::json();
    document["layer_misses"] = counted.layer_misses;
    document["faults"] = counted.faults;
    document["seconds"] = report.timing ? counted.seconds : 0.0;
    return document;
}

// One block of the table: rows of one sharing, policies down, sizes [first, last) across.
struct block {
    std::vector<const replay_row *> rows;  // [size, policy]
    size_t policies = 0, first = 0, last = 0, label_columns = 0;
    uint32_t pages = 0;
    uint64_t requests = 0;  // of every row
    bool timing = false;

    size_t size_columns() const {
        return 2 + misses_columns + rate_columns + ratio_columns + (timing ? 9 : 0);
    }
    std::string text() const;
    std::string cells(const replay_row &row) const;
};

std::string block::cells(const replay_row &row) const {
    if (row.failed)
        return "  " + padded_left("FAILED", misses_columns) +
               std::string(size_columns() - 2 - misses_columns, ' ');
    const core::replay_result &counted = row.counted;
    const bool has_ratio = row.opt_misses && *row.opt_misses > 0;
    std::string text = "  " + padded_left(core::with_commas(counted.misses), misses_columns);
    text += padded_left(format("{:.2f}", 100.0 * static_cast<double>(counted.hits) /
                                             static_cast<double>(counted.requests)),
                        rate_columns);
    text += padded_left(has_ratio ? format("{:.3f}", ratio(row)) : "-", ratio_columns);
    if (timing)
        text += padded_left(
            core::three_digits(static_cast<double>(counted.requests) / 1e6 / counted.seconds), 9);
    return text;
}

std::string block::text() const {
    std::string sizes = padded_right("", label_columns),
                heads = padded_right("policy", label_columns);
    for (size_t size = first; size < last; ++size) {
        const uint32_t slots = rows[size * policies]->slots;
        sizes += padded_left(format("{} slots ({:.1f} %)", slots, 100.0 * slots / pages),
                             size_columns());
        heads += "  " + padded_left("misses", misses_columns) + padded_left("hit %", rate_columns) +
                 padded_left("x opt", ratio_columns);
        if (timing) heads += padded_left("M req/s", 9);
    }
    std::string table = sizes + "\n" + heads + "\n";
    for (size_t policy = 0; policy < policies; ++policy) {
        table += padded_right(core::shortened(rows[policy]->label, label_columns), label_columns);
        for (size_t size = first; size < last; ++size)
            table += cells(*rows[size * policies + policy]);
        table += "\n";
    }
    // The optimum has a line of its own; the ratios refer to it.
    const auto has_optimum = [](const replay_row *row) { return row->opt_misses.has_value(); };
    if (std::ranges::any_of(rows, has_optimum)) {
        table += padded_right("offline optimum", label_columns);
        for (size_t size = first; size < last; ++size) {
            const replay_row &row = *rows[size * policies];
            if (!row.opt_misses) {
                table += "  " + padded_left("-", misses_columns) +
                         std::string(size_columns() - 2 - misses_columns, ' ');
                continue;
            }
            const uint64_t misses = *row.opt_misses;
            table += "  " + padded_left(core::with_commas(misses), misses_columns);
            table += padded_left(format("{:.2f}", 100.0 * static_cast<double>(requests - misses) /
                                                      static_cast<double>(requests)),
                                 rate_columns);
            table += std::string(size_columns() - 2 - misses_columns - rate_columns, ' ');
        }
        table.erase(table.find_last_not_of(' ') + 1);
        table += "\n";
    }
    return table;
}

}  // namespace

core::json to_json(const replay_report &report) {
    core::json document;
    document["trace"] = report.trace;
    document["model"] = report.model;
    document["tokens"] = report.tokens;
    document["layers"] = report.layers;
    document["experts"] = report.experts;
    document["top_k"] = report.top_k;
    document["results"] = core::json::array();
    for (const replay_row &row : report.rows)
        if (!row.failed) document["results"].push_back(row_json(report, row));
    if (!report.failed.empty()) document["failed"] = core::failed_json(report.failed);
    document["warnings"] = report.warnings;
    return document;
}

std::string to_text(const replay_report &report) {
    std::string text = format(
        "{}{}{}\n{} tokens, {} layers x {} experts, top-{}; order {}, seed {}\n", report.trace,
        report.model.empty() ? "" : ": ", report.model, core::with_commas(report.tokens),
        report.layers, report.experts, report.top_k, core::name_of(report.requests), report.seed);
    for (const core::sharing pools : {core::sharing::shared, core::sharing::per_layer}) {
        block part;
        part.pages = report.layers * report.experts;
        part.requests = report.tokens * report.layers * report.top_k;
        part.timing = report.timing;
        part.label_columns = core::columns_of("offline optimum");
        for (const replay_row &row : report.rows) {
            if (row.pools != pools) continue;
            part.rows.push_back(&row);
            part.label_columns = std::max(part.label_columns, core::columns_of(row.label));
        }
        if (part.rows.empty()) continue;
        part.label_columns = std::min(part.label_columns, label_columns_max);
        // Rows are sorted by size, then policy, so the first size gives the number of policies.
        while (part.policies < part.rows.size() &&
               part.rows[part.policies]->slots == part.rows[0]->slots)
            ++part.policies;
        const size_t sizes = part.rows.size() / part.policies;
        const size_t across =
            std::max<size_t>(1, (line_columns - part.label_columns) / part.size_columns());
        for (; part.first < sizes; part.first += across) {
            part.last = std::min(sizes, part.first + across);
            text += format("\n{}\n", pools == core::sharing::shared
                                         ? "one cache for all layers (shared)"
                                         : "a cache for each layer (per-layer)");
            text += part.text();
        }
    }
    if (!report.failed.empty()) text += "\n" + core::failed_text(report.failed, line_columns);
    std::map<std::string, uint64_t> faults;  // of all rows with the label
    for (const replay_row &row : report.rows)
        if (row.counted.faults > 0) faults[row.label] += row.counted.faults;
    for (const auto &[label, count] : faults)
        text += format("\nfault: plugin {} broke the rules {} times\n", label,
                       core::with_commas(count));
    for (const std::string &warning : report.warnings)
        for (const std::string &line : core::wrapped("\nwarning: " + warning, line_columns))
            text += line + "\n";
    return text;
}

}  // namespace moorage::tool
