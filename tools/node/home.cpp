// home.cpp - makes the parts of a home, one after the other, and lets it write.
#include "tools/node/home.h"

#include <algorithm>
#include <memory>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/base/visible.h"
#include "core/dispatch/machine_table.h"
#include "core/execute/executor_module.h"
#include "core/host/call.h"
#include "core/pipeline/composition.h"
#include "core/pipeline/pipeline.h"
#include "core/pipeline/policy_set.h"
#include "core/pipeline/run_hardware.h"
#include "core/pipeline/text_ends.h"
#include "core/pipeline/texts.h"
#include "core/source/model_source.h"
#include "core/store/ledger.h"

namespace moorage::core {

namespace {

// Tokens that a home asks of each page, since they were last told.
class demand_counter final : public step_watcher {
public:
    demand_counter(uint32_t layers, uint32_t experts)
        : counts(size_t{layers} * experts), experts_(experts) {}
    void step(const moorage_step &view, const pass &, source &) override {
        for (uint32_t i = 0; i < view.distinct_count; ++i)
            counts[view.layer * experts_ + view.host_distinct[i]] +=
                view.host_distinct_tokens ? view.host_distinct_tokens[i] : 1;
    }
    std::vector<uint64_t> counts;
    uint64_t reported_ns = steady_ns();

private:
    uint32_t experts_;
};

// Members are in the order of their construction: later ones borrow earlier.
class home_run {
public:
    home_run(const run_config &config, run_resources &shared, peer_node &node, thread_pool &pool,
             const home_options &options)
        : config_(config),
          shared_(shared),
          node_(node),
          pool_(pool),
          options_(options),
          faults_(config.fault_action) {}

    status make() {
        for (const auto part :
             {&home_run::check, &home_run::make_source, &home_run::make_compute,
              &home_run::make_store, &home_run::make_policies, &home_run::make_pipeline})
            if (const status done = (this->*part)(); !done) return done;
        return success();
    }
    result<home_result> drive();

private:
    status check();
    status make_source();
    status make_compute();
    status make_store();
    status make_policies();
    status make_pipeline();
    moorage_limits limits() const;
    void follow_plan();
    void report_demand();
    bool next_pass() {
        follow_plan();
        report_demand();
        return pipeline_->next_pass();
    }
    status check_accepted() const;
    void take_requests(home_result &done);
    bool has_failed() const {
        return !faults_.fatal().empty() || executor_->failed() || !source_->failure().empty();
    }
    void describe(run_report &report) const;
    bool holds(uint32_t page) const { return node_.plan().holds(node_.identity().server, page); }

    const run_config &config_;
    run_resources &shared_;
    peer_node &node_;
    thread_pool &pool_;
    const home_options &options_;
    fault_log faults_;
    std::vector<std::string> warnings_;
    const opened_model *opened_ = nullptr;
    text_job job_;
    std::unique_ptr<stop_watch> stops_;
    std::unique_ptr<model_source> source_;
    run_hardware hardware_;
    std::unique_ptr<node_compute> compute_;
    std::unique_ptr<caller> caller_;
    uint32_t capacity_ = 0, transfers_ = 0;
    uint64_t epoch_ = 0;         // of the plan that kept_ is of
    std::vector<uint8_t> kept_;  // [pages] resident
    bool behind_ = false;        // a page that is to go was in use
    std::unique_ptr<demand_counter> demand_;
    std::unique_ptr<ledger> ledger_;
    std::unique_ptr<executor> executor_;
    policy_set policies_;
    std::unique_ptr<pipeline> pipeline_;
};

status home_run::check() {
    if (config_.prefetch.plugin != "none")
        return error{format("{}: prefetch {} brings experts into this node's memory, and placement "
                            "says what is there; choose prefetch \"none\"",
                            config_.prefetch.place, config_.prefetch.plugin),
                     true};
    if (config_.prefill <= node_.plan().sizes.rows_max &&
        config_.batch <= node_.plan().sizes.rows_max)
        return success();
    return error{format("passes of {} tokens are more than the {} rows that a call may have; lower "
                        "[run] prefill or batch",
                        std::max(config_.prefill, config_.batch), node_.plan().sizes.rows_max),
                 true};
}

status home_run::make_source() {
    const auto opened = shared_.open_model(config_.model);
    if (!opened) return opened.failure();
    opened_ = *opened;
    const model &model = *opened_->loaded_model;
    if (options_.desk) {
        // They come later.
    } else if (options_.requests) {
        job_.requests = *options_.requests;
    } else {
        auto job = make_job(config_, model, opened_->loaded_tokenizer.get());
        if (!job) return job.failure();
        job_ = std::move(*job);
    }
    model_source_options options;
    options.batch = config_.batch;
    options.prefill = config_.prefill;
    options.tokens = config_.tokens;
    options.sampling_options = sampling_of(config_);
    auto stops = end_texts(config_, model, opened_->loaded_tokenizer.get(), options);
    if (!stops) return stops.failure();
    stops_ = std::move(*stops);
    if (stops_ && options_.desk)
        return error{format("[source] stop: a node sends tokens and ends at tokens alone, and "
                            "\"{}\" is no special token's name; leave it to who asks, moorage "
                            "generate --node NAME --stop TEXT",
                            visible(stops_->stops().front())),
                     true};
    options.on_token = options_.on_token;
    if (request_desk *const desk = options_.desk) {
        options.take_request = [desk](model_request &request) { return desk->next(request); };
        options.on_token = [desk](uint64_t request, int32_t id) { desk->wrote(request, id); };
        options.on_end = [desk](uint64_t request) { desk->ended(request); };
        options.context_max = options_.context_max;
    }
    source_ = std::make_unique<model_source>(model, job_.requests, options);
    return success();
}

status home_run::make_compute() {
    if (const status loaded = hardware_.load(config_); !loaded) return loaded;
    const model &model = *opened_->loaded_model;
    hardware_.price(shape_of(model, node_.plan().model_name), source_->context_max() / 2 + 1);
    auto compute = node_arithmetic_of().compute(model, pool_,
                                                {.tokens_max = source_->tokens_max(),
                                                 .streams = source_->streams(),
                                                 .context_max = source_->context_max(),
                                                 .outputs_max = source_->outputs_max()});
    if (!compute) return compute.failure();
    compute_ = std::move(*compute);
    source_->connect(*compute_);
    caller_ = std::make_unique<caller>(node_, *compute_, options_.own_disk);
    caller_->use_planned_prices(options_.prices);
    caller_->enable_hedging(options_.hedge);
    if (const request_desk *const desk = options_.desk)
        caller_->set_request_numbers([desk] { return desk->oldest(); });
    return success();
}

status home_run::make_store() {
    const uint32_t layers = source_->layers(), experts = source_->experts();
    for (uint32_t page = 0; page < layers * experts; ++page) capacity_ += holds(page);
    capacity_ = std::max(capacity_, std::min(options_.slots, layers * experts));
    kept_.assign(size_t{layers} * experts, 0);
    transfers_ = pipeline::transfers_for(experts, 0, false);
    ledger_ = std::make_unique<ledger>(
        layers, experts, std::vector<uint32_t>{capacity_},
        std::make_unique<arena>(layers, experts, 1, capacity_, pipeline::staging_slots));
    auto created = node_arithmetic_of().create({.computed_model = opened_->loaded_model.get(),
                                                .compute = compute_.get(),
                                                .places = &ledger_->rows(),
                                                .transfers_max = transfers_,
                                                .beside = caller_.get()});
    if (!created) return created.failure();
    executor_ = std::move(*created);
    return success();
}

moorage_limits home_run::limits() const {
    moorage_limits limits = limits_of(*source_);
    limits.slots = capacity_;
    limits.transfers_max = transfers_;
    limits.expert_bytes = hardware_.costs().shape().expert_bytes;
    limits.hidden_size = policies_.needs_hidden_states() ? source_->hidden_size() : 0;
    return limits;
}

status home_run::make_policies() {
    policy_set::request request{
        .config = config_,
        .policy_registry = shared_.policies(),
        .offers = source_->offers(),
        .source_name = config_.model.string(),
        .common_environment = {ledger_->view(), hardware_.policy_costs().lent(), executor_->clock(),
                               nullptr, config_.seed, &faults_}};
    if (const status done = policies_.make(request); !done) return done;
    moorage_limits bounds = limits();
    const machine_table table({hardware_.costs(), {}}, {{capacity_}}, MOORAGE_NONE,
                              caller_->distances());
    table.show_in(bounds);
    if (const status done = policies_.activate(bounds); !done) return done;
    return check_composition({config_, policies_, source_->experts(), 0, caller_->servers() - 1},
                             warnings_);
}

status home_run::make_pipeline() {
    demand_ = std::make_unique<demand_counter>(source_->layers(), source_->experts());
    pipeline_ = std::make_unique<pipeline>(pipeline::parts{
        .pass_source = source_.get(),
        .run_executor = executor_.get(),
        .costs = &hardware_.costs(),
        .policy_costs = &*hardware_.policy_costs(),
        .device_memories = ledger_.get(),
        .faults = &faults_,
        .policies = policies_.by_stage(),
        .slots = {capacity_},
        .buffer_slots = 0,
        .transfers_max = transfers_,
        .needs = policies_.needs() | MOORAGE_NEEDS_WEIGHTS,
        .needs_hidden_states = policies_.needs_hidden_states(),
        .watcher = demand_.get(),
        .routing = {config_.exact_requests, config_.substitution_max, policies_.lossy()},
        .cluster_peers = caller_.get()});
    behind_ = true;
    follow_plan();
    return success();
}

void home_run::report_demand() {
    constexpr uint64_t tell_ns = 500'000'000;
    const uint64_t now_ns = steady_ns();
    if (now_ns - demand_->reported_ns < tell_ns) return;
    if (node_.report_demand(demand_->counts, (now_ns - demand_->reported_ns) / 1'000'000))
        std::ranges::fill(demand_->counts, 0);
    demand_->reported_ns = now_ns;
}

// Between passes: makes the experts that the plan gives this server resident, as far as there are
// slots.
void home_run::follow_plan() {
    if (node_.plan().epoch == epoch_ && !behind_) return;
    epoch_ = node_.plan().epoch;
    behind_ = false;
    for (uint32_t page = 0; page < kept_.size(); ++page) {
        if (!kept_[page] || holds(page)) continue;
        kept_[page] = !pipeline_->evict(page);
        behind_ |= kept_[page] != 0;
    }
    auto free = capacity_ - static_cast<uint32_t>(std::ranges::count(kept_, 1));
    for (uint32_t page = 0; page < kept_.size() && free != 0; ++page) {
        if (kept_[page] || !holds(page)) continue;
        pipeline_->make_resident(page);
        kept_[page] = 1;
        --free;
    }
}

// A run whose files differ from those of the others would be computed from its own disk alone, and
// look healthy. A serving run reports this in /health, and waits for them.
status home_run::check_accepted() const {
    if (options_.desk) return success();
    const std::string reason = node_.refused_by_all();
    if (reason.empty()) return success();
    return error{
        format("every node of the cluster refuses this one; {}; its own disk stands in for "
               "nodes that are away, not for these",
               reason)};
}

result<home_result> home_run::drive() {
    caller_->connect(options_.connect_ns);
    home_result done;
    if (const status taken = check_accepted(); !taken) return taken.failure();
    if (options_.desk) take_requests(done);
    while (!options_.desk && next_pass()) {
        done.layer_steps += source_->layers();
        if (options_.after_pass) options_.after_pass(*caller_);
        if (options_.stop && options_.stop()) return error{"stopped: the output pipe is closed"};
    }
    if (!faults_.fatal().empty())
        return error{faults_.fatal() +
                     "; the run ended (set [plugins] on_fault = \"replace\" to "
                     "go on with the host's default)"};
    if (executor_->failed()) return error{executor_->failure()};
    if (!source_->failure().empty()) return error{source_->failure()};
    if (const status taken = check_accepted(); !taken) return taken.failure();
    pipeline_->finish(done.report);
    if (const status reported = policies_.add_to_report(done.report, faults_); !reported)
        return reported.failure();
    describe(done.report);
    done.calls = caller_->figures();
    return done;
}

void home_run::take_requests(home_result &done) {
    constexpr uint64_t look_ns = 50'000'000;
    request_desk &desk = *options_.desk;
    uint64_t end_ns = MOORAGE_NEVER;
    while (!has_failed()) {
        for (const uint64_t request : desk.take_given_up()) source_->give_up(request);
        const bool passed = next_pass();
        if (passed) done.layer_steps += source_->layers();
        caller_->count_activations(source_->tokens() * source_->layers() * source_->top_k());
        source_->idle();  // the text of the pass is sent
        desk.send();
        if (options_.after_pass) options_.after_pass(*caller_);
        if (end_ns == MOORAGE_NEVER && options_.stop()) end_ns = node_.drain_end_ns();
        if (end_ns != MOORAGE_NEVER && desk.idle()) return;
        if (steady_ns() > end_ns) return desk.end();
        node_.turn(passed ? 0 : look_ns);
    }
}

void home_run::describe(run_report &report) const {
    report.executor = config_.executor;
    report.profile = config_.profile;
    report.title = config_.title;
    report.seed = config_.seed;
    report.lossy = policies_.lossy();
    report.warnings = warnings_;
    if (!options_.desk)
        report.text = report_of(job_, *source_, opened_->loaded_tokenizer.get(),
                                node_.plan().model_name, stops_.get());
    report.requests = source_->requests().size();
    const caller_figures &calls = caller_->figures();
    json &config = *report.config;
    config["run"] = {{"executor", config_.executor},
                     {"batch", config_.batch},
                     {"prefill", config_.prefill},
                     {"seed", config_.seed}};
    if (const char *numbers = name_of(config_.arithmetic_mode))
        config["run"]["arithmetic"] = numbers;
    config["node"] = {{"servers", node_.plan().servers.size()},
                      {"experts_here", capacity_},
                      {"experts_all", node_.plan().pages()},
                      {"calls", calls.calls},
                      {"layers_calling", calls.layers_calling},
                      {"late", calls.late},
                      {"lost", calls.lost},
                      {"failed", calls.failed},
                      {"wrong", calls.wrong},
                      {"from_own_disk", calls.from_own_disk}};
    policies_.describe(config);
}

}  // namespace

status serve_home(const run_config &config, run_resources &shared, peer_node &node,
                  thread_pool &pool, home_options options) {
    for (bool begun = false;; begun = true) {
        home_run run(config, shared, node, pool, options);
        if (const status prepared = run.make(); !prepared) return prepared;
        const uint64_t taken = options.desk->figures().taken;
        const auto done = run.drive();
        if (done) return success();
        note_no_step();  // the one that broke off is no longer at work
        log_error(format("node: a run broke off: {}", done.failure().text));
        options.desk->fail(done.failure().text);
        // Nothing was asked and yet it broke: it would again.
        if (begun && options.desk->figures().taken == taken) return done.failure();
        options.connect_ns = 0;
    }
}

result<home_result> run_home(const run_config &config, run_resources &shared, peer_node &node,
                             thread_pool &pool, const home_options &options) {
    home_run run(config, shared, node, pool, options);
    if (const status prepared = run.make(); !prepared) return prepared.failure();
    return run.drive();
}

}  // namespace moorage::core
