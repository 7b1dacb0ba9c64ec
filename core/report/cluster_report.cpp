// cluster_report.cpp - the cluster's part of a run's JSON and of its text.
#include "core/report/cluster_report.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figure_table.h"
#include "core/report/figures.h"
#include "core/report/time_parts.h"

namespace moorage::core {

namespace {

constexpr size_t homes_shown = 8;

std::string time_text(double ms) { return figure_text(figure_unit::ms, time_figure(ms)); }

}  // namespace

std::string to_text(const cluster_report &report) {
    std::string text = labelled(
        "latency", report.latency_ms.p99 == 0
                       ? "-"
                       : format("{} a request, p50 {}, p99 {}", human_ms(report.latency_ms.mean),
                                human_ms(report.latency_ms.p50), human_ms(report.latency_ms.p99)));
    if (report.experts_ms_per_token)
        text += labelled("experts", format("{} that a token waits for them, over all layers; "
                                           "tokens of a prompt wait together",
                                           human_ms(*report.experts_ms_per_token)));
    std::string local =
        percent(report.local_ratio, 1) + " of expert calls on the home's own server";
    if (report.calls != 0)
        local += format("; {} calls to others, {} each", with_commas(report.calls),
                        human_ms(report.remote_call_ms));
    text += labelled("local", local);
    std::vector<double> ratios;
    for (const cluster_report::bucket &bucket : report.over_time)
        ratios.push_back(bucket.local_ratio);
    if (ratios.size() > 1) text += labelled("over time", spark_line(ratios, 1, 64));
    for (const cluster_report::migration &migration : report.migrations) {
        if (!migration.adopted) continue;
        text += labelled(
            "migration",
            format("at {:.0f} s: {} copies, {}, {}", migration.at_s,
                   with_commas(migration.added_copies), human_bytes(double(migration.added_bytes)),
                   migration.done_s < 0
                       ? std::string("not done at the end")
                       : format("done {:.1f} s later", migration.done_s - migration.at_s)));
    }
    text += format("\n  {}{}{}{}{}{}\n", padded_right("home", 20), padded_left("requests", 10),
                   padded_left("latency", 12), padded_left("p99", 12), padded_left("TTFT", 12),
                   padded_left("local", 10));
    const size_t shown = std::min(report.homes.size(), homes_shown);
    for (size_t i = 0; i < shown; ++i) {
        const cluster_report::home &home = report.homes[i];
        text += format("  {}{}{}{}{}{}\n", padded_right(shortened(home.name, 19), 20),
                       padded_left(with_commas(home.requests), 10),
                       padded_left(time_text(home.latency_ms.mean), 12),
                       padded_left(time_text(home.latency_ms.p99), 12),
                       padded_left(time_text(home.ttft_ms.mean), 12),
                       padded_left(home.local_ratio ? percent(*home.local_ratio, 1) : "-", 10));
    }
    if (shown < report.homes.size())
        text += format("  ... and {} more (--json has all)\n", report.homes.size() - shown);
    for (size_t i = 0; i < shown; ++i) {
        time_causes sum = report.homes[i].causes[0];
        sum += report.homes[i].causes[1];
        if (sum.sum() == 0) continue;
        if (i == 0) text += "\n  where the time of each home goes while it has requests\n";
        text += labelled(shortened(report.homes[i].name, 11), shares_text(sum));
    }
    return text + "\n";
}

}  // namespace moorage::core
