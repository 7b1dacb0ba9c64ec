// cluster_command.cpp - moorage cluster: the status of each node, its plan (cluster_plan.h), its
// timeline (cluster_spans.h).
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/run_config.h"
#include "core/node/http.h"
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
    json made = {{"server", server.name}};
    if (server.status.empty()) {
        made["state"] = "not asked";
        made["trouble"] = "it has no status address in the file";
        return made;
    }
    const auto answer = http_get(server.status, "/status", status_answer_ns);
    json said = answer ? json::parse(*answer, nullptr, false) : json();
    if (!answer || !said.is_object()) {
        made["state"] = "away";
        made["trouble"] = answer ? "what it answers is no JSON" : answer.failure().text;
        return made;
    }
    made["state"] = said.value("draining", false) ? "draining" : "serving";
    made["status"] = std::move(said);
    return made;
}

// A count from a node's status. The node may have sent anything.
uint64_t count_of(const json &from, const char *part, const char *key) {
    const json inner = part == nullptr ? from : from.value(part, json::object());
    const auto at = inner.find(key);
    return at != inner.end() && at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

std::string peers_of(const json &status) {
    std::string text;
    for (const json &one : status.value("peers", json::array())) {
        if (!one.is_object()) continue;
        const std::string stands = one.value("stands", "");
        if (stands == "self" || (stands == "away" && !one.value("connected_to_this", false)))
            continue;
        text += (text.empty() ? "" : ", ") + one.value("server", "?") +
                (stands == "ready" ? format(" {} us", one.value("expected_us", 0)) : "");
    }
    return text;
}

std::string line_of(const json &one) {
    const std::string name = padded_right(one.value("server", ""), 12);
    const std::string state = padded_right(one.value("state", ""), 10);
    if (!one.contains("status"))
        return format("  {} {} {}\n", name, state, one.value("trouble", ""));
    const json &status = one["status"];
    return format("  {} {} {:>6} / {:<6} {:>10} {:>10} {:>6}  {}\n", name, state,
                  count_of(status, nullptr, "experts_held"),
                  count_of(status, nullptr, "experts_all"), count_of(status, "served", "calls"),
                  count_of(status, "served", "rows"), count_of(status, "served", "waiting"),
                  peers_of(status));
}

int show_status(const cluster_arguments &given) {
    const auto overrides = read_settings(given.settings);
    if (!overrides) return fail(overrides.failure());
    const auto config = load_run_config(given.cluster, *overrides, read_for::nodes);
    if (!config) return fail(config.failure());
    if (!config->cluster)
        return fail(
            {format("{}: no [cluster], so there are no nodes to ask", given.cluster), true});
    json all = json::array();
    bool away = false;
    for (const cluster_server &server : config->cluster->servers) {
        all.push_back(status_of(server));
        away |= all.back()["state"] == "away";
    }
    if (given.json_file != "-") {
        print(format("  {:<12} {:<10} {:>6} / {:<6} {:>10} {:>10} {:>6}  {}\n", "server", "state",
                     "holds", "all", "calls", "rows", "wait", "connected"));
        for (const json &one : all) print(line_of(one));
    }
    if (!given.json_file.empty())
        if (const status done = write_json(given.json_file, {{"servers", all}}); !done)
            return fail(done.failure());
    return away ? exit_failed : exit_ok;
}

parser *add_plan_command(parser &of, const char *name, const char *about,
                         const std::shared_ptr<plan_arguments> &given) {
    parser *sub = of.add_subcommand(name, about);
    sub->add_option("cluster", given->cluster, "the cluster's TOML file")
        ->required()
        ->type_name("CLUSTER.toml");
    add_settings(*sub, given->settings);
    return sub;
}

std::shared_ptr<spans_arguments> add_timeline(parser &to) {
    const auto given = std::make_shared<spans_arguments>();
    to.add_option("cluster", given->cluster, "the cluster's TOML file")
        ->required()
        ->type_name("CLUSTER.toml");
    to.add_option(
          "--out", given->out,
          "file to write: .pftrace for Perfetto's own format, else JSON; add .gz to compress")
        ->required()
        ->type_name("FILE");
    to.add_option("--home", given->home, "draw only calls of this entry node, on its clock")
        ->type_name("NAME");
    to.add_option("--request", given->request,
                  "draw only this request of that entry node, by its number in load --answers")
        ->type_name("N");
    add_settings(to, given->settings);
    to.footer(
        "Asks the status address of each server for its latest requests and calls, and draws them "
        "on one clock.\n"
        "Heartbeats measure the difference of the clocks. Exit code 1: a node is not reachable.");
    return given;
}

}  // namespace

command install_cluster(parser &app) {
    parser *sub = app.add_subcommand("cluster", "show and change the nodes of a cluster");
    sub->require_subcommand(1);
    const auto given = std::make_shared<cluster_arguments>();
    parser *status = sub->add_subcommand("status", "show the state of each node");
    status->add_option("cluster", given->cluster, "the cluster's TOML file")
        ->required()
        ->type_name("CLUSTER.toml");
    add_settings(*status, given->settings);
    add_json(*status, given->json_file, "the state");
    status->footer(
        "Asks the status address of each [[cluster.servers]]. Exit code 1: a node is not "
        "reachable.");
    const auto of_plan = std::make_shared<plan_arguments>();
    parser *plan = add_plan_command(
        *sub, "plan", "show which node holds which experts, by the current plan", of_plan);
    add_json(*plan, of_plan->json_file, "the plan");
    parser *drain = add_plan_command(
        *sub, "drain", "move the experts of a server to others, so that it can be stopped",
        of_plan);
    drain->add_option("server", of_plan->server, "name of one of [[cluster.servers]]")
        ->required()
        ->type_name("NAME");
    drain->add_flag("--undo", of_plan->undo, "let the server hold experts again");
    parser *rebalance = add_plan_command(
        *sub, "rebalance", "make a plan from the latest requests of entry nodes, and change to it",
        of_plan);
    rebalance->add_flag("--dry-run", of_plan->dry_run,
                        "show what the plan would bring; change nothing");
    add_json(*rebalance, of_plan->json_file, "the result");
    for (parser *one : {drain, rebalance})
        one->add_option("--within", of_plan->within_s, "time limit of the wait (600 s)")
            ->type_name("S")
            ->in(quantity_unit::s);
    parser *events = sub->add_subcommand(
        "timeline", "draw the work of requests on each node, for ui.perfetto.dev");
    const auto of_events = add_timeline(*events);
    return [=] {
        if (events->parsed()) return draw_spans(*of_events);
        if (plan->parsed()) return show_plan(*of_plan);
        if (drain->parsed()) return drain_server(*of_plan);
        if (rebalance->parsed()) return rebalance_cluster(*of_plan);
        return show_status(*given);
    };
}

}  // namespace moorage::tool
