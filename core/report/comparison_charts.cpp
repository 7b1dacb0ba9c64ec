// comparison_charts.cpp - turns rows into series, dots and cells.
#include "core/report/comparison_charts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/base/text.h"
#include "core/report/chart.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

constexpr size_t heat_cells_max = 6000;  // about a megabyte of page

// The plots' common frame: which lines there are, how they look on every plot, and the sizes.
struct plan {
    std::vector<std::string> names;
    std::vector<series_look> looks;  // by name
    std::vector<uint64_t> sizes;     // growing
    bool by_share = false;           // the size axis counts shares, not experts
    size_t name_of(const std::string &label) const {
        return size_t(std::find(names.begin(), names.end(), label) - names.begin());
    }
};

plan plan_of(const comparison_view &view) {
    plan made;
    made.by_share = !view.share.empty();
    size_t colored = 0;
    for (size_t i = 0; i < view.labels.size(); ++i) {
        if (view.storage_bytes[i] != 0) continue;  // of a cluster: no cache of one size
        if (made.name_of(view.labels[i]) == made.names.size()) {
            made.names.push_back(view.labels[i]);
            made.looks.push_back({view.offline[i] ? 0 : colored++, view.offline[i]});
        }
        made.sizes.push_back(view.slots[i]);
        made.by_share &= view.share[i] > 0;
    }
    std::sort(made.sizes.begin(), made.sizes.end());
    made.sizes.erase(std::unique(made.sizes.begin(), made.sizes.end()), made.sizes.end());
    return made;
}

double size_of(const comparison_view &view, const plan &made, size_t row) {
    return made.by_share ? 100 * view.share[row] : double(view.slots[row]);
}

std::string size_title(const plan &made) {
    return made.by_share ? "experts cached, % of all" : "experts cached";
}

std::string heading_of(const std::string &profile) {
    return profile.empty() ? "no profile" : profile;
}

std::string hint_of(const comparison &compared, const comparison_view &view, size_t row) {
    const run_report &report = compared.rows[row].report;
    return format("{}\n{}, {}\n{} misses of {} ({})\nTPOT {}, {} tokens/s", view.labels[row],
                  size_text(view, row), heading_of(report.profile),
                  with_commas(report.experts.misses), with_commas(report.experts.requested),
                  percent(double(report.experts.misses), double(report.experts.requested)),
                  human_ms(report.tpot_ms.mean), three_digits(report.tokens_per_s));
}

std::vector<chart_series> series_of(const comparison &compared, const comparison_view &view,
                                    const plan &made, const std::vector<size_t> &rows,
                                    const auto &value_of) {
    std::vector<chart_series> all;
    for (size_t n = 0; n < made.names.size(); ++n)
        all.push_back({made.names[n], made.looks[n], {}, true});
    for (const size_t i : rows) {
        all[made.name_of(view.labels[i])].points.push_back({size_of(view, made, i),
                                                            value_of(compared.rows[i].report),
                                                            hint_of(compared, view, i)});
    }
    for (chart_series &one : all)
        std::stable_sort(one.points.begin(), one.points.end(),
                         [](const auto &a, const auto &b) { return a.x < b.x; });
    return all;
}

// One dot per row instead of lines: what a line chart becomes with a single size.
std::string dots_of(const std::vector<chart_series> &series, const std::string &label,
                    const std::string &title) {
    dot_chart chart{label, title, "", 0, {""}, {}};
    for (const chart_series &one : series)
        for (const chart_point &point : one.points)
            chart.rows.push_back({one.name, one.look, {{point.y, 0, point.hint}}});
    return draw(chart);
}

// Whether all profiles saw the same hits and misses for every label and size.
bool profiles_agree(const comparison &compared, const comparison_view &view) {
    std::map<std::pair<std::string, uint64_t>, std::pair<uint64_t, uint64_t>> first;
    for (size_t i = 0; i < compared.rows.size(); ++i) {
        const run_report &report = compared.rows[i].report;
        if (report.cluster) continue;
        const std::pair seen{report.experts.misses, report.opt_misses};
        if (first.try_emplace({view.labels[i], view.slots[i]}, seen).first->second != seen)
            return false;
    }
    return true;
}

std::vector<std::string> profiles_to_show(const comparison &compared, const comparison_view &view) {
    if (view.profiles.size() > 1 && profiles_agree(compared, view)) return {view.profiles.front()};
    return view.profiles;
}

double miss_percent(const run_report &report, uint64_t misses) {
    return report.experts.requested == 0 ? 0
                                         : 100 * double(misses) / double(report.experts.requested);
}

// The optimum's curve, once per distinct curve: sharing and work change it, policies do not.
std::vector<chart_series> optimum_series(const comparison &compared, const comparison_view &view,
                                         const plan &made, const std::vector<size_t> &rows) {
    std::map<std::string, chart_series> by_sharing;
    for (const size_t i : rows) {
        const run_report &report = compared.rows[i].report;
        if (report.opt_misses == 0) continue;
        const std::string sharing = setting_text(report, "memory.sharing");
        chart_series &one = by_sharing[sharing];
        const double x = size_of(view, made, i);
        const double y = miss_percent(report, report.opt_misses);
        const bool known = std::any_of(one.points.begin(), one.points.end(),
                                       [&](const auto &p) { return p.x == x && p.y == y; });
        if (known) continue;
        one.points.push_back({x, y,
                              format("offline optimum\n{}\n{} misses ({:.1f} %)",
                                     size_text(view, i), with_commas(report.opt_misses), y)});
    }
    std::vector<chart_series> all;
    for (auto &[sharing, one] : by_sharing) {
        one.name = by_sharing.size() > 1 && !sharing.empty() ? "optimum, " + sharing : "optimum";
        one.look = {0, true};
        one.markers = false;
        std::stable_sort(one.points.begin(), one.points.end(),
                         [](const auto &a, const auto &b) { return a.x < b.x; });
        all.push_back(std::move(one));
    }
    return all;
}

}  // namespace

std::string size_text(const comparison_view &view, size_t row) {
    const std::string count =
        format("{} expert{}", with_commas(view.slots[row]), view.slots[row] == 1 ? "" : "s");
    return view.share[row] > 0 ? count + format(" ({})", percent(view.share[row], 1)) : count;
}

std::vector<chart_figure> tpot_figures(const comparison &compared, const comparison_view &view) {
    const plan made = plan_of(view);
    std::vector<chart_figure> figures;
    for (const std::string &profile : view.profiles) {
        const std::vector<chart_series> series =
            series_of(compared, view, made, rows_on(compared, profile),
                      [](const run_report &report) { return report.tpot_ms.mean; });
        const std::string label = "mean time per output token on " + heading_of(profile);
        figures.push_back({heading_of(profile),
                           made.sizes.size() > 1
                               ? draw(line_chart{label, size_title(made), "TPOT, ms", series})
                               : dots_of(series, label, "TPOT, ms")});
    }
    return figures;
}

std::vector<chart_figure> miss_figures(const comparison &compared, const comparison_view &view) {
    const plan made = plan_of(view);
    const std::vector<std::string> profiles = profiles_to_show(compared, view);
    std::vector<chart_figure> figures;
    for (const std::string &profile : profiles) {
        const std::vector<size_t> rows = rows_on(compared, profile);
        std::vector<chart_series> series = series_of(
            compared, view, made, rows,
            [](const run_report &report) { return miss_percent(report, report.experts.misses); });
        for (chart_series &one : optimum_series(compared, view, made, rows))
            series.push_back(std::move(one));
        const std::string heading =
            profiles.size() > 1 ? heading_of(profile) + ": misses" : "Misses";
        const std::string label = "miss rate against cache size";
        const std::string title = "misses, % of the experts asked for";
        figures.push_back({heading, made.sizes.size() > 1
                                        ? draw(line_chart{label, size_title(made), title, series})
                                        : dots_of(series, label, title)});
    }
    return figures;
}

std::vector<chart_figure> optimum_figures(const comparison &compared, const comparison_view &view) {
    const plan made = plan_of(view);
    const std::vector<std::string> profiles = profiles_to_show(compared, view);
    std::vector<chart_figure> figures;
    for (const std::string &profile : profiles) {
        const std::vector<size_t> rows = rows_on(compared, profile);
        dot_chart chart{"misses over the offline optimum's",
                        "misses / misses of the offline optimum",
                        "cached",
                        1,
                        {},
                        {}};
        constexpr double none = std::numeric_limits<double>::quiet_NaN();
        bool any = false;
        for (size_t n = 0; n < made.names.size(); ++n)
            chart.rows.push_back({made.names[n], made.looks[n],
                                  std::vector<chart_point>(made.sizes.size(), {none, 0, ""})});
        chart.groups.assign(made.sizes.size(), "");
        for (const size_t i : rows) {
            const run_report &report = compared.rows[i].report;
            const size_t group =
                size_t(std::lower_bound(made.sizes.begin(), made.sizes.end(), view.slots[i]) -
                       made.sizes.begin());
            chart.groups[group] =
                made.by_share ? percent(view.share[i], 1) : with_commas(view.slots[i]);
            if (report.opt_misses == 0) continue;
            any = true;
            const double ratio = double(report.experts.misses) / double(report.opt_misses);
            chart.rows[made.name_of(view.labels[i])].dots[group] = {
                ratio, 0,
                format("{:.2f} times the optimum's misses\n", ratio) + hint_of(compared, view, i)};
        }
        if (any)
            figures.push_back({profiles.size() > 1
                                   ? heading_of(profile) + ": distance to the optimum"
                                   : "Distance to the optimum",
                               draw(chart)});
    }
    return figures;
}

heat_figures layer_figures(const comparison &compared, const comparison_view &view) {
    const plan made = plan_of(view);
    size_t layers = 0;
    double low = 1, high = 0;
    for (const comparison_row &row : compared.rows) {
        if (row.report.cluster) continue;
        layers = std::max(layers, row.report.layers.size());
        for (const layer_report &layer : row.report.layers) {
            low = std::min(low, layer.experts.hit_rate());
            high = std::max(high, layer.experts.hit_rate());
        }
    }
    if (layers == 0) return {};
    low = std::floor(low * 10 + 1e-9) / 10;
    high = std::max(low + 0.1, std::ceil(high * 10 - 1e-9) / 10);
    const std::vector<std::string> profiles = profiles_to_show(compared, view);
    std::vector<uint64_t> sizes = made.sizes;
    if (sizes.size() * made.names.size() * layers * profiles.size() > heat_cells_max)
        sizes = {made.sizes[made.sizes.size() / 2]};
    heat_figures figures{draw_scale(low, high, "hit rate"), {}};
    for (const std::string &profile : profiles) {
        for (const uint64_t size : sizes) {
            heat_map map{"hit rate by policy and layer", "layer", low, high, {}};
            std::string heading;
            for (const size_t i : rows_on(compared, profile)) {
                if (view.slots[i] != size || compared.rows[i].report.layers.empty()) continue;
                heading = size_text(view, i);
                map.rows.push_back({view.labels[i], {}});
                for (const layer_report &layer : compared.rows[i].report.layers)
                    map.rows.back().values.push_back(layer.experts.hit_rate());
            }
            if (map.rows.empty()) continue;
            if (profiles.size() > 1) heading = heading_of(profile) + ", " + heading;
            figures.maps.push_back({heading, draw(map)});
        }
    }
    return figures;
}

}  // namespace moorage::core
