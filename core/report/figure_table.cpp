// figure_table.cpp - the figures of a run's report, row by row.
#include "core/report/figure_table.h"

#include <cmath>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/cluster_report.h"
#include "core/report/figures.h"
#include "core/report/report.h"
#include "core/report/report_figures.h"
#include "core/report/substitution.h"
#include "core/report/time_parts.h"

namespace moorage::core {

namespace {

using enum figure_unit;
using enum better_when;
using run_ref = const run_report &;
using run_figure = figure_row<run_report>;

double number(uint64_t count) { return static_cast<double>(count); }

json share_of(uint64_t part, uint64_t whole) {
    return whole == 0 ? json() : json(stable(number(part) / number(whole)));
}

json accuracy(bool has_predictions, uint64_t predicted, uint64_t right) {
    return has_predictions ? share_of(right, predicted) : json();
}

json layers_of(run_ref report) {
    json layers = json::array();
    for (size_t i = 0; i < report.layers.size(); ++i) layers.push_back(layer_json({report, i}));
    return layers;
}

json facts_of(run_ref report) {
    json by_policy = json::object();
    for (const auto &[policy, facts] : report.facts)
        for (const fact &fact : facts) by_policy[policy][fact.name] = fact.value;
    return by_policy;
}

template <class Counts>
json counts_of(const Counts &counts) {
    json object = json::object();
    for (const auto &[name, count] : counts) object[name] = count;
    return object;
}

template <class List>
json list_of(const List &list) {
    json array = json::array();
    for (const auto &element : list) array.push_back(to_json(element));
    return array;
}

json policy_share(run_ref report) {
    if (report.policy_times.empty() || report.total_ms <= 0) return json();
    double ms_in_policies = 0;
    for (const policy_time &entry : report.policy_times) ms_in_policies += entry.ms;
    return stable(ms_in_policies / report.total_ms);
}

constexpr run_figure run_rows[] = {
    {{"tokens", count, neither, "tokens", "number of processed tokens, of prompts and of outputs"},
     [](run_ref report) -> json { return report.tokens; }},
    {{"requests", count, neither, "requests", "number of completed requests"},
     [](run_ref report) -> json { return report.requests; }},
    {{"executor", text, neither, "executor",
      "what executed the run: an emulator, or a real machine"},
     [](run_ref report) -> json { return report.executor; }},
    {{"profile", text, neither, "hardware", "the machine of the run"},
     [](run_ref report) -> json { return report.profile; }},
    {{"seed", count, neither, "seed", "random seed of the run"},
     [](run_ref report) -> json { return report.seed; }},
    {{"virtual_time", flag, neither, "virtual time", "times are emulated, not measured"},
     [](run_ref report) -> json { return report.virtual_time; }},
    {{"tpot_ms.mean", ms, smaller, "TPOT ms",
      "mean time per output token, after the first token of a request"},
     [](run_ref report) { return time_figure(report.tpot_ms.mean); }},
    {{"tpot_ms.p50", ms, smaller, "p50 ms", "median time per output token"},
     [](run_ref report) { return time_figure(report.tpot_ms.p50); }},
    {{"tpot_ms.p99", ms, smaller, "p99 ms", "99 % of output tokens took at most this time"},
     [](run_ref report) { return time_figure(report.tpot_ms.p99); }},
    {{"ttft_ms.mean", ms, smaller, "TTFT ms",
      "mean time from a request's arrival to its first token"},
     [](run_ref report) { return time_figure(report.ttft_ms.mean); }},
    {{"ttft_ms.p50", ms, smaller, "TTFT p50 ms", "median time to the first token"},
     [](run_ref report) { return time_figure(report.ttft_ms.p50); }},
    {{"ttft_ms.p99", ms, smaller, "TTFT p99 ms", "99 % of first tokens took at most this time"},
     [](run_ref report) { return time_figure(report.ttft_ms.p99); }},
    {{"tokens_per_s", per_s, larger, "tokens/s", "tokens divided by the time of the run"},
     [](run_ref report) -> json { return stable(report.tokens_per_s); }},
    {{"experts.requested", count, neither, "requested", "experts that layer steps requested"},
     [](run_ref report) -> json { return report.experts.requested; }},
    {{"experts.hits", count, larger, "hits",
      "requested experts that were whole in fast memory; in a cluster: on the entry node's server"},
     [](run_ref report) -> json { return report.experts.hits; }},
    {{"experts.partial_hits", count, larger, "partial hits",
      "requested experts with a part in fast memory, or on its way"},
     [](run_ref report) -> json { return report.experts.partial_hits; }},
    {{"experts.misses", count, smaller, "misses",
      "requested experts with nothing in fast memory; in a cluster: not on the entry node's "
      "server"},
     [](run_ref report) -> json { return report.experts.misses; }},
    {{"experts.hit_rate", share, larger, "hit rate", "hits divided by requested experts"},
     [](run_ref report) -> json { return stable(report.experts.hit_rate()); }},
    {{"experts.substituted", count, smaller, "substituted",
      "choices of the model that the router replaced, reweighted or dropped"},
     [](run_ref report) -> json { return report.experts.substituted; }},
    {{"experts.on_cpu", count, neither, "on CPU", "experts that the CPU computed"},
     [](run_ref report) -> json { return report.experts.on_cpu; }},
    {{"experts.remote", count, neither, "remote", "experts that other machines computed"},
     [](run_ref report) -> json { return report.experts.remote; }},
    {{"experts.loaded", count, smaller, "loaded", "experts loaded into fast memory on demand"},
     [](run_ref report) -> json { return report.experts.loaded; }},
    {{"bytes.h2d", bytes, smaller, "to fast memory",
      "bytes moved to fast memory: demand, prefetched and behind together"},
     [](run_ref report) -> json { return report.bytes.h2d; }},
    {{"bytes.d2h", bytes, smaller, "back", "bytes of hidden states and outputs sent to the host"},
     [](run_ref report) -> json { return report.bytes.d2h; }},
    {{"bytes.network", bytes, smaller, "network", "bytes between machines, moved experts included"},
     [](run_ref report) -> json { return report.bytes.network; }},
    {{"bytes.prefetched", bytes, neither, "prefetched",
      "bytes loaded before a step asked for them"},
     [](run_ref report) -> json { return report.bytes.prefetched; }},
    {{"bytes.prefetch_used", bytes, larger, "prefetch used",
      "prefetched bytes that a step asked for"},
     [](run_ref report) -> json { return report.bytes.prefetch_used; }},
    {{"bytes.prefetch_wasted", bytes, smaller, "prefetch wasted",
      "prefetched bytes that were never used: gone before, or computed elsewhere"},
     [](run_ref report) -> json { return report.bytes.prefetch_wasted; }},
    {{"bytes.behind", bytes, neither, "behind",
      "bytes loaded for later steps while the CPU computed"},
     [](run_ref report) -> json { return report.bytes.behind; }},
    {{"bytes.first_fill", bytes, neither, "first fill", "bytes of the first content of the caches"},
     [](run_ref report) -> json { return report.arrangement.first_bytes; }},
    {{"bytes.refill", bytes, smaller, "refill", "bytes loaded because budgets changed"},
     [](run_ref report) -> json { return report.arrangement.bytes; }},
    {{"bytes.prefetch_cut_off", bytes, smaller, "prefetch cut off",
      "wasted bytes of prefetches that ended before they arrived"},
     [](run_ref report) -> json { return report.bytes.prefetch_cut_off; }},
    {{"bytes.demand", bytes, smaller, "demand",
      "bytes loaded because a layer step waited for them"},
     [](run_ref report) -> json { return report.bytes.demand; }},
    {{"time_ms.compute", ms, neither, "compute", "time in which the device computed"},
     [](run_ref report) -> json { return stable(report.time.compute); }},
    {{"time_ms.transfer", ms, neither, "transfer",
      "time in which the link to fast memory was busy"},
     [](run_ref report) -> json { return stable(report.time.transfer); }},
    {{"time_ms.stall", ms, smaller, "stall", "time in which the device waited for an expert"},
     [](run_ref report) -> json { return stable(report.time.stall); }},
    {{"time_ms.cpu", ms, neither, "CPU", "time in which the CPU computed experts"},
     [](run_ref report) -> json { return stable(report.time.cpu); }},
    {{"time_ms.policy", ms, smaller, "policies",
      "time in which the host decided: policies, and checks of their advice; null in virtual time"},
     [](run_ref report) -> json {
         return report.virtual_time ? json() : json(stable(report.time.policy));
     }},
    {{"prediction.accuracy", share, larger, "predicted",
      "share of requested experts that were among the first predicted"},
     [](run_ref report) {
         return accuracy(report.has_predictions, report.predicted, report.predicted_right);
     }},
    {{"layers", parts, neither, "layers", "figures of each layer"}, layers_of},
    {{"config", parts, neither, "config", "the resolved configuration, by section"},
     [](run_ref report) -> json {
         return report.config->is_null() ? json::object() : *report.config;
     }},
    {{"faults", parts, smaller, "faults",
      "how often each policy broke the rules: advice that was not taken, or a change of the "
      "process that was undone"},
     [](run_ref report) -> json { return counts_of(report.faults); }},
    {{"title", text, neither, "title", "title in the configuration"},
     [](run_ref report) -> json { return report.title; }},
    {{"total_ms", ms, smaller, "total",
      "time from the end of the first fill to the end of the run"},
     [](run_ref report) -> json { return stable(report.total_ms); }},
    {{"refill.changes", count, neither, "new budgets", "number of budget changes"},
     [](run_ref report) -> json { return report.arrangement.changes; }},
    {{"refill.ms", ms, smaller, "refill time", "time to load experts after budget changes"},
     [](run_ref report) -> json { return stable(report.arrangement.ms); }},
    {{"refill.first_ms", ms, neither, "first fill time", "time to load the first content"},
     [](run_ref report) -> json { return stable(report.arrangement.first_ms); }},
    {{"opt_misses", count, neither, "optimum",
      "misses of the offline optimum with the same slots and sharing; null: not comparable"},
     [](run_ref report) -> json {
         return report.opt_misses == 0 ? json() : json(report.opt_misses);
     }},
    {{"opt_reason", text, neither, "no optimum", "why the optimum was not counted"},
     [](run_ref report) -> json {
         return report.opt_reason.empty() ? json() : json(report.opt_reason);
     }},
    {{"causes", parts, neither, "causes",
      "where the time of prefill and of decode went, in ms: compute, launch, link, disk, cpu, "
      "network, away (other devices), policy, host, idle (no request); network, policy or idle is "
      "missing if it is 0"},
     [](run_ref report) -> json {
         return report.causes.empty() ? json() : causes_json(causes_of(report));
     }},
    {{"warnings", parts, smaller, "warnings", "warnings, one sentence each"},
     [](run_ref report) -> json { return report.warnings; }},
    {{"misfit", text, neither, "misfit",
      "what the run needs beyond the memory of the emulated machine; null: it fits"},
     [](run_ref report) -> json { return report.misfit.empty() ? json() : json(report.misfit); }},
    {{"per_token.h2d_bytes", bytes, smaller, "moved/token", "bytes moved to fast memory per token"},
     [](run_ref report) -> json {
         return report.tokens == 0 ? json()
                                   : json(stable(number(report.bytes.h2d) / number(report.tokens)));
     }},
    {{"shares.wasted", share, smaller, "wasted",
      "share of prefetched bytes that no step asked for"},
     [](run_ref report) {
         return share_of(report.bytes.prefetch_wasted, report.bytes.prefetched);
     }},
    {{"shares.late", share, smaller, "late",
      "share of prefetched bytes that were still on their way when a step asked for them"},
     [](run_ref report) { return share_of(report.bytes.prefetch_late, report.bytes.prefetched); }},
    {{"shares.on_cpu", share, neither, "on CPU",
      "share of requested experts that the CPU computed"},
     [](run_ref report) { return share_of(report.experts.on_cpu, report.experts.requested); }},
    {{"shares.substituted", share, smaller, "substituted",
      "share of the model's own choices that were replaced, reweighted or dropped"},
     [](run_ref report) { return share_of(report.experts.substituted, report.routing.choices); }},
    {{"shares.policies", share, smaller, "policies",
      "share of the run's time that the host spent inside policies"},
     policy_share},
    {{"misses_over_optimum", ratio, smaller, "misses/OPT",
      "misses divided by those of the offline optimum; below 1 only if experts are moved ahead of "
      "time"},
     [](run_ref report) { return share_of(report.experts.misses, report.opt_misses); }},
    {{"without_advice", parts, smaller, "without advice",
      "calls that a policy left to the default, by policy", "if there are any"},
     [](run_ref report) -> json { return counts_of(report.without_advice); },
     [](run_ref report) { return !report.without_advice.empty(); }},
    {{"facts", parts, neither, "facts", "figures that policies report about themselves",
      "if they report any"},
     facts_of,
     [](run_ref report) { return !report.facts.empty(); }},
    {{"policy_times", parts, smaller, "inside policies",
      "calls and ms inside policies, by policy and function",
      "if calls are timed: on real machines, and with [emulator] policy_time = \"measured\""},
     [](run_ref report) -> json { return policy_times_json(report); },
     [](run_ref report) { return !report.policy_times.empty(); }},
    {{"devices", parts, neither, "devices", "figures of each GPU", "with several GPUs"},
     [](run_ref report) { return list_of(report.devices); },
     [](run_ref report) { return !report.devices.empty(); }},
    {{"host", parts, neither, "host memory", "figures of host memory as a cache of the disk",
      "if it does not hold all experts"},
     [](run_ref report) { return to_json(*report.host); },
     [](run_ref report) { return report.host.has_value(); }},
    {{"routing", parts, neither, "routing", "what happened to the model's own choices",
      "for routers that may change them"},
     [](run_ref report) { return to_json(report.routing, report.experts.substituted); },
     [](run_ref report) { return report.lossy; }},
    {{"versions", parts, neither, "versions", "what was computed in each version of the experts",
      "if experts have two versions"},
     versions_json,
     [](run_ref report) { return !report.version_names.empty(); }},
    {{"text", parts, neither, "text", "what a model wrote, or how well it predicted a text",
      "for models"},
     [](run_ref report) { return to_json(report.text); },
     [](run_ref report) { return !report.text.model.empty(); }},
    {{"guard", parts, neither, "guard", "what the run tried to do without", "for guarded runs"},
     [](run_ref report) { return list_of(report.guard); },
     [](run_ref report) { return !report.guard.empty(); }},
    {{"cluster", parts, neither, "cluster", "figures of a cluster", "for clusters"},
     [](run_ref report) { return to_json(*report.cluster); },
     [](run_ref report) { return report.cluster.has_value(); }}};

// Headings of tables in which a command combines figures of several runs or layers.
constexpr figure headings[] = {
    {"", share, neither, "share", "share of all experts for which fast memory has slots",
     "tables of compare"},
    {"", bytes, smaller, "MB/token", "bytes moved to fast memory per token", "tables of compare"},
    {"", bytes, smaller, "GB/token", "bytes moved to fast memory per token", "tables of compare"},
    {"", ms, smaller, "95 %", "half the width of the 95 % confidence interval of TPOT",
     "tables of compare with --repeat"},
    {"", count, neither, "moves", "placements that were adopted during the run of the cluster",
     "tables of compare, for clusters"},
    {"", ratio, smaller, "x opt",
     "misses divided by those of the offline optimum with the same slots", "tables of replay"}};

}  // namespace

std::span<const figure> heading_words() { return headings; }

json to_json(const run_report &report) {
    return table_json(std::span<const run_figure>(run_rows), report);
}

json value_of_figure(const run_report &report, std::string_view path) {
    for (const run_figure &row : run_rows)
        if (row.path == path)
            return !row.applies || row.applies(report) ? row.make(report) : json();
    return json();
}

const std::vector<std::pair<std::string, const figure *>> &all_figures() {
    static const auto figures = [] {
        std::vector<std::pair<std::string, const figure *>> table;
        add_words(std::span<const run_figure>(run_rows), "", table);
        add_part_words(table);
        return table;
    }();
    return figures;
}

}  // namespace moorage::core
