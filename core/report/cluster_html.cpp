// cluster_html.cpp - the chapters of a page that are about clusters.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/chart.h"
#include "core/report/cluster_comparison.h"
#include "core/report/figures.h"
#include "core/report/html_parts.h"

namespace moorage::core {

namespace {

constexpr size_t lines_max = 8;           // over time and as bars: more cannot be told apart
constexpr size_t points_max = 120;        // of a line over time
constexpr size_t homes_max = 12;          // of bars; those of the highest latency
constexpr size_t links_max = 12;          // of bars; those that carried most
constexpr size_t map_cells_max = 24'000;  // about four megabytes of page
constexpr double none = std::numeric_limits<double>::quiet_NaN();

using cluster_rows = std::vector<size_t>;

// The runs that are drawn one by one, and how they look everywhere.
struct shown_runs {
    cluster_rows rows;
    std::vector<std::string> names;
    std::vector<series_look> looks;
    std::string note;  // which these are, where not all
};

struct page_parts {
    const comparison &compared;
    const comparison_view &view;
    swept_axis axis;
    shown_runs shown;
    const run_report &run(size_t row) const { return compared.rows[row].report; }
    const cluster_report &of(size_t row) const { return *run(row).cluster; }
};

std::vector<std::string> distinct(const comparison &compared,
                                  const std::vector<std::string> &labels) {
    std::vector<std::string> names;
    for (size_t i = 0; i < labels.size(); ++i)
        if (compared.rows[i].report.cluster &&
            std::find(names.begin(), names.end(), labels[i]) == names.end())
            names.push_back(labels[i]);
    return names;
}

// All runs; of a sweep those in its middle.
shown_runs runs_to_show(const comparison &compared, const comparison_view &view,
                        const swept_axis &axis) {
    shown_runs shown;
    const bool swept = !axis.title.empty();
    const std::vector<std::string> &labels = swept ? axis.labels : view.labels;
    const std::vector<std::string> names = distinct(compared, labels);
    std::set<double> values;
    if (swept)
        for (const double value : axis.values)
            if (std::isfinite(value)) values.insert(value);
    const double middle =
        swept ? *std::next(values.begin(), std::ptrdiff_t((values.size() - 1) / 2)) : 0;
    size_t left_out = 0;
    for (size_t i = 0; i < labels.size(); ++i) {
        if (!compared.rows[i].report.cluster || (swept && axis.values[i] != middle)) continue;
        if (shown.rows.size() == lines_max) {
            ++left_out;
            continue;
        }
        shown.rows.push_back(i);
        shown.names.push_back(labels[i]);
        const auto at = std::find(names.begin(), names.end(), labels[i]);
        shown.looks.push_back({static_cast<size_t>(at - names.begin()), false});
    }
    if (swept) shown.note = format(" Of the runs at {} ({}).", three_digits(middle), axis.title);
    if (left_out > 0)
        shown.note += format(" The first {} of {} runs.", lines_max, lines_max + left_out);
    return shown;
}

std::string hint_of(const page_parts &page, size_t row) {
    const cluster_report &of = page.of(row);
    return format("{}\nlatency {}, p99 {}\nexperts {} a token\nlocal {}, {} by network",
                  page.view.labels[row], human_ms(of.latency_ms.mean), human_ms(of.latency_ms.p99),
                  human_ms(of.experts_ms_per_token), percent(of.local_ratio, 1),
                  human_bytes(static_cast<double>(page.run(row).bytes.network)));
}

// Against what was swept a line for each label, else a dot for each run.
chart_figure overall_figure(const page_parts &page, const std::string &heading,
                            const std::string &title, auto value_of) {
    const swept_axis &axis = page.axis;
    if (axis.title.empty()) {
        dot_chart chart{heading + " by run", title, "", 0, {""}, {}};
        for (size_t i = 0; i < page.view.labels.size(); ++i)
            if (page.run(i).cluster)
                chart.rows.push_back({page.view.labels[i],
                                      {chart.rows.size(), false},
                                      {{value_of(i), 0, hint_of(page, i)}}});
        return {heading, draw(chart)};
    }
    line_chart chart{heading + " against " + axis.title, axis.title, title, {}};
    for (const std::string &name : distinct(page.compared, axis.labels)) {
        chart_series one{name, {chart.series.size(), false}, {}, true};
        for (size_t i = 0; i < axis.labels.size(); ++i)
            if (page.run(i).cluster && axis.labels[i] == name)
                one.points.push_back({axis.values[i], value_of(i), hint_of(page, i)});
        std::stable_sort(one.points.begin(), one.points.end(),
                         [](const auto &a, const auto &b) { return a.x < b.x; });
        chart.series.push_back(std::move(one));
    }
    return {heading, draw(chart)};
}

std::string latency_chapter(const page_parts &page) {
    return chapter(
        "Latency", "From a request's arrival to its last output token. Lower is better.",
        grid_of({overall_figure(page, "Latency", "mean of a request, ms",
                                [&](size_t i) { return page.of(i).latency_ms.mean; }),
                 overall_figure(page, "Experts", "ms a token, from routing to the last output",
                                [&](size_t i) { return page.of(i).experts_ms_per_token; })}));
}

// Time on an axis: its name, and how many seconds one of its units has.
struct time_unit {
    std::string name = "s";
    double seconds = 1;
};

time_unit unit_of(const page_parts &page) {
    double end_s = 0;
    for (const size_t row : page.shown.rows)
        end_s = std::max(
            end_s, page.of(row).bucket_s * static_cast<double>(page.of(row).over_time.size()));
    if (end_s > 3 * 3600) return {"h", 3600};
    if (end_s > 20 * 60) return {"min", 60};
    return end_s < 1 ? time_unit{"ms", 1e-3} : time_unit{};
}

// Several buckets share a point where there are very many. `value_of` gives the value and its
// weight.
chart_series series_over_time(const page_parts &page, size_t index, const time_unit &unit,
                              const std::string &what, auto value_of) {
    const cluster_report &of = page.of(page.shown.rows[index]);
    chart_series made{page.shown.names[index], page.shown.looks[index], {}, false};
    const size_t step = (of.over_time.size() + points_max - 1) / points_max;
    for (size_t from = 0; from < of.over_time.size(); from += step) {
        const size_t to = std::min(of.over_time.size(), from + step);
        double sum = 0, weight = 0;
        for (size_t i = from; i < to; ++i) {
            const auto [value, own] = value_of(of.over_time[i]);
            sum += value * own;
            weight += own;
        }
        if (weight == 0) continue;
        const double at = static_cast<double>(from + to) / 2 * of.bucket_s / unit.seconds;
        made.points.push_back({at, sum / weight,
                               format("{}\n{} {}: {} {}", made.name, three_digits(at), unit.name,
                                      three_digits(sum / weight), what)});
    }
    return made;
}

std::vector<chart_mark> migration_marks(const page_parts &page, const time_unit &unit) {
    std::vector<chart_mark> marks;
    for (size_t i = 0; i < page.shown.rows.size(); ++i) {
        const cluster_report &of = page.of(page.shown.rows[i]);
        for (const cluster_report::migration &one : of.migrations) {
            if (!one.adopted) continue;
            const double end_s = one.done_s < 0 ? of.duration_s : one.done_s;
            marks.push_back(
                {one.at_s / unit.seconds, end_s / unit.seconds, page.shown.looks[i],
                 format("{}\nmigration at {} s: {} copies, {}, {}", page.shown.names[i],
                        three_digits(one.at_s), with_commas(one.added_copies),
                        human_bytes(static_cast<double>(one.added_bytes)),
                        one.done_s < 0 ? std::string("not done at the end")
                                       : "done after " + human_ms(1e3 * (end_s - one.at_s)))});
        }
    }
    return marks;
}

std::string time_chapter(const page_parts &page) {
    const time_unit unit = unit_of(page);
    const std::vector<chart_mark> marks = migration_marks(page, unit);
    line_chart local{"local ratio over time", "time, " + unit.name, "% of expert calls", {}, marks};
    line_chart latency{"latency over time", "arrival, " + unit.name, "ms a request", {}, marks};
    for (size_t i = 0; i < page.shown.rows.size(); ++i) {
        local.series.push_back(
            series_over_time(page, i, unit, "% local", [](const cluster_report::bucket &one) {
                return std::pair(100 * one.local_ratio, 1.0);
            }));
        latency.series.push_back(
            series_over_time(page, i, unit, "ms", [](const cluster_report::bucket &one) {
                return std::pair(one.latency_ms, static_cast<double>(one.requests));
            }));
    }
    std::string note = "Expert calls that stay on the home's own server, and latency by arrival.";
    if (!marks.empty())
        note += " Dotted lines: a migration begins; the bar at the bottom ends when it is done.";
    return chapter("Over time", note + page.shown.note,
                   grid_of({{"Local calls", draw(local)}, {"Latency", draw(latency)}}));
}

// Bars of what the runs have by name, a block for each of the names with the highest values.
struct named_bars {
    std::map<std::string, std::vector<bar_block::bar>> by_name;  // bars by shown run
    std::vector<std::string> order;                              // of appearance
    size_t runs = 0;
    bar_block::bar &at(const std::string &name, size_t run) {
        const auto [found, fresh] = by_name.try_emplace(name, runs, bar_block::bar{none, 0, ""});
        if (fresh) order.push_back(name);
        return found->second[run];
    }
};

double highest(const std::vector<bar_block::bar> &bars) {
    double high = 0;
    for (const bar_block::bar &bar : bars)
        high = std::max(high, std::isnan(bar.value) ? 0 : bar.value);
    return high;
}

chart_figure bars_of(const page_parts &page, const std::string &heading, const std::string &title,
                     named_bars bars, size_t blocks_max) {
    bar_chart chart{heading, title, {}, {}};
    for (size_t i = 0; i < page.shown.rows.size(); ++i)
        chart.series.emplace_back(page.shown.names[i], page.shown.looks[i]);
    std::string shown = heading;
    if (bars.order.size() > blocks_max) {
        std::stable_sort(bars.order.begin(), bars.order.end(),
                         [&](const std::string &a, const std::string &b) {
                             return highest(bars.by_name[a]) > highest(bars.by_name[b]);
                         });
        shown += format(", the highest {} of {}", blocks_max, bars.order.size());
        bars.order.resize(blocks_max);
    }
    for (const std::string &name : bars.order) chart.blocks.push_back({name, bars.by_name[name]});
    return {shown, draw(chart)};
}

std::string parts_chapter(const page_parts &page) {
    named_bars homes{{}, {}, page.shown.rows.size()}, links = homes;
    for (size_t i = 0; i < page.shown.rows.size(); ++i) {
        const cluster_report &of = page.of(page.shown.rows[i]);
        for (const cluster_report::home &one : of.homes)
            homes.at(one.name, i) = {
                one.requests == 0 ? none : one.latency_ms.mean, 0,
                format("{}, {}\nlatency {}, p99 {}\n{} requests, local {}", one.name,
                       page.shown.names[i], human_ms(one.latency_ms.mean),
                       human_ms(one.latency_ms.p99), with_commas(one.requests),
                       percent(one.local_ratio, 1))};
        for (const cluster_report::link &one : of.links) {
            const double moved = static_cast<double>(one.migration_bytes);
            const double all = moved + static_cast<double>(one.activation_bytes);
            const std::string name = one.from + " to " + one.to;
            links.at(name, i) = {
                all / 1e6, moved / 1e6,
                format("{}, {}\nactivations {}, migration {}\nbusy {}", name, page.shown.names[i],
                       human_bytes(all - moved), human_bytes(moved), percent(one.utilisation, 1))};
        }
    }
    return chapter("Homes and links",
                   "Where requests enter, and what crosses the network; the pale end of a bar is "
                   "migration." +
                       page.shown.note,
                   grid_of({bars_of(page, "Latency by home", "mean of a request, ms",
                                    std::move(homes), homes_max),
                            bars_of(page, "Bytes by link", "MB", std::move(links), links_max)}));
}

std::vector<std::string> layer_names(const run_report &run) {
    std::vector<std::string> names;
    const std::vector<uint32_t> &layers = run.cluster->models_layers;
    if (layers.size() < 2) return names;
    static const json::json_pointer place("/cluster/models");
    const json models = run.config->contains(place) ? run.config->at(place) : json::array();
    for (size_t m = 0; m < layers.size(); ++m)
        for (uint32_t layer = 0; layer < layers[m]; ++layer)
            names.push_back(format("{} layer {}",
                                   m < models.size() && models[m].is_string()
                                       ? models[m].get<std::string>()
                                       : format("model {}", m),
                                   layer));
    return names;
}

// Servers by their first device's name: "lab" of "lab.gpu0", "edge.1" of the ideal "edge.1".
// Devices come server by server.
std::vector<std::string> server_names(const cluster_report &of) {
    std::vector<std::string> names;
    for (const cluster_report::device &one : of.devices) {
        const std::string name = one.name.substr(0, one.name.rfind(".gpu"));
        if (names.empty() || names.back() != name) names.push_back(name);
    }
    if (names.size() != of.servers_layers.size()) {
        names.clear();
        for (size_t i = 0; i < of.servers_layers.size(); ++i)
            names.push_back(format("server {}", i));
    }
    return names;
}

std::string placement_chapter(const page_parts &page) {
    std::vector<chart_figure> figures;
    size_t cells = 0, left_out = 0;
    for (size_t i = 0; i < page.shown.rows.size(); ++i) {
        const cluster_report &of = page.of(page.shown.rows[i]);
        cells += of.servers_layers.size() * of.layers_experts.size();
        if (cells > map_cells_max && !figures.empty()) {
            ++left_out;
            continue;
        }
        heat_map map{
            "share of a layer's experts by server",
            of.models_layers.size() < 2
                ? "layer"
                : format("layers of {} models, one model after the other", of.models_layers.size()),
            0,
            1,
            {},
            layer_names(page.run(page.shown.rows[i]))};
        const std::vector<std::string> names = server_names(of);
        for (size_t server = 0; server < of.servers_layers.size(); ++server) {
            map.rows.push_back({names[server], {}});
            for (size_t layer = 0; layer < of.servers_layers[server].size(); ++layer)
                map.rows.back().values.push_back(of.servers_layers[server][layer] /
                                                 std::max(1.0, double(of.layers_experts[layer])));
        }
        figures.push_back({page.shown.names[i], draw(map)});
    }
    std::string html = maps_of(figures);
    if (html.empty()) return "";
    if (left_out > 0)
        html += format("<p class=\"note\">and {} more, which the JSON has</p>\n", left_out);
    return chapter("Placement",
                   "Copies of each layer's experts that each server holds at the end, over the "
                   "layer's experts." +
                       page.shown.note,
                   draw_scale(0, 1, "of the layer's experts") + html);
}

std::string table_row(const page_parts &page, size_t i, bool memory) {
    std::string html = page.view.best[i] && page.run(i).cluster ? "<tr class=\"best\">" : "<tr>";
    for (const key_column &column : page.view.columns) html += element("th", column.values[i]);
    const run_report &run = page.run(i);
    const auto cell = [&](const std::string &text) { html += element("td", text); };
    const auto common = [&] {
        cell(human_ms(run.ttft_ms.mean));
        cell(three_digits(run.tpot_ms.mean));
    };
    cell(with_commas(run.requests));
    if (!run.cluster) {
        for (int skipped = memory ? 0 : 1; skipped < 3; ++skipped) cell("-");
        common();
        for (int skipped = 0; skipped < 7; ++skipped) cell("-");
        return html + "</tr>\n";
    }
    const cluster_report &of = *run.cluster;
    if (memory) cell(three_digits(static_cast<double>(page.view.storage_bytes[i]) / 1e9));
    cell(three_digits(of.latency_ms.mean));
    cell(three_digits(of.latency_ms.p99));
    common();
    cell(three_digits(of.experts_ms_per_token));
    cell(percent(of.local_ratio, 1));
    cell(with_commas(of.calls));
    cell(of.calls == 0 ? "-" : three_digits(of.remote_call_ms));
    uint64_t moved = 0, adopted = 0;
    double busy = 0;
    for (const cluster_report::link &one : of.links) moved += one.migration_bytes;
    for (const cluster_report::migration &one : of.migrations) adopted += one.adopted;
    for (const cluster_report::device &one : of.devices) busy = std::max(busy, one.utilisation);
    cell(human_bytes(static_cast<double>(run.bytes.network)));
    cell(adopted == 0 ? "-" : format("{}: {}", adopted, human_bytes(static_cast<double>(moved))));
    cell(percent(busy, 1));
    return html + "</tr>\n";
}

std::string results_chapter(const page_parts &page) {
    const std::vector<uint64_t> sizes = memory_sizes(page.view);
    const bool memory = sizes.size() > (all_clusters(page.compared) ? 1 : 2);
    std::string html = "<div class=\"wide\"><table>\n<thead><tr>";
    for (const key_column &column : page.view.columns) html += element("th", column.heading);
    html += "<th class=\"figure\">requests</th>";
    if (memory) html += "<th class=\"figure\">memory GB</th>";
    for (const char *heading : {"latency ms", "p99 ms", "TTFT", "TPOT ms", "experts ms", "local",
                                "calls", "call ms", "network", "migrations", "GPU busy"})
        html += "<th class=\"figure\">" + std::string(heading) + "</th>";
    html += "</tr></thead>\n";
    for (const uint64_t size : sizes) {
        html += "<tbody>\n";
        for (size_t i = 0; i < page.compared.rows.size(); ++i)
            if (page.view.storage_bytes[i] == size) html += table_row(page, i, memory);
        html += "</tbody>\n";
    }
    return chapter("Clusters", "Bold: lowest latency of equal clusters with equal memory.",
                   html + "</table></div>\n");
}

}  // namespace

std::string cluster_fact(const comparison &compared) {
    std::vector<std::string> facts;
    for (const comparison_row &row : compared.rows) {
        if (!row.report.cluster) continue;
        const cluster_report &of = *row.report.cluster;
        const auto counted = [](size_t count, const char *what) {
            return format("{} {}{}", count, what, count == 1 ? "" : "s");
        };
        std::string fact = counted(of.servers_layers.size(), "server") + " with " +
                           counted(of.devices.size(), "device") + ", requests at " +
                           counted(of.homes.size(), "home");
        if (std::find(facts.begin(), facts.end(), fact) == facts.end())
            facts.push_back(std::move(fact));
    }
    std::string text;
    for (const std::string &fact : facts) text += (text.empty() ? "" : "; ") + fact;
    return text;
}

std::string cluster_chapters(const comparison &compared, const comparison_view &view) {
    if (!any_cluster(compared)) return "";
    page_parts page{compared, view, swept_axis_of(compared, view), {}};
    page.shown = runs_to_show(compared, view, page.axis);
    return latency_chapter(page) + time_chapter(page) + parts_chapter(page) +
           placement_chapter(page) + results_chapter(page);
}

std::string cluster_words() {
    return "<dt>latency</dt><dd>of a request: from its arrival to its last output token</dd>\n"
           "<dt>experts ms</dt><dd>from a layer's routing to its last output, over all layers of a "
           "token: what placement can change</dd>\n"
           "<dt>local</dt><dd>expert calls that the home's own server takes</dd>\n"
           "<dt>calls, call ms</dt><dd>messages to other servers, one a server and step, "
           "however many experts it names; their mean time there and back</dd>\n"
           "<dt>network</dt><dd>bytes between servers: activations and migrated experts</dd>\n"
           "<dt>GPU busy</dt><dd>the busiest of them, over the time of the run</dd>\n"
           "<dt>home</dt><dd>a server, or a user, at which requests arise</dd>\n";
}

}  // namespace moorage::core
