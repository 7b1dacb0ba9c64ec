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
using enum wanted;
using run = const run_report &;
using of_run = figure_row<run_report>;

double number(uint64_t count) { return static_cast<double>(count); }

json share_of(uint64_t part, uint64_t whole) {
    return whole == 0 ? json() : json(stable(number(part) / number(whole)));
}

json accuracy(bool has_predictions, uint64_t predicted, uint64_t right) {
    return has_predictions ? share_of(right, predicted) : json();
}

json layers_of(run of) {
    json layers = json::array();
    for (size_t i = 0; i < of.layers.size(); ++i) layers.push_back(layer_json({of, i}));
    return layers;
}

json facts_of(run of) {
    json all = json::object();
    for (const auto &[policy, facts] : of.facts)
        for (const fact &one : facts) all[policy][one.name] = one.value;
    return all;
}

template <class Counts>
json counts_of(const Counts &counts) {
    json all = json::object();
    for (const auto &[name, count] : counts) all[name] = count;
    return all;
}

template <class List>
json list_of(const List &list) {
    json all = json::array();
    for (const auto &one : list) all.push_back(to_json(one));
    return all;
}

json policy_share(run of) {
    if (of.policy_times.empty() || of.total_ms <= 0) return json();
    double ms_in_policies = 0;
    for (const policy_time &one : of.policy_times) ms_in_policies += one.ms;
    return stable(ms_in_policies / of.total_ms);
}

constexpr of_run run_rows[] = {
    {{"tokens", count, neither, "tokens", "number of processed tokens, of prompts and of outputs"},
     [](run of) -> json { return of.tokens; }},
    {{"requests", count, neither, "requests", "number of completed requests"},
     [](run of) -> json { return of.requests; }},
    {{"executor", text, neither, "executor",
      "what executed the run: an emulator, or a real machine"},
     [](run of) -> json { return of.executor; }},
    {{"profile", text, neither, "hardware", "the machine of the run"},
     [](run of) -> json { return of.profile; }},
    {{"seed", count, neither, "seed", "random seed of the run"},
     [](run of) -> json { return of.seed; }},
    {{"virtual_time", flag, neither, "virtual time", "times are emulated, not measured"},
     [](run of) -> json { return of.virtual_time; }},
    {{"tpot_ms.mean", ms, smaller, "TPOT ms",
      "mean time per output token, after the first token of a request"},
     [](run of) { return time_figure(of.tpot_ms.mean); }},
    {{"tpot_ms.p50", ms, smaller, "p50 ms", "median time per output token"},
     [](run of) { return time_figure(of.tpot_ms.p50); }},
    {{"tpot_ms.p99", ms, smaller, "p99 ms", "99 % of output tokens took at most this time"},
     [](run of) { return time_figure(of.tpot_ms.p99); }},
    {{"ttft_ms.mean", ms, smaller, "TTFT ms",
      "mean time from a request's arrival to its first token"},
     [](run of) { return time_figure(of.ttft_ms.mean); }},
    {{"ttft_ms.p50", ms, smaller, "TTFT p50 ms", "median time to the first token"},
     [](run of) { return time_figure(of.ttft_ms.p50); }},
    {{"ttft_ms.p99", ms, smaller, "TTFT p99 ms", "99 % of first tokens took at most this time"},
     [](run of) { return time_figure(of.ttft_ms.p99); }},
    {{"tokens_per_s", per_s, larger, "tokens/s", "tokens divided by the time of the run"},
     [](run of) -> json { return stable(of.tokens_per_s); }},
    {{"experts.requested", count, neither, "requested", "experts that layer steps requested"},
     [](run of) -> json { return of.experts.requested; }},
    {{"experts.hits", count, larger, "hits",
      "requested experts that were whole in fast memory; in a cluster: on the entry node's server"},
     [](run of) -> json { return of.experts.hits; }},
    {{"experts.partial_hits", count, larger, "partial hits",
      "requested experts with a part in fast memory, or on its way"},
     [](run of) -> json { return of.experts.partial_hits; }},
    {{"experts.misses", count, smaller, "misses",
      "requested experts with nothing in fast memory; in a cluster: not on the entry node's "
      "server"},
     [](run of) -> json { return of.experts.misses; }},
    {{"experts.hit_rate", share, larger, "hit rate", "hits divided by requested experts"},
     [](run of) -> json { return stable(of.experts.hit_rate()); }},
    {{"experts.substituted", count, smaller, "substituted",
      "choices of the model that the router replaced, reweighted or dropped"},
     [](run of) -> json { return of.experts.substituted; }},
    {{"experts.on_cpu", count, neither, "on CPU", "experts that the CPU computed"},
     [](run of) -> json { return of.experts.on_cpu; }},
    {{"experts.remote", count, neither, "remote", "experts that other machines computed"},
     [](run of) -> json { return of.experts.remote; }},
    {{"experts.loaded", count, smaller, "loaded", "experts loaded into fast memory on demand"},
     [](run of) -> json { return of.experts.loaded; }},
    {{"bytes.h2d", bytes, smaller, "to fast memory",
      "bytes moved to fast memory: demand, prefetched and behind together"},
     [](run of) -> json { return of.bytes.h2d; }},
    {{"bytes.d2h", bytes, smaller, "back", "bytes of hidden states and outputs sent to the host"},
     [](run of) -> json { return of.bytes.d2h; }},
    {{"bytes.network", bytes, smaller, "network", "bytes between machines, moved experts included"},
     [](run of) -> json { return of.bytes.network; }},
    {{"bytes.prefetched", bytes, neither, "prefetched",
      "bytes loaded before a step asked for them"},
     [](run of) -> json { return of.bytes.prefetched; }},
    {{"bytes.prefetch_used", bytes, larger, "prefetch used",
      "prefetched bytes that a step asked for"},
     [](run of) -> json { return of.bytes.prefetch_used; }},
    {{"bytes.prefetch_wasted", bytes, smaller, "prefetch wasted",
      "prefetched bytes that were never used: gone before, or computed elsewhere"},
     [](run of) -> json { return of.bytes.prefetch_wasted; }},
    {{"bytes.behind", bytes, neither, "behind",
      "bytes loaded for later steps while the CPU computed"},
     [](run of) -> json { return of.bytes.behind; }},
    {{"bytes.first_fill", bytes, neither, "first fill", "bytes of the first content of the caches"},
     [](run of) -> json { return of.arrangement.first_bytes; }},
    {{"bytes.refill", bytes, smaller, "refill", "bytes loaded because budgets changed"},
     [](run of) -> json { return of.arrangement.bytes; }},
    {{"bytes.prefetch_cut_off", bytes, smaller, "prefetch cut off",
      "wasted bytes of prefetches that ended before they arrived"},
     [](run of) -> json { return of.bytes.prefetch_cut_off; }},
    {{"bytes.demand", bytes, smaller, "demand",
      "bytes loaded because a layer step waited for them"},
     [](run of) -> json { return of.bytes.demand; }},
    {{"time_ms.compute", ms, neither, "compute", "time in which the device computed"},
     [](run of) -> json { return stable(of.time.compute); }},
    {{"time_ms.transfer", ms, neither, "transfer",
      "time in which the link to fast memory was busy"},
     [](run of) -> json { return stable(of.time.transfer); }},
    {{"time_ms.stall", ms, smaller, "stall", "time in which the device waited for an expert"},
     [](run of) -> json { return stable(of.time.stall); }},
    {{"time_ms.cpu", ms, neither, "CPU", "time in which the CPU computed experts"},
     [](run of) -> json { return stable(of.time.cpu); }},
    {{"time_ms.policy", ms, smaller, "policies",
      "time in which the host decided: policies, and checks of their advice; null in virtual time"},
     [](run of) -> json { return of.virtual_time ? json() : json(stable(of.time.policy)); }},
    {{"prediction.accuracy", share, larger, "predicted",
      "share of requested experts that were among the first predicted"},
     [](run of) { return accuracy(of.has_predictions, of.predicted, of.predicted_right); }},
    {{"layers", parts, neither, "layers", "figures of each layer"}, layers_of},
    {{"config", parts, neither, "config", "the resolved configuration, by section"},
     [](run of) -> json { return of.config->is_null() ? json::object() : *of.config; }},
    {{"faults", parts, smaller, "faults",
      "how often each policy broke the rules: advice that was not taken, or a change of the "
      "process that was undone"},
     [](run of) -> json { return counts_of(of.faults); }},
    {{"title", text, neither, "title", "title in the configuration"},
     [](run of) -> json { return of.title; }},
    {{"total_ms", ms, smaller, "total",
      "time from the end of the first fill to the end of the run"},
     [](run of) -> json { return stable(of.total_ms); }},
    {{"refill.changes", count, neither, "new budgets", "number of budget changes"},
     [](run of) -> json { return of.arrangement.changes; }},
    {{"refill.ms", ms, smaller, "refill time", "time to load experts after budget changes"},
     [](run of) -> json { return stable(of.arrangement.ms); }},
    {{"refill.first_ms", ms, neither, "first fill time", "time to load the first content"},
     [](run of) -> json { return stable(of.arrangement.first_ms); }},
    {{"opt_misses", count, neither, "optimum",
      "misses of the offline optimum with the same slots and sharing; null: not comparable"},
     [](run of) -> json { return of.opt_misses == 0 ? json() : json(of.opt_misses); }},
    {{"opt_reason", text, neither, "no optimum", "why the optimum was not counted"},
     [](run of) -> json { return of.opt_reason.empty() ? json() : json(of.opt_reason); }},
    {{"causes", parts, neither, "causes",
      "where the time of prefill and of decode went, in ms: compute, launch, link, disk, cpu, "
      "network, away (other devices), policy, host, idle (no request); network, policy or idle is "
      "missing if it is 0"},
     [](run of) -> json { return of.causes.empty() ? json() : causes_json(causes_of(of)); }},
    {{"warnings", parts, smaller, "warnings", "warnings, one sentence each"},
     [](run of) -> json { return of.warnings; }},
    {{"misfit", text, neither, "misfit",
      "what the run needs beyond the memory of the emulated machine; null: it fits"},
     [](run of) -> json { return of.misfit.empty() ? json() : json(of.misfit); }},
    {{"per_token.h2d_bytes", bytes, smaller, "moved/token", "bytes moved to fast memory per token"},
     [](run of) -> json {
         return of.tokens == 0 ? json() : json(stable(number(of.bytes.h2d) / number(of.tokens)));
     }},
    {{"shares.wasted", share, smaller, "wasted",
      "share of prefetched bytes that no step asked for"},
     [](run of) { return share_of(of.bytes.prefetch_wasted, of.bytes.prefetched); }},
    {{"shares.late", share, smaller, "late",
      "share of prefetched bytes that were still on their way when a step asked for them"},
     [](run of) { return share_of(of.bytes.prefetch_late, of.bytes.prefetched); }},
    {{"shares.on_cpu", share, neither, "on CPU",
      "share of requested experts that the CPU computed"},
     [](run of) { return share_of(of.experts.on_cpu, of.experts.requested); }},
    {{"shares.substituted", share, smaller, "substituted",
      "share of the model's own choices that were replaced, reweighted or dropped"},
     [](run of) { return share_of(of.experts.substituted, of.routing.choices); }},
    {{"shares.policies", share, smaller, "policies",
      "share of the run's time that the host spent inside policies"},
     policy_share},
    {{"misses_over_optimum", ratio, smaller, "misses/OPT",
      "misses divided by those of the offline optimum; below 1 only if experts are moved ahead of "
      "time"},
     [](run of) { return share_of(of.experts.misses, of.opt_misses); }},
    {{"without_advice", parts, smaller, "without advice",
      "calls that a policy left to the default, by policy", "if there are any"},
     [](run of) -> json { return counts_of(of.without_advice); },
     [](run of) { return !of.without_advice.empty(); }},
    {{"facts", parts, neither, "facts", "figures that policies report about themselves",
      "if they report any"},
     facts_of,
     [](run of) { return !of.facts.empty(); }},
    {{"policy_times", parts, smaller, "inside policies",
      "calls and ms inside policies, by policy and function",
      "if calls are timed: on real machines, and with [emulator] policy_time = \"measured\""},
     [](run of) -> json { return policy_times_json(of); },
     [](run of) { return !of.policy_times.empty(); }},
    {{"devices", parts, neither, "devices", "figures of each GPU", "with several GPUs"},
     [](run of) { return list_of(of.devices); },
     [](run of) { return !of.devices.empty(); }},
    {{"host", parts, neither, "host memory", "figures of host memory as a cache of the disk",
      "if it does not hold all experts"},
     [](run of) { return to_json(*of.host); },
     [](run of) { return of.host.has_value(); }},
    {{"routing", parts, neither, "routing", "what happened to the model's own choices",
      "for routers that may change them"},
     [](run of) { return to_json(of.routing, of.experts.substituted); },
     [](run of) { return of.lossy; }},
    {{"versions", parts, neither, "versions", "what was computed in each version of the experts",
      "if experts have two versions"},
     versions_json,
     [](run of) { return !of.version_names.empty(); }},
    {{"text", parts, neither, "text", "what a model wrote, or how well it predicted a text",
      "for models"},
     [](run of) { return to_json(of.text); },
     [](run of) { return !of.text.model.empty(); }},
    {{"guard", parts, neither, "guard", "what the run tried to do without", "for guarded runs"},
     [](run of) { return list_of(of.guard); },
     [](run of) { return !of.guard.empty(); }},
    {{"cluster", parts, neither, "cluster", "figures of a cluster", "for clusters"},
     [](run of) { return to_json(*of.cluster); },
     [](run of) { return of.cluster.has_value(); }}};

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
    return table_json(std::span<const of_run>(run_rows), report);
}

json value_of_figure(const run_report &of, std::string_view path) {
    for (const of_run &row : run_rows)
        if (row.path == path) return !row.there || row.there(of) ? row.make(of) : json();
    return json();
}

const std::vector<std::pair<std::string, const figure *>> &all_figures() {
    static const auto all = [] {
        std::vector<std::pair<std::string, const figure *>> made;
        add_words(std::span<const of_run>(run_rows), "", made);
        add_part_words(made);
        return made;
    }();
    return all;
}

}  // namespace moorage::core
