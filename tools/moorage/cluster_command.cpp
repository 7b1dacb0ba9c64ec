// cluster_command.cpp - moorage cluster: the status of each node, its plan (cluster_plan.h), its
// timeline (cluster_spans.h).
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/run_config.h"
#include "tools/node/http.h"
#include "core/report/figures.h"
#include "tools/moorage/cluster_plan.h"
#include "tools/moorage/cluster_spans.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct cluster_arguments {
    std::string cluster, json_file;
    setting_options settings;
};

constexpr uint64_t status_answer_ns = 2'000'000'000;

json status_of(const cluster_server &server) {
    json entry = {{"server", server.name}};
    if (server.status.empty()) {
        entry["state"] = "not asked";
        entry["trouble"] = "it has no status address in the file";
        return entry;
    }
    const auto answer = http_get(server.status, "/status", status_answer_ns);
    json reply = answer ? json::parse(*answer, nullptr, false) : json();
    if (!answer || !reply.is_object()) {
        entry["state"] = "away";
        entry["trouble"] = answer ? "what it answers is no JSON" : answer.failure().text;
        return entry;
    }
    entry["state"] = reply.value("draining", false) ? "draining" : "serving";
    entry["status"] = std::move(reply);
    return entry;
}

// A count from a node's status. The node may have sent anything.
uint64_t count_of(const json &status, const char *part, const char *key) {
    const json inner = part == nullptr ? status : status.value(part, json::object());
    const auto found = inner.find(key);
    return found != inner.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

std::string peers_of(const json &status) {
    std::string text;
    for (const json &peer : status.value("peers", json::array())) {
        if (!peer.is_object()) continue;
        const std::string peer_state = peer.value("stands", "");
        if (peer_state == "self" ||
            (peer_state == "away" && !peer.value("connected_to_this", false)))
            continue;
        text += (text.empty() ? "" : ", ") + peer.value("server", "?") +
                (peer_state == "ready" ? format(" {} us", peer.value("expected_us", 0)) : "");
    }
    return text;
}

std::string status_line(const json &entry) {
    const std::string name = padded_right(entry.value("server", ""), 12);
    const std::string state = padded_right(entry.value("state", ""), 10);
    if (!entry.contains("status"))
        return format("  {} {} {}\n", name, state, entry.value("trouble", ""));
    const json &status = entry["status"];
    return format("  {} {} {:>6} / {:<6} {:>10} {:>10} {:>6}  {}\n", name, state,
                  count_of(status, nullptr, "experts_held"),
                  count_of(status, nullptr, "experts_all"), count_of(status, "served", "calls"),
                  count_of(status, "served", "rows"), count_of(status, "served", "waiting"),
                  peers_of(status));
}

int show_status(const cluster_arguments &arguments) {
    const auto overrides = read_settings(arguments.settings);
    if (!overrides) return fail(overrides.failure());
    const auto config = load_run_config(arguments.cluster, *overrides, read_for::nodes);
    if (!config) return fail(config.failure());
    if (!config->cluster)
        return fail(
            {format("{}: no [cluster], so there are no nodes to ask", arguments.cluster), true});
    json entries = json::array();
    bool any_away = false;
    for (const cluster_server &server : config->cluster->servers) {
        entries.push_back(status_of(server));
        any_away |= entries.back()["state"] == "away";
    }
    if (arguments.json_file != "-") {
        print(format("  {:<12} {:<10} {:>6} / {:<6} {:>10} {:>10} {:>6}  {}\n", "server", "state",
                     "holds", "all", "calls", "rows", "wait", "connected"));
        for (const json &entry : entries) print(status_line(entry));
    }
    if (!arguments.json_file.empty())
        if (const status done = write_json(arguments.json_file, {{"servers", entries}}); !done)
            return fail(done.failure());
    return any_away ? exit_failed : exit_ok;
}

parser *add_plan_command(parser &parent, const char *name, const char *about,
                         const std::shared_ptr<plan_arguments> &arguments) {
    parser *sub = parent.add_subcommand(name, about);
    sub->add_option("cluster", arguments->cluster, "the cluster's TOML file")
        ->required()
        ->type_name("CLUSTER.toml");
    add_settings(*sub, arguments->settings);
    return sub;
}

std::shared_ptr<spans_arguments> add_timeline(parser &timeline_parser) {
    const auto arguments = std::make_shared<spans_arguments>();
    timeline_parser.add_option("cluster", arguments->cluster, "the cluster's TOML file")
        ->required()
        ->type_name("CLUSTER.toml");
    timeline_parser
        .add_option(
            "--out", arguments->out_file,
            "file to write: .pftrace for Perfetto's own format, else JSON; add .gz to compress")
        ->required()
        ->type_name("FILE");
    timeline_parser
        .add_option("--home", arguments->home, "draw only calls of this entry node, on its clock")
        ->type_name("NAME");
    timeline_parser
        .add_option("--request", arguments->request,
                    "draw only this request of that entry node, by its number in load --answers")
        ->type_name("N");
    add_settings(timeline_parser, arguments->settings);
    timeline_parser.footer(
        "Asks the status address of each server for its latest requests and calls, and draws them "
        "on one clock.\n"
        "Heartbeats measure the difference of the clocks. Exit code 1: a node is not reachable.");
    return arguments;
}

}  // namespace

command install_cluster(parser &app) {
    parser *sub = app.add_subcommand("cluster", "show and change the nodes of a cluster");
    sub->require_subcommand(1);
    const auto arguments = std::make_shared<cluster_arguments>();
    parser *status = sub->add_subcommand("status", "show the state of each node");
    status->add_option("cluster", arguments->cluster, "the cluster's TOML file")
        ->required()
        ->type_name("CLUSTER.toml");
    add_settings(*status, arguments->settings);
    add_json(*status, arguments->json_file, "the state");
    status->footer(
        "Asks the status address of each [[cluster.servers]]. Exit code 1: a node is not "
        "reachable.");
    const auto plan_options = std::make_shared<plan_arguments>();
    parser *plan = add_plan_command(
        *sub, "plan", "show which node holds which experts, by the current plan", plan_options);
    add_json(*plan, plan_options->json_file, "the plan");
    parser *drain = add_plan_command(
        *sub, "drain", "move the experts of a server to others, so that it can be stopped",
        plan_options);
    drain->add_option("server", plan_options->server, "name of one of [[cluster.servers]]")
        ->required()
        ->type_name("NAME");
    drain->add_flag("--undo", plan_options->undo, "let the server hold experts again");
    parser *rebalance = add_plan_command(
        *sub, "rebalance", "make a plan from the latest requests of entry nodes, and change to it",
        plan_options);
    rebalance->add_flag("--dry-run", plan_options->dry_run,
                        "show what the plan would bring; change nothing");
    add_json(*rebalance, plan_options->json_file, "the result");
    for (parser *waiting_parser : {drain, rebalance})
        waiting_parser
            ->add_option("--within", plan_options->within_s, "time limit of the wait (600 s)")
            ->type_name("S")
            ->in_unit(quantity_unit::s);
    parser *events = sub->add_subcommand(
        "timeline", "draw the work of requests on each node, for ui.perfetto.dev");
    const auto timeline_options = add_timeline(*events);
    return [=] {
        if (events->parsed()) return draw_spans(*timeline_options);
        if (plan->parsed()) return show_plan(*plan_options);
        if (drain->parsed()) return drain_server(*plan_options);
        if (rebalance->parsed()) return rebalance_cluster(*plan_options);
        return show_status(*arguments);
    };
}

}  // namespace moorage::tool
