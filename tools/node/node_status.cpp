// node_status.cpp - copies figures, writes them out.
#include "tools/node/node_status.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "tools/node/page.h"

namespace moorage::core {

namespace {

constexpr uint64_t note_ns = 250'000'000;
// A loop that was not there for so long is no longer serving.
constexpr uint64_t stuck_ns = 10'000'000'000;
// The same of a thread beside it, which may wait for a registry.
constexpr uint64_t task_stuck_ns = 60'000'000'000;

double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }
// The time may be noted by another thread a moment after `now_ns` was read.
double seconds_since(uint64_t ns, uint64_t now_ns) {
    return seconds(now_ns - std::min(ns, now_ns));
}

// A label's value, by the rules of the format.
std::string escaped(std::string_view text) {
    std::string label;
    for (const char character : text) {
        if (character == '\\' || character == '"') label += '\\';
        if (character == '\n')
            label += "\\n";
        else
            label += character;
    }
    return label;
}

class metrics_writer {
public:
    void add_head(const char *name, const char *type, const char *help) {
        text += format("# HELP moorage_node_{} {}\n# TYPE moorage_node_{} {}\n", name, help, name,
                       type);
    }
    template <class Value>
    void add_row(const char *name, const std::string &labels, Value value) {
        text +=
            format("moorage_node_{}{} {}\n", name, labels.empty() ? "" : "{" + labels + "}", value);
    }
    template <class Value>
    void add_metric(const char *name, const char *type, const char *help, Value value) {
        add_head(name, type, help);
        add_row(name, "", value);
    }
    std::string text;
};

void write_served(metrics_writer &metrics, const node_snapshot &snapshot) {
    const holder_figures &served = snapshot.served;
    metrics.add_metric("served_calls_total", "counter", "calls computed for others", served.calls);
    metrics.add_metric("served_rows_total", "counter", "rows of hidden states in them",
                       served.rows);
    metrics.add_metric("served_batches_total", "counter", "loops in which they were computed",
                       served.batches);
    metrics.add_metric("served_seconds_total", "counter", "time of those loops",
                       seconds(served.computed_ns));
    metrics.add_metric("queued_seconds_total", "counter", "time that calls waited",
                       seconds(served.queued_ns));
    metrics.add_metric("waiting_calls", "gauge", "calls that wait now", snapshot.waiting);
    metrics.add_metric("cancelled_calls_total", "counter", "calls given up before they began",
                       served.cancelled + served.dropped);
    metrics.add_head("served_layer_rows_total", "counter",
                     "rows computed for others, by MoE layer");
    for (size_t layer = 0; layer < snapshot.layer_rows.size(); ++layer)
        metrics.add_row("served_layer_rows_total", format("layer=\"{}\"", layer),
                        snapshot.layer_rows[layer]);
    metrics.add_head("refused_total", "counter", "messages and connections refused, by reason");
    for (uint32_t i = 1; i < refusal_reasons; ++i)
        metrics.add_row("refused_total",
                        format("reason=\"{}\"", name_of(static_cast<refusal_reason>(i))),
                        snapshot.connections.refused[i]);
}

void write_called(metrics_writer &metrics, const node_snapshot &snapshot) {
    const caller_figures &called = snapshot.called;
    metrics.add_metric("calls_total", "counter", "calls to others", called.calls);
    metrics.add_metric("called_experts_total", "counter", "experts in them", called.experts);
    metrics.add_metric("calls_under_way", "gauge", "calls that are out now", snapshot.under_way);
    // The local ratio is the share of these that did not go elsewhere.
    metrics.add_metric("activations_total", "counter", "pairs of row and expert",
                       called.activations);
    metrics.add_metric("activations_elsewhere_total", "counter",
                       "those of them that were sent to others", called.elsewhere);
    metrics.add_head("calls_elsewhere_total", "counter",
                     "calls that went to somebody else, by cause");
    for (const auto &[cause, count] : {std::pair{"late", called.late},
                                       {"failed", called.failed},
                                       {"lost", called.lost},
                                       {"wrong", called.wrong}})
        metrics.add_row("calls_elsewhere_total", format("cause=\"{}\"", cause), count);
    metrics.add_metric("hedged_calls_total", "counter", "calls that were sent to a second holder",
                       called.hedged);
    metrics.add_metric("dropped_replies_total", "counter", "replies that came too late",
                       called.dropped);
    metrics.add_metric("own_disk_experts_total", "counter", "experts that nobody else computed",
                       called.from_own_disk);
    metrics.add_metric("waited_seconds_total", "counter",
                       "time in which only replies were waited for", seconds(called.waited_ns));
}

void write_peers(metrics_writer &metrics, const node_snapshot &snapshot) {
    metrics.add_head("peer_up", "gauge", "1: the server takes calls of this node");
    for (const peer_status &peer : snapshot.peers)
        metrics.add_row("peer_up", format("peer=\"{}\"", escaped(peer.name)),
                        peer.stands == "ready" || peer.stands == "self" ? 1 : 0);
    metrics.add_head("call_seconds", "histogram", "times of calls to a server");
    for (const peer_status &peer : snapshot.peers) {
        const std::string label = format("peer=\"{}\"", escaped(peer.name));
        uint64_t sum = 0;
        for (size_t bucket = 0; bucket < call_buckets; ++bucket) {
            sum += peer.histogram[bucket];
            const bool last = bucket + 1 == call_buckets;
            metrics.add_row("call_seconds_bucket",
                            label + (last ? std::string(",le=\"+Inf\"")
                                          : format(",le=\"{}\"", bucket_end_us(bucket) / 1e6)),
                            sum);
        }
        metrics.add_row("call_seconds_sum", label, static_cast<double>(peer.called_us) / 1e6);
        metrics.add_row("call_seconds_count", label, sum);
    }
}

json json_of(const peer_status &peer, uint32_t hidden, const std::vector<uint32_t> &layers) {
    json object = {{"server", peer.name},
                   {"address", peer.address},
                   {"stands", peer.stands},
                   {"connected_to_this", peer.calls_us},
                   {"calls", peer.calls}};
    if (!peer.trouble.empty()) object["trouble"] = peer.trouble;
    if (peer.beat_us != 0) object["heartbeat_us"] = peer.beat_us;
    if (peer.calls != 0) {
        object["expected_us"] = peer.expected_us;
        object["deadline_us"] = peer.deadline_us;
        object["called_us"] = peer.called_us;
        const uint64_t row_bytes = uint64_t{hidden} * sizeof(float);
        object["hidden_bytes"] = {{"there", peer.called.rows * row_bytes},
                                  {"back", peer.called.pairs * row_bytes}};
    }
    object["experts_of_layers"] = layers;
    return object;
}

peer_status status_of(peer_node &node, const caller *calls, uint32_t server) {
    const node_server &named = node.plan().servers[server];
    peer_status peer;
    peer.name = named.name;
    peer.address = named.addresses.empty() ? "" : named.addresses.front();
    links &connections = node.connections();
    if (calls) {
        const call_times &times = calls->times(server);
        peer.calls = times.count();
        peer.expected_us = times.expected_ns(1) / 1000;
        peer.deadline_us = times.deadline_ns(1) / 1000;
        peer.histogram = times.histogram();
        peer.called_us = times.sum_us();
        peer.called = calls->called(server);
    }
    const link *const target = connections.call_link(server);
    peer.stands = server == node.identity().server ? "self"
                  : node.is_dead(server)           ? "dead"
                  : target == nullptr ? (node.is_refused_by(server) ? "refused" : "away")
                  : calls && calls->is_paused(server) ? "paused"
                                                      : "ready";
    if (node.heartbeats()) peer.beat_us = node.heartbeats()->round_trip_ns(server) / 1000;
    if (!target) peer.trouble = connections.trouble(server);
    if (peer.stands == "refused") node.is_refused_by(server, &peer.trouble);
    // Nobody calls a dead server, so only heartbeats know why it still is dead.
    if (std::string reason = peer.stands == "dead" ? node.heartbeats()->trouble(server) : "";
        !reason.empty())
        peer.trouble = std::move(reason);
    connections.for_each([&](const link &incoming) {
        if (!incoming.dialed && incoming.state == link::state_kind::ready &&
            incoming.server == server)
            peer.calls_us = true;
    });
    return peer;
}

json json_of(const registry_view &view, uint64_t now_ns) {
    json object = {{"at", view.location},
                   {"reachable", view.trouble.empty()},
                   {"heard_s", seconds_since(view.heard_ns, now_ns)},
                   {"epoch", view.epoch},
                   {"leader", view.leader},
                   {"leads", view.leads},
                   {"members", view.members}};
    if (!view.trouble.empty()) object["trouble"] = view.trouble;
    if (!view.damaged.empty()) object["damaged"] = view.damaged;
    return object;
}

std::vector<std::vector<uint32_t>> layers_of(const node_plan &plan) {
    std::vector<std::vector<uint32_t>> counts(plan.servers.size(),
                                              std::vector<uint32_t>(plan.sizes.layers));
    for (uint32_t page = 0; page < plan.pages(); ++page)
        for (const uint32_t server : plan.holders_of(page))
            ++counts[server][page / plan.sizes.experts];
    return counts;
}

json json_of(const desk_figures &desk) {
    return {{"taken", desk.taken},
            {"ended", desk.ended},
            {"refused", desk.refused},
            {"cancelled", desk.cancelled},
            {"failed", desk.failed},
            {"prompt_tokens", desk.prompt_tokens},
            {"written_tokens", desk.written_tokens},
            {"waiting", desk.waiting},
            {"under_way", desk.under_way}};
}

void write_requests(metrics_writer &metrics, const desk_figures &desk) {
    metrics.add_head("requests_total", "counter", "requests to this home, by what became of them");
    for (const auto &[end, count] : {std::pair{"ended", desk.ended},
                                     {"refused", desk.refused},
                                     {"cancelled", desk.cancelled},
                                     {"failed", desk.failed}})
        metrics.add_row("requests_total", format("end=\"{}\"", end), count);
    metrics.add_metric("waiting_requests", "gauge", "requests that wait", desk.waiting);
    metrics.add_metric("requests_under_way", "gauge", "requests that are being written",
                       desk.under_way);
    metrics.add_metric("written_tokens_total", "counter", "tokens written", desk.written_tokens);
}

}  // namespace

void node_status::note(peer_node &node, const caller *calls, bool now) {
    const uint64_t now_ns = steady_ns();
    if (!now && now_ns - noted_ns_ < note_ns) return;
    noted_ns_ = now_ns;
    check_tasks(now_ns);
    node_snapshot snapshot;
    const node_plan &plan = node.plan();
    const bool is_server = node.identity().server < plan.servers.size();
    snapshot.name = is_server ? plan.servers[node.identity().server].name : "";
    snapshot.model = plan.model_name;
    snapshot.software = node.identity().software;
    snapshot.incarnation = node.identity().incarnation;
    snapshot.epoch = plan.epoch;
    snapshot.plan = plan.plan;
    snapshot.since_ns = since_ns_;
    snapshot.taken_ns = now_ns;
    snapshot.held = is_server ? plan.held_by(node.identity().server) : 0;
    snapshot.in_memory = node.experts().held();
    snapshot.leaving = node.leaving();
    snapshot.waited_for = node.waited_for();
    snapshot.coming = node.moving().waiting();
    snapshot.moved = node.moving().figures();
    for (uint32_t server = 0; server < plan.servers.size(); ++server)
        snapshot.calls_delayed_ns += node.debt(server).delayed_ns();
    snapshot.pages = plan.pages();
    snapshot.layers = plan.sizes.layers;
    snapshot.experts = plan.sizes.experts;
    snapshot.draining = node.connections().draining();
    snapshot.refused = node.refused_by_all();
    log_refusal(snapshot.refused);
    snapshot.home = calls != nullptr;
    snapshot.waiting = node.serving().waiting();
    snapshot.connections = node.connections().figures();
    snapshot.served = node.serving().figures();
    if (calls)
        snapshot.called = calls->figures(), snapshot.under_way = calls->calls_under_way(),
        snapshot.open = calls->open_calls();
    if (node.desk()) snapshot.asked = node.desk()->figures();
    snapshot.hidden = plan.sizes.hidden;
    for (uint32_t server = 0; server < plan.servers.size(); ++server)
        snapshot.peers.push_back(status_of(node, calls, server));
    snapshot.layer_rows.assign(snapshot.layers, 0);
    for (uint32_t page = 0; page < snapshot.pages; ++page)
        snapshot.layer_rows[page / snapshot.experts] += node.serving().activations()[page];
    snapshot.plan_layers = layers_of(plan);
    const std::lock_guard lock(guard_);
    latest_ = std::move(snapshot);
}

// Nobody may ask for /health, so the loop looks, too.
void node_status::check_tasks(uint64_t now_ns) {
    for (task &task : tasks_) {
        const uint64_t turned_ns = task.turned_ns();
        const bool stuck = turned_ns + task_stuck_ns < now_ns;
        if (stuck && !task.stuck_reported)
            log_warning(format("node: its thread for the {} has stood still for {:.0f} s",
                               task.name, seconds(now_ns - turned_ns)));
        task.stuck_reported = stuck;
    }
}

// Once; and when it is over.
void node_status::log_refusal(const std::string &reason) {
    if (refusal_reported_ == !reason.empty()) return;
    refusal_reported_ = !reason.empty();
    log_warning(refusal_reported_ ? format("node: every other node refuses this one; {}", reason)
                                  : std::string("node: others take this one in again"));
}

node_snapshot node_status::latest() const {
    const std::lock_guard lock(guard_);
    return latest_;
}

std::string to_metrics(const node_snapshot &snapshot, uint64_t now_ns) {
    metrics_writer metrics;
    metrics.add_head("info", "gauge", "what runs here");
    metrics.add_row("info",
                    format("server=\"{}\",model=\"{}\",software=\"{}\"", escaped(snapshot.name),
                           escaped(snapshot.model), escaped(snapshot.software)),
                    1);
    metrics.add_metric("up_seconds", "gauge", "since the process began",
                       seconds(now_ns - snapshot.since_ns));
    metrics.add_metric("loop_age_seconds", "gauge", "since the loop that computes was last seen",
                       seconds(now_ns - snapshot.taken_ns));
    metrics.add_head("task_age_seconds", "gauge", "since a thread beside the loop came round");
    for (const node_snapshot::task &task : snapshot.tasks)
        metrics.add_row("task_age_seconds", format("task=\"{}\"", escaped(task.name)),
                        seconds_since(task.turned_ns, now_ns));
    metrics.add_metric("plan_epoch", "gauge", "epoch of the plan it goes by", snapshot.epoch);
    metrics.add_metric("held_experts", "gauge", "experts that the plan gives this node",
                       snapshot.held);
    metrics.add_metric("moved_experts_total", "counter", "experts that were brought here",
                       snapshot.moved.copies);
    metrics.add_metric("moved_bytes_total", "counter", "bytes of them over the wire",
                       snapshot.moved.bytes);
    metrics.add_metric("moving_experts", "gauge", "experts that are on their way here",
                       snapshot.coming);
    metrics.add_metric("draining", "gauge", "1: no more calls are taken",
                       snapshot.draining ? 1 : 0);
    metrics.add_metric("messages_in_total", "counter", "messages received",
                       snapshot.connections.messages_in);
    metrics.add_metric("messages_out_total", "counter", "messages sent",
                       snapshot.connections.messages_out);
    metrics.add_metric("bytes_in_total", "counter", "bytes received",
                       snapshot.connections.bytes_in);
    metrics.add_metric("bytes_out_total", "counter", "bytes sent", snapshot.connections.bytes_out);
    metrics.add_metric("connections_lost_total", "counter", "connections that ended",
                       snapshot.connections.losses);
    write_served(metrics, snapshot);
    write_called(metrics, snapshot);
    if (snapshot.asked) write_requests(metrics, *snapshot.asked);
    write_peers(metrics, snapshot);
    return metrics.text;
}

namespace {

json moving_json(const node_snapshot &snapshot) {
    return {{"coming", snapshot.coming},
            {"leaving", snapshot.leaving},
            {"waits_for", snapshot.waited_for},
            {"copies", snapshot.moved.copies},
            {"bytes", snapshot.moved.bytes},
            {"from_own_directory", snapshot.moved.from_own_directory},
            {"held_back_s", seconds(snapshot.moved.held_ns)},
            {"calls_delayed_s", seconds(snapshot.calls_delayed_ns)},
            {"sources_left", snapshot.moved.failed}};
}

json called_json(const node_snapshot &snapshot) {
    json object = {{"calls", snapshot.called.calls},
                   {"under_way", snapshot.under_way},
                   {"experts", snapshot.called.experts},
                   {"layers_calling", snapshot.called.layers_calling},
                   {"late", snapshot.called.late},
                   {"failed", snapshot.called.failed},
                   {"lost", snapshot.called.lost},
                   {"wrong", snapshot.called.wrong},
                   {"from_own_disk", snapshot.called.from_own_disk},
                   {"waited_s", seconds(snapshot.called.waited_ns)},
                   {"activations", snapshot.called.activations},
                   {"elsewhere", snapshot.called.elsewhere},
                   {"hedged", snapshot.called.hedged},
                   {"open", json::array()}};
    for (const call_status &call : snapshot.open)
        object["open"].push_back(
            {{"server",
              call.server < snapshot.peers.size() ? snapshot.peers[call.server].name : ""},
             {"layer", call.layer},
             {"pairs", call.pairs},
             {"request", call.request},
             {"age_ms", seconds_since(call.sent_ns, snapshot.taken_ns) * 1000}});
    return object;
}

}  // namespace

json to_json(const node_snapshot &snapshot, uint64_t now_ns) {
    json peers = json::array();
    for (size_t i = 0; i < snapshot.peers.size(); ++i)
        peers.push_back(json_of(
            snapshot.peers[i], snapshot.hidden,
            i < snapshot.plan_layers.size() ? snapshot.plan_layers[i] : std::vector<uint32_t>()));
    json refused = json::object();
    for (uint32_t i = 1; i < refusal_reasons; ++i)
        if (snapshot.connections.refused[i] != 0)
            refused[name_of(static_cast<refusal_reason>(i))] = snapshot.connections.refused[i];
    json object = {
        {"server", snapshot.name},
        {"model", snapshot.model},
        {"software", snapshot.software},
        {"incarnation", snapshot.incarnation},
        {"epoch", snapshot.epoch},
        {"plan", format("{:016x}", snapshot.plan)},
        {"up_s", seconds(now_ns - snapshot.since_ns)},
        {"loop_age_s", seconds(now_ns - snapshot.taken_ns)},
        {"draining", snapshot.draining},
        {"experts_held", snapshot.held},
        {"experts_all", snapshot.pages},
        {"experts_in_memory", snapshot.in_memory},
        {"moving", moving_json(snapshot)},
        {"served",
         {{"calls", snapshot.served.calls},
          {"rows", snapshot.served.rows},
          {"batches", snapshot.served.batches},
          {"joined_calls", snapshot.served.joined},
          {"waiting", snapshot.waiting},
          {"computed_s", seconds(snapshot.served.computed_ns)},
          {"queued_s", seconds(snapshot.served.queued_ns)},
          {"rows_of_layers", snapshot.layer_rows}}},
        {"refused", refused},
        {"bytes", {{"in", snapshot.connections.bytes_in}, {"out", snapshot.connections.bytes_out}}},
        {"peers", peers}};
    if (snapshot.home) object["called"] = called_json(snapshot);
    for (const node_snapshot::task &task : snapshot.tasks)
        object["task_ages_s"][task.name] = seconds_since(task.turned_ns, now_ns);
    if (snapshot.asked) object["requests"] = json_of(*snapshot.asked);
    return object;
}

http_answer health(const node_snapshot &snapshot, uint64_t now_ns) {
    json stuck = json::array();
    if (now_ns - snapshot.taken_ns > stuck_ns) stuck.push_back("loop");
    for (const node_snapshot::task &task : snapshot.tasks)
        if (task.turned_ns + task_stuck_ns < now_ns) stuck.push_back(task.name);
    const bool well = stuck.empty() && !snapshot.draining && snapshot.refused.empty();
    const char *const word = !stuck.empty()              ? "stuck"
                             : snapshot.draining         ? "draining"
                             : !snapshot.refused.empty() ? "refused"
                                                         : "serving";
    json state = {{"state", word}, {"loop_age_s", seconds(now_ns - snapshot.taken_ns)}};
    if (!stuck.empty()) state["stuck"] = std::move(stuck);
    if (!snapshot.refused.empty()) state["refused"] = snapshot.refused;
    return {well ? 200 : 503, "application/json",
            state.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"};
}

http_answer node_status::answer(std::string_view path) const {
    node_snapshot now = latest();
    for (const task &task : tasks_) now.tasks.push_back({task.name, task.turned_ns()});
    const uint64_t now_ns = steady_ns();
    if (path == "/metrics")
        return {200, "text/plain; version=0.0.4; charset=utf-8", to_metrics(now, now_ns)};
    const char *const is_json = "application/json";
    if (path == "/status") {
        json object = to_json(now, now_ns);
        if (threads_ != 0) object["threads"] = threads_;
        if (registry_) object["registry"] = json_of(registry_(), now_ns);
        return {200, is_json, object.dump(1, ' ', false, json::error_handler_t::replace) + "\n"};
    }
    if (path == "/health") return health(now, now_ns);
    if (path == "/spans" && spans_)
        return {200, is_json,
                to_json(spans_()).dump(-1, ' ', false, json::error_handler_t::replace) + "\n"};
    if (path == "/") return {200, "text/html; charset=utf-8", std::string(node_page)};
    return {404, "text/plain; charset=utf-8",
            "there are /, /metrics, /health, /status and /spans\n"};
}

}  // namespace moorage::core
