// node_status.cpp - copies figures, writes them out.
#include "core/node/node_status.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/node/page.h"

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
    std::string made;
    for (const char one : text) {
        if (one == '\\' || one == '"') made += '\\';
        if (one == '\n')
            made += "\\n";
        else
            made += one;
    }
    return made;
}

class metrics_writer {
public:
    void head(const char *name, const char *type, const char *help) {
        text += format("# HELP moorage_node_{} {}\n# TYPE moorage_node_{} {}\n", name, help, name,
                       type);
    }
    template <class Value>
    void row(const char *name, const std::string &labels, Value value) {
        text +=
            format("moorage_node_{}{} {}\n", name, labels.empty() ? "" : "{" + labels + "}", value);
    }
    template <class Value>
    void one(const char *name, const char *type, const char *help, Value value) {
        head(name, type, help);
        row(name, "", value);
    }
    std::string text;
};

void write_served(metrics_writer &to, const node_snapshot &of) {
    const holder_figures &served = of.served;
    to.one("served_calls_total", "counter", "calls computed for others", served.calls);
    to.one("served_rows_total", "counter", "rows of hidden states in them", served.rows);
    to.one("served_batches_total", "counter", "loops in which they were computed", served.batches);
    to.one("served_seconds_total", "counter", "time of those loops", seconds(served.computed_ns));
    to.one("queued_seconds_total", "counter", "time that calls waited", seconds(served.queued_ns));
    to.one("waiting_calls", "gauge", "calls that wait now", of.waiting);
    to.one("cancelled_calls_total", "counter", "calls given up before they began",
           served.cancelled + served.dropped);
    to.head("served_layer_rows_total", "counter", "rows computed for others, by MoE layer");
    for (size_t layer = 0; layer < of.layer_rows.size(); ++layer)
        to.row("served_layer_rows_total", format("layer=\"{}\"", layer), of.layer_rows[layer]);
    to.head("refused_total", "counter", "messages and connections refused, by reason");
    for (uint32_t i = 1; i < refusal_reasons; ++i)
        to.row("refused_total", format("reason=\"{}\"", name_of(static_cast<refusal_reason>(i))),
               of.connections.refused[i]);
}

void write_called(metrics_writer &to, const node_snapshot &of) {
    const caller_figures &called = of.called;
    to.one("calls_total", "counter", "calls to others", called.calls);
    to.one("called_experts_total", "counter", "experts in them", called.experts);
    to.one("calls_under_way", "gauge", "calls that are out now", of.under_way);
    // The local ratio is the share of these that did not go elsewhere.
    to.one("activations_total", "counter", "pairs of row and expert", called.activations);
    to.one("activations_elsewhere_total", "counter", "those of them that were sent to others",
           called.elsewhere);
    to.head("calls_elsewhere_total", "counter", "calls that went to somebody else, by cause");
    for (const auto &[cause, count] : {std::pair{"late", called.late},
                                       {"failed", called.failed},
                                       {"lost", called.lost},
                                       {"wrong", called.wrong}})
        to.row("calls_elsewhere_total", format("cause=\"{}\"", cause), count);
    to.one("hedged_calls_total", "counter", "calls that were sent to a second holder",
           called.hedged);
    to.one("dropped_replies_total", "counter", "replies that came too late", called.dropped);
    to.one("own_disk_experts_total", "counter", "experts that nobody else computed", called.here);
    to.one("waited_seconds_total", "counter", "time in which only replies were waited for",
           seconds(called.waited_ns));
}

void write_peers(metrics_writer &to, const node_snapshot &of) {
    to.head("peer_up", "gauge", "1: the server takes calls of this node");
    for (const peer_status &one : of.peers)
        to.row("peer_up", format("peer=\"{}\"", escaped(one.name)),
               one.stands == "ready" || one.stands == "self" ? 1 : 0);
    to.head("call_seconds", "histogram", "times of calls to a server");
    for (const peer_status &one : of.peers) {
        const std::string peer = format("peer=\"{}\"", escaped(one.name));
        uint64_t sum = 0;
        for (size_t bucket = 0; bucket < call_buckets; ++bucket) {
            sum += one.histogram[bucket];
            const bool last = bucket + 1 == call_buckets;
            to.row("call_seconds_bucket",
                   peer + (last ? std::string(",le=\"+Inf\"")
                                : format(",le=\"{}\"", bucket_end_us(bucket) / 1e6)),
                   sum);
        }
        to.row("call_seconds_sum", peer, static_cast<double>(one.called_us) / 1e6);
        to.row("call_seconds_count", peer, sum);
    }
}

json json_of(const peer_status &one, uint32_t hidden, const std::vector<uint32_t> &layers) {
    json made = {{"server", one.name},
                 {"address", one.address},
                 {"stands", one.stands},
                 {"connected_to_this", one.calls_us},
                 {"calls", one.calls}};
    if (!one.trouble.empty()) made["trouble"] = one.trouble;
    if (one.beat_us != 0) made["heartbeat_us"] = one.beat_us;
    if (one.calls != 0) {
        made["expected_us"] = one.expected_us;
        made["deadline_us"] = one.deadline_us;
        made["called_us"] = one.called_us;
        const uint64_t row_bytes = uint64_t{hidden} * sizeof(float);
        made["hidden_bytes"] = {{"there", one.called.rows * row_bytes},
                                {"back", one.called.pairs * row_bytes}};
    }
    made["experts_of_layers"] = layers;
    return made;
}

peer_status status_of(peer_node &of, const caller *calls, uint32_t server) {
    const node_server &named = of.plan().servers[server];
    peer_status one;
    one.name = named.name;
    one.address = named.addresses.empty() ? "" : named.addresses.front();
    links &all = of.connections();
    if (calls) {
        const call_times &times = calls->times(server);
        one.calls = times.count();
        one.expected_us = times.expected_ns(1) / 1000;
        one.deadline_us = times.deadline_ns(1) / 1000;
        one.histogram = times.histogram();
        one.called_us = times.sum_us();
        one.called = calls->called(server);
    }
    const link *const to = all.to(server);
    one.stands = server == of.own().server        ? "self"
                 : of.dead(server)                ? "dead"
                 : to == nullptr                  ? (of.refused(server) ? "refused" : "away")
                 : calls && calls->paused(server) ? "paused"
                                                  : "ready";
    if (of.heartbeats()) one.beat_us = of.heartbeats()->round_trip_ns(server) / 1000;
    if (!to) one.trouble = all.trouble(server);
    if (one.stands == "refused") of.refused(server, &one.trouble);
    // Nobody calls a dead server, so only heartbeats know why it still is dead.
    if (std::string why = one.stands == "dead" ? of.heartbeats()->trouble(server) : "";
        !why.empty())
        one.trouble = std::move(why);
    all.each([&](const link &from) {
        if (!from.dialed && from.stands == link::stand::ready && from.server == server)
            one.calls_us = true;
    });
    return one;
}

json json_of(const registry_view &of, uint64_t now_ns) {
    json made = {{"at", of.where},
                 {"reachable", of.trouble.empty()},
                 {"heard_s", seconds_since(of.heard_ns, now_ns)},
                 {"epoch", of.epoch},
                 {"leader", of.leader},
                 {"leads", of.leads},
                 {"members", of.members}};
    if (!of.trouble.empty()) made["trouble"] = of.trouble;
    if (!of.damaged.empty()) made["damaged"] = of.damaged;
    return made;
}

std::vector<std::vector<uint32_t>> layers_of(const node_plan &plan) {
    std::vector<std::vector<uint32_t>> made(plan.servers.size(),
                                            std::vector<uint32_t>(plan.sizes.layers));
    for (uint32_t page = 0; page < plan.pages(); ++page)
        for (const uint32_t server : plan.holders_of(page))
            ++made[server][page / plan.sizes.experts];
    return made;
}

json json_of(const desk_figures &of) {
    return {{"taken", of.taken},
            {"ended", of.ended},
            {"refused", of.refused},
            {"cancelled", of.cancelled},
            {"failed", of.failed},
            {"prompt_tokens", of.prompt_tokens},
            {"written_tokens", of.written_tokens},
            {"waiting", of.waiting},
            {"under_way", of.under_way}};
}

void write_asked(metrics_writer &to, const desk_figures &of) {
    to.head("requests_total", "counter", "requests to this home, by what became of them");
    for (const auto &[how, count] : {std::pair{"ended", of.ended},
                                     {"refused", of.refused},
                                     {"cancelled", of.cancelled},
                                     {"failed", of.failed}})
        to.row("requests_total", format("end=\"{}\"", how), count);
    to.one("waiting_requests", "gauge", "requests that wait", of.waiting);
    to.one("requests_under_way", "gauge", "requests that are being written", of.under_way);
    to.one("written_tokens_total", "counter", "tokens written", of.written_tokens);
}

}  // namespace

void node_status::note(peer_node &of, const caller *calls, bool now) {
    const uint64_t now_ns = steady_ns();
    if (!now && now_ns - noted_ns_ < note_ns) return;
    noted_ns_ = now_ns;
    look_at_tasks(now_ns);
    node_snapshot made;
    const node_plan &plan = of.plan();
    const bool is_server = of.own().server < plan.servers.size();
    made.name = is_server ? plan.servers[of.own().server].name : "";
    made.model = plan.model_name;
    made.software = of.own().software;
    made.incarnation = of.own().incarnation;
    made.epoch = plan.epoch;
    made.plan = plan.plan;
    made.since_ns = since_ns_;
    made.taken_ns = now_ns;
    made.held = is_server ? plan.held_by(of.own().server) : 0;
    made.in_memory = of.experts().held();
    made.leaving = of.leaving();
    made.waited_for = of.waited_for();
    made.coming = of.moving().waiting();
    made.moved = of.moving().figures();
    for (uint32_t server = 0; server < plan.servers.size(); ++server)
        made.calls_delayed_ns += of.debt(server).delayed_ns();
    made.pages = plan.pages();
    made.layers = plan.sizes.layers;
    made.experts = plan.sizes.experts;
    made.draining = of.connections().draining();
    made.refused = of.refused_by_all();
    tell_refused(made.refused);
    made.home = calls != nullptr;
    made.waiting = of.serving().waiting();
    made.connections = of.connections().figures();
    made.served = of.serving().figures();
    if (calls)
        made.called = calls->figures(), made.under_way = calls->under_way(),
        made.open = calls->open();
    if (of.desk()) made.asked = of.desk()->figures();
    made.hidden = plan.sizes.hidden;
    for (uint32_t server = 0; server < plan.servers.size(); ++server)
        made.peers.push_back(status_of(of, calls, server));
    made.layer_rows.assign(made.layers, 0);
    for (uint32_t page = 0; page < made.pages; ++page)
        made.layer_rows[page / made.experts] += of.serving().activations()[page];
    made.plan_layers = layers_of(plan);
    const std::lock_guard lock(guard_);
    latest_ = std::move(made);
}

// Nobody may ask for /health, so the loop looks, too.
void node_status::look_at_tasks(uint64_t now_ns) {
    for (task &one : tasks_) {
        const uint64_t turned_ns = one.turned_ns();
        const bool stuck = turned_ns + task_stuck_ns < now_ns;
        if (stuck && !one.told)
            log_warning(format("node: its thread for the {} has stood still for {:.0f} s", one.name,
                               seconds(now_ns - turned_ns)));
        one.told = stuck;
    }
}

// Once; and when it is over.
void node_status::tell_refused(const std::string &why) {
    if (told_refused_ == !why.empty()) return;
    told_refused_ = !why.empty();
    log_warning(told_refused_ ? format("node: every other node refuses this one; {}", why)
                              : std::string("node: others take this one in again"));
}

node_snapshot node_status::latest() const {
    const std::lock_guard lock(guard_);
    return latest_;
}

std::string to_metrics(const node_snapshot &of, uint64_t now_ns) {
    metrics_writer to;
    to.head("info", "gauge", "what runs here");
    to.row("info",
           format("server=\"{}\",model=\"{}\",software=\"{}\"", escaped(of.name), escaped(of.model),
                  escaped(of.software)),
           1);
    to.one("up_seconds", "gauge", "since the process began", seconds(now_ns - of.since_ns));
    to.one("loop_age_seconds", "gauge", "since the loop that computes was last seen",
           seconds(now_ns - of.taken_ns));
    to.head("task_age_seconds", "gauge", "since a thread beside the loop came round");
    for (const node_snapshot::task &one : of.tasks)
        to.row("task_age_seconds", format("task=\"{}\"", escaped(one.name)),
               seconds_since(one.turned_ns, now_ns));
    to.one("plan_epoch", "gauge", "epoch of the plan it goes by", of.epoch);
    to.one("held_experts", "gauge", "experts that the plan gives this node", of.held);
    to.one("moved_experts_total", "counter", "experts that were brought here", of.moved.copies);
    to.one("moved_bytes_total", "counter", "bytes of them over the wire", of.moved.bytes);
    to.one("moving_experts", "gauge", "experts that are on their way here", of.coming);
    to.one("draining", "gauge", "1: no more calls are taken", of.draining ? 1 : 0);
    to.one("messages_in_total", "counter", "messages received", of.connections.messages_in);
    to.one("messages_out_total", "counter", "messages sent", of.connections.messages_out);
    to.one("bytes_in_total", "counter", "bytes received", of.connections.bytes_in);
    to.one("bytes_out_total", "counter", "bytes sent", of.connections.bytes_out);
    to.one("connections_lost_total", "counter", "connections that ended", of.connections.losses);
    write_served(to, of);
    write_called(to, of);
    if (of.asked) write_asked(to, *of.asked);
    write_peers(to, of);
    return to.text;
}

namespace {

json moving_json(const node_snapshot &of) {
    return {{"coming", of.coming},
            {"leaving", of.leaving},
            {"waits_for", of.waited_for},
            {"copies", of.moved.copies},
            {"bytes", of.moved.bytes},
            {"from_own_directory", of.moved.own},
            {"held_back_s", seconds(of.moved.held_ns)},
            {"calls_delayed_s", seconds(of.calls_delayed_ns)},
            {"sources_left", of.moved.failed}};
}

json called_json(const node_snapshot &of) {
    json made = {{"calls", of.called.calls},
                 {"under_way", of.under_way},
                 {"experts", of.called.experts},
                 {"layers_calling", of.called.layers_calling},
                 {"late", of.called.late},
                 {"failed", of.called.failed},
                 {"lost", of.called.lost},
                 {"wrong", of.called.wrong},
                 {"from_own_disk", of.called.here},
                 {"waited_s", seconds(of.called.waited_ns)},
                 {"activations", of.called.activations},
                 {"elsewhere", of.called.elsewhere},
                 {"hedged", of.called.hedged},
                 {"open", json::array()}};
    for (const open_call &one : of.open)
        made["open"].push_back(
            {{"server", one.server < of.peers.size() ? of.peers[one.server].name : ""},
             {"layer", one.layer},
             {"pairs", one.pairs},
             {"request", one.request},
             {"age_ms", seconds_since(one.sent_ns, of.taken_ns) * 1000}});
    return made;
}

}  // namespace

json to_json(const node_snapshot &of, uint64_t now_ns) {
    json peers = json::array();
    for (size_t i = 0; i < of.peers.size(); ++i)
        peers.push_back(
            json_of(of.peers[i], of.hidden,
                    i < of.plan_layers.size() ? of.plan_layers[i] : std::vector<uint32_t>()));
    json refused = json::object();
    for (uint32_t i = 1; i < refusal_reasons; ++i)
        if (of.connections.refused[i] != 0)
            refused[name_of(static_cast<refusal_reason>(i))] = of.connections.refused[i];
    json made = {{"server", of.name},
                 {"model", of.model},
                 {"software", of.software},
                 {"incarnation", of.incarnation},
                 {"epoch", of.epoch},
                 {"plan", format("{:016x}", of.plan)},
                 {"up_s", seconds(now_ns - of.since_ns)},
                 {"loop_age_s", seconds(now_ns - of.taken_ns)},
                 {"draining", of.draining},
                 {"experts_held", of.held},
                 {"experts_all", of.pages},
                 {"experts_in_memory", of.in_memory},
                 {"moving", moving_json(of)},
                 {"served",
                  {{"calls", of.served.calls},
                   {"rows", of.served.rows},
                   {"batches", of.served.batches},
                   {"joined_calls", of.served.joined},
                   {"waiting", of.waiting},
                   {"computed_s", seconds(of.served.computed_ns)},
                   {"queued_s", seconds(of.served.queued_ns)},
                   {"rows_of_layers", of.layer_rows}}},
                 {"refused", refused},
                 {"bytes", {{"in", of.connections.bytes_in}, {"out", of.connections.bytes_out}}},
                 {"peers", peers}};
    if (of.home) made["called"] = called_json(of);
    for (const node_snapshot::task &one : of.tasks)
        made["task_ages_s"][one.name] = seconds_since(one.turned_ns, now_ns);
    if (of.asked) made["requests"] = json_of(*of.asked);
    return made;
}

http_answer health(const node_snapshot &of, uint64_t now_ns) {
    json stuck = json::array();
    if (now_ns - of.taken_ns > stuck_ns) stuck.push_back("loop");
    for (const node_snapshot::task &one : of.tasks)
        if (one.turned_ns + task_stuck_ns < now_ns) stuck.push_back(one.name);
    const bool well = stuck.empty() && !of.draining && of.refused.empty();
    const char *const word = !stuck.empty()        ? "stuck"
                             : of.draining         ? "draining"
                             : !of.refused.empty() ? "refused"
                                                   : "serving";
    json said = {{"state", word}, {"loop_age_s", seconds(now_ns - of.taken_ns)}};
    if (!stuck.empty()) said["stuck"] = std::move(stuck);
    if (!of.refused.empty()) said["refused"] = of.refused;
    return {well ? 200 : 503, "application/json",
            said.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"};
}

http_answer node_status::answer(std::string_view path) const {
    node_snapshot now = latest();
    for (const task &one : tasks_) now.tasks.push_back({one.name, one.turned_ns()});
    const uint64_t now_ns = steady_ns();
    if (path == "/metrics")
        return {200, "text/plain; version=0.0.4; charset=utf-8", to_metrics(now, now_ns)};
    const char *const is_json = "application/json";
    if (path == "/status") {
        json all = to_json(now, now_ns);
        if (threads_ != 0) all["threads"] = threads_;
        if (registry_) all["registry"] = json_of(registry_(), now_ns);
        return {200, is_json, all.dump(1, ' ', false, json::error_handler_t::replace) + "\n"};
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
