// html.cpp - puts the page together: header, findings, plots, tables and the meaning of the words.
#include "core/report/html.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/report/cluster_comparison.h"
#include "core/report/comparison_charts.h"
#include "core/report/figures.h"
#include "core/report/guarding.h"
#include "core/report/html_parts.h"
#include "core/report/substitution.h"
#include "core/report/svg.h"
#include "core/report/time_parts.h"

namespace moorage::core {

namespace {

constexpr size_t listed_max = 16;

// Each value once, in order; a long list is cut short, the tables have all of it.
std::vector<std::string> distinct(std::vector<std::string> values) {
    std::vector<std::string> kept;
    for (std::string &value : values)
        if (std::find(kept.begin(), kept.end(), value) == kept.end())
            kept.push_back(std::move(value));
    if (kept.size() > listed_max) {
        const size_t more = kept.size() - listed_max;
        kept.resize(listed_max);
        kept.push_back(format("and {} more", more));
    }
    return kept;
}

std::string facts(const comparison &compared, const comparison_view &view) {
    const run_report &first = compared.rows.front().report;
    std::string html = "<dl class=\"facts\">";
    const auto add = [&](const std::string &name, const std::string &value) {
        html += fact_line(name, value);
    };
    add("trace", compared.trace);
    add("model", compared.shape);
    add("work", format("{} tokens of {} request{}", with_commas(first.tokens),
                       with_commas(first.requests), first.requests == 1 ? "" : "s"));
    add("executor", first.executor + (first.virtual_time ? ", virtual time" : "") +
                        format(", seed {}", first.seed));
    add("hardware", joined(view.profiles));
    add("cluster", cluster_fact(compared));
    for (const key_column &column : view.columns)
        add(column.heading, joined(distinct(column.values)));
    std::vector<std::string> sizes;
    for (size_t i = 0; i < view.slots.size(); ++i)
        if (!compared.rows[i].report.cluster) sizes.push_back(size_text(view, i));
    add("cached", joined(distinct(sizes)));
    return html + "</dl>\n";
}

// Where the time of one run went, as one bar: a part a cause.
std::string time_bar(const run_report &report) {
    time_causes sum;
    for (const time_causes &phase : causes_of(report)) sum += phase;
    if (sum.sum() == 0) return "";
    constexpr double width = 130;
    const std::string hint = time_sentence(sum, has_gpu(report));
    std::string html = format(
        "<svg class=\"time\" viewBox=\"0 0 {} 11\" role=\"img\" aria-label=\"{}\">"
        "<title>{}</title>",
        pixels(width), escape_markup(hint), escape_markup(hint));
    uint64_t before = 0;
    for (size_t i = 0; i < cause_count; ++i) {
        const auto share = [&](uint64_t ns) {
            return width * static_cast<double>(ns) / static_cast<double>(sum.sum());
        };
        if (sum.ns[i] != 0)
            html += format("<rect x=\"{}\" y=\"0\" width=\"{}\" height=\"11\" class=\"{}\"/>",
                           pixels(share(before)), pixels(share(sum.ns[i])), cause_names[i]);
        before += sum.ns[i];
    }
    return html + "</svg>";
}

std::string table_row(const comparison &compared, const comparison_view &view, size_t i) {
    const run_report &report = compared.rows[i].report;
    const expert_counts &experts = report.experts;
    std::string html = view.best[i]      ? "<tr class=\"best\">"
                       : view.offline[i] ? "<tr class=\"offline\">"
                                         : "<tr>";
    for (const key_column &column : view.columns) html += element("th", column.values[i]);
    const auto cell = [&](const std::string &text) { html += element("td", text); };
    cell(with_commas(view.slots[i]));
    cell(view.share[i] > 0 ? percent(view.share[i], 1) : "-");
    cell(percent(double(experts.hits), double(experts.requested)));
    cell(with_commas(experts.misses));
    cell(report.opt_misses == 0
             ? "-"
             : format("{:.2f}", double(experts.misses) / double(report.opt_misses)));
    cell(report.tokens == 0 ? "-" : human_bytes(double(report.bytes.h2d) / double(report.tokens)));
    cell(three_digits(report.tpot_ms.mean));
    cell(three_digits(report.tpot_ms.p99));
    cell(human_ms(report.ttft_ms.mean));
    cell(three_digits(report.tokens_per_s));
    if (any_scored(compared))
        cell(report.text.scored ? format("{:.3f}", report.text.perplexity()) : "-");
    if (any_lossy(compared)) {
        if (any_scored(compared)) cell(unbroken(perplexity_change(report.text)));
        cell(fine_percent(double(experts.substituted), double(report.routing.choices)));
        cell(fine_percent(double(report.routing.rows_unchanged), double(report.routing.rows)));
    }
    return html + "<td>" + time_bar(report) + "</td></tr>\n";
}

std::string tables(const comparison &compared, const comparison_view &view) {
    std::string html;
    for (const std::string &profile : view.profiles) {
        html += element("h3", profile.empty() ? "no profile" : profile);
        html += "\n<div class=\"wide\"><table>\n<thead><tr>";
        for (const key_column &column : view.columns) html += element("th", column.heading);
        for (const char *heading : {"experts", "share", "hit rate", "misses", "misses / OPT",
                                    "moved / token", "TPOT ms", "p99 ms", "TTFT", "tokens/s"})
            html += "<th class=\"figure\">" + std::string(heading) + "</th>";
        if (any_scored(compared)) html += "<th class=\"figure\">perplexity</th>";
        if (any_lossy(compared)) {
            if (any_scored(compared)) html += "<th class=\"figure\">change</th>";
            html += "<th class=\"figure\">substituted</th><th class=\"figure\">rows kept</th>";
        }
        html += "<th>time</th></tr></thead>\n<tbody>\n";
        size_t previous = SIZE_MAX;
        for (size_t i = 0; i < compared.rows.size(); ++i) {
            const run_report &report = compared.rows[i].report;
            if (report.cluster || report.profile != profile) continue;
            // A heavier line where the size changes, so that what can be compared stands together.
            const bool new_size = previous != SIZE_MAX && view.slots[i] != view.slots[previous];
            if (new_size) html += "</tbody>\n<tbody>\n";
            html += table_row(compared, view, i);
            previous = i;
        }
        html += "</tbody>\n</table></div>\n";
    }
    return html;
}

// The causes that any row has.
std::string legend(const comparison &compared) {
    time_causes sum;
    for (const comparison_row &row : compared.rows)
        for (const time_causes &phase : causes_of(row.report)) sum += phase;
    std::string html = "<p class=\"note\">";
    for (size_t i = 0; i < cause_count; ++i)
        if (sum.ns[i] != 0)
            html += format("<span class=\"key {}\"></span> {} ", cause_names[i],
                           label_of(static_cast<cause>(i)));
    return html + "Bold: fastest of its profile and size. Italic: sees the future, a bound.</p>\n";
}

constexpr const char *words =
    "<dt>TPOT, TTFT</dt><dd>time per output token after the first; time to the first token</dd>\n"
    "<dt>hit</dt><dd>the expert was whole and in fast memory when the routing was known</dd>\n"
    "<dt>misses / OPT</dt><dd>misses over those of the offline optimum, which evicts what is used "
    "farthest in the future, for the same slots and sharing; 1 cannot be beaten by eviction "
    "alone, only by moving experts ahead of time</dd>\n"
    "<dt>moved / token</dt><dd>bytes copied from the host to the GPU for each token</dd>\n"
    "<dt>perplexity</dt><dd>how many tokens were about as probable as the right one: of a text "
    "that "
    "was given, or of what the model itself wrote</dd>\n"
    "<dt>substituted, rows kept, change</dt><dd>of a router that may change the model's output: "
    "the share of the model's choices of experts that it replaced, the share of the rows (a token "
    "at a layer) that it left alone, and the perplexity of the same text against that of the "
    "model's own routing</dd>\n";

std::string texts_of(const comparison &compared, const comparison_view &view) {
    std::string html;
    for (const written_text &one : written_texts(compared, view)) {
        html += "<p class=\"note\">" +
                escape_markup(one.every_row ? "every run alike" : "with " + one.labels) + "</p>\n";
        for (size_t i = 0; i < one.text->texts.size(); ++i)
            html += "<blockquote><b>" + escape_markup(one.text->prompts[i]) + "</b>" +
                    escape_markup(one.text->texts[i]) + "</blockquote>\n";
    }
    return html;
}

std::string layer_maps(const comparison &compared, const comparison_view &view) {
    const heat_figures figures = layer_figures(compared, view);
    if (figures.maps.empty()) return "";
    return figures.scale + maps_of(figures.maps);
}

}  // namespace

std::string to_html(const comparison &compared, const std::string &command) {
    const std::string title = compared.title.empty() ? "moorage comparison" : compared.title;
    std::string html = page_begin(title);
    const std::string failed = chapter("Failed", "Rows that did not come to their end, and why.",
                                       failed_html(compared.failed));
    if (compared.rows.empty())
        return html + (failed.empty() ? "<p>Nothing was run.</p>\n" : failed) + page_end;
    const comparison_view view = view_of(compared);
    html += facts(compared, view);
    if (!command.empty()) html += "<pre>" + escape_markup(command) + "</pre>\n";
    std::string findings;
    for (const std::string &sentence : reading(compared, view))
        findings += (sentence.starts_with("warning") ? "<li class=\"warning\">" : "<li>") +
                    escape_markup(sentence) + "</li>\n";
    html += chapter("In short", "", findings.empty() ? "" : "<ul>\n" + findings + "</ul>\n");
    html += failed + chapter("Text", "", texts_of(compared, view));
    html += cluster_chapters(compared, view);
    html += chapter("Speed", "Mean time per output token against cache size. Lower is better.",
                    grid_of(tpot_figures(compared, view)));
    std::vector<chart_figure> cache = miss_figures(compared, view);
    for (chart_figure &figure : optimum_figures(compared, view)) cache.push_back(std::move(figure));
    html += chapter("Cache",
                    "What the policies miss, and what the offline optimum would have missed "
                    "with the same slots.",
                    grid_of(cache));
    html += chapter("Layers", "Hit rate of each layer.", layer_maps(compared, view));
    const bool machines = !all_clusters(compared);
    if (machines) html += chapter("Results", "", legend(compared) + tables(compared, view));
    html +=
        chapter("Guard",
                "What each run tried to do without: mean time per token of its last trial, with "
                "it and without, and what was decided.",
                guard_table_html(compared, view));
    html += "<section>\n<h2>Words</h2>\n<dl class=\"words\">\n";
    if (any_cluster(compared)) html += cluster_words();
    if (machines) html += words;
    return html + "</dl>\n</section>\n" + page_end;
}

}  // namespace moorage::core
