// placement_text.cpp - a placement, or a table of several, for a terminal of 80 columns.
#include <algorithm>

#include "core/base/text.h"
#include "core/report/figures.h"
#include "tools/comparison/placement_report.h"

namespace moorage::core {

namespace {

constexpr size_t columns_max = 80, listed_max = 12, name_columns_max = 22, heading_columns = 13;

// "heading      text", its further lines below the text.
std::string paragraph(const std::string &heading, const std::string &text) {
    std::string lines, start = padded_right(heading, heading_columns);
    for (const std::string &line : wrapped(text, columns_max - heading_columns)) {
        lines += start + line + "\n";
        start = std::string(heading_columns, ' ');
    }
    return lines;
}

std::string facts_text(const plan &plan) {
    std::string text;
    for (const fact &fact : plan.facts)
        text += (text.empty() ? "" : ", ") + fact.name + " " + three_digits(fact.value);
    return text;
}

std::string header(const placement_report &report) {
    std::string text;
    if (!report.title.empty()) text += shortened(report.title, columns_max) + "\n";
    text += paragraph("cluster", scene_text(shown_scene(report)));
    for (size_t i = 0; i < report.statistics.size(); ++i)
        text += paragraph(i == 0 ? "statistics" : "", report.statistics[i]);
    return text;
}

uint64_t placed_experts(const plan &plan) {
    uint64_t count = 0;
    for (size_t i = 0; i < plan.copies.size(); ++i)
        count += i == 0 || plan.copies[i].expert != plan.copies[i - 1].expert;
    return count;
}

std::string memory_text(const scene &scene, const plan &plan) {
    const std::vector<uint64_t> used = device_used_bytes(scene, plan.copies);
    std::string text = "\n" + padded_right("memory", heading_columns) +
                       padded_right("device", name_columns_max) + padded_left("used", 10) +
                       padded_left("of", 10) + "\n";
    for (uint32_t g = 0; g < scene.cluster.devices() && g < listed_max; ++g) {
        const auto room = static_cast<double>(scene.cluster.device_bytes[g]);
        const double share = room > 0 ? static_cast<double>(used[g]) / room : 0;
        text +=
            std::string(heading_columns, ' ') +
            padded_right(shortened(scene.device_names[g], name_columns_max - 1), name_columns_max) +
            padded_left(human_bytes(static_cast<double>(used[g])), 10) +
            padded_left(human_bytes(room), 10) + "  " + block_bar(share, 20) + "\n";
    }
    if (scene.cluster.devices() > listed_max)
        text += std::string(heading_columns, ' ') +
                format("and {} more\n", scene.cluster.devices() - listed_max);
    return text;
}

std::string homes_text(const scene &scene, const latency_figures &figures) {
    std::string text = "\n" + padded_right("homes", heading_columns) +
                       padded_right("name", name_columns_max) + padded_left("tokens/s", 10) +
                       padded_left("latency", 10) + padded_left("local", 10) + "\n";
    uint32_t listed = 0, asking = 0;
    for (uint32_t home = 0; home < scene.cluster.homes; ++home) {
        if (scene.demand.home_tokens_per_s[home] <= 0) continue;
        if (++asking > listed_max) continue;
        ++listed;
        text += std::string(heading_columns, ' ') +
                padded_right(shortened(scene.home_names[home], name_columns_max - 1),
                             name_columns_max) +
                padded_left(three_digits(scene.demand.home_tokens_per_s[home]), 10) +
                padded_left(human_ms(1e3 * figures.home_token_s[home]), 10) +
                padded_left(percent(figures.home_local_ratio[home], 1), 10) + "\n";
    }
    if (asking == 0) return "";
    if (asking > listed)
        text += std::string(heading_columns, ' ') + format("and {} more\n", asking - listed);
    return text;
}

std::string one_row(const placement_report &report, const placement_row &row) {
    const scene &scene = report.scenes[row.scene].setup;
    const latency_figures &figures = row.figures;
    std::string text = paragraph("policy", row.placement.policy);
    if (!row.refusal.empty())
        return text + paragraph(row.failed ? "FAILED" : "no plan", row.refusal);
    std::string latency = human_ms(latency_ms(row)) + " a token in its MoE layers";
    if (has_cloud(report, row))
        latency += format(", {} less than with nothing placed ({})",
                          human_ms(objective(report, row).first), human_ms(empty_latency_ms(row)));
    text += paragraph("latency", latency);
    if (in_batches(scene))
        text += paragraph("in batches",
                          human_ms(1e3 * figures.batch_token_s) +
                              " a token where those of a home's pass go together, mean lengths");
    text += paragraph(
        "calls", format("{} local; {} of {} a second go to another server{}",
                        percent(figures.local_ratio, 1), three_digits(figures.remote_calls_per_s),
                        three_digits(figures.calls_per_s),
                        scene.cluster.has_cloud() ? " or the cloud" : ""));
    text += paragraph(
        "plan",
        format("{} copies of {} experts of {}, made in {}",
               with_commas(row.placement.copies.size()), with_commas(placed_experts(row.placement)),
               with_commas(scene.demand.experts()), human_ms(1e3 * row.placement.seconds)));
    if (!row.placement.facts.empty()) text += paragraph("facts", facts_text(row.placement));
    return text + memory_text(scene, row.placement) + homes_text(scene, figures);
}

struct text_column {
    std::string heading;
    bool left = false;
    std::vector<std::string> cells;
};

std::vector<text_column> columns_of_rows(const placement_report &report) {
    std::vector<text_column> columns(1);
    columns[0] = {"policy", true, {}};
    for (const auto &[key, value] : report.scenes[0].settings)
        columns.push_back({shortened(short_key(key), 19), false, {}});
    const bool cloud = std::any_of(report.rows.begin(), report.rows.end(),
                                   [&](const auto &row) { return has_cloud(report, row); });
    columns.push_back({"latency ms", false, {}});
    const bool batches =
        std::any_of(report.scenes.begin(), report.scenes.end(),
                    [](const placement_scene &scene) { return in_batches(scene.setup); });
    if (batches) columns.push_back({"batch ms", false, {}});
    if (cloud) columns.push_back({"saved", false, {}});
    for (const char *heading : {"local", "remote/s", "copies", "memory", "time ms"})
        columns.push_back({heading, false, {}});
    for (const placement_row &row : report.rows) {
        const placement_scene &scene = report.scenes[row.scene];
        size_t c = 0;
        const auto cell = [&](std::string text) { columns[c++].cells.push_back(std::move(text)); };
        cell(shortened(row.placement.policy, name_columns_max));
        for (const auto &[key, value] : scene.settings) cell(shortened(value, 19));
        if (!row.refusal.empty()) {
            cell(row.failed ? "FAILED" : "no plan");
            while (c < columns.size()) cell("-");
            continue;
        }
        const auto [used, room] = memory_bytes(scene.setup, row.placement);
        cell(three_digits(latency_ms(row)));
        if (batches) cell(three_digits(1e3 * row.figures.batch_token_s));
        if (cloud)
            cell(has_cloud(report, row) ? percent(row.figures.saved_s, row.figures.empty_s) : "-");
        cell(percent(row.figures.local_ratio, 1));
        cell(three_digits(row.figures.remote_calls_per_s));
        cell(with_commas(row.placement.copies.size()));
        cell(percent(static_cast<double>(used), static_cast<double>(room)));
        cell(three_digits(1e3 * row.placement.seconds));
    }
    return columns;
}

// Columns are left out from the right where the table would be wider than the terminal.
std::string table(const placement_report &report) {
    std::vector<text_column> columns = columns_of_rows(report);
    std::vector<size_t> widths;
    size_t total = 0;
    for (const text_column &column : columns) {
        size_t width = core::columns_of(column.heading);
        for (const std::string &cell : column.cells)
            width = std::max(width, core::columns_of(cell));
        total += width + (widths.empty() ? 0 : 2);
        if (total > columns_max) break;
        widths.push_back(width);
    }
    std::string text;
    for (size_t r = 0; r <= report.rows.size(); ++r) {
        std::string line;
        for (size_t c = 0; c < widths.size(); ++c) {
            const text_column &column = columns[c];
            const std::string &cell = r == 0 ? column.heading : column.cells[r - 1];
            line += c == 0 ? "" : "  ";
            line += column.left ? padded_right(cell, widths[c]) : padded_left(cell, widths[c]);
        }
        text += line + "\n";
    }
    return text;
}

// The plan of one scene with the lowest latency. If batches pass together, also the plan with the
// lowest batch latency, which requests meet.
std::string lowest_text(const placement_report &report) {
    if (report.scenes.size() != 1) return "";
    const placement_row *alone = nullptr, *together = nullptr;
    for (const placement_row &row : report.rows) {
        if (!row.refusal.empty()) continue;
        if (!alone || latency_ms(row) < latency_ms(*alone)) alone = &row;
        if (!together || row.figures.batch_token_s < together->figures.batch_token_s)
            together = &row;
    }
    if (!alone || !in_batches(shown_scene(report)))
        return alone
                   ? alone->placement.policy + " has the lowest latency, by the model of one token"
                   : "";
    const std::string of_batches =
        format("{} has the lowest latency of a token whose batch passes together (batch ms)",
               together->placement.policy);
    return together == alone
               ? of_batches + ", and of one alone (latency ms)"
               : of_batches + format(", {} of one alone (latency ms)", alone->placement.policy);
}

}  // namespace

std::string to_text(const placement_report &report) {
    if (report.rows.empty()) return "nothing was placed\n";
    if (report.rows.size() == 1) return header(report) + one_row(report, report.rows[0]);
    std::string text = header(report) + "\n" + table(report), notes;
    for (const placement_row &row : report.rows) {
        // If settings were swept too, facts of policies are only in JSON and page.
        const bool stated = row.refusal.empty() && report.scenes.size() == 1;
        const std::string facts = stated ? facts_text(row.placement) : row.refusal;
        if (facts.empty()) continue;
        std::string heading = row.placement.policy;
        for (const auto &[key, value] : report.scenes[row.scene].settings) heading += " " + value;
        for (const std::string &line : wrapped(heading + ": " + facts, columns_max))
            notes += line + "\n";
    }
    if (const std::string lowest = lowest_text(report); !lowest.empty()) {
        text += "\n";
        for (const std::string &line : wrapped(lowest, columns_max)) text += line + "\n";
    }
    return notes.empty() ? text : text + "\n" + notes;
}

}  // namespace moorage::core
