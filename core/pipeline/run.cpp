// run.cpp - puts a run together from its configuration, runs it, and reports.
#include "core/pipeline/run.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/cache/replay.h"
#include "core/config/hardware.h"
#include "core/pipeline/pipeline.h"
#include "core/source/trace_source.h"

namespace moorage::core {

status run_resources::scan(std::span<const std::filesystem::path> paths) {
    std::vector<std::filesystem::path> fresh;
    if (!std::exchange(bundled_, true)) fresh = registry::default_paths();
    for (const auto &path : paths)
        if (std::find(scanned_.begin(), scanned_.end(), path) == scanned_.end())
            fresh.push_back(path);
    scanned_.insert(scanned_.end(), fresh.begin(), fresh.end());
    return fresh.empty() ? success() : policies_.scan(fresh);
}

result<const trace *> run_resources::open(const std::filesystem::path &path) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<trace> &known = traces_[path];
    if (!known) {
        auto opened = trace::open(path);
        if (!opened) return opened.failure();
        known = std::make_unique<trace>(std::move(opened).value());
    }
    return known.get();
}

template <class Key, class Value>
template <class Make>
const Value &run_resources::kept<Key, Value>::at(const Key &key, std::mutex &guard, Make &&make) {
    entry *found;
    {
        const std::lock_guard lock(guard);
        found = &all[key];
    }
    std::call_once(found->once, [&] { found->value.emplace(make()); });
    return *found->value;
}

const future &run_resources::coming(const trace &of, uint64_t tokens) {
    return futures_.at({&of, tokens}, mutex_, [&] { return future(of, tokens); });
}

result<uint64_t> run_resources::optimum(const trace &of, uint64_t tokens, uint32_t slots,
                                        bool per_layer) {
    return optima_.at({&of, tokens, slots, per_layer}, mutex_, [&]() -> result<uint64_t> {
        const auto belady = policies_.find("belady", "cache");
        if (!belady) return belady.failure();
        replay_job job{.of = *belady, .slots = slots, .tokens = tokens};
        job.pools = per_layer ? sharing::per_layer : sharing::shared;
        const auto counted = replay(of, &coming(of, tokens), job);
        if (!counted) return counted.failure();
        return counted->misses;
    });
}

namespace {

// One run in the making. Members are in the order of their construction: later ones borrow earlier.
class runner {
public:
    runner(const run_config &config, run_resources &shared, const run_options &options)
        : config_(config), shared_(shared), options_(options), faults_(config.action) {}

    result<run_report> operator()() {
        for (const auto part : {&runner::open_source, &runner::open_hardware, &runner::size_memory,
                                &runner::make_policies, &runner::activate})
            if (const status done = (this->*part)(); !done) return done.failure();
        return drive();
    }

private:
    status open_source();
    status open_hardware();
    status size_memory();
    status make_policies();
    status make_policy(std::string_view kind, instance *&out);
    status activate();
    result<run_report> drive();
    void describe(run_report &report);
    void count_optimum(run_report &report);
    void warn(std::string text) { warnings_.push_back(std::move(text)); }

    const run_config &config_;
    run_resources &shared_;
    const run_options &options_;
    fault_log faults_;
    std::vector<std::string> warnings_;
    const trace *trace_ = nullptr;
    std::unique_ptr<trace_source> source_;
    std::unique_ptr<cost_model> costs_;
    moorage_costs costs_view_{};
    uint32_t slots_ = 0, buffer_slots_ = 0, transfers_max_ = 0, needs_ = 0;
    std::unique_ptr<residency> truth_;
    std::unique_ptr<arena> places_;
    std::unique_ptr<emulator> executor_;
    std::unique_ptr<future_cursor> future_;
    std::vector<std::unique_ptr<instance>> instances_;
    stages stages_{};
};

status runner::open_source() {
    auto opened = shared_.open(config_.trace);
    if (!opened) return opened.failure();
    trace_ = *opened;
    source_ = std::make_unique<trace_source>(
        *trace_, trace_source_options{config_.batch, config_.prefill, config_.tokens});
    return success();
}

status runner::open_hardware() {
    const std::filesystem::path base = config_.file.parent_path();
    const auto hardware = load_hardware({config_.profile, config_.link, config_.node, base});
    if (!hardware) return hardware.failure();
    const std::string model = config_.shape.empty() ? trace_->meta("model") : config_.shape;
    const auto shape =
        shape_for_trace(model, trace_->layers(), trace_->experts(), trace_->top_k(), base);
    if (!shape) return shape.failure();
    costs_ = std::make_unique<cost_model>(*hardware, *shape);
    const uint64_t mean_length = trace_->tokens() / trace_->requests();
    costs_view_ = costs_->summary(mean_length / 2 + 1);
    if (hardware->device.unified_memory)
        warn(
            format("{} has unified memory: a load copies nothing, so there is nothing to cache or "
                   "prefetch",
                   hardware->device.name));
    return success();
}

status runner::size_memory() {
    const model_shape &shape = costs_->shape();
    const device_profile &device = costs_->hardware().device;
    const uint64_t all = uint64_t{trace_->layers()} * trace_->experts();
    const uint64_t asked = config_.experts ? *config_.experts : *config_.bytes / shape.expert_bytes;
    if (asked == 0)
        return error{format("{}: [memory] bytes = {} is less than one expert of {} ({} bytes)",
                            config_.file.string(), *config_.bytes, shape.name, shape.expert_bytes),
                     true};
    slots_ = static_cast<uint32_t>(std::min(asked, all));
    if (asked > all)
        warn(format(
            "[memory] room for {} experts, and {} has {}: all are resident after their first use",
            asked, shape.name, all));
    buffer_slots_ = config_.buffer_experts.value_or(trace_->top_k());
    transfers_max_ = pipeline::transfers_for(trace_->experts(), buffer_slots_);
    const uint64_t needed =
        (uint64_t{slots_} + buffer_slots_) * shape.expert_bytes + shape.non_expert_bytes;
    const uint64_t usable =
        device.memory_bytes - std::min(device.memory_bytes, device.reserved_bytes);
    if (needed > usable) {
        const uint64_t rest = shape.non_expert_bytes + uint64_t{buffer_slots_} * shape.expert_bytes;
        const uint64_t fit = usable > rest ? (usable - rest) / shape.expert_bytes : 0;
        warn(format(
            "{} cached and {} buffered experts and the rest of {} take {}, and {} has {} usable: "
            "at most {} experts fit",
            slots_, buffer_slots_, shape.name, human_bytes(static_cast<double>(needed)),
            device.name, human_bytes(static_cast<double>(usable)), fit));
    }
    const uint32_t working_set = trace_->layers() * trace_->top_k();
    if (config_.per_layer || slots_ >= working_set) return success();
    const bool never =
        slots_ <= slots_without_lru_hits(trace_->layers(), trace_->top_k(), order::token);
    warn(format(
        "{} slots are below one token's working set of {} experts ({} layers x top-{}): a shared "
        "lru hits {}; use per-layer sharing or more memory",
        slots_, working_set, trace_->layers(), trace_->top_k(),
        never ? "exactly 0 %" : "next to nothing"));
    return success();
}

status runner::make_policy(std::string_view kind, instance *&out) {
    const stage_config &stage = config_.stage(kind);
    for (const auto &[name, place] : stage.other_tables)
        if (const auto known = shared_.policies().find(name, kind); !known)
            return error{place + ": " + known.failure().text, true};
    const auto found = shared_.policies().find(stage.plugin, kind);
    if (!found) return error{stage.place + ": " + found.failure().text, true};
    const policy &chosen = **found;
    const uint32_t lacking = chosen.descriptor->needs & ~source_->offers();
    if (lacking & MOORAGE_NEEDS_FUTURE)
        return error{
            format("{}: {} policy {} needs the future of the trace, which is known for one request "
                   "at a time: set [run] batch = 1 and prefill = 0",
                   stage.place, kind, stage.plugin),
            true};
    for (uint32_t bit = 1; bit <= lacking; bit <<= 1)
        if (lacking & bit)
            return error{
                format("{}: {} policy {} needs the tensor {}, which {} does not have", stage.place,
                       kind, stage.plugin, trace::tensor_of(bit), config_.trace.string()),
                true};
    needs_ |= chosen.descriptor->needs;
    for (const auto &known : instances_) {
        if (known->name() != stage.plugin) continue;
        out = known.get();  // one instance for all its stages: they share their history
        return success();
    }
    settings given = stage.params;
    for (const std::string_view other : kinds) {
        const stage_config &also = config_.stage(other);
        if (other != kind && also.plugin == stage.plugin && chosen.is(other))
            given.insert(given.end(), also.params.begin(), also.params.end());
    }
    if (chosen.descriptor->needs & MOORAGE_NEEDS_FUTURE)
        future_ =
            std::make_unique<future_cursor>(shared_.coming(*trace_, config_.tokens), order::token);
    const environment where{truth_->view(), &costs_view_, executor_->clock(), future_.get(),
                            config_.seed};
    auto made = instance::create(chosen, given, where);
    if (!made) return made.failure();
    instances_.push_back(std::move(made).value());
    out = instances_.back().get();
    return success();
}

status runner::make_policies() {
    const std::vector<uint32_t> none_yet(trace_->layers(), 0);
    truth_ =
        std::make_unique<residency>(trace_->layers(), trace_->experts(),
                                    config_.per_layer ? none_yet : std::vector<uint32_t>{slots_});
    places_ = std::make_unique<arena>(truth_->page_count(),
                                      slots_ + buffer_slots_ + pipeline::staging_slots, 0);
    executor_ = std::make_unique<emulator>(*costs_, transfers_max_, options_.sink);
    const std::pair<std::string_view, instance **> wanted[] = {
        {"router", &stages_.router},     {"cache", &stages_.cache},
        {"budget", &stages_.budget},     {"prefetch", &stages_.prefetch},
        {"dispatch", &stages_.dispatch}, {"transport", &stages_.transport}};
    for (const auto &[kind, out] : wanted)
        if (const status done = make_policy(kind, *out); !done) return done.failure();
    return success();
}

status runner::activate() {
    moorage_limits limits{};
    limits.size = sizeof(limits);
    limits.layers = trace_->layers();
    limits.experts = trace_->experts();
    limits.top_k = trace_->top_k();
    limits.tokens_max = source_->tokens_max();
    limits.requests_max = source_->streams();
    limits.pools = truth_->pools();
    limits.slots = slots_;
    limits.buffer_slots = buffer_slots_;
    limits.segments = 1;
    limits.predictions_max = trace_->experts();
    limits.links = link_count;
    limits.transfers_max = transfers_max_;
    limits.expert_bytes = costs_->shape().expert_bytes;
    for (const auto &one : instances_)
        if (const status done = one->activate(limits); !done) return done.failure();
    return success();
}

result<run_report> runner::drive() {
    pipeline line({source_.get(), executor_.get(), costs_.get(), truth_.get(), places_.get(),
                   &faults_, stages_, slots_, buffer_slots_, transfers_max_, needs_,
                   config_.per_layer, nullptr});
    uint64_t shown = 0;
    while (line.next_pass()) {
        if (line.tokens_done() - shown < 256 || !options_.progress) continue;
        options_.progress(line.tokens_done() - shown);
        shown = line.tokens_done();
    }
    if (options_.progress) options_.progress(line.tokens_done() - shown);
    if (!faults_.fatal().empty())
        return error{faults_.fatal() +
                     "; the run ended (set [plugins] on_fault = \"replace\" to go on with "
                     "the host's default)"};
    run_report report;
    line.finish(report);
    describe(report);
    if (options_.optimum) count_optimum(report);
    report.warnings = warnings_;
    return report;
}

void runner::describe(run_report &report) {
    report.executor = config_.executor;
    report.profile = config_.profile;
    report.title = config_.title;
    report.seed = config_.seed;
    json &all = report.config;
    all["run"] = {{"executor", config_.executor},
                  {"tokens", config_.tokens},
                  {"batch", config_.batch},
                  {"prefill", config_.prefill},
                  {"seed", config_.seed}};
    const hardware_profile &hardware = costs_->hardware();
    all["hardware"] = {{"profile", hardware.id},
                       {"device", hardware.device.name},
                       {"link", hardware.link.name},
                       {"node", hardware.node.name}};
    all["source"] = {{"trace", config_.trace.filename().string()}, {"shape", costs_->shape().name}};
    all["memory"] = {{"experts", slots_},
                     {"experts_all", trace_->layers() * trace_->experts()},
                     {"bytes", uint64_t{slots_} * costs_->shape().expert_bytes},
                     {"sharing", config_.per_layer ? "per-layer" : "shared"},
                     {"buffer_experts", buffer_slots_}};
    all["plugins"] = {{"on_fault", config_.action == on_fault::abort ? "abort" : "replace"}};
    const std::pair<const char *, instance *> each[] = {
        {"router", stages_.router},     {"cache", stages_.cache},
        {"budget", stages_.budget},     {"prefetch", stages_.prefetch},
        {"dispatch", stages_.dispatch}, {"transport", stages_.transport}};
    for (const auto &[kind, one] : each) {
        all[kind] = {{"plugin", std::string(one->name())}};
        for (const auto &[key, value] : one->parameters()) all[kind][key] = json_of(value);
    }
}

void runner::count_optimum(run_report &report) {
    if (config_.batch != 1 || config_.prefill != 0) return;
    const auto best = shared_.optimum(*trace_, config_.tokens, slots_, config_.per_layer);
    if (best)
        report.opt_misses = *best;
    else
        warn("the offline optimum was not counted: " + best.failure().text);
}

}  // namespace

result<run_report> run(const run_config &config, run_resources &shared,
                       const run_options &options) {
    return runner(config, shared, options)();
}

}  // namespace moorage::core
