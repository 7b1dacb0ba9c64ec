// report.cpp - summaries of a run's times, its JSON in the contract's order, and its text.
#include "core/report/report.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/executors.h"
#include "core/report/figures.h"
#include "core/report/report_figures.h"
#include "core/report/substitution.h"
#include "core/report/time_parts.h"

namespace moorage::core {

namespace {

std::string headline(const run_report &report) {
    std::string text;
    if (!report.title.empty()) text += shortened(report.title, text_columns) + "\n";
    std::string facts = format("{} tokens of {} request{}", with_commas(report.tokens),
                               with_commas(report.requests), report.requests == 1 ? "" : "s");
    if (!report.executor.empty()) facts += ", " + report.executor;
    if (!report.profile.empty()) facts += ", " + report.profile;
    facts += format(", seed {}{}", report.seed, report.virtual_time ? ", virtual time" : "");
    for (const std::string &part : wrapped(facts, text_columns)) text += part + "\n";
    return text + "\n";
}

std::string summary_line(std::string_view label, const summary_ms &summary) {
    if (summary.p99 == 0) return labelled(label, "-");  // nothing was timed
    // Not through labelled(), which would fold the spaces that align the figures.
    return format("  {:<12}mean {:<12} p50 {:<12} p99 {}\n", label, human_ms(summary.mean),
                  human_ms(summary.p50), human_ms(summary.p99));
}

std::string expert_lines(const run_report &report) {
    const expert_counts &experts = report.experts;
    // An emulated cluster also has a share of local calls. That share counts tokens; this one
    // counts a pass's experts.
    const char *const asked = !report.cluster            ? "asked for"
                              : report.cluster->by_token ? "that tokens choose"
                                                         : "that passes ask for, each once";
    std::string text = labelled(
        report.cluster ? "on server" : "hit rate",
        format("{} of {} experts {}", percent(double(experts.hits), double(experts.requested)),
               with_commas(experts.requested), asked));
    std::string counts = format("{} hits", with_commas(experts.hits));
    const auto add = [&](uint64_t count, std::string_view label) {
        if (count != 0) counts += format(", {} {}", with_commas(count), label);
    };
    add(experts.partial_hits, "partial hits");
    counts += format(", {} misses", with_commas(experts.misses));
    add(experts.loaded, "loaded");
    add(experts.on_cpu, "on the CPU");
    add(experts.substituted, "substituted");
    add(experts.remote, "remote");
    text += labelled("experts", counts);
    if (report.opt_misses != 0) {
        text += labelled("optimum", format("{} misses offline; this run has {:.2f} times as many",
                                           with_commas(report.opt_misses),
                                           double(experts.misses) / double(report.opt_misses)));
    }
    if (!report.opt_reason.empty())
        text += labelled("optimum", "not compared: " + report.opt_reason);
    return text;
}

std::string host_line(const host_report &host, uint64_t tokens) {
    std::string text =
        format("{} of {} uses found in host memory ({} experts), {} from disk",
               percent(double(host.hits), double(host.requested)), with_commas(host.requested),
               with_commas(host.slots), human_bytes(double(host.disk_bytes)));
    if (tokens != 0)
        text += format(" ({} a token)", human_bytes(double(host.disk_bytes) / double(tokens)));
    return labelled("host memory", text);
}

std::string device_lines(const run_report &report) {
    std::string text;
    for (size_t i = 0; i < report.devices.size(); ++i) {
        const device_report &device = report.devices[i];
        text += labelled(
            format("GPU {}", i),
            format("{} of its {} experts cached, hit rate {}, {} loaded; computes {}, its link {}",
                   with_commas(std::min(device.slots, device.experts)), with_commas(device.experts),
                   percent(double(device.hits), double(device.requested)),
                   human_bytes(double(device.h2d_bytes)),
                   percent(device.compute_ms, report.total_ms),
                   percent(device.transfer_ms, report.total_ms)));
    }
    return text;
}

std::string byte_lines(const run_report &report) {
    const byte_counts &bytes = report.bytes;
    std::string moved =
        human_bytes(double(bytes.h2d)) + (has_gpu(report) ? " to the GPU" : " into slots");
    if (report.tokens != 0)
        moved += format(" ({} a token)", human_bytes(double(bytes.h2d) / double(report.tokens)));
    if (bytes.d2h != 0) moved += ", " + human_bytes(double(bytes.d2h)) + " back";
    if (bytes.network != 0) moved += ", " + human_bytes(double(bytes.network)) + " by network";
    std::string text = labelled("moved", moved);
    text += device_lines(report);
    if (report.host) text += host_line(*report.host, report.tokens);
    const arrangement_report &filled = report.arrangement;
    if (filled.first_bytes != 0)
        text += labelled("first fill", format("{} in {} before the first request",
                                              human_bytes(double(filled.first_bytes)),
                                              human_ms(filled.first_ms)));
    if (filled.changes != 0)
        text +=
            labelled("new budgets", format("{}, {} in {} between requests", filled.changes,
                                           human_bytes(double(filled.bytes)), human_ms(filled.ms)));
    if (bytes.prefetched != 0) {
        const double prefetched = double(bytes.prefetched);
        std::string fate = format("{} moved ahead, {} used, {} wasted", human_bytes(prefetched),
                                  percent(double(bytes.prefetch_used), prefetched),
                                  percent(double(bytes.prefetch_wasted), prefetched));
        if (bytes.prefetch_cut_off != 0)
            fate += format(" ({} cut off)", percent(double(bytes.prefetch_cut_off), prefetched));
        text += labelled("prefetch", fate);
    }
    if (bytes.behind != 0)
        text += labelled("later loads", format("{} into the cache while the CPU computed",
                                               human_bytes(double(bytes.behind))));
    if (report.has_predictions && report.predicted != 0) {
        text += labelled("prediction",
                         format("{} of the experts asked for were among the first predicted",
                                percent(double(report.predicted_right), double(report.predicted))));
    }
    return text;
}

std::string text_lines(const text_report &text) {
    if (text.scored == 0) return "";
    return labelled("perplexity",
                    format("{:.4f} (nll {:.5f}) over {} tokens{}", text.perplexity(), text.nll,
                           with_commas(text.scored), text.texts.empty() ? "" : " that it wrote"));
}

// "0.0 % in layer 3 to 91.2 % in layer 17"
std::string extremes(std::span<const double> values, auto &&written) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    return format("{} in layer {} to {} in layer {}", written(*low), low - values.begin(),
                  written(*high), high - values.begin());
}

std::string layer_lines(const run_report &report) {
    if (report.layers.empty()) return "";
    std::vector<double> hit_rates, stalls;
    for (const layer_report &layer : report.layers) {
        hit_rates.push_back(layer.experts.hit_rate());
        stalls.push_back(layer.stall_ms);
    }
    constexpr size_t spark_columns = 64;
    std::string text = format("\n  by layer, 0 to {}\n", report.layers.size() - 1);
    text += labelled("hit rate", spark_line(hit_rates, 1, spark_columns));
    text += labelled("", extremes(hit_rates, [](double rate) { return percent(rate, 1); }));
    const double stall_top = *std::max_element(stalls.begin(), stalls.end());
    if (stall_top > 0) {
        text += labelled("waiting", spark_line(stalls, stall_top, spark_columns));
        text += labelled("", extremes(stalls, human_ms));
    }
    if (report.lossy && report.experts.substituted != 0) {
        std::vector<double> shares;
        for (const layer_report &layer : report.layers)
            shares.push_back(substituted_share(layer.routing, layer.experts.substituted));
        const double top = *std::max_element(shares.begin(), shares.end());
        text += labelled("substituted", spark_line(shares, top, spark_columns));
        text += labelled("", extremes(shares, [](double share) { return fine_percent(share, 1); }));
    }
    return text;
}

std::string notes(const run_report &report) {
    std::string text;
    const auto add = [&](const std::string &note) {
        for (const std::string &part : wrapped(note, text_columns)) text += part + "\n";
    };
    for (const auto &[plugin, count] : report.faults)
        add(format("fault: plugin {} broke the rules {} time{}", plugin, with_commas(count),
                   count == 1 ? "" : "s"));
    for (const auto &[plugin, count] : report.without_advice)
        add(format("without advice: plugin {} left {} step{} to the default", plugin,
                   with_commas(count), count == 1 ? "" : "s"));
    for (const auto &[policy, facts] : report.facts) {
        std::vector<std::string> said;
        for (const fact &fact : facts) said.push_back(fact.name + " " + three_digits(fact.value));
        add(format("facts of {}: {}", policy, fmt::join(said, ", ")));
    }
    for (const std::string &warning : report.warnings) add("warning: " + warning);
    return text.empty() ? "" : "\n" + text;
}

}  // namespace

double text_report::perplexity() const { return std::exp(nll); }

double text_report::nll_change() const {
    assert(own_nll);
    return nll - *own_nll;
}

json to_json(const text_report &text) {
    if (text.model.empty()) return json();
    json root = {{"model", text.model}};
    if (text.scored != 0) {
        root["scored"] = text.scored;
        root["nll"] = stable(text.nll);
        root["perplexity"] = stable(text.perplexity());
        for (const text_report::part &part : text.parts)
            root["parts"][part.name] = {{"scored", part.scored}, {"nll", stable(part.nll)}};
        if (text.own_nll) {
            root["own_routing"] = {{"nll", stable(*text.own_nll)},
                                   {"perplexity", stable(std::exp(*text.own_nll))}};
            root["nll_change"] = stable(text.nll_change());
        }
    }
    if (text.texts.empty()) return root;
    root["written"] = text.written;
    root["texts"] = json::array();
    for (size_t i = 0; i < text.texts.size(); ++i)
        root["texts"].push_back({{"prompt", text.prompts[i]}, {"text", text.texts[i]}});
    return root;
}

std::string json_text(const run_report &report) { return to_json(report).dump(); }

std::string to_text(const run_report &report) {
    std::string text = headline(report);
    text += summary_line("TPOT", report.tpot_ms) + summary_line("TTFT", report.ttft_ms);
    text += labelled("speed", format("{} tokens/s", three_digits(report.tokens_per_s)));
    text += text_lines(report.text) + expert_lines(report);
    for (const auto &[label, said] : routing_lines(report)) text += labelled(label, said);
    if (!report.version_names.empty()) text += labelled("versions", versions_text(report));
    for (const auto &[label, said] : guard_lines(report.guard)) text += labelled(label, said);
    if (report.cluster) text += to_text(*report.cluster);
    return text + byte_lines(report) + time_lines(report) + policy_lines(report) +
           layer_lines(report) + notes(report);
}

}  // namespace moorage::core
