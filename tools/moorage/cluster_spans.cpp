// cluster_spans.cpp - asks nodes for their spans, one after the other, and draws them.
#include "tools/moorage/cluster_spans.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/steady_time.h"
#include "core/base/text.h"
#include "core/config/run_config.h"
#include "tools/node/cluster_timeline.h"
#include "tools/node/http.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

result<node_spans> fetch_spans(const cluster_server &server) {
    constexpr uint64_t answer_ns = 5'000'000'000;
    if (server.status.empty()) return error{"it has no status address in the file"};
    const uint64_t asked_ns = steady_ns();
    const auto answer = http_get(server.status, "/spans", answer_ns);
    if (!answer) return answer.failure();
    const uint64_t answered_ns = steady_ns();
    auto spans = read_node_spans(json::parse(*answer, nullptr, false));
    if (spans && spans->server != server.name)
        return error{format("{} answers at {}", spans->server, server.status)};
    // Used if heartbeats give no offset of its clock.
    if (spans) spans->asked_ns = asked_ns, spans->answered_ns = answered_ns;
    return spans;
}

// The home comes first, because the drawing uses its clock.
std::vector<cluster_server> home_first(const cluster_config &cluster, const std::string &home) {
    std::vector<cluster_server> servers = cluster.servers;
    std::stable_partition(servers.begin(), servers.end(),
                          [&](const cluster_server &server) { return server.name == home; });
    return servers;
}

status check_arguments(const spans_arguments &arguments, const run_config &config) {
    if (!config.cluster)
        return error{format("{}: no [cluster], so there are no nodes to ask", arguments.cluster),
                     true};
    if (arguments.request != 0 && arguments.home.empty())
        return error{"--request is a number at a home; give --home NAME with it", true};
    if (arguments.home.empty()) return success();
    const auto &servers = config.cluster->servers;
    if (std::ranges::find(servers, arguments.home, &cluster_server::name) == servers.end())
        return error{format("{}: there is no server {}", arguments.cluster, arguments.home), true};
    return success();
}

}  // namespace

int draw_spans(const spans_arguments &arguments) {
    const auto overrides = read_settings(arguments.settings);
    if (!overrides) return fail(overrides.failure());
    const auto config = load_run_config(arguments.cluster, *overrides, read_for::nodes);
    if (!config) return fail(config.failure());
    if (const status sound = check_arguments(arguments, *config); !sound)
        return fail(sound.failure());
    std::vector<node_spans> answers;
    bool any_away = false;
    for (const cluster_server &server : home_first(*config->cluster, arguments.home)) {
        auto reply = fetch_spans(server);
        if (reply)
            answers.push_back(std::move(*reply));
        else
            log_warning(format("{} is left out: {}", server.name, reply.failure().text));
        any_away |= !reply.ok();
    }
    if (answers.empty())
        return fail({"no node answers; start them, or look at moorage cluster status"});
    auto events = timeline::open(arguments.out_file);
    if (!events) return fail(events.failure());
    const uint64_t spans = draw_cluster(**events, answers, {arguments.home, arguments.request});
    if (spans == 0)
        return fail({format("{} nodes know nothing of it; a node keeps its latest {} spans",
                            answers.size(), span_log::spans_max)});
    if (const status closed = (*events)->close(); !closed) return fail(closed.failure());
    print(format("{} spans of {} nodes; timeline: {} (open it in ui.perfetto.dev)\n", spans,
                 answers.size(), arguments.out_file));
    return any_away ? exit_failed : exit_ok;
}

}  // namespace moorage::tool
