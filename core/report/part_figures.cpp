// part_figures.cpp - the figures of a report's parts: layers, devices, host memory, routing, and
// those of a cluster.
#include "core/base/json.h"
#include "core/base/text.h"
#include "core/report/cluster_report.h"
#include "core/report/figures.h"
#include "core/report/report_figures.h"
#include "core/report/substitution.h"
#include "core/report/time_parts.h"

namespace moorage::core {

namespace {

using enum figure_unit;
using enum wanted;

json ratio_of(uint64_t part, uint64_t whole) {
    return stable(whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole));
}

using in_layer = const layer_of_run &;
const layer_report &at(in_layer of) { return of.run.layers[of.index]; }

constexpr figure_row<layer_of_run> layer_rows[] = {
    {{"requested", count, neither, "requested", "experts that the layer requested"},
     [](in_layer of) -> json { return at(of).experts.requested; }},
    {{"hits", count, larger, "hits", "requested experts that were whole in fast memory"},
     [](in_layer of) -> json { return at(of).experts.hits; }},
    {{"partial_hits", count, larger, "partial hits",
      "requested experts with a part in fast memory, or on its way"},
     [](in_layer of) -> json { return at(of).experts.partial_hits; }},
    {{"misses", count, smaller, "misses", "requested experts with nothing in fast memory"},
     [](in_layer of) -> json { return at(of).experts.misses; }},
    {{"hit_rate", share, larger, "hit rate", "hits divided by requested experts"},
     [](in_layer of) -> json { return stable(at(of).experts.hit_rate()); }},
    {{"h2d_bytes", bytes, smaller, "to fast memory",
      "bytes of the layer's experts moved to fast memory"},
     [](in_layer of) -> json { return at(of).h2d_bytes; }},
    {{"stall_ms", ms, smaller, "stall", "time in which the device waited for one of its experts"},
     [](in_layer of) -> json { return stable(at(of).stall_ms); }},
    {{"slots", count, neither, "slots", "slots of the layer at the end; 0: layers share slots"},
     [](in_layer of) -> json { return at(of).slots; }},
    {{"split", share, neither, "split", "share of an expert that is its top segment",
      "if experts are split"},
     [](in_layer of) -> json { return stable(at(of).split); },
     [](in_layer of) { return at(of).split < 1; }},
    {{"on_cpu", count, neither, "on CPU", "experts that the CPU computed"},
     [](in_layer of) -> json { return at(of).experts.on_cpu; }},
    {{"loaded", count, smaller, "loaded", "experts loaded on demand"},
     [](in_layer of) -> json { return at(of).experts.loaded; }},
    {{"prediction_accuracy", share, larger, "predicted",
      "share of requested experts that were predicted"},
     [](in_layer of) {
         const layer_report &one = at(of);
         return of.run.has_predictions && one.predicted != 0
                    ? ratio_of(one.predicted_right, one.predicted)
                    : json();
     }},
    {{"routing", parts, neither, "routing", "as routing of the run",
      "for routers that may change it"},
     [](in_layer of) { return to_json(at(of).routing, at(of).experts.substituted); },
     [](in_layer of) { return of.run.lossy; }},
    {{"causes", parts, neither, "causes", "as causes of the run", "if they are known by layer"},
     [](in_layer of) { return causes_json(of.run.causes[of.index]); },
     [](in_layer of) { return of.index < of.run.causes.size(); }}};

using in_host = const host_report &;
constexpr figure_row<host_report> host_rows[] = {
    {{"slots", count, neither, "experts", "experts that host memory holds"},
     [](in_host of) -> json { return of.slots; }},
    {{"requested", count, neither, "requested",
      "experts requested by loads and by the CPU's computing"},
     [](in_host of) -> json { return of.requested; }},
    {{"hits", count, larger, "hits", "requested experts that were in host memory"},
     [](in_host of) -> json { return of.hits; }},
    {{"disk_bytes", bytes, smaller, "from disk",
      "bytes read because experts were not in host memory"},
     [](in_host of) -> json { return of.disk_bytes; }},
    {{"first_bytes", bytes, neither, "first", "bytes of the first content, read before the run"},
     [](in_host of) -> json { return of.first_bytes; }},
    {{"disk_ms", ms, smaller, "disk", "time in which the disk was busy, without the first content"},
     [](in_host of) -> json { return stable(of.disk_ms); }}};

using in_device = const device_report &;
constexpr figure_row<device_report> device_rows[] = {
    {{"name", text, neither, "name", "name of the device"},
     [](in_device of) -> json { return of.name; }},
    {{"experts", count, neither, "experts", "experts that belong to the device"},
     [](in_device of) -> json { return of.experts; }},
    {{"slots", count, neither, "slots", "slots of the device for its experts"},
     [](in_device of) -> json { return of.slots; }},
    {{"requested", count, neither, "requested", "requests for its experts"},
     [](in_device of) -> json { return of.requested; }},
    {{"hits", count, larger, "hits", "requested experts that were in its memory"},
     [](in_device of) -> json { return of.hits; }},
    {{"loaded", count, smaller, "loaded", "experts loaded on demand"},
     [](in_device of) -> json { return of.loaded; }},
    {{"h2d_bytes", bytes, smaller, "to it", "bytes moved to the device by its link"},
     [](in_device of) -> json { return of.h2d_bytes; }},
    {{"compute_ms", ms, neither, "compute", "time in which the device computed"},
     [](in_device of) -> json { return stable(of.compute_ms); }},
    {{"transfer_ms", ms, neither, "transfer", "time in which its link was busy"},
     [](in_device of) -> json { return stable(of.transfer_ms); }},
    {{"stall_ms", ms, smaller, "stall", "time in which the device waited for experts"},
     [](in_device of) -> json { return stable(of.stall_ms); }}};

struct routing_of {
    const routing_counts &counts;
    uint64_t substituted;
};
using routed = const routing_of &;
constexpr figure_row<routing_of> routing_rows[] = {
    {{"choices", count, neither, "choices", "choices of the model, k per token and layer"},
     [](routed of) -> json { return of.counts.choices; }},
    {{"substituted", count, smaller, "substituted",
      "choices that were replaced, reweighted or dropped"},
     [](routed of) -> json { return of.substituted; }},
    {{"substituted_share", share, smaller, "substituted",
      "share of the choices that were substituted"},
     [](routed of) -> json { return stable(substituted_share(of.counts, of.substituted)); }},
    {{"reweighted", count, smaller, "reweighted", "choices kept with another weight"},
     [](routed of) -> json { return of.counts.reweighted; }},
    {{"dropped", count, smaller, "dropped", "choices kept without a weight"},
     [](routed of) -> json { return of.counts.dropped; }},
    {{"small", count, smaller, "small", "choices kept, in the second version if need be",
      "if experts have two versions"},
     [](routed of) -> json { return of.counts.small; },
     [](routed of) { return of.counts.small != 0; }},
    {{"agreement", share, larger, "agreement", "share of the choices that stayed unchanged"},
     [](routed of) -> json { return stable(1 - substituted_share(of.counts, of.substituted)); }},
    {{"rows", count, neither, "rows", "pairs of a token and a layer"},
     [](routed of) -> json { return of.counts.rows; }},
    {{"rows_unchanged", count, larger, "rows unchanged", "rows that stayed as the model chose"},
     [](routed of) -> json { return of.counts.rows_unchanged; }},
    {{"rows_agreement", share, larger, "rows kept",
      "share of the rows that stayed as the model chose"},
     [](routed of) { return ratio_of(of.counts.rows_unchanged, of.counts.rows); }},
    {{"held_exact", count, neither, "held: exact", "substitutions undone in exact requests"},
     [](routed of) -> json { return of.counts.held_exact; }},
    {{"held_cap", count, neither, "held: cap", "substitutions undone beyond the cap"},
     [](routed of) -> json { return of.counts.held_cap; }}};

struct version_of_run {
    const run_report &run;
    size_t version;
};
using in_version = const version_of_run &;
uint64_t all_computed(in_version of) {
    uint64_t all = 0;
    for (const version_counts &one : of.run.versions) all += one.computed;
    return all;
}
constexpr figure_row<version_of_run> version_rows[] = {
    {{"name", text, neither, "version", "model or shape of the version"},
     [](in_version of) -> json { return of.run.version_names[of.version]; }},
    {{"computed", count, neither, "computed",
      "experts computed in this version, for one token each"},
     [](in_version of) -> json { return of.run.versions[of.version].computed; }},
    {{"computed_share", share, neither, "of the work",
      "share of the experts computed in all versions"},
     [](in_version of) {
         return ratio_of(of.run.versions[of.version].computed, all_computed(of));
     }},
    {{"loaded_bytes", bytes, neither, "loaded", "bytes of transfers that a step waited for"},
     [](in_version of) -> json { return of.run.versions[of.version].loaded_bytes; }}};

// Figures of `text`. Its own JSON is written where its parts are known.
constexpr figure text_words[] = {
    {"text.scored", count, neither, "scored", "tokens that had a token before them",
     "for scored texts"},
    {"text.nll", ratio, smaller, "nll", "mean of -log p over the scored tokens",
     "for scored texts"},
    {"text.perplexity", ratio, smaller, "perplexity",
     "number of tokens that were about as probable as the right one", "for scored texts"},
    {"text.nll_change", ratio, smaller, "change",
     "nll compared with that of the model's own routing", "for lossy routers and scored texts"}};

using in_home = const cluster_report::home &;
constexpr figure_row<cluster_report::home> home_rows[] = {
    {{"name", text, neither, "home", "entry node: a server or a user at which requests arrive"},
     [](in_home of) -> json { return of.name; }},
    {{"requests", count, neither, "requests", "number of completed requests"},
     [](in_home of) -> json { return of.requests; }},
    {{"tokens", count, neither, "tokens", "tokens of completed requests"},
     [](in_home of) -> json { return of.tokens; }},
    {{"latency_ms", ms, smaller, "latency", "time from arrival to last output token"},
     [](in_home of) { return of.requests == 0 ? json() : to_json(of.latency_ms); }},
    {{"ttft_ms", ms, smaller, "TTFT", "time from arrival to first output token"},
     [](in_home of) { return of.requests == 0 ? json() : to_json(of.ttft_ms); }},
    {{"local_ratio", share, larger, "local", "share of expert calls that its own server takes"},
     [](in_home of) { return of.local_ratio ? json(stable(*of.local_ratio)) : json(); }},
    {{"causes", parts, neither, "causes", "where the time of its pipelines went",
      "if requests arrived"},
     [](in_home of) { return causes_json(of.causes); },
     [](in_home of) { return of.causes[0].sum() + of.causes[1].sum() != 0; }}};

using in_gpu = const cluster_report::device &;
constexpr figure_row<cluster_report::device> gpu_rows[] = {
    {{"name", text, neither, "device", "server and device"},
     [](in_gpu of) -> json { return of.name; }},
    {{"utilisation", share, neither, "busy",
      "share of the run's time in which the device computed"},
     [](in_gpu of) -> json { return stable(of.utilisation); }},
    {{"used_bytes", bytes, neither, "used", "used part of its memory for experts, at the end"},
     [](in_gpu of) -> json { return of.used_bytes; }},
    {{"bytes", bytes, neither, "memory", "size of its memory for experts"},
     [](in_gpu of) -> json { return of.bytes; }},
    {{"served", count, neither, "served", "experts that it computed for others"},
     [](in_gpu of) -> json { return of.served; }}};

using in_link = const cluster_report::link &;
constexpr figure_row<cluster_report::link> link_rows[] = {
    {{"from", text, neither, "from", "a server, a user or the cloud"},
     [](in_link of) -> json { return of.from; }},
    {{"to", text, neither, "to", "the other end"}, [](in_link of) -> json { return of.to; }},
    {{"activation_bytes", bytes, smaller, "activations",
      "bytes of hidden states that crossed the link"},
     [](in_link of) -> json { return of.activation_bytes; }},
    {{"migration_bytes", bytes, smaller, "migration", "bytes of experts that moved over the link"},
     [](in_link of) -> json { return of.migration_bytes; }},
    {{"queue_peak", count, smaller, "queue", "largest number of waiting messages"},
     [](in_link of) -> json { return of.queue_peak; }},
    {{"utilisation", share, neither, "busy", "share of the run's time in which the link was busy"},
     [](in_link of) -> json { return of.utilisation ? json(stable(*of.utilisation)) : json(); }}};

using move = const cluster_report::migration &;
constexpr figure_row<cluster_report::migration> migration_rows[] = {
    {{"at_s", s, neither, "at", "time of the decision"},
     [](move of) -> json { return stable(of.at_s); }},
    {{"done_s", s, smaller, "done", "time at which its last copy arrived; null: not yet"},
     [](move of) -> json { return of.done_s < 0 ? json() : json(stable(of.done_s)); }},
    {{"adopted", flag, neither, "adopted", "the new placement was worth it"},
     [](move of) -> json { return of.adopted; }},
    {{"added_copies", count, neither, "copies", "copies of experts that moved"},
     [](move of) -> json { return of.added_copies; }},
    {{"added_bytes", bytes, smaller, "bytes", "bytes of the copies that moved"},
     [](move of) -> json { return of.added_bytes; }},
    {{"given_up", count, neither, "given up",
      "copies that were given up because there was no space"},
     [](move of) -> json { return of.given_up; }},
    {{"remote_per_s_current", per_s, smaller, "remote/s before",
      "remote calls that the policy expects without the move"},
     [](move of) -> json { return stable(of.remote_per_s_current); }},
    {{"remote_per_s_candidate", per_s, smaller, "remote/s after",
      "remote calls that the policy expects after the move"},
     [](move of) -> json { return stable(of.remote_per_s_candidate); }}};

template <class Of, size_t Count>
json list_of(const figure_row<Of> (&rows)[Count], const std::vector<Of> &list) {
    json all = json::array();
    for (const Of &one : list)
        all.push_back(table_json(std::span<const figure_row<Of>>(rows), one));
    return all;
}

json over_time(const cluster_report &of) {
    json all = {{"bucket_s", stable(of.bucket_s)},   {"local_ratio", json::array()},
                {"latency_ms", json::array()},       {"requests", json::array()},
                {"activation_bytes", json::array()}, {"migration_bytes", json::array()}};
    for (const cluster_report::bucket &one : of.over_time) {
        all["local_ratio"].push_back(stable(one.local_ratio));
        all["latency_ms"].push_back(stable(one.latency_ms));
        all["requests"].push_back(one.requests);
        all["activation_bytes"].push_back(one.activation_bytes);
        all["migration_bytes"].push_back(one.migration_bytes);
    }
    return all;
}

using group = const cluster_report &;

constexpr figure_row<cluster_report> cluster_rows[] = {
    {{"placement", text, neither, "placement", "the policy that places experts"},
     [](group of) -> json { return of.policy; }},
    {{"duration_s", s, neither, "duration", "duration of the run"},
     [](group of) -> json { return stable(of.duration_s); }},
    {{"latency_ms.mean", ms, smaller, "latency ms",
      "mean time from arrival to last output token of a request"},
     [](group of) { return time_figure(of.latency_ms.mean); }},
    {{"latency_ms.p50", ms, smaller, "latency p50", "median latency of requests"},
     [](group of) { return time_figure(of.latency_ms.p50); }},
    {{"latency_ms.p99", ms, smaller, "latency p99", "99 % of requests took at most this time"},
     [](group of) { return time_figure(of.latency_ms.p99); }},
    {{"experts_ms_per_token", ms, smaller, "experts ms",
      "time from a layer's routing to its last output, summed over the layers of a token"},
     [](group of) -> json {
         return of.experts_ms_per_token ? json(stable(*of.experts_ms_per_token)) : json();
     }},
    {{"local_ratio", share, larger, "local",
      "share of expert calls that the entry node's own server takes"},
     [](group of) -> json { return stable(of.local_ratio); }},
    {{"remote_call_ms", ms, smaller, "call ms", "mean time of a message to a server and back"},
     [](group of) -> json { return stable(of.remote_call_ms); }},
    {{"calls", count, smaller, "calls", "messages to other servers, one per server and step"},
     [](group of) -> json { return of.calls; }},
    {{"homes", parts, neither, "homes", "figures of each entry node"},
     [](group of) { return list_of(home_rows, of.homes); }},
    {{"devices", parts, neither, "devices", "figures of each device"},
     [](group of) { return list_of(gpu_rows, of.devices); }},
    {{"links", parts, neither, "links", "figures of each link that carried anything"},
     [](group of) { return list_of(link_rows, of.links); }},
    {{"migrations", parts, neither, "migrations", "decisions during the run"},
     [](group of) { return list_of(migration_rows, of.migrations); }},
    {{"servers_layers", parts, neither, "held", "copies by server and layer, at the end"},
     [](group of) -> json { return of.servers_layers; }},
    {{"layers_experts", parts, neither, "experts", "experts by layer"},
     [](group of) -> json { return of.layers_experts; }},
    {{"models_layers", parts, neither, "layers", "layers by model"},
     [](group of) -> json { return of.models_layers; }},
    {{"over_time", parts, neither, "over time", "figures in buckets of bucket_s"}, over_time}};

}  // namespace

json layer_json(const layer_of_run &of) {
    return table_json(std::span<const figure_row<layer_of_run>>(layer_rows), of);
}

json to_json(const device_report &of) {
    return table_json(std::span<const figure_row<device_report>>(device_rows), of);
}

json to_json(const host_report &of) {
    return table_json(std::span<const figure_row<host_report>>(host_rows), of);
}

json to_json(const routing_counts &routing, uint64_t substituted) {
    return table_json(std::span<const figure_row<routing_of>>(routing_rows),
                      routing_of{routing, substituted});
}

json versions_json(const run_report &of) {
    json all = json::array();
    for (size_t version = 0; version < of.version_names.size(); ++version)
        all.push_back(table_json(std::span<const figure_row<version_of_run>>(version_rows),
                                 version_of_run{of, version}));
    return all;
}

json to_json(const cluster_report &of) {
    return table_json(std::span<const figure_row<cluster_report>>(cluster_rows), of);
}

json policy_times_json(const run_report &of) {
    json all = json::object();
    for (const policy_time &one : of.policy_times)
        all[one.policy][one.call] = {{"calls", one.calls}, {"ms", stable(one.ms)}};
    return all;
}

void add_part_words(std::vector<std::pair<std::string, const figure *>> &all) {
    add_words(std::span<const figure_row<layer_of_run>>(layer_rows), "layers.*.", all);
    add_words(std::span<const figure_row<device_report>>(device_rows), "devices.*.", all);
    add_words(std::span<const figure_row<host_report>>(host_rows), "host.", all);
    add_words(std::span<const figure_row<routing_of>>(routing_rows), "routing.", all);
    add_words(std::span<const figure_row<version_of_run>>(version_rows), "versions.*.", all);
    for (const figure &one : text_words) all.emplace_back(one.path, &one);
    add_words(std::span<const figure_row<cluster_report>>(cluster_rows), "cluster.", all);
    add_words(std::span<const figure_row<cluster_report::home>>(home_rows), "cluster.homes.*.",
              all);
    add_words(std::span<const figure_row<cluster_report::device>>(gpu_rows), "cluster.devices.*.",
              all);
    add_words(std::span<const figure_row<cluster_report::link>>(link_rows), "cluster.links.*.",
              all);
    add_words(std::span<const figure_row<cluster_report::migration>>(migration_rows),
              "cluster.migrations.*.", all);
}

}  // namespace moorage::core
