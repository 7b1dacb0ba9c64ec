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
    {{"tokens", count, neither, "tokens", "that were handled, of prompts and of outputs"},
     [](run of) -> json { return of.tokens; }},
    {{"requests", count, neither, "requests", "that came to their end"},
     [](run of) -> json { return of.requests; }},
    {{"executor", text, neither, "executor", "what ran it: an emulator, or a real machine"},
     [](run of) -> json { return of.executor; }},
    {{"profile", text, neither, "hardware", "the machine of the run"},
     [](run of) -> json { return of.profile; }},
    {{"seed", count, neither, "seed", "of everything that is drawn"},
     [](run of) -> json { return of.seed; }},
    {{"virtual_time", flag, neither, "virtual time", "times are emulated, not measured"},
     [](run of) -> json { return of.virtual_time; }},
    {{"tpot_ms.mean", ms, smaller, "TPOT ms", "time per output token after a request's first"},
     [](run of) { return time_figure(of.tpot_ms.mean); }},
    {{"tpot_ms.p50", ms, smaller, "p50 ms", "median of the times per output token"},
     [](run of) { return time_figure(of.tpot_ms.p50); }},
    {{"tpot_ms.p99", ms, smaller, "p99 ms", "99 of 100 output tokens took no longer"},
     [](run of) { return time_figure(of.tpot_ms.p99); }},
    {{"ttft_ms.mean", ms, smaller, "TTFT ms", "time from a request's arrival to its first token"},
     [](run of) { return time_figure(of.ttft_ms.mean); }},
    {{"ttft_ms.p50", ms, smaller, "TTFT p50 ms", "median of the times to the first token"},
     [](run of) { return time_figure(of.ttft_ms.p50); }},
    {{"ttft_ms.p99", ms, smaller, "TTFT p99 ms", "99 of 100 first tokens took no longer"},
     [](run of) { return time_figure(of.ttft_ms.p99); }},
    {{"tokens_per_s", per_s, larger, "tokens/s", "tokens over the time of the run"},
     [](run of) -> json { return stable(of.tokens_per_s); }},
    {{"experts.requested", count, neither, "requested", "experts that layer steps asked for"},
     [](run of) -> json { return of.experts.requested; }},
    {{"experts.hits", count, larger, "hits",
      "of them whole and in fast memory when asked for; of a cluster: of the home's server"},
     [](run of) -> json { return of.experts.hits; }},
    {{"experts.partial_hits", count, larger, "partial hits",
      "of them with a part in fast memory, or on its way"},
     [](run of) -> json { return of.experts.partial_hits; }},
    {{"experts.misses", count, smaller, "misses",
      "of them with nothing in fast memory; of a cluster: not on the home's server"},
     [](run of) -> json { return of.experts.misses; }},
    {{"experts.hit_rate", share, larger, "hit rate", "hits over experts asked for"},
     [](run of) -> json { return stable(of.experts.hit_rate()); }},
    {{"experts.substituted", count, smaller, "substituted",
      "choices of the model that the router replaced, reweighted or dropped"},
     [](run of) -> json { return of.experts.substituted; }},
    {{"experts.on_cpu", count, neither, "on CPU", "experts that the CPU computed"},
     [](run of) -> json { return of.experts.on_cpu; }},
    {{"experts.remote", count, neither, "remote", "experts that other machines computed"},
     [](run of) -> json { return of.experts.remote; }},
    {{"experts.loaded", count, smaller, "loaded", "experts moved to fast memory on demand"},
     [](run of) -> json { return of.experts.loaded; }},
    {{"bytes.h2d", bytes, smaller, "to fast memory", "demand, prefetched and behind together"},
     [](run of) -> json { return of.bytes.h2d; }},
    {{"bytes.d2h", bytes, smaller, "back", "hidden states and outputs to the host"},
     [](run of) -> json { return of.bytes.d2h; }},
    {{"bytes.network", bytes, smaller, "network", "between machines, moved experts included"},
     [](run of) -> json { return of.bytes.network; }},
    {{"bytes.prefetched", bytes, neither, "prefetched", "moved before anything asked for them"},
     [](run of) -> json { return of.bytes.prefetched; }},
    {{"bytes.prefetch_used", bytes, larger, "prefetch used", "of what was prefetched, asked for"},
     [](run of) -> json { return of.bytes.prefetch_used; }},
    {{"bytes.prefetch_wasted", bytes, smaller, "prefetch wasted",
      "of what was prefetched, never used: gone before, or computed elsewhere"},
     [](run of) -> json { return of.bytes.prefetch_wasted; }},
    {{"bytes.behind", bytes, neither, "behind", "loaded for later steps while the CPU computed"},
     [](run of) -> json { return of.bytes.behind; }},
    {{"bytes.first_fill", bytes, neither, "first fill", "the caches' first content"},
     [](run of) -> json { return of.arrangement.first_bytes; }},
    {{"bytes.refill", bytes, smaller, "refill", "brought anew by budgets that changed"},
     [](run of) -> json { return of.arrangement.bytes; }},
    {{"bytes.prefetch_cut_off", bytes, smaller, "prefetch cut off",
      "of what was wasted, ended before it had arrived"},
     [](run of) -> json { return of.bytes.prefetch_cut_off; }},
    {{"bytes.demand", bytes, smaller, "demand", "loaded because a layer step waited for them"},
     [](run of) -> json { return of.bytes.demand; }},
    {{"time_ms.compute", ms, neither, "compute", "the device computed"},
     [](run of) -> json { return stable(of.time.compute); }},
    {{"time_ms.transfer", ms, neither, "transfer", "the link to fast memory was busy"},
     [](run of) -> json { return stable(of.time.transfer); }},
    {{"time_ms.stall", ms, smaller, "stall", "the device waited for an expert"},
     [](run of) -> json { return stable(of.time.stall); }},
    {{"time_ms.cpu", ms, neither, "CPU", "the CPU computed experts"},
     [](run of) -> json { return stable(of.time.cpu); }},
    {{"time_ms.policy", ms, smaller, "policies",
      "the host decided: policies, and checks of what they say; null in virtual time"},
     [](run of) -> json { return of.virtual_time ? json() : json(stable(of.time.policy)); }},
    {{"prediction.accuracy", share, larger, "predicted",
      "experts asked for that were among the first predicted"},
     [](run of) { return accuracy(of.has_predictions, of.predicted, of.predicted_right); }},
    {{"layers", parts, neither, "layers", "figures of each layer"}, layers_of},
    {{"config", parts, neither, "config", "the resolved configuration, by section"},
     [](run of) -> json { return of.config->is_null() ? json::object() : *of.config; }},
    {{"faults", parts, smaller, "faults",
      "how often a policy broke the rules, by policy: advice that was not taken, or a change of "
      "the process that was put back"},
     [](run of) -> json { return counts_of(of.faults); }},
    {{"title", text, neither, "title", "as the configuration has it"},
     [](run of) -> json { return of.title; }},
    {{"total_ms", ms, smaller, "total", "from the first content's being there to the end"},
     [](run of) -> json { return stable(of.total_ms); }},
    {{"refill.changes", count, neither, "new budgets", "times that a budget changed"},
     [](run of) -> json { return of.arrangement.changes; }},
    {{"refill.ms", ms, smaller, "refill time", "loading what budgets that changed brought"},
     [](run of) -> json { return stable(of.arrangement.ms); }},
    {{"refill.first_ms", ms, neither, "first fill time", "loading the first content"},
     [](run of) -> json { return stable(of.arrangement.first_ms); }},
    {{"opt_misses", count, neither, "optimum",
      "misses of the offline optimum with the same slots and sharing; null: not comparable"},
     [](run of) -> json { return of.opt_misses == 0 ? json() : json(of.opt_misses); }},
    {{"opt_reason", text, neither, "no optimum", "why it was not counted"},
     [](run of) -> json { return of.opt_reason.empty() ? json() : json(of.opt_reason); }},
    {{"causes", parts, neither, "causes",
      "what the time of prefill and of decode went to, in ms: compute, launch, link, disk, cpu, "
      "network, away (other devices), policy, host, idle (no request); no network, policy or "
      "idle: none"},
     [](run of) -> json { return of.causes.empty() ? json() : causes_json(causes_of(of)); }},
    {{"warnings", parts, smaller, "warnings", "sentences"},
     [](run of) -> json { return of.warnings; }},
    {{"misfit", text, neither, "misfit",
      "what the run asks of an emulated machine's memory beyond what that has; null: it fits"},
     [](run of) -> json { return of.misfit.empty() ? json() : json(of.misfit); }},
    {{"per_token.h2d_bytes", bytes, smaller, "moved/token", "moved to fast memory for a token"},
     [](run of) -> json {
         return of.tokens == 0 ? json() : json(stable(number(of.bytes.h2d) / number(of.tokens)));
     }},
    {{"shares.wasted", share, smaller, "wasted", "of what was prefetched, never asked for"},
     [](run of) { return share_of(of.bytes.prefetch_wasted, of.bytes.prefetched); }},
    {{"shares.late", share, smaller, "late",
      "of what was prefetched, still under way when it was asked for"},
     [](run of) { return share_of(of.bytes.prefetch_late, of.bytes.prefetched); }},
    {{"shares.on_cpu", share, neither, "on CPU", "of the experts asked for, the CPU computed"},
     [](run of) { return share_of(of.experts.on_cpu, of.experts.requested); }},
    {{"shares.substituted", share, smaller, "substituted",
      "of the model's own choices, replaced, reweighted or dropped"},
     [](run of) { return share_of(of.experts.substituted, of.routing.choices); }},
    {{"shares.policies", share, smaller, "policies",
      "of the run's time, the host was inside policies"},
     policy_share},
    {{"misses_over_optimum", ratio, smaller, "misses/OPT",
      "misses over the offline optimum's; below 1 only by moving experts ahead of time"},
     [](run of) { return share_of(of.experts.misses, of.opt_misses); }},
    {{"without_advice", parts, smaller, "without advice",
      "calls that a policy left to the default, by policy", "where there are any"},
     [](run of) -> json { return counts_of(of.without_advice); },
     [](run of) { return !of.without_advice.empty(); }},
    {{"facts", parts, neither, "facts", "figures that policies state of themselves",
      "where they do"},
     facts_of,
     [](run of) { return !of.facts.empty(); }},
    {{"policy_times", parts, smaller, "inside policies", "calls and ms by policy and function",
      "where calls are timed: on real machines, and with "
      "[emulator] policy_time = \"measured\""},
     [](run of) -> json { return policy_times_json(of); },
     [](run of) { return !of.policy_times.empty(); }},
    {{"devices", parts, neither, "devices", "figures of each GPU", "of several GPUs"},
     [](run of) { return list_of(of.devices); },
     [](run of) { return !of.devices.empty(); }},
    {{"host", parts, neither, "host memory", "figures of host memory as a cache of the disk",
      "where it does not hold all experts"},
     [](run of) { return to_json(*of.host); },
     [](run of) { return of.host.has_value(); }},
    {{"routing", parts, neither, "routing", "what became of the model's own choices",
      "of routers that may change them"},
     [](run of) { return to_json(of.routing, of.experts.substituted); },
     [](run of) { return of.lossy; }},
    {{"versions", parts, neither, "versions", "of the experts: what was computed in each",
      "where experts have two versions"},
     versions_json,
     [](run of) { return !of.version_names.empty(); }},
    {{"text", parts, neither, "text", "what a model wrote, or how well it foretold a text",
      "of models"},
     [](run of) { return to_json(of.text); },
     [](run of) { return !of.text.model.empty(); }},
    {{"guard", parts, neither, "guard", "what the run tried to do without", "of guarded runs"},
     [](run of) { return list_of(of.guard); },
     [](run of) { return !of.guard.empty(); }},
    {{"cluster", parts, neither, "cluster", "figures of a cluster", "of clusters"},
     [](run of) { return to_json(*of.cluster); },
     [](run of) { return of.cluster.has_value(); }}};

// Headings of tables in which a command combines figures of several runs or layers.
constexpr figure headings[] = {
    {"", share, neither, "share", "of all experts, those that fast memory has slots for",
     "tables of compare"},
    {"", bytes, smaller, "MB/token", "moved to fast memory for a token", "tables of compare"},
    {"", bytes, smaller, "GB/token", "moved to fast memory for a token", "tables of compare"},
    {"", ms, smaller, "95 %", "half the width of what TPOT lies in with 95 % confidence",
     "tables of compare with --repeat"},
    {"", count, neither, "moves", "placements that were taken while the cluster ran",
     "tables of compare, of clusters"},
    {"", ratio, smaller, "x opt", "misses over those of the offline optimum with the same slots",
     "tables of replay"}};

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
