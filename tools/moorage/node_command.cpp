// node_command.cpp - moorage node: serves the experts that a plan gives to one server of a cluster.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "core/base/partial_files.h"
#include "core/base/text.h"
#include "core/host/call.h"
#include "core/host/supervise.h"
#include "tools/node/home.h"
#include "tools/node/node_process.h"
#include "core/pipeline/run.h"
#include "tools/moorage/command.h"
#include "tools/moorage/node_run.h"
#include "tools/moorage/output.h"
#include "tools/moorage/settings.h"

namespace moorage::tool {

namespace {

using namespace moorage::core;

struct node_arguments {
    node_run_options common;
    std::string weights, listen, prices = "measured";
    uint32_t context = 4096;
    bool hedge = false;
};

// State that the serving process leaves to its supervisor, beside the board of calls.
struct supervised_work {
    std::atomic<uint64_t> request = 0;  // under way, in the home's count; 0: none
};

constexpr unsigned end_s = 5;  // time that a node has to end

// A signal comes on any of the threads.
std::atomic<bool> asked_to_end = false, has_drained = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void handle_end_signal(int) {
    if (asked_to_end.exchange(true)) return;
    const itimerval time_limit{{}, {end_s - 1, 500'000}};  // before the supervisor's own limit
    ::setitimer(ITIMER_REAL, &time_limit, nullptr);
}

// A policy or the registry's file system may block for ever. The board names the policy.
void handle_late_end(int signal) {
    if (!asked_to_end)
        note_on_board("SIGALRM came, which this node had not asked for: a timer of a policy");
    else
        note_on_board(has_drained
                          ? "it was asked to end, and its threads (registry, plan, heartbeats, "
                            "wire) had not ended 5 s later"
                          : "it was asked to end, and was still at work 5 s later");
    std::signal(signal, SIG_DFL);
    ::raise(signal);
}

// With nohup, SIGHUP stays ignored.
void install_signal_handlers() {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
        if (std::signal(signal, handle_end_signal) == SIG_IGN) std::signal(signal, SIG_IGN);
    std::signal(SIGALRM, handle_late_end);
}

std::string summary(node_process &process, const node_setup &setup) {
    const node_plan &plan = setup.plan;
    std::string line =
        format("{} serves {} of {} experts of {} at {}", plan.servers[setup.server].name,
               plan.held_by(setup.server), plan.pages(), plan.model_name, process.address());
    if (!process.status_address().empty())
        line += format(", says how it is at http://{}/status", process.status_address());
    return line + "\n";
}

// Whether requests enter at this server: it has a workload.
bool is_home(const run_config &config, const node_setup &setup) {
    return !config.cluster->servers[setup.server].workload.empty();
}

status serve_as_home(const node_arguments &arguments, const run_config &config,
                     run_resources &shared, const node_setup &setup, node_process &process,
                     supervised_work &shown) {
    const model_config &model = setup.opened->loaded_model->config();
    run_config home_config = config;
    home_config.model = setup.directory;
    home_config.batch = std::max(config.batch, 1u);
    home_options options;
    options.own_disk = config.cluster->own_disk;
    options.hedge = arguments.hedge;
    options.context_max = std::min(arguments.context, model.positions_max);
    request_desk desk(process.node().connections(), {model.vocabulary, options.context_max});
    desk.log_to(&process.node().spans());
    desk.show_oldest(&shown.request);
    options.desk = &desk;
    if (arguments.prices == "file") options.prices = setup.prices;
    if (!config.registry.place.empty()) options.slots = setup.slots;
    options.stop = [] { return asked_to_end.load(); };
    options.after_pass = [&](const caller &remote_caller) {
        process.status().note(process.node(), &remote_caller);
    };
    process.node().set_desk(&desk);
    const status done = serve_home(home_config, shared, process.node(), process.pool(), options);
    process.node().set_desk(nullptr);
    const desk_figures asked = desk.figures();
    if (done)
        print(
            format("{} ends: {} requests answered, {} refused, {} given up, {} broken off; {} "
                   "tokens written\n",
                   arguments.common.server, asked.ended, asked.refused, asked.cancelled,
                   asked.failed, asked.written_tokens));
    return done;
}

int serve(const node_arguments &arguments, supervised_work &shown) {
    auto config = node_config_of(arguments.common, arguments.weights);
    if (!config) return fail(config.failure());
    run_resources shared;
    if (const status done = shared.scan(config->plugin_paths); !done) return fail(done.failure());
    auto setup = set_up_node(*config, arguments.common.server, shared);
    if (!setup) return fail(setup.failure());
    if (!arguments.listen.empty()) setup->listen_address = arguments.listen;
    if (setup->listen_address.empty())
        return fail({format("{}: server {} has no address, so nobody can call it; give address = "
                            "\"host:port\" in its [[cluster.servers]]",
                            arguments.common.cluster, arguments.common.server),
                     true});
    install_signal_handlers();
    auto process = node_process::start(*config, shared.policies(), *setup, /*must_listen=*/true);
    if (!process) return fail(process.failure());
    print(summary(**process, *setup));
    output_failed();  // seen at once
    if (is_home(*config, *setup))
        if (const status done = serve_as_home(arguments, *config, shared, *setup, **process, shown);
            !done)
            return fail(done.failure());
    (*process)->node().serve([&] {
        (*process)->status().note((*process)->node(), nullptr);
        return asked_to_end.load();
    });
    const holder_figures &done = (*process)->node().serving().figures();
    print(format("{} ends: {} calls served, {} rows, {} batches\n", arguments.common.server,
                 done.calls, done.rows, done.batches));
    has_drained = true;
    return exit_ok;
}

// Serves in a child process, so that the supervisor can report its death, with policy and request.
// The child ends at once if its supervisor is killed.
int serve_supervised(const node_arguments &arguments) {
    supervised_work local_work;
    if (is_one_process()) return serve(arguments, local_work);
    void *const page = ::mmap(nullptr, sizeof(supervised_work), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::bad_alloc();
    supervised_work &shown = *new (page) supervised_work;
    const ending process_end = supervise(
        [&](const sender &) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            return guarded([&] { return serve(arguments, shown); });
        },
        {.end_within_ms = end_s * 1000 - 200});
    if (process_end.finished) return process_end.exit_code;
    remove_partial_files(0);
    std::string text = format("node {}: {}", arguments.common.server, process_end.text());
    if (const uint64_t request = shown.request; request != 0)
        text += format("; request {} was under way", request);
    fail({text});
    return process_end.policy_died() ? exit_policy_died : exit_failed;
}

}  // namespace

command install_node(parser &app) {
    parser *sub = app.add_subcommand("node", "serve the experts of one server of a cluster");
    const auto arguments = std::make_shared<node_arguments>();
    sub->add_option("cluster", arguments->common.cluster, "the cluster's TOML file")
        ->required()
        ->type_name("CLUSTER.toml");
    sub->add_option("--server", arguments->common.server,
                    "name of this server in [[cluster.servers]]")
        ->required()
        ->type_name("NAME");
    sub->add_option("--weights", arguments->weights,
                    "model directory; default: [[cluster.models]] weights")
        ->type_name("DIR");
    sub->add_option("--listen", arguments->listen,
                    "listen at this address; use it if the server's address is a forwarded port")
        ->type_name("HOST:PORT");
    sub->add_option(
           "--prices", arguments->prices,
           "choose among holders by measured times of calls (measured), or by the file (file)")
        ->type_name("measured|file")
        ->one_of({"measured", "file"});
    sub->add_flag("--hedge", arguments->hedge,
                  "send a second copy of a call that is slower than the p99");
    sub->add_option("--context", arguments->context,
                    "largest number of tokens of a request: prompt and output (default 4096)")
        ->type_name("N")
        ->range(2u, 1u << 20);
    add_settings(*sub, arguments->common.settings);
    sub->footer(
        "A server with a workload is also an entry node: it takes requests, as moorage load sends "
        "them, and\n"
        "computes [run] batch of them at a time. Every node reads the same file and makes the same "
        "plan, as\n"
        "moorage place does. On SIGTERM or ctrl-c the node answers waiting calls and ends within 5 "
        "s.\n"
        "Exit code 3: a policy died. docs/cluster.md shows a cluster.");
    return [arguments] { return serve_supervised(*arguments); };
}

}  // namespace moorage::tool
