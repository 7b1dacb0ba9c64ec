// cluster_spans.cpp - asks nodes for their spans, one after the other, and draws them.
#include "tools/moorage/cluster_spans.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/steady_time.h"
#include "core/base/text.h"
#include "core/config/run_config.h"
#include "core/node/cluster_timeline.h"
#include "core/node/http.h"
#include "tools/moorage/output.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

result<node_spans> spans_of(const cluster_server &server) {
    constexpr uint64_t answer_ns = 5'000'000'000;
    if (server.status.empty()) return error{"it has no status address in the file"};
    const uint64_t asked_ns = steady_ns();
    const auto answer = http_get(server.status, "/spans", answer_ns);
    if (!answer) return answer.failure();
    const uint64_t answered_ns = steady_ns();
    auto made = read_node_spans(json::parse(*answer, nullptr, false));
    if (made && made->server != server.name)
        return error{format("{} answers at {}", made->server, server.status)};
    // Used if heartbeats give no offset of its clock.
    if (made) made->asked_ns = asked_ns, made->answered_ns = answered_ns;
    return made;
}

// The home comes first, because the drawing uses its clock.
std::vector<cluster_server> in_order(const cluster_config &of, const std::string &home) {
    std::vector<cluster_server> all = of.servers;
    std::stable_partition(all.begin(), all.end(),
                          [&](const cluster_server &one) { return one.name == home; });
    return all;
}

status check(const spans_arguments &given, const run_config &config) {
    if (!config.cluster)
        return error{format("{}: no [cluster], so there are no nodes to ask", given.cluster), true};
    if (given.request != 0 && given.home.empty())
        return error{"--request is a number at a home; give --home NAME with it", true};
    if (given.home.empty()) return success();
    const auto &servers = config.cluster->servers;
    if (std::ranges::find(servers, given.home, &cluster_server::name) == servers.end())
        return error{format("{}: there is no server {}", given.cluster, given.home), true};
    return success();
}

}  // namespace

int draw_spans(const spans_arguments &given) {
    const auto overrides = read_settings(given.settings);
    if (!overrides) return fail(overrides.failure());
    const auto config = load_run_config(given.cluster, *overrides, read_for::nodes);
    if (!config) return fail(config.failure());
    if (const status sound = check(given, *config); !sound) return fail(sound.failure());
    std::vector<node_spans> all;
    bool away = false;
    for (const cluster_server &server : in_order(*config->cluster, given.home)) {
        auto said = spans_of(server);
        if (said)
            all.push_back(std::move(*said));
        else
            log_warning(format("{} is left out: {}", server.name, said.failure().text));
        away |= !said.ok();
    }
    if (all.empty())
        return fail({"no node answers; start them, or look at moorage cluster status"});
    auto events = timeline::open(given.out);
    if (!events) return fail(events.failure());
    const uint64_t spans = draw_cluster(**events, all, {given.home, given.request});
    if (spans == 0)
        return fail({format("{} nodes know nothing of it; a node keeps its latest {} spans",
                            all.size(), span_log::spans_max)});
    if (const status closed = (*events)->close(); !closed) return fail(closed.failure());
    print(format("{} spans of {} nodes; timeline: {} (open it in ui.perfetto.dev)\n", spans,
                 all.size(), given.out));
    return away ? exit_failed : exit_ok;
}

}  // namespace moorage::tool
