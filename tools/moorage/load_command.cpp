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
#include "core/cluster/cluster_run.h"
#include "core/cluster/home_arrivals.h"
#include "core/model/unicode.h"
#include "core/node/http.h"
#include "core/node/load_report.h"
#include "core/node/load_run.h"
#include "core/node/node_setup.h"
#include "core/node/wire_plugin.h"
#include "core/placement/scene.h"
#include "core/report/comparison.h"
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

void keep_stop(int) { asked_to_stop = true; }

// The source of prompts: the ids of a text, or random ids.
class prompts {
public:
    static result<prompts> make(const load_arguments &given, const opened_model &from,
                                uint64_t seed) {
        prompts made(from.of->config().vocabulary, seed);
        if (given.texts.empty()) return made;
        const auto file = mapped_file::open(given.texts);
        if (!file) return file.failure();
        if (!from.words)
            return error{format("{}: text needs a tokenizer, and {} has none; leave --text out "
                                "for ids by chance",
                                given.texts, from.of->directory().string()),
                         true};
        const auto bytes = file->bytes();
        const std::string_view text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
        if (const status read = check_utf8(text, given.texts); !read) return read.failure();
        auto ids = from.words->encode(text, {});
        if (!ids) return error{format("{}: {}", given.texts, ids.failure().text)};
        if (ids->empty()) return error{format("{}: no text", given.texts), true};
        made.text_ = std::move(*ids);
        return made;
    }
    std::vector<int32_t> next(const home_arrival &of) {
        const uint32_t count = std::max(of.of.input_tokens, 1u);
        std::vector<int32_t> ids;
        if (of.from && of.from->has_token_ids()) {
            const uint64_t begin = of.from->request_offsets()[of.of.trace_request];
            const uint64_t length = of.from->request_offsets()[of.of.trace_request + 1] - begin;
            for (uint64_t i = 0; i < count; ++i)
                ids.push_back(of.from->token_id(begin + i % length));
            return ids;
        }
        for (uint32_t i = 0; i < count; ++i)
            ids.push_back(text_.empty() ? static_cast<int32_t>(chance_.below(vocabulary_))
                                        : text_[at_++ % text_.size()]);
        return ids;
    }

private:
    prompts(uint32_t vocabulary, uint64_t seed) : vocabulary_(vocabulary), chance_(seed, 0x10ad) {}
    uint32_t vocabulary_;
    random_stream chance_;
    std::vector<int32_t> text_;
    size_t at_ = 0;
};

result<std::vector<load_request>> make_requests(const load_arguments &given,
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
    auto from = prompts::make(given, *setup.opened, config.seed);
    if (!from) return from.failure();
    const size_t servers = setup.plan.servers.size();
    std::vector<bool> wanted(servers, given.homes.empty());
    for (const std::string &home : given.homes) {
        const auto at = server_named(setup.plan, home);
        if (!at) return at.failure();
        wanted[*at] = true;
    }
    std::vector<load_request> all;
    for (const home_arrival &one : *arrivals) {
        auto ids = from->next(one);
        if (one.home >= servers) continue;  // a user of the radio, not a node
        if (!wanted[one.home]) continue;
        all.push_back(
            {one.home, one.of.arrived_ns, {std::move(ids), std::max(one.of.output_tokens, 1u), 0}});
    }
    if (all.empty())
        return error{format("{}: no server that is asked has a workload", cluster.place), true};
    return all;
}

std::vector<std::optional<node_counts>> look_at(const cluster_config &of) {
    std::vector<std::optional<node_counts>> all;
    for (const cluster_server &one : of.servers) {
        all.emplace_back();
        if (one.status.empty()) continue;
        if (const auto said = http_get(one.status, "/status", node_answer_ns); said)
            all.back() = counts_of(json::parse(*said, nullptr, false), of.servers.size());
    }
    return all;
}

// One line of JSON for each request.
std::string answers_of(const node_setup &setup, const std::vector<load_request> &requests,
                       const std::vector<load_outcome> &outcomes) {
    std::string text;
    const auto ms = [](uint64_t ns) {
        return ns == MOORAGE_NEVER ? json() : json(static_cast<double>(ns) / 1e6);
    };
    for (size_t i = 0; i < requests.size(); ++i) {
        const load_outcome &one = outcomes[i];
        json line = {{"home", setup.plan.servers[requests[i].home].name},
                     {"end", name_of(one.how)},
                     {"number", one.number},
                     {"at_ms", ms(requests[i].at_ns)},
                     {"sent_ms", ms(one.sent_ns)},
                     {"first_ms", ms(one.first_ns)},
                     {"ended_ms", ms(one.ended_ns)},
                     {"queued_ms", one.queued_us / 1e3},
                     {"prompt", requests[i].of.ids},
                     {"ids", one.written}};
        if (!one.text.empty()) line["why"] = one.text;
        if (setup.opened->words) line["text"] = setup.opened->words->decode(one.written, {});
        text += line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    }
    return text;
}

// Shows the same cluster in virtual time, beside the measured one.
status tell_beside(const load_arguments &given, const run_config &asked, run_resources &shared,
                   const run_report &real) {
    auto overrides = read_settings(given.common.settings);
    if (!overrides) return overrides.failure();
    auto config = load_run_config(given.common.cluster, *overrides, read_for::nodes);
    if (!config) return config.failure();
    config->cluster->requests = asked.cluster->requests;
    config->cluster->faster = asked.cluster->faster;
    auto emulated = run_either(*config, shared, {});
    if (!emulated) return emulated.failure();
    comparison both{
        .title = "nodes, and the same cluster emulated", .trace = {}, .shape = {}, .rows = {}};
    both.rows.push_back({.report = real});
    both.rows.push_back({.report = std::move(*emulated)});
    print(to_text(both));
    return success();
}

status tell(const load_arguments &given, const run_config &config, run_resources &shared,
            const run_report &report) {
    if (given.json_file != "-") {
        print(summary_of(report) + "\n");
        print(to_text(report));
    }
    if (!given.json_file.empty())
        if (const status done = write_json(given.json_file, to_json(report)); !done) return done;
    return given.emulate ? tell_beside(given, config, shared, report) : success();
}

int ask_all(const load_arguments &given) {
    auto config = node_config_of(given.common, given.weights);
    if (!config) return fail(config.failure());
    run_resources shared;
    if (const status done = shared.scan(config->plugin_paths); !done) return fail(done.failure());
    const auto setup = set_up_node(*config, "", shared);
    if (!setup) return fail(setup.failure());
    if (given.requests != 0) config->cluster->requests = given.requests;
    config->cluster->faster = given.faster;
    const auto requests = make_requests(given, *config, shared, *setup);
    if (!requests) return fail(requests.failure());
    auto over = open_wire(*config, shared.policies(), setup->plan, wire_calls::beside);
    if (!over) return fail(over.failure());
    for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, keep_stop);
    load_options options;
    options.patience_ns = static_cast<uint64_t>(given.patience_s * 1e9);
    options.stop = [] { return asked_to_stop.load(); };
    load_seen seen;
    seen.before = look_at(*config->cluster);
    const auto outcomes = run_load(**over, setup->plan, draw_incarnation(), *requests, options);
    // A node notes its figures four times a second.
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    seen.after = look_at(*config->cluster);
    run_report report = report_of(setup->plan, *requests, outcomes, seen);
    report.profile = "host";
    report.seed = config->seed;
    report.title = config->title;
    report.cluster->policy = config->placement.plugin;
    if (!given.answers.empty())
        if (const status done = write_text(given.answers, answers_of(*setup, *requests, outcomes));
            !done)
            return fail(done.failure());
    if (const status done = tell(given, *config, shared, report); !done)
        return fail(done.failure());
    return ends_of(outcomes)[0] == outcomes.size() ? exit_ok : exit_failed;
}

}  // namespace

command install_load(parser &app) {
    parser *sub = app.add_subcommand(
        "load", "send requests to the entry nodes of a cluster, and measure them");
    const auto given = std::make_shared<load_arguments>();
    sub->add_option("cluster", given->common.cluster, "the cluster's TOML file")
        ->required()
        ->type_name("CLUSTER.toml");
    sub->add_option("--home", given->homes, "ask only this entry node; repeatable")
        ->type_name("NAME")
        ->take_all()
        ->expected(1);
    sub->add_option(
           "--requests", given->requests,
           "number of requests to each entry node; default: [cluster] requests or duration_s")
        ->type_name("N")
        ->range(1u, requests_max);
    sub->add_option("--text", given->texts,
                    "cut prompts from this text; default: the trace's token ids, else random ids")
        ->type_name("FILE");
    sub->add_old_option("--texts", given->texts, "--text");
    sub->add_option("--weights", given->weights,
                    "model directory; default: [[cluster.models]] weights")
        ->type_name("DIR");
    sub->add_option("--faster", given->faster,
                    "send requests F times as often as the workloads say")
        ->type_name("F")
        ->range(1e-3, 1e6);
    sub->add_option("--patience", given->patience_s,
                    "timeout: time without an answer after which a request counts as late (60 s)")
        ->type_name("S")
        ->in(quantity_unit::s)
        ->range(0.001, 1e6);
    sub->add_option("--answers", given->answers,
                    "write the times and the text of each request, as JSON lines")
        ->type_name("FILE");
    sub->add_flag("--emulate", given->emulate,
                  "also emulate the same cluster, and show both side by side");
    add_settings(*sub, given->common.settings);
    add_json(*sub, given->json_file, "the report");
    sub->footer(
        "The requests are those of an emulated run of the file. Their lengths and times follow "
        "its\n"
        "[[cluster.workloads]]. Times count from the moment at which a request was due. Exit code "
        "1: some requests\n"
        "have no answer.");
    return [given] { return ask_all(*given); };
}

}  // namespace moorage::tool
