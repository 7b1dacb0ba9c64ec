// run.cpp - puts a run together from its configuration, runs it, and reports.
#include "core/pipeline/run.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/base/log.h"
#include "core/base/memory_block.h"
#include "core/base/text.h"
#include "core/cache/replay.h"
#include "core/config/hardware.h"
#include "core/dispatch/machine_table.h"
#include "core/execute/executor_module.h"
#include "core/host/surroundings.h"
#include "core/pipeline/composition.h"
#include "core/pipeline/device_memory.h"
#include "core/pipeline/memory_plan.h"
#include "core/pipeline/own_routing.h"
#include "core/pipeline/pipeline.h"
#include "core/pipeline/policy_set.h"
#include "core/pipeline/prepare.h"
#include "core/pipeline/run_hardware.h"
#include "core/pipeline/text_ends.h"
#include "core/pipeline/texts.h"
#include "core/pipeline/timeline_sink.h"
#include "core/pipeline/versions.h"
#include "core/source/trace_source.h"

namespace moorage::core {

namespace {

// One run in the making. Members are in the order of their construction: later ones borrow earlier.
class runner {
public:
    runner(const run_config &config, run_resources &shared, const run_options &options)
        : config_(config), shared_(shared), options_(options), faults_(config.fault_action) {}

    result<run_report> operator()() {
        auto outcome = run_parts();
        return outcome ? std::move(outcome) : surroundings_.explained(outcome.failure());
    }

    // Opens the trace, and makes random weights where they are needed; keeps both.
    void prepare_trace();
    // The texts that the model wrote, to be scored after their prompts.
    std::vector<model_request> written() const;

private:
    result<run_report> run_parts() {
        for (const auto part : {&runner::open_source, &runner::open_hardware, &runner::size_memory,
                                &runner::make_machine, &runner::make_policies, &runner::activate})
            if (const status done = (this->*part)(); !done) return done.failure();
        return drive();
    }
    status open_source();
    status open_trace();
    status open_model();
    status make_random();
    uint32_t context_of_trace() const;
    status open_hardware();
    status size_memory();
    compute_limits limits() const;
    status make_machine();
    status make_policies();
    status activate();
    result<run_report> drive();
    void warn_of_predictions();
    status check_computed() const;
    guard_rules guarding() const;
    void log_switched(const guard &guard, uint64_t &logged_changes) const;
    routing_rules routing() const {
        return {config_.exact_requests, config_.substitution_max, policies_.lossy()};
    }
    void describe(run_report &report);
    void describe_source(json &description);
    std::string difference_from_optimum(const run_report &report) const;
    void count_optimum(run_report &report);
    void warn(std::string text) { warnings_.push_back(std::move(text)); }
    bool real() const { return config_.runs_on().real; }
    uint32_t page_count() const { return source_->layers() * source_->experts(); }
    std::string source_name() const {
        return trace_ ? config_.trace.string() : config_.model.string();
    }

    const run_config &config_;
    run_resources &shared_;
    const run_options &options_;
    fault_log faults_;
    std::vector<std::string> warnings_;
    const lasting_surroundings surroundings_;
    const trace *trace_ = nullptr;          // one of trace ...
    const opened_model *opened_ = nullptr;  // ... and model
    const model *computed_ = nullptr;       // null: a trace on the emulator
    const model *small_ = nullptr;          // its second version; null: none, or nothing computed
    text_job job_;
    std::unique_ptr<stop_watch> stops_;
    model_source *texts_ = nullptr;  // source_ of a model
    std::unique_ptr<source> source_;
    run_hardware hardware_;
    memory_plan memory_;
    uint32_t needs_ = 0;
    uint64_t refused_ = 0;  // loads that the cache policy did not admit
    std::unique_ptr<device_memory> device_memory_;
    std::unique_ptr<ledger> host_;  // null: host memory holds everything
    std::unique_ptr<executor_machine> machine_;
    std::vector<std::unique_ptr<future_cursor>> futures_;  // of each policy that looks ahead
    policy_set policies_;
};

status runner::open_source() { return config_.model.empty() ? open_trace() : open_model(); }

status runner::open_trace() {
    auto opened = shared_.open(config_.trace);
    if (!opened) return opened.failure();
    trace_ = *opened;
    trace_source_options options{config_.batch, config_.prefill, config_.tokens};
    if (real()) {
        const status done = make_random();
        if (!done) return done.failure();
        options.vocabulary = computed_->config().vocabulary;
        options.context_max = context_of_trace();
    }
    source_ = std::make_unique<trace_source>(*trace_, options);
    return success();
}

// Prepares a trace on a real executor. The weights have the published shape and random values; the
// routing is that of the trace. The results mean nothing, but the times do.
status runner::make_random() {
    const std::filesystem::path base = config_.file.parent_path();
    const std::string name = config_.shape.empty() ? trace_->meta("model") : config_.shape;
    const auto shape = load_shape(name, base);
    if (!shape) return shape.failure();
    // A GPU gets its own copy of every expert, so one to copy from is enough. Half of the memory is
    // left to slots and caches.
    const uint64_t room = memory_available_bytes() / 2;
    const uint64_t bytes_per_expert = uint64_t{shape->moe_layers} * shape->expert_bytes;
    const uint64_t left = room - std::min(room, shape->non_expert_bytes);
    uint32_t distinct = 0;
    if (config_.runs_on().memory == fast_memory::gpu) {
        distinct = 1;
    } else if (bytes_per_expert * shape->experts > left) {
        distinct = static_cast<uint32_t>(std::max<uint64_t>(left / bytes_per_expert, 1));
        warn(format(
            "{} takes {}, and {} are free: {} of the {} experts of a layer are distinct, the "
            "others share their memory, so reads may be faster than they would be",
            shape->name, human_bytes(static_cast<double>(bytes_per_expert * shape->experts)),
            human_bytes(static_cast<double>(2 * room)), distinct, shape->experts));
    }
    const auto weights = shared_.random(name, base, distinct);
    if (!weights) return weights.failure();
    computed_ = *weights;
    const model_config &config = computed_->config();
    const auto layers = static_cast<uint32_t>(config.moe_layers().size());
    if (layers == trace_->layers() && config.experts == trace_->experts() &&
        config.top_k == trace_->top_k())
        return success();
    return error{
        format("{}: {} layers, {} experts, top-{} do not fit {} with {} layers, {} experts, "
               "top-{}; name its shape in [source] shape",
               config_.trace.string(), trace_->layers(), trace_->experts(), trace_->top_k(), name,
               layers, config.experts, config.top_k),
        true};
}

// Positions of the longest request, as far as a published model would go in such a run.
uint32_t runner::context_of_trace() const {
    uint64_t longest = 1;
    for (uint64_t request = 0; request < trace_->requests(); ++request)
        longest = std::max(
            longest, trace_->request_offsets()[request + 1] - trace_->request_offsets()[request]);
    return static_cast<uint32_t>(std::min<uint64_t>(longest, 4096));
}

status runner::open_model() {
    const auto opened = shared_.open_model(config_.model);
    if (!opened) return opened.failure();
    opened_ = *opened;
    computed_ = opened_->loaded_model.get();
    const auto small = open_small(config_, *computed_, shared_);
    if (!small) return small.failure();
    small_ = *small;
    if (options_.requests) {
        job_.requests = *options_.requests;
    } else {
        auto job = make_job(config_, *computed_, opened_->loaded_tokenizer.get());
        if (!job) return job.failure();
        job_ = std::move(job).value();
    }
    model_source_options options;
    options.batch = config_.batch;
    options.prefill = config_.prefill;
    options.tokens = config_.tokens;
    options.sampling_options = sampling_of(config_);
    auto stops = end_texts(config_, *computed_, opened_->loaded_tokenizer.get(), options);
    if (!stops) return stops.failure();
    stops_ = std::move(*stops);
    options.predict = options_.watcher != nullptr || config_.prefetch.plugin != "none";
    options.on_token = options_.on_token;
    // Takes time of its own, which only virtual time does not show.
    options.score_written = !real();
    auto source = std::make_unique<model_source>(*computed_, job_.requests, options);
    texts_ = source.get();
    source_ = std::move(source);
    needs_ |= MOORAGE_NEEDS_WEIGHTS;  // of what is computed
    return success();
}

status runner::open_hardware() {
    const std::filesystem::path base = config_.file.parent_path();
    if (const status loaded = hardware_.load(config_); !loaded) return loaded.failure();
    model_shape shape;
    if (trace_) {
        const std::string name = config_.shape.empty() ? trace_->meta("model") : config_.shape;
        auto known =
            shape_for_trace(name, trace_->layers(), trace_->experts(), trace_->top_k(), base);
        if (!known) return known.failure();
        shape = std::move(known).value();
    } else {
        shape = shape_of(*computed_, config_.model.filename().string());
    }
    if (const status done = add_small(config_, small_, shape); !done) return done.failure();
    const uint64_t mean_length =
        trace_ ? trace_->tokens() / trace_->requests() : texts_->context_max();
    hardware_.price(shape, mean_length / 2 + 1);
    if (hardware_.first().device.unified_memory)
        warn(
            format("{} has unified memory: a load copies nothing, so there is nothing to cache or "
                   "prefetch",
                   hardware_.first().device.name));
    return success();
}

status runner::size_memory() {
    memory_request request;
    request.config = &config_;
    request.costs = &hardware_.costs();
    if (hardware_.has_several()) request.devices = hardware_.profiles();
    request.layers = source_->layers();
    request.experts = source_->experts();
    request.top_k = source_->top_k();
    if (config_.runs_on().memory == fast_memory::gpu && !config_.sizes_cache() &&
        !hardware_.has_several()) {
        executor_request room_request;
        room_request.computed_model = computed_;
        room_request.limits = limits();
        room_request.device = config_.device;
        const auto room = module_of(config_.runs_on()).room_for_experts(room_request);
        if (!room) return room.failure();
        request.gpu_room_bytes = *room;
    }
    auto planned = plan_memory(request, warnings_);
    if (!planned) return planned.failure();
    memory_ = *planned;
    return success();
}

compute_limits runner::limits() const {
    compute_limits sizes;
    sizes.tokens_max = source_->tokens_max();
    sizes.streams = source_->streams();
    if (texts_) {
        sizes.context_max = texts_->context_max();
        sizes.outputs_max = texts_->outputs_max();
        sizes.predict = source_->predictions_max() != 0;
    } else if (computed_) {
        sizes.context_max = context_of_trace();
        sizes.outputs_max = source_->streams();
    }
    return sizes;
}

status runner::make_machine() {
    device_memory_ =
        std::make_unique<device_memory>(source_->layers(), source_->experts(), config_.per_layer,
                                        config_.devices.whole_layers, memory_);
    if (memory_.host_experts != 0) {
        host_ = std::make_unique<ledger>(
            source_->layers(), source_->experts(), std::vector<uint32_t>{memory_.host_experts},
            std::make_unique<arena>(source_->layers(), source_->experts(), memory_.rows,
                                    memory_.host_experts, host_store::frames));
        device_memory_->lie_above(*host_);
    }
    executor_request request;
    request.computed_model = computed_;
    request.small_model = small_;
    request.costs = &hardware_.costs();
    request.more_costs = hardware_.more_costs();
    request.places = {device_memory_->all_devices().arenas(),
                      device_memory_->all_devices().spread()};
    request.host_places = host_ ? &host_->rows() : nullptr;
    request.limits = limits();
    request.transfers_max = memory_.transfers_max;
    request.threads = config_.threads ? config_.threads : options_.threads;
    request.device = config_.device;
    request.arithmetic_mode = config_.arithmetic_mode;
    request.in_place = memory_.in_place;
    request.from_disk = memory_.from_disk;
    request.sink = options_.sink ? options_.sink : options_.rows;
    auto machine = module_of(config_.runs_on()).create(request);
    if (!machine) return machine.failure();
    machine_ = std::move(machine).value();
    if (texts_) texts_->connect(*machine_->results());
    return success();
}

status runner::make_policies() {
    const auto future = [this]() -> future_view * {
        futures_.push_back(std::make_unique<future_cursor>(
            shared_.future_of(*trace_, config_.tokens), order::token));
        return futures_.back().get();
    };
    const environment common_environment{device_memory_->all_devices().combined_ledger().view(),
                                         hardware_.policy_costs().lent(),
                                         machine_->run_executor().clock(),
                                         nullptr,
                                         config_.seed,
                                         &faults_};
    return policies_.make(
        {config_, shared_.policies(), source_->offers(), source_name(), common_environment,
         host_ ? host_->view() : nullptr,
         hardware_.environments(common_environment, device_memory_->all_devices()), future});
}

status runner::activate() {
    moorage_limits limits = limits_of(*source_);
    limits.pools = device_memory_->all_devices().combined_ledger().pools();
    // As many as the smallest split makes of them, where a budget may choose it.
    limits.slots =
        memory_.part_rows == 0
            ? memory_.slots
            : static_cast<uint32_t>(std::min<uint64_t>(
                  page_count(), uint64_t{memory_.experts} * memory_.rows / memory_.part_rows));
    limits.buffer_slots = memory_.buffer_slots, limits.transfers_max = memory_.transfers_max;
    limits.segments = memory_.split() || memory_.part_rows != 0 ? 2 : 1;
    limits.expert_bytes = hardware_.costs().shape().expert_bytes;
    limits.hidden_size = policies_.needs_hidden_states() ? source_->hidden_size() : 0;
    const machine_table table({hardware_.costs(), hardware_.more_costs()}, memory_.device_slots(),
                              host_ ? memory_.host_experts : MOORAGE_NONE, {});
    table.show_in(limits);
    if (const status done = policies_.activate(limits, memory_.device_slots()); !done)
        return done.failure();
    const composition composition{config_,        policies_,
                                  limits.experts, limits.buffer_slots,
                                  /*servers=*/0,  memory_.split()};
    if (const status sound = check_composition(composition, warnings_); !sound)
        return sound.failure();
    const instance &prefetch = *policies_.by_stage().prefetch;
    const moorage_prefetch &ahead = *prefetch.prefetch;
    if (ahead.horizon &&
        policies_.by_stage().prefetch->call(entry_point::prefetch_horizon, ahead.horizon) != 0 &&
        !ahead.predict && source_->predictions_max() == 0)
        warn(
            format("{}: {} has no predictions, so prefetch policy {} is told of none and brings "
                   "only what it orders without them",
                   config_.prefetch.place, source_name(), prefetch.name()));
    return success();
}

result<run_report> runner::drive() {
    executor &executor = machine_->run_executor();
    pipeline pipeline({.pass_source = source_.get(),
                       .run_executor = &executor,
                       .costs = &hardware_.costs(),
                       .more_costs = hardware_.more_costs(),
                       .policy_costs = &*hardware_.policy_costs(),
                       .device_memories = device_memory_->all_devices(),
                       .host_ledger = host_.get(),
                       .faults = &faults_,
                       .policies = policies_.by_stage(),
                       .slots = memory_.device_experts(),
                       .buffer_slots = memory_.buffer_slots,
                       .transfers_max = memory_.transfers_max,
                       .needs = needs_ | policies_.needs(),
                       .needs_hidden_states = policies_.needs_hidden_states(),
                       .part_rows = memory_.part_rows,
                       .from_disk = memory_.from_disk,
                       .per_layer = config_.per_layer,
                       .watcher = options_.watcher,
                       .routing = routing(),
                       .guard = guarding(),
                       .clock = policies_.time_calls(config_, executor.virtual_time()),
                       .events = options_.rows});
    if (options_.rows) options_.rows->ask_facts(policies_);
    if (pipeline.lacks_predictions()) warn_of_predictions();
    uint64_t shown = 0, switched = 0;
    while (pipeline.next_pass()) {
        log_switched(pipeline.guarding(), switched);
        if (options_.stop && options_.stop()) return error{"stopped: the output pipe is closed"};
        if (pipeline.tokens_done() - shown < 256 || !options_.progress) continue;
        options_.progress(pipeline.tokens_done() - shown);
        shown = pipeline.tokens_done();
    }
    if (options_.progress) options_.progress(pipeline.tokens_done() - shown);
    if (!faults_.fatal().empty())
        return error{faults_.fatal() +
                     "; the run ended (set [plugins] on_fault = \"replace\" to go on with "
                     "the host's default)"};
    if (executor.failed()) return error{executor.failure()};
    if (const status computed = check_computed(); !computed) return computed.failure();
    run_report report;
    pipeline.finish(report);
    refused_ = pipeline.refused();
    report.guard = pipeline.guarding().report();
    if (const status done = policies_.add_to_report(report, faults_); !done) return done.failure();
    describe(report);
    if (texts_) {
        report.text = report_of(job_, *texts_, opened_->loaded_tokenizer.get(),
                                config_.model.lexically_normal().filename().string(), stops_.get());
        report.requests = texts_->requests().size();
        if (const status checked = check_text(report.text, config_.model); !checked)
            return checked.failure();
    }
    if (options_.optimum) count_optimum(report);
    for (const guard_arm &arm : report.guard)
        if (std::string text = guard_warning(arm); !text.empty()) warn(std::move(text));
    report.warnings = warnings_;
    return report;
}

void runner::warn_of_predictions() {
    warn(
        format("executor {} does not predict from resident experts, which prefetch {} asks for: "
               "the next layer's gate on this layer's activation stands in for it",
               config_.executor, policies_.by_stage().prefetch->name()));
    log_warning(warnings_.back());
}

status runner::check_computed() const {
    if (!texts_ || texts_->failure().empty()) return success();
    return error{texts_->failure() +
                 (policies_.lossy() ? format("; router policy {} may have chosen otherwise than "
                                             "the model",
                                             policies_.by_stage().router->name())
                                    : "")};
}

guard_rules runner::guarding() const {
    return {.active = config_.guard,
            .window = config_.guard_window,
            .margin = config_.guard_margin,
            .unified = memory_.in_place || machine_->run_executor().unified_memory(),
            .prefill_keeps = !config_.prefill_displaces};
}

// The guard's decisions as they are taken.
void runner::log_switched(const guard &guard, uint64_t &logged_changes) const {
    if (guard.changes() == logged_changes) return;
    logged_changes = guard.changes();
    std::vector<guard_arm> arms = guard.report();
    const uint64_t latest = std::ranges::max(arms, {}, &guard_arm::since_token).since_token;
    std::erase_if(arms, [&](const guard_arm &arm) { return arm.since_token != latest; });
    for (const auto &[label, said] : guard_lines(arms)) log_warning("guard: " + said);
}

void runner::prepare_trace() {
    if (const status done = open_trace(); !done) return;
    const bool foreseen = std::ranges::any_of(stage_kinds, [&](const std::string_view kind) {
        // A library of the user's is opened in the row that names it, which it alone can end.
        const policy *found = shared_.policies().find_bundled(config_.stage(kind).plugin, kind);
        return found && (found->descriptor->needs & MOORAGE_NEEDS_FUTURE);
    });
    if (foreseen) shared_.future_of(*trace_, config_.tokens);
}

std::vector<model_request> runner::written() const {
    std::vector<model_request> requests;
    if (!texts_ || texts_->scores_texts()) return requests;
    for (size_t i = 0; i < texts_->requests().size(); ++i) {
        model_request request{texts_->requests()[i].ids, 0};
        const std::vector<int32_t> &ids = texts_->written()[i];
        if (ids.empty()) continue;
        request.score_from = static_cast<uint32_t>(request.ids.size());
        request.ids.insert(request.ids.end(), ids.begin(), ids.end());
        requests.push_back(std::move(request));
    }
    return requests;
}

void runner::describe(run_report &report) {
    if (std::string text = surroundings_.restore_at_end(); !text.empty()) warn(std::move(text));
    report.executor = config_.executor;
    report.profile = hardware_.has_several() ? hardware_.ids() : config_.profile;
    for (size_t i = 0; i < report.devices.size(); ++i)
        report.devices[i].name = hardware_.profiles()[i].device.name;
    report.title = config_.title;
    report.seed = config_.seed;
    report.lossy = policies_.lossy();
    report.version_names = names_of_versions(config_, hardware_.costs().shape());
    report.misfit = memory_.misfit;
    if (memory_.from_disk)
        report.host = {memory_.slots,    report.experts.requested,       report.experts.hits,
                       report.bytes.h2d, report.arrangement.first_bytes, report.time.transfer};
    json &sections = *report.config;
    sections["run"] = {{"executor", config_.executor},
                       {"tokens", config_.tokens},
                       {"batch", config_.batch},
                       {"prefill", config_.prefill},
                       {"seed", config_.seed}};
    if (const char *numbers = name_of(config_.arithmetic_mode))
        sections["run"]["arithmetic"] = numbers;
    if (config_.guard) {
        sections["run"]["guard"] = true;
        sections["run"]["guard_window"] = config_.guard_window;
        sections["run"]["guard_margin"] = config_.guard_margin;
    }
    const hardware_profile &hardware = hardware_.costs().hardware();
    sections["hardware"] = {{"profile", hardware.id},
                            {"device", hardware_.device_names()},
                            {"link", hardware.link.name},
                            {"node", hardware.node.name}};
    describe_source(sections["source"]);
    if (!config_.small.empty()) sections["source"]["small"] = report.version_names[1];
    sections["memory"] = {
        {"experts", memory_.experts},
        {"experts_all", page_count()},
        {"bytes", uint64_t{memory_.experts} * hardware_.costs().shape().expert_bytes},
        {"sharing", config_.per_layer ? "per-layer" : "shared"},
        {"buffer_experts", memory_.buffer_slots}};
    if (memory_.host_experts != 0) sections["memory"]["host_experts"] = memory_.host_experts;
    if (config_.reads_disk())
        sections["memory"]["from_disk"] = true, sections["hardware"]["disk"] = hardware.disk.name;
    if (!config_.engine.empty()) sections["hardware"]["engine"] = config_.engine;
    if (memory_.share < 1)
        sections["memory"]["split"] = memory_.share, sections["memory"]["slots"] = memory_.slots;
    if (!config_.prefill_displaces) sections["memory"]["prefill_displaces"] = false;
    sections["plugins"] = {
        {"on_fault", config_.fault_action == on_fault::abort ? "abort" : "replace"}};
    policies_.describe(sections);
    if (config_.substitution_max < 1)
        sections["router"]["substitution_max"] = config_.substitution_max;
    if (!config_.exact_requests.empty())
        sections["router"]["exact_requests"] = config_.exact_requests;
}

void runner::describe_source(json &description) {
    if (trace_) {
        description = {{"trace", config_.trace.filename().string()},
                       {"shape", hardware_.costs().shape().name}};
        return;
    }
    describe_texts(config_, texts_->scores_texts(), description);
}

// How this run differs from the optimum, which loads on demand, token by token. "": it does not.
std::string runner::difference_from_optimum(const run_report &report) const {
    if (config_.batch != 1 || config_.prefill != 0) return "tokens of several positions in a step";
    if (memory_.share < 1) return "slots hold parts of experts";
    if (report.experts.substituted != 0) return "the router asks for other experts than the trace";
    if (report.has_predictions) return "prefetch brings experts before they are asked for";
    if (report.experts.on_cpu != 0 || refused_ != 0)
        return "absent experts are computed without a place in the cache";
    if (report.arrangement.first_bytes != 0) return "the caches were filled before the first token";
    if (report.arrangement.uneven) return "the budget gives layers unequal shares or splits";
    return "";
}

void runner::count_optimum(run_report &report) {
    if (!trace_) return;
    report.opt_reason = difference_from_optimum(report);
    const uint32_t slots = memory_.slots;
    if (!report.opt_reason.empty()) return;
    if (options_.deferred)
        options_.deferred->optimum = {config_.trace, config_.tokens, slots, config_.per_layer};
    else
        report.opt_misses = shared_.optimum(*trace_, config_.tokens, slots, config_.per_layer);
}

}  // namespace

void prepare(const run_config &config, run_resources &shared) {
    if (config.cluster) {
        for (const cluster_workload &workload : config.cluster->workloads)
            if (!workload.trace.empty()) [[maybe_unused]]
                const auto opened = shared.open(workload.trace);
    } else if (!config.model.empty()) {
        [[maybe_unused]] const auto opened = shared.open_model(config.model);
    } else {
        const run_options plain;
        runner(config, shared, plain).prepare_trace();
    }
}

result<run_report> run(const run_config &config, run_resources &shared,
                       const run_options &options) {
    watch_calls(config);
    std::vector<model_request> written;
    auto report = [&] {
        runner runner(config, shared, options);  // gone before the next: its memory is needed
        auto outcome = runner();
        if (outcome && outcome->lossy) written = runner.written();
        return outcome;
    }();
    if (report && report->lossy && options.own_routing)
        add_own_routing(config, shared, options, written, *report);
    return check_report(config, std::move(report));
}

}  // namespace moorage::core
