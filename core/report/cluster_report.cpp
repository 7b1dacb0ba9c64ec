// cluster_report.cpp - the cluster's part of a run's JSON and of its text.
#include "core/report/cluster_report.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/figures.h"

namespace moorage::core {

namespace {

constexpr size_t homes_shown = 8;

json to_json(const cluster_report::home &home) {
    return {{"name", home.name},
            {"requests", home.requests},
            {"tokens", home.tokens},
            {"latency_ms", to_json(home.latency_ms)},
            {"ttft_ms", to_json(home.ttft_ms)},
            {"local_ratio", stable(home.local_ratio)}};
}

json to_json(const cluster_report::device &device) {
    return {{"name", device.name},
            {"utilisation", stable(device.utilisation)},
            {"used_bytes", device.used_bytes},
            {"bytes", device.bytes},
            {"served", device.served}};
}

json to_json(const cluster_report::link &link) {
    return {{"from", link.from},
            {"to", link.to},
            {"activation_bytes", link.activation_bytes},
            {"migration_bytes", link.migration_bytes},
            {"queue_peak", link.queue_peak},
            {"utilisation", stable(link.utilisation)}};
}

json to_json(const cluster_report::migration &one) {
    return {{"at_s", stable(one.at_s)},
            {"done_s", one.done_s < 0 ? json() : json(stable(one.done_s))},
            {"adopted", one.adopted},
            {"added_copies", one.added_copies},
            {"added_bytes", one.added_bytes},
            {"given_up", one.given_up},
            {"remote_per_s_current", stable(one.remote_per_s_current)},
            {"remote_per_s_candidate", stable(one.remote_per_s_candidate)}};
}

template <class T>
json all_of(const std::vector<T> &list) {
    json out = json::array();
    for (const T &one : list) out.push_back(to_json(one));
    return out;
}

}  // namespace

json to_json(const cluster_report &report) {
    json over_time = {{"bucket_s", stable(report.bucket_s)}, {"local_ratio", json::array()},
                      {"latency_ms", json::array()},         {"requests", json::array()},
                      {"activation_bytes", json::array()},   {"migration_bytes", json::array()}};
    for (const cluster_report::bucket &one : report.over_time) {
        over_time["local_ratio"].push_back(stable(one.local_ratio));
        over_time["latency_ms"].push_back(stable(one.latency_ms));
        over_time["requests"].push_back(one.requests);
        over_time["activation_bytes"].push_back(one.activation_bytes);
        over_time["migration_bytes"].push_back(one.migration_bytes);
    }
    return {{"placement", report.policy},
            {"duration_s", stable(report.duration_s)},
            {"latency_ms", to_json(report.latency_ms)},
            {"experts_ms_per_token", stable(report.experts_ms_per_token)},
            {"local_ratio", stable(report.local_ratio)},
            {"remote_call_ms", stable(report.remote_call_ms)},
            {"calls", report.calls},
            {"homes", all_of(report.homes)},
            {"devices", all_of(report.devices)},
            {"links", all_of(report.links)},
            {"migrations", all_of(report.migrations)},
            {"servers_layers", report.servers_layers},
            {"layers_experts", report.layers_experts},
            {"models_layers", report.models_layers},
            {"over_time", std::move(over_time)}};
}

std::string to_text(const cluster_report &report) {
    std::string text = labelled(
        "latency", format("{} a request, p50 {}, p99 {}", human_ms(report.latency_ms.mean),
                          human_ms(report.latency_ms.p50), human_ms(report.latency_ms.p99)));
    text += labelled("experts", format("{} that a token waits for them, over all layers; tokens "
                                       "of a prompt wait together",
                                       human_ms(report.experts_ms_per_token)));
    std::string local =
        percent(report.local_ratio, 1) + " of expert calls on the home's own server";
    if (report.calls != 0)
        local += format("; {} calls to others, {} each", with_commas(report.calls),
                        human_ms(report.remote_call_ms));
    text += labelled("local", local);
    std::vector<double> ratios;
    for (const cluster_report::bucket &one : report.over_time) ratios.push_back(one.local_ratio);
    if (ratios.size() > 1) text += labelled("over time", spark_line(ratios, 1, 64));
    for (const cluster_report::migration &one : report.migrations) {
        if (!one.adopted) continue;
        text +=
            labelled("migration",
                     format("at {:.0f} s: {} copies, {}, {}", one.at_s,
                            with_commas(one.added_copies), human_bytes(double(one.added_bytes)),
                            one.done_s < 0 ? std::string("not done at the end")
                                           : format("done {:.1f} s later", one.done_s - one.at_s)));
    }
    text += format("\n  {}{}{}{}{}{}\n", padded_right("home", 20), padded_left("requests", 10),
                   padded_left("latency", 12), padded_left("p99", 12), padded_left("TTFT", 12),
                   padded_left("local", 10));
    const size_t shown = std::min(report.homes.size(), homes_shown);
    for (size_t i = 0; i < shown; ++i) {
        const cluster_report::home &one = report.homes[i];
        text += format("  {}{}{}{}{}{}\n", padded_right(shortened(one.name, 19), 20),
                       padded_left(with_commas(one.requests), 10),
                       padded_left(human_ms(one.latency_ms.mean), 12),
                       padded_left(human_ms(one.latency_ms.p99), 12),
                       padded_left(human_ms(one.ttft_ms.mean), 12),
                       padded_left(percent(one.local_ratio, 1), 10));
    }
    if (shown < report.homes.size())
        text += format("  ... and {} more (--json has all)\n", report.homes.size() - shown);
    return text + "\n";
}

}  // namespace moorage::core
