// placement_html.cpp - placements as a page: latency by policy, against what was swept, and which
// server holds how much of which layer.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>

#include "core/base/text.h"
#include "core/report/figures.h"
#include "core/report/html_parts.h"
#include "core/report/placement_report.h"

namespace moorage::core {

namespace {

constexpr size_t map_cells_max = 24'000;  // about four megabytes of page

std::string settings_text(const placement_scene &at) {
    std::string text;
    for (const auto &[key, value] : at.settings)
        text += (text.empty() ? "" : ", ") + short_key(key) + " " + value;
    return text;
}

std::string hint_of(const placement_report &report, const placement_row &row) {
    const placement_scene &at = report.scenes[row.scene];
    const auto [used, room] = memory_bytes(at.of, row.made);
    const std::string settings = settings_text(at);
    return format("{}{}\nlatency {}\nlocal {}, {} remote calls/s\n{} copies, {} of {}",
                  row.made.policy, settings.empty() ? "" : ", " + settings,
                  human_ms(latency_ms(row)), percent(row.figures.local_ratio, 1),
                  three_digits(row.figures.remote_calls_per_s), with_commas(row.made.copies.size()),
                  human_bytes(static_cast<double>(used)), human_bytes(static_cast<double>(room)));
}

// The one setting that was swept, as numbers by scene; nothing where it is not one of numbers.
struct swept_axis {
    std::string title;
    std::vector<double> values;  // by scene
};
std::optional<swept_axis> axis_of(const placement_report &report) {
    if (report.scenes.size() < 2 || report.scenes[0].settings.size() != 1) return {};
    swept_axis axis;
    const std::string key = report.scenes[0].settings[0].first;
    const bool bytes = key.ends_with("_bytes"), bits = key.ends_with("bits_per_s");
    axis.title = key.substr(key.find('.') + 1);
    for (const placement_scene &at : report.scenes) {
        const std::string &text = at.settings[0].second;
        char *end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (end == text.c_str() || *end != 0) return {};
        axis.values.push_back(bytes ? value / 1e9 : bits ? value / 1e6 : value);
    }
    if (bytes) axis.title += ", GB";
    if (bits) axis.title += ", Mbit/s";
    return axis;
}

std::vector<std::string> policies_of(const placement_report &report) {
    std::vector<std::string> names;
    for (const placement_row &row : report.rows)
        if (std::find(names.begin(), names.end(), row.made.policy) == names.end())
            names.push_back(row.made.policy);
    return names;
}

chart_figure line_figure(const placement_report &report, const swept_axis &axis,
                         const std::string &heading, const std::string &y_title, auto value_of) {
    line_chart chart{heading + " against " + axis.title, axis.title, y_title, {}};
    for (const std::string &name : policies_of(report)) {
        chart_series one{name, {chart.series.size(), false}, {}, true};
        for (const placement_row &row : report.rows)
            if (row.made.policy == name && row.refusal.empty())
                one.points.push_back({axis.values[row.scene], value_of(row), hint_of(report, row)});
        std::stable_sort(one.points.begin(), one.points.end(),
                         [](const auto &a, const auto &b) { return a.x < b.x; });
        if (!one.points.empty()) chart.series.push_back(std::move(one));
    }
    return {heading, draw(chart)};
}

// A row per policy, and where settings were swept a dot per setting.
chart_figure dot_figure(const placement_report &report, const std::string &heading,
                        const std::string &x_title, auto value_of) {
    dot_chart chart{heading + " by policy", x_title, "", 0, {}, {}};
    for (const placement_scene &at : report.scenes) chart.groups.push_back(settings_text(at));
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    for (const std::string &name : policies_of(report)) {
        dot_row one{name, {chart.rows.size(), false}, {}};
        one.dots.assign(report.scenes.size(), {none, 0, ""});
        for (const placement_row &row : report.rows)
            if (row.made.policy == name && row.refusal.empty())
                one.dots[row.scene] = {value_of(row), 0, hint_of(report, row)};
        chart.rows.push_back(std::move(one));
    }
    return {heading, draw(chart)};
}

std::vector<chart_figure> figures_of(const placement_report &report, bool latency) {
    const auto latency_of = [](const placement_row &row) { return latency_ms(row); };
    const auto local_of = [](const placement_row &row) { return 100 * row.figures.local_ratio; };
    if (const auto axis = axis_of(report)) {
        if (latency) return {line_figure(report, *axis, "Latency", "ms a token", latency_of)};
        return {line_figure(report, *axis, "Local calls", "% of expert calls", local_of)};
    }
    if (latency) return {dot_figure(report, "Latency", "ms a token", latency_of)};
    return {dot_figure(report, "Local calls", "% of expert calls", local_of)};
}

std::string map_titles(const scene &of) {
    if (of.demand.models == 1) return "layer";
    return format("layers of {} models, one model after the other", of.demand.models);
}

// "switch8.0 layer 3", where there are several models.
std::vector<std::string> layer_names(const scene &of) {
    std::vector<std::string> names;
    for (uint32_t m = 0; m < of.demand.models && of.demand.models > 1; ++m)
        for (uint32_t layer = 0; layer < of.demand.model_layers[m]; ++layer)
            names.push_back(format("{} layer {}", of.model_names[m], layer));
    return names;
}

// One map a plan, as many as a page can bear.
std::string maps(const placement_report &report) {
    std::vector<chart_figure> figures;
    size_t cells = 0, left_out = 0;
    for (const placement_row &row : report.rows) {
        if (!row.refusal.empty()) continue;
        const placement_scene &at = report.scenes[row.scene];
        heat_map map{"share of a layer's experts by server",
                     map_titles(at.of),
                     0,
                     1,
                     {},
                     layer_names(at.of)};
        const auto shares = layer_shares(at.of, row.made);
        cells += shares.size() * shares[0].size();
        if (cells > map_cells_max && !figures.empty()) {
            ++left_out;
            continue;
        }
        for (uint32_t server = 0; server < at.of.cluster.servers; ++server)
            map.rows.push_back({at.of.server_names[server], shares[server]});
        const std::string settings = settings_text(at);
        figures.push_back({row.made.policy + (settings.empty() ? "" : ", " + settings), draw(map)});
    }
    if (figures.empty()) return "";
    std::string html = draw_scale(0, 1, "of the layer's experts") + maps_of(figures);
    if (left_out > 0)
        html += format("<p class=\"note\">and {} more, which the JSON has</p>\n", left_out);
    return html;
}

std::string result_table(const placement_report &report) {
    std::string html = "<div class=\"wide\"><table>\n<thead><tr><th>policy</th>";
    for (const auto &[key, value] : report.scenes[0].settings)
        html += element("th", short_key(key));
    for (const char *heading : {"latency ms", "saved", "local", "remote/s", "copies", "memory",
                                "time ms", "stated by the policy"})
        html += "<th class=\"figure\">" + std::string(heading) + "</th>";
    html += "</tr></thead>\n<tbody>\n";
    for (const placement_row &row : report.rows) {
        const placement_scene &at = report.scenes[row.scene];
        html += "<tr>" + element("th", row.made.policy);
        for (const auto &[key, value] : at.settings) html += element("td", value);
        if (!row.refusal.empty()) {
            html += element("td", row.failed ? "FAILED" : "no plan") + "<td colspan=\"7\">" +
                    element("span", row.refusal) + "</td></tr>\n";
            continue;
        }
        const auto [used, room] = memory_bytes(at.of, row.made);
        html += element("td", three_digits(latency_ms(row)));
        html += element(
            "td", has_cloud(report, row) ? percent(row.figures.saved_s, row.figures.empty_s) : "-");
        html += element("td", percent(row.figures.local_ratio, 1));
        html += element("td", three_digits(row.figures.remote_calls_per_s));
        html += element("td", with_commas(row.made.copies.size()));
        html += element("td", percent(static_cast<double>(used), static_cast<double>(room)));
        html += element("td", three_digits(1e3 * row.made.seconds));
        std::vector<std::string> facts;
        for (const fact &one : row.made.facts)
            facts.push_back(one.name + " " + three_digits(one.value));
        html += element("td", joined(facts)) + "</tr>\n";
    }
    return html + "</tbody>\n</table></div>\n";
}

constexpr const char *words =
    "<section>\n<h2>Words</h2>\n<dl class=\"words\">\n"
    "<dt>latency</dt><dd>expected time of one token in all its MoE layers, mean over homes by "
    "their tokens a second: sending, computing and returning, without queues and batches</dd>\n"
    "<dt>saved</dt><dd>against the same cluster with nothing placed, where the cloud has all "
    "experts</dd>\n"
    "<dt>local</dt><dd>expert calls that the home or the server it enters by can take</dd>\n"
    "<dt>home</dt><dd>a server, or a user, at which tokens arise</dd>\n"
    "</dl>\n</section>\n";

}  // namespace

std::string to_html(const placement_report &report, const std::string &command) {
    std::string html = page_begin(report.title.empty() ? "moorage placement" : report.title);
    if (report.rows.empty()) return html + "<p>Nothing was placed.</p>\n" + page_end;
    html += "<dl class=\"facts\">" + fact_line("cluster", scene_text(report.scenes[0].of));
    std::string statistics;
    for (const std::string &sentence : report.statistics)
        statistics += (statistics.empty() ? "" : "; ") + sentence;
    html += fact_line("statistics", statistics);
    html += "</dl>\n";
    if (!command.empty()) html += element("pre", command) + "\n";
    std::vector<chart_figure> charts = figures_of(report, true);
    for (chart_figure &figure : figures_of(report, false)) charts.push_back(std::move(figure));
    html +=
        chapter("Latency", "What the latency model predicts. Lower is better.", grid_of(charts));
    html += chapter("Placement", "Which share of each layer's experts each server holds.",
                    maps(report));
    html += chapter("Results", "", result_table(report));
    return html + words + page_end;
}

}  // namespace moorage::core
