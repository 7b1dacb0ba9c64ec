// load_command.cpp - moorage load: asks the homes of a cluster of real nodes for texts, at the
// times of an emulated run, and reports the answers.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/json.h"
#include "core/base/mapped_file.h"
#include "core/base/random.h"
#include "core/base/text.h"
#include "tools/cluster/cluster_run.h"
#include "tools/cluster/home_arrivals.h"
#include "core/model/unicode.h"
#include "tools/node/http.h"
#include "tools/node/load_report.h"
#include "tools/node/load_run.h"
#include "tools/node/node_setup.h"
#include "tools/node/wire_plugin.h"
#include "tools/placement/scene.h"
#include "tools/comparison/comparison.h"
#include "tools/moorage/command.h"
#include "tools/moorage/node_run.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct load_arguments {
    node_run_options common;
    std::string weights, texts, answers, json_file;
    std::vector<std::string> homes;
    uint32_t requests = 0;
    double patience_s = 60, faster = 1;
    bool emulate = false;
};

constexpr uint64_t node_answer_ns = 2'000'000'000;
constexpr uint32_t requests_max = 65536;  // of each home

// A signal can arrive on any thread.
std::atomic<bool> asked_to_stop = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void handle_stop_signal(int) { asked_to_stop = true; }

// The source of prompts: the ids of a text, or random ids.
class prompts {
public:
    static result<prompts> make(const load_arguments &arguments, const opened_model &opened,
                                uint64_t seed) {
        prompts source(opened.loaded_model->config().vocabulary, seed);
        if (arguments.texts.empty()) return source;
        const auto file = mapped_file::open(arguments.texts);
        if (!file) return file.failure();
        if (!opened.loaded_tokenizer)
            return error{format("{}: text needs a tokenizer, and {} has none; leave --text out "
                                "for ids by chance",
                                arguments.texts, opened.loaded_model->directory().string()),
                         true};
        const auto bytes = file->bytes();
        const std::string_view text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
        if (const status read = check_utf8(text, arguments.texts); !read) return read.failure();
        auto ids = opened.loaded_tokenizer->encode(text, {});
        if (!ids) return error{format("{}: {}", arguments.texts, ids.failure().text)};
        if (ids->empty()) return error{format("{}: no text", arguments.texts), true};
        source.text_ = std::move(*ids);
        return source;
    }
    std::vector<int32_t> next(const home_arrival &arrival) {
        const uint32_t count = std::max(arrival.times.input_tokens, 1u);
        std::vector<int32_t> ids;
        if (arrival.request_trace && arrival.request_trace->has_token_ids()) {
            const uint64_t begin =
                arrival.request_trace->request_offsets()[arrival.times.trace_request];
            const uint64_t length =
                arrival.request_trace->request_offsets()[arrival.times.trace_request + 1] - begin;
            for (uint64_t i = 0; i < count; ++i)
                ids.push_back(arrival.request_trace->token_id(begin + i % length));
            return ids;
        }
        for (uint32_t i = 0; i < count; ++i)
            ids.push_back(text_.empty() ? static_cast<int32_t>(chance_.below(vocabulary_))
                                        : text_[next_position_++ % text_.size()]);
        return ids;
    }

private:
    prompts(uint32_t vocabulary, uint64_t seed) : vocabulary_(vocabulary), chance_(seed, 0x10ad) {}
    uint32_t vocabulary_;
    random_stream chance_;
    std::vector<int32_t> text_;
    size_t next_position_ = 0;
};

result<std::vector<load_request>> make_requests(const load_arguments &arguments,
                                                const run_config &config, run_resources &shared,
                                                const node_setup &setup) {
    const cluster_config &cluster = *config.cluster;
    if (cluster.requests == 0 && cluster.duration_s == 0)
        return error{format("{}: how much is asked is not said; give --requests, or [cluster] "
                            "requests or duration_s",
                            cluster.place),
                     true};
    auto scene = make_scene(cluster, config.file.parent_path());
    if (!scene) return scene.failure();
    auto arrivals = arrivals_of_homes(config, shared, *scene, requests_max);
    if (!arrivals) return arrivals.failure();
    auto prompt_source = prompts::make(arguments, *setup.opened, config.seed);
    if (!prompt_source) return prompt_source.failure();
    const size_t servers = setup.plan.servers.size();
    std::vector<bool> is_asked(servers, arguments.homes.empty());
    for (const std::string &home : arguments.homes) {
        const auto server = server_named(setup.plan, home);
        if (!server) return server.failure();
        is_asked[*server] = true;
    }
    std::vector<load_request> requests;
    for (const home_arrival &arrival : *arrivals) {
        auto ids = prompt_source->next(arrival);
        if (arrival.home >= servers) continue;  // a user of the radio, not a node
        if (!is_asked[arrival.home]) continue;
        requests.push_back({arrival.home,
                            arrival.times.arrived_ns,
                            {std::move(ids), std::max(arrival.times.output_tokens, 1u), 0}});
    }
    if (requests.empty())
        return error{format("{}: no server that is asked has a workload", cluster.place), true};
    return requests;
}

std::vector<std::optional<node_counts>> read_node_counts(const cluster_config &cluster) {
    std::vector<std::optional<node_counts>> counts;
    for (const cluster_server &server : cluster.servers) {
        counts.emplace_back();
        if (server.status.empty()) continue;
        if (const auto reply = http_get(server.status, "/status", node_answer_ns); reply)
            counts.back() = counts_of(json::parse(*reply, nullptr, false), cluster.servers.size());
    }
    return counts;
}

// One line of JSON for each request.
std::string answers_of(const node_setup &setup, const std::vector<load_request> &requests,
                       const std::vector<load_outcome> &outcomes) {
    std::string text;
    const auto ms = [](uint64_t ns) {
        return ns == MOORAGE_NEVER ? json() : json(static_cast<double>(ns) / 1e6);
    };
    for (size_t i = 0; i < requests.size(); ++i) {
        const load_outcome &outcome = outcomes[i];
        json line = {{"home", setup.plan.servers[requests[i].home].name},
                     {"end", name_of(outcome.end)},
                     {"number", outcome.number},
                     {"at_ms", ms(requests[i].at_ns)},
                     {"sent_ms", ms(outcome.sent_ns)},
                     {"first_ms", ms(outcome.first_ns)},
                     {"ended_ms", ms(outcome.ended_ns)},
                     {"queued_ms", outcome.queued_us / 1e3},
                     {"prompt", requests[i].request.ids},
                     {"ids", outcome.written}};
        if (!outcome.text.empty()) line["why"] = outcome.text;
        if (setup.opened->loaded_tokenizer)
            line["text"] = setup.opened->loaded_tokenizer->decode(outcome.written, {});
        text += line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    }
    return text;
}

// Shows the same cluster in virtual time, beside the measured one.
status print_beside_emulated(const load_arguments &arguments, const run_config &measured_config,
                             run_resources &shared, const run_report &real) {
    auto overrides = read_settings(arguments.common.settings);
    if (!overrides) return overrides.failure();
    auto config = load_run_config(arguments.common.cluster, *overrides, read_for::nodes);
    if (!config) return config.failure();
    config->cluster->requests = measured_config.cluster->requests;
    config->cluster->rate_factor = measured_config.cluster->rate_factor;
    auto emulated = run_either(*config, shared, {});
    if (!emulated) return emulated.failure();
    comparison side_by_side{
        .title = "nodes, and the same cluster emulated", .trace = {}, .shape = {}, .rows = {}};
    side_by_side.rows.push_back({.report = real});
    side_by_side.rows.push_back({.report = std::move(*emulated)});
    print(to_text(side_by_side));
    return success();
}

status report_outcome(const load_arguments &arguments, const run_config &config,
                      run_resources &shared, const run_report &report) {
    if (arguments.json_file != "-") {
        print(summary_of(report) + "\n");
        print(to_text(report));
    }
    if (!arguments.json_file.empty())
        if (const status done = write_json(arguments.json_file, to_json(report)); !done)
            return done;
    return arguments.emulate ? print_beside_emulated(arguments, config, shared, report) : success();
}

int send_requests(const load_arguments &arguments) {
    auto config = node_config_of(arguments.common, arguments.weights);
    if (!config) return fail(config.failure());
    run_resources shared;
    if (const status done = shared.scan(config->plugin_paths); !done) return fail(done.failure());
    const auto setup = set_up_node(*config, "", shared);
    if (!setup) return fail(setup.failure());
    if (arguments.requests != 0) config->cluster->requests = arguments.requests;
    config->cluster->rate_factor = arguments.faster;
    const auto requests = make_requests(arguments, *config, shared, *setup);
    if (!requests) return fail(requests.failure());
    auto wire = open_wire(*config, shared.policies(), setup->plan, wire_calls::beside);
    if (!wire) return fail(wire.failure());
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, handle_stop_signal);
    load_options options;
    options.patience_ns = static_cast<uint64_t>(arguments.patience_s * 1e9);
    options.stop = [] { return asked_to_stop.load(); };
    load_seen seen;
    seen.start = read_node_counts(*config->cluster);
    const auto outcomes = run_load(**wire, setup->plan, draw_incarnation(), *requests, options);
    // A node notes its figures four times a second.
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    seen.end = read_node_counts(*config->cluster);
    run_report report = report_of(setup->plan, *requests, outcomes, seen);
    report.profile = "host";
    report.seed = config->seed;
    report.title = config->title;
    report.cluster->policy = config->placement.plugin;
    if (!arguments.answers.empty())
        if (const status done =
                write_text(arguments.answers, answers_of(*setup, *requests, outcomes));
            !done)
            return fail(done.failure());
    if (const status done = report_outcome(arguments, *config, shared, report); !done)
        return fail(done.failure());
    return ends_of(outcomes)[0] == outcomes.size() ? exit_ok : exit_failed;
}

}  // namespace

command install_load(parser &app) {
    parser *sub = app.add_subcommand(
        "load", "send requests to the entry nodes of a cluster, and measure them");
    const auto arguments = std::make_shared<load_arguments>();
    sub->add_option("cluster", arguments->common.cluster, "the cluster's TOML file")
        ->required()
        ->type_name("CLUSTER.toml");
    sub->add_option("--home", arguments->homes, "ask only this entry node; repeatable")
        ->type_name("NAME")
        ->take_all()
        ->expected(1);
    sub->add_option(
           "--requests", arguments->requests,
           "number of requests to each entry node; default: [cluster] requests or duration_s")
        ->type_name("N")
        ->range(1u, requests_max);
    sub->add_option("--text", arguments->texts,
                    "cut prompts from this text; default: the trace's token ids, else random ids")
        ->type_name("FILE");
    sub->add_old_option("--texts", arguments->texts, "--text");
    sub->add_option("--weights", arguments->weights,
                    "model directory; default: [[cluster.models]] weights")
        ->type_name("DIR");
    sub->add_option("--faster", arguments->faster,
                    "send requests F times as often as the workloads say")
        ->type_name("F")
        ->range(1e-3, 1e6);
    sub->add_option("--patience", arguments->patience_s,
                    "timeout: time without an answer after which a request counts as late (60 s)")
        ->type_name("S")
        ->in_unit(quantity_unit::s)
        ->range(0.001, 1e6);
    sub->add_option("--answers", arguments->answers,
                    "write the times and the text of each request, as JSON lines")
        ->type_name("FILE");
    sub->add_flag("--emulate", arguments->emulate,
                  "also emulate the same cluster, and show both side by side");
    add_settings(*sub, arguments->common.settings);
    add_json(*sub, arguments->json_file, "the report");
    sub->footer(
        "The requests are those of an emulated run of the file. Their lengths and times follow "
        "its\n"
        "[[cluster.workloads]]. Times count from the moment at which a request was due. Exit code "
        "1: some requests\n"
        "have no answer.");
    return [arguments] { return send_requests(*arguments); };
}

}  // namespace moorage::tool
