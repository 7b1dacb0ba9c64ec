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
using enum better_when;

json ratio_of(uint64_t part, uint64_t whole) {
    return stable(whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole));
}

using layer_ref = const layer_of_run &;
const layer_report &report_of(layer_ref layer) { return layer.run.layers[layer.index]; }

constexpr figure_row<layer_of_run> layer_rows[] = {
    {{"requested", count, neither, "requested", "experts that the layer requested"},
     [](layer_ref layer) -> json { return report_of(layer).experts.requested; }},
    {{"hits", count, larger, "hits", "requested experts that were whole in fast memory"},
     [](layer_ref layer) -> json { return report_of(layer).experts.hits; }},
    {{"partial_hits", count, larger, "partial hits",
      "requested experts with a part in fast memory, or on its way"},
     [](layer_ref layer) -> json { return report_of(layer).experts.partial_hits; }},
    {{"misses", count, smaller, "misses", "requested experts with nothing in fast memory"},
     [](layer_ref layer) -> json { return report_of(layer).experts.misses; }},
    {{"hit_rate", share, larger, "hit rate", "hits divided by requested experts"},
     [](layer_ref layer) -> json { return stable(report_of(layer).experts.hit_rate()); }},
    {{"h2d_bytes", bytes, smaller, "to fast memory",
      "bytes of the layer's experts moved to fast memory"},
     [](layer_ref layer) -> json { return report_of(layer).h2d_bytes; }},
    {{"stall_ms", ms, smaller, "stall", "time in which the device waited for one of its experts"},
     [](layer_ref layer) -> json { return stable(report_of(layer).stall_ms); }},
    {{"slots", count, neither, "slots", "slots of the layer at the end; 0: layers share slots"},
     [](layer_ref layer) -> json { return report_of(layer).slots; }},
    {{"split", share, neither, "split", "share of an expert that is its top segment",
      "if experts are split"},
     [](layer_ref layer) -> json { return stable(report_of(layer).split); },
     [](layer_ref layer) { return report_of(layer).split < 1; }},
    {{"on_cpu", count, neither, "on CPU", "experts that the CPU computed"},
     [](layer_ref layer) -> json { return report_of(layer).experts.on_cpu; }},
    {{"loaded", count, smaller, "loaded", "experts loaded on demand"},
     [](layer_ref layer) -> json { return report_of(layer).experts.loaded; }},
    {{"prediction_accuracy", share, larger, "predicted",
      "share of requested experts that were predicted"},
     [](layer_ref layer) {
         const layer_report &report = report_of(layer);
         return layer.run.has_predictions && report.predicted != 0
                    ? ratio_of(report.predicted_right, report.predicted)
                    : json();
     }},
    {{"routing", parts, neither, "routing", "as routing of the run",
      "for routers that may change it"},
     [](layer_ref layer) {
         return to_json(report_of(layer).routing, report_of(layer).experts.substituted);
     },
     [](layer_ref layer) { return layer.run.lossy; }},
    {{"causes", parts, neither, "causes", "as causes of the run", "if they are known by layer"},
     [](layer_ref layer) { return causes_json(layer.run.causes[layer.index]); },
     [](layer_ref layer) { return layer.index < layer.run.causes.size(); }}};

using host_ref = const host_report &;
constexpr figure_row<host_report> host_rows[] = {
    {{"slots", count, neither, "experts", "experts that host memory holds"},
     [](host_ref host) -> json { return host.slots; }},
    {{"requested", count, neither, "requested",
      "experts requested by loads and by the CPU's computing"},
     [](host_ref host) -> json { return host.requested; }},
    {{"hits", count, larger, "hits", "requested experts that were in host memory"},
     [](host_ref host) -> json { return host.hits; }},
    {{"disk_bytes", bytes, smaller, "from disk",
      "bytes read because experts were not in host memory"},
     [](host_ref host) -> json { return host.disk_bytes; }},
    {{"first_bytes", bytes, neither, "first", "bytes of the first content, read before the run"},
     [](host_ref host) -> json { return host.first_bytes; }},
    {{"disk_ms", ms, smaller, "disk", "time in which the disk was busy, without the first content"},
     [](host_ref host) -> json { return stable(host.disk_ms); }}};

using device_ref = const device_report &;
constexpr figure_row<device_report> device_rows[] = {
    {{"name", text, neither, "name", "name of the device"},
     [](device_ref device) -> json { return device.name; }},
    {{"experts", count, neither, "experts", "experts that belong to the device"},
     [](device_ref device) -> json { return device.experts; }},
    {{"slots", count, neither, "slots", "slots of the device for its experts"},
     [](device_ref device) -> json { return device.slots; }},
    {{"requested", count, neither, "requested", "requests for its experts"},
     [](device_ref device) -> json { return device.requested; }},
    {{"hits", count, larger, "hits", "requested experts that were in its memory"},
     [](device_ref device) -> json { return device.hits; }},
    {{"loaded", count, smaller, "loaded", "experts loaded on demand"},
     [](device_ref device) -> json { return device.loaded; }},
    {{"h2d_bytes", bytes, smaller, "to it", "bytes moved to the device by its link"},
     [](device_ref device) -> json { return device.h2d_bytes; }},
    {{"compute_ms", ms, neither, "compute", "time in which the device computed"},
     [](device_ref device) -> json { return stable(device.compute_ms); }},
    {{"transfer_ms", ms, neither, "transfer", "time in which its link was busy"},
     [](device_ref device) -> json { return stable(device.transfer_ms); }},
    {{"stall_ms", ms, smaller, "stall", "time in which the device waited for experts"},
     [](device_ref device) -> json { return stable(device.stall_ms); }}};

struct routing_figures {
    const routing_counts &counts;
    uint64_t substituted;
};
using routing_ref = const routing_figures &;
constexpr figure_row<routing_figures> routing_rows[] = {
    {{"choices", count, neither, "choices", "choices of the model, k per token and layer"},
     [](routing_ref routing) -> json { return routing.counts.choices; }},
    {{"substituted", count, smaller, "substituted",
      "choices that were replaced, reweighted or dropped"},
     [](routing_ref routing) -> json { return routing.substituted; }},
    {{"substituted_share", share, smaller, "substituted",
      "share of the choices that were substituted"},
     [](routing_ref routing) -> json {
         return stable(substituted_share(routing.counts, routing.substituted));
     }},
    {{"reweighted", count, smaller, "reweighted", "choices kept with another weight"},
     [](routing_ref routing) -> json { return routing.counts.reweighted; }},
    {{"dropped", count, smaller, "dropped", "choices kept without a weight"},
     [](routing_ref routing) -> json { return routing.counts.dropped; }},
    {{"small", count, smaller, "small", "choices kept, in the second version if need be",
      "if experts have two versions"},
     [](routing_ref routing) -> json { return routing.counts.small; },
     [](routing_ref routing) { return routing.counts.small != 0; }},
    {{"agreement", share, larger, "agreement", "share of the choices that stayed unchanged"},
     [](routing_ref routing) -> json {
         return stable(1 - substituted_share(routing.counts, routing.substituted));
     }},
    {{"rows", count, neither, "rows", "pairs of a token and a layer"},
     [](routing_ref routing) -> json { return routing.counts.rows; }},
    {{"rows_unchanged", count, larger, "rows unchanged", "rows that stayed as the model chose"},
     [](routing_ref routing) -> json { return routing.counts.rows_unchanged; }},
    {{"rows_agreement", share, larger, "rows kept",
      "share of the rows that stayed as the model chose"},
     [](routing_ref routing) {
         return ratio_of(routing.counts.rows_unchanged, routing.counts.rows);
     }},
    {{"held_exact", count, neither, "held: exact", "substitutions undone in exact requests"},
     [](routing_ref routing) -> json { return routing.counts.held_exact; }},
    {{"held_cap", count, neither, "held: cap", "substitutions undone beyond the cap"},
     [](routing_ref routing) -> json { return routing.counts.held_cap; }}};

struct version_of_run {
    const run_report &run;
    size_t index;
};
using version_ref = const version_of_run &;
uint64_t all_computed(version_ref version) {
    uint64_t total = 0;
    for (const version_counts &counts : version.run.versions) total += counts.computed;
    return total;
}
constexpr figure_row<version_of_run> version_rows[] = {
    {{"name", text, neither, "version", "model or shape of the version"},
     [](version_ref version) -> json { return version.run.version_names[version.index]; }},
    {{"computed", count, neither, "computed",
      "experts computed in this version, for one token each"},
     [](version_ref version) -> json { return version.run.versions[version.index].computed; }},
    {{"computed_share", share, neither, "of the work",
      "share of the experts computed in all versions"},
     [](version_ref version) {
         return ratio_of(version.run.versions[version.index].computed, all_computed(version));
     }},
    {{"loaded_bytes", bytes, neither, "loaded", "bytes of transfers that a step waited for"},
     [](version_ref version) -> json { return version.run.versions[version.index].loaded_bytes; }}};

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

using home_ref = const cluster_report::home &;
constexpr figure_row<cluster_report::home> home_rows[] = {
    {{"name", text, neither, "home", "entry node: a server or a user at which requests arrive"},
     [](home_ref home) -> json { return home.name; }},
    {{"requests", count, neither, "requests", "number of completed requests"},
     [](home_ref home) -> json { return home.requests; }},
    {{"tokens", count, neither, "tokens", "tokens of completed requests"},
     [](home_ref home) -> json { return home.tokens; }},
    {{"latency_ms", ms, smaller, "latency", "time from arrival to last output token"},
     [](home_ref home) { return home.requests == 0 ? json() : to_json(home.latency_ms); }},
    {{"ttft_ms", ms, smaller, "TTFT", "time from arrival to first output token"},
     [](home_ref home) { return home.requests == 0 ? json() : to_json(home.ttft_ms); }},
    {{"local_ratio", share, larger, "local", "share of expert calls that its own server takes"},
     [](home_ref home) { return home.local_ratio ? json(stable(*home.local_ratio)) : json(); }},
    {{"causes", parts, neither, "causes", "where the time of its pipelines went",
      "if requests arrived"},
     [](home_ref home) { return causes_json(home.causes); },
     [](home_ref home) { return home.causes[0].sum() + home.causes[1].sum() != 0; }}};

using cluster_device_ref = const cluster_report::device &;
constexpr figure_row<cluster_report::device> gpu_rows[] = {
    {{"name", text, neither, "device", "server and device"},
     [](cluster_device_ref device) -> json { return device.name; }},
    {{"utilisation", share, neither, "busy",
      "share of the run's time in which the device computed"},
     [](cluster_device_ref device) -> json { return stable(device.utilisation); }},
    {{"used_bytes", bytes, neither, "used", "used part of its memory for experts, at the end"},
     [](cluster_device_ref device) -> json { return device.used_bytes; }},
    {{"bytes", bytes, neither, "memory", "size of its memory for experts"},
     [](cluster_device_ref device) -> json { return device.bytes; }},
    {{"served", count, neither, "served", "experts that it computed for others"},
     [](cluster_device_ref device) -> json { return device.served; }}};

using link_ref = const cluster_report::link &;
constexpr figure_row<cluster_report::link> link_rows[] = {
    {{"from", text, neither, "from", "a server, a user or the cloud"},
     [](link_ref link) -> json { return link.source; }},
    {{"to", text, neither, "to", "the other end"},
     [](link_ref link) -> json { return link.target; }},
    {{"activation_bytes", bytes, smaller, "activations",
      "bytes of hidden states that crossed the link"},
     [](link_ref link) -> json { return link.activation_bytes; }},
    {{"migration_bytes", bytes, smaller, "migration", "bytes of experts that moved over the link"},
     [](link_ref link) -> json { return link.migration_bytes; }},
    {{"queue_peak", count, smaller, "queue", "largest number of waiting messages"},
     [](link_ref link) -> json { return link.queue_peak; }},
    {{"utilisation", share, neither, "busy", "share of the run's time in which the link was busy"},
     [](link_ref link) -> json {
         return link.utilisation ? json(stable(*link.utilisation)) : json();
     }}};

using migration_ref = const cluster_report::migration &;
constexpr figure_row<cluster_report::migration> migration_rows[] = {
    {{"at_s", s, neither, "at", "time of the decision"},
     [](migration_ref migration) -> json { return stable(migration.at_s); }},
    {{"done_s", s, smaller, "done", "time at which its last copy arrived; null: not yet"},
     [](migration_ref migration) -> json {
         return migration.done_s < 0 ? json() : json(stable(migration.done_s));
     }},
    {{"adopted", flag, neither, "adopted", "the new placement was worth it"},
     [](migration_ref migration) -> json { return migration.adopted; }},
    {{"added_copies", count, neither, "copies", "copies of experts that moved"},
     [](migration_ref migration) -> json { return migration.added_copies; }},
    {{"added_bytes", bytes, smaller, "bytes", "bytes of the copies that moved"},
     [](migration_ref migration) -> json { return migration.added_bytes; }},
    {{"given_up", count, neither, "given up",
      "copies that were given up because there was no space"},
     [](migration_ref migration) -> json { return migration.given_up; }},
    {{"remote_per_s_current", per_s, smaller, "remote/s before",
      "remote calls that the policy expects without the move"},
     [](migration_ref migration) -> json { return stable(migration.remote_per_s_current); }},
    {{"remote_per_s_candidate", per_s, smaller, "remote/s after",
      "remote calls that the policy expects after the move"},
     [](migration_ref migration) -> json { return stable(migration.remote_per_s_candidate); }}};

template <class Subject, size_t Count>
json list_of(const figure_row<Subject> (&rows)[Count], const std::vector<Subject> &list) {
    json array = json::array();
    for (const Subject &element : list)
        array.push_back(table_json(std::span<const figure_row<Subject>>(rows), element));
    return array;
}

json over_time(const cluster_report &cluster) {
    json series = {{"bucket_s", stable(cluster.bucket_s)}, {"local_ratio", json::array()},
                   {"latency_ms", json::array()},          {"requests", json::array()},
                   {"activation_bytes", json::array()},    {"migration_bytes", json::array()}};
    for (const cluster_report::bucket &bucket : cluster.over_time) {
        series["local_ratio"].push_back(stable(bucket.local_ratio));
        series["latency_ms"].push_back(stable(bucket.latency_ms));
        series["requests"].push_back(bucket.requests);
        series["activation_bytes"].push_back(bucket.activation_bytes);
        series["migration_bytes"].push_back(bucket.migration_bytes);
    }
    return series;
}

using cluster_ref = const cluster_report &;

constexpr figure_row<cluster_report> cluster_rows[] = {
    {{"placement", text, neither, "placement", "the policy that places experts"},
     [](cluster_ref cluster) -> json { return cluster.policy; }},
    {{"duration_s", s, neither, "duration", "duration of the run"},
     [](cluster_ref cluster) -> json { return stable(cluster.duration_s); }},
    {{"latency_ms.mean", ms, smaller, "latency ms",
      "mean time from arrival to last output token of a request"},
     [](cluster_ref cluster) { return time_figure(cluster.latency_ms.mean); }},
    {{"latency_ms.p50", ms, smaller, "latency p50", "median latency of requests"},
     [](cluster_ref cluster) { return time_figure(cluster.latency_ms.p50); }},
    {{"latency_ms.p99", ms, smaller, "latency p99", "99 % of requests took at most this time"},
     [](cluster_ref cluster) { return time_figure(cluster.latency_ms.p99); }},
    {{"experts_ms_per_token", ms, smaller, "experts ms",
      "time from a layer's routing to its last output, summed over the layers of a token"},
     [](cluster_ref cluster) -> json {
         return cluster.experts_ms_per_token ? json(stable(*cluster.experts_ms_per_token)) : json();
     }},
    {{"local_ratio", share, larger, "local",
      "share of expert calls that the entry node's own server takes"},
     [](cluster_ref cluster) -> json { return stable(cluster.local_ratio); }},
    {{"remote_call_ms", ms, smaller, "call ms", "mean time of a message to a server and back"},
     [](cluster_ref cluster) -> json { return stable(cluster.remote_call_ms); }},
    {{"calls", count, smaller, "calls", "messages to other servers, one per server and step"},
     [](cluster_ref cluster) -> json { return cluster.calls; }},
    {{"homes", parts, neither, "homes", "figures of each entry node"},
     [](cluster_ref cluster) { return list_of(home_rows, cluster.homes); }},
    {{"devices", parts, neither, "devices", "figures of each device"},
     [](cluster_ref cluster) { return list_of(gpu_rows, cluster.devices); }},
    {{"links", parts, neither, "links", "figures of each link that carried anything"},
     [](cluster_ref cluster) { return list_of(link_rows, cluster.links); }},
    {{"migrations", parts, neither, "migrations", "decisions during the run"},
     [](cluster_ref cluster) { return list_of(migration_rows, cluster.migrations); }},
    {{"servers_layers", parts, neither, "held", "copies by server and layer, at the end"},
     [](cluster_ref cluster) -> json { return cluster.servers_layers; }},
    {{"layers_experts", parts, neither, "experts", "experts by layer"},
     [](cluster_ref cluster) -> json { return cluster.layers_experts; }},
    {{"models_layers", parts, neither, "layers", "layers by model"},
     [](cluster_ref cluster) -> json { return cluster.models_layers; }},
    {{"over_time", parts, neither, "over time", "figures in buckets of bucket_s"}, over_time}};

}  // namespace

json layer_json(const layer_of_run &layer) {
    return table_json(std::span<const figure_row<layer_of_run>>(layer_rows), layer);
}

json to_json(const device_report &device) {
    return table_json(std::span<const figure_row<device_report>>(device_rows), device);
}

json to_json(const host_report &host) {
    return table_json(std::span<const figure_row<host_report>>(host_rows), host);
}

json to_json(const routing_counts &routing, uint64_t substituted) {
    return table_json(std::span<const figure_row<routing_figures>>(routing_rows),
                      routing_figures{routing, substituted});
}

json versions_json(const run_report &report) {
    json versions = json::array();
    for (size_t version = 0; version < report.version_names.size(); ++version)
        versions.push_back(table_json(std::span<const figure_row<version_of_run>>(version_rows),
                                      version_of_run{report, version}));
    return versions;
}

json to_json(const cluster_report &cluster) {
    return table_json(std::span<const figure_row<cluster_report>>(cluster_rows), cluster);
}

json policy_times_json(const run_report &report) {
    json by_policy = json::object();
    for (const policy_time &entry : report.policy_times)
        by_policy[entry.policy][entry.call] = {{"calls", entry.calls}, {"ms", stable(entry.ms)}};
    return by_policy;
}

void add_part_words(std::vector<std::pair<std::string, const figure *>> &figures) {
    add_words(std::span<const figure_row<layer_of_run>>(layer_rows), "layers.*.", figures);
    add_words(std::span<const figure_row<device_report>>(device_rows), "devices.*.", figures);
    add_words(std::span<const figure_row<host_report>>(host_rows), "host.", figures);
    add_words(std::span<const figure_row<routing_figures>>(routing_rows), "routing.", figures);
    add_words(std::span<const figure_row<version_of_run>>(version_rows), "versions.*.", figures);
    for (const figure &figure : text_words) figures.emplace_back(figure.path, &figure);
    add_words(std::span<const figure_row<cluster_report>>(cluster_rows), "cluster.", figures);
    add_words(std::span<const figure_row<cluster_report::home>>(home_rows), "cluster.homes.*.",
              figures);
    add_words(std::span<const figure_row<cluster_report::device>>(gpu_rows), "cluster.devices.*.",
              figures);
    add_words(std::span<const figure_row<cluster_report::link>>(link_rows), "cluster.links.*.",
              figures);
    add_words(std::span<const figure_row<cluster_report::migration>>(migration_rows),
              "cluster.migrations.*.", figures);
}

}  // namespace moorage::core
