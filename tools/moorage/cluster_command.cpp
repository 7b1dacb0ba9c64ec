// cluster_command.cpp - moorage cluster status: how the nodes of a cluster are, asked one by one.
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/text.h"
#include "core/config/run_config.h"
#include "core/node/http.h"
#include "core/report/figures.h"
#include "tools/moorage/command.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct arguments {
    std::string cluster, json_file;
    std::vector<std::string> overrides;
};

constexpr uint64_t answer_ns = 2'000'000'000;

json ask(const cluster_server &server) {
    json made = {{"server", server.name}};
    if (server.status.empty()) {
        made["state"] = "not asked";
        made["trouble"] = "it has no status address in the file";
        return made;
    }
    const auto answer = http_get(server.status, "/status", answer_ns);
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

// Of what a node says, which may be anything.
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

int show_status(const arguments &given) {
    const auto overrides = read_overrides(given.overrides);
    if (!overrides) return fail(overrides.failure());
    const auto config = load_run_config(given.cluster, *overrides);
    if (!config) return fail(config.failure());
    if (!config->cluster)
        return fail(
            {format("{}: no [cluster], so there are no nodes to ask", given.cluster), true});
    json all = json::array();
    bool away = false;
    for (const cluster_server &server : config->cluster->servers) {
        all.push_back(ask(server));
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

}  // namespace

command install_cluster(parser &app) {
    parser *sub = app.add_subcommand("cluster", "the nodes of a cluster");
    sub->require_subcommand(1);
    const auto given = std::make_shared<arguments>();
    parser *status = sub->add_subcommand("status", "how each node is");
    status->add_option("cluster", given->cluster, "the cluster's TOML file")
        ->required()
        ->type_name("CLUSTER.toml");
    status->add_option("--set", given->overrides, "replace a setting of the file; repeatable")
        ->type_name("SECTION.KEY=VALUE")
        ->take_all()
        ->expected(1);
    status->add_option("--json", given->json_file, "write all as JSON; - for standard output")
        ->type_name("FILE");
    status->footer(
        "Asks each server's [[cluster.servers]] status address. Exit code 1: some node is "
        "away.");
    return [given] { return show_status(*given); };
}

}  // namespace moorage::tool
