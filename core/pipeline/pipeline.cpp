// pipeline.cpp - one layer step from source to report, a stage at a time.
#include "core/pipeline/pipeline.h"

#include <algorithm>

#include "core/base/invariant.h"
#include "core/pipeline/policy_clock.h"

namespace moorage::core {

// Of every device.
static std::vector<instance *> instances_of_devices(instance *first,
                                                    std::vector<instance *> further) {
    further.insert(further.begin(), first);
    return further;
}

pipeline::pipeline(const parts &parts)
    : source_(*parts.pass_source),
      executor_(*parts.run_executor),
      now_ns_(*executor_.clock()),
      costs_(*parts.costs),
      policy_costs_(*parts.policy_costs),
      memories_(parts.device_memories),
      faults_(*parts.faults),
      router_(*parts.policies.router, faults_, parts.routing, source_.streams()),
      cache_(instances_of_devices(parts.policies.cache, parts.policies.more_caches), memories_,
             faults_),
      budget_(instances_of_devices(parts.policies.budget, parts.policies.more_budgets), faults_,
              memories_, cache_, parts.slots, parts.part_rows, parts.per_layer),
      transport_(*parts.policies.transport, executor_, faults_, parts.transfers_max,
                 source_.layers(), source_.experts()),
      host_(parts.host_ledger
                ? std::make_unique<host_store>(*parts.policies.host_cache, *parts.host_ledger,
                                               faults_, transport_, costs_)
                : nullptr),
      behind_(memories_, cache_, transport_, costs_, account_.bytes),
      prefetch_(*parts.policies.prefetch, faults_, memories_, transport_, costs_, source_,
                parts.buffer_slots),
      dispatch_(*parts.policies.dispatch, faults_, {costs_, parts.more_costs}, memories_,
                parts.cluster_peers, source_.experts()),
      guard_(parts.guard, {true, prefetch_.is_active(), parts.routing.lossy}),
      account_(source_.layers(), source_.streams(), executor_.virtual_time()),
      step_(source_, parts.needs, parts.needs_hidden_states, costs_.shape().versions()),
      suppliers_(make_suppliers({.device_memories = memories_,
                                 .run_executor = executor_,
                                 .cache = cache_,
                                 .transport = transport_,
                                 .step = step_,
                                 .account = account_,
                                 .host = host_.get(),
                                 .cluster_peers = parts.cluster_peers,
                                 .versions = costs_.shape().versions()})),
      work_({.run_executor = executor_,
             .costs = {costs_, parts.more_costs},
             .device_memories = memories_,
             .cache = cache_,
             .transport = transport_,
             .behind = behind_,
             .prefetch = prefetch_,
             .dispatch = dispatch_,
             .guarding = guard_,
             .account = account_,
             .step = step_,
             .current_pass = pass_,
             .layers = source_.layers(),
             .buffer_slots = parts.buffer_slots,
             .from_disk = parts.from_disk,
             .suppliers = suppliers_}),
      listeners_{parts.watcher, parts.clock, parts.events} {
    if (memories_.devices() > 1) account_.devices.resize(memories_.devices());
    // One call per instance and step, however many stages it serves.
    const stages &policies = parts.policies;
    std::vector<instance *> instances{policies.router,   policies.cache,    policies.host_cache,
                                      policies.budget,   policies.prefetch, policies.dispatch,
                                      policies.transport};
    instances.insert(instances.end(), policies.more_caches.begin(), policies.more_caches.end());
    instances.insert(instances.end(), policies.more_budgets.begin(), policies.more_budgets.end());
    for (instance *policy : instances)
        if (policy && policy->observer &&
            std::find(observers_.begin(), observers_.end(), policy) == observers_.end())
            observers_.push_back(policy);
    progress_.course = course();
    progress_.next_event.enter(progress_.course.handle());
}

bool pipeline::next_pass() {
    for (;;) {
        const course_state state = resume();
        if (state != course_state::waiting) return state == course_state::passed;
        // While anything of the step is open the course would only look and wait again.
        do handle(executor_.wait());
        while (work_.has_open_operations() && running());
    }
}

pipeline::course_state pipeline::resume() {
    progress_.state = course_state::waiting;
    progress_.next_event.resume();
    if (progress_.course.ended()) progress_.state = course_state::ended;
    return progress_.state;
}

// The whole run. It stops at co_await progress_.next_event, and progress_.state says why.
// Whenever it is resumed, it checks again what it waits for.
flow pipeline::course() {
    executor_.begin_run();
    const auto layers = static_cast<uint32_t>(account_.layers.size());
    while (running()) {
        if (arrangement_due()) co_await arrange();
        if (!running()) co_return;
        if (!source_.next(pass_)) {
            account_.charge_idle(executor_);
            if (source_.wakes_ns() == MOORAGE_NEVER) co_return;
            progress_.state = course_state::idle;
            co_await progress_.next_event;
            charge_to(layers);
            continue;
        }
        begin_pass();
        for (uint32_t layer = 0; layer < layers; ++layer) {
            executor_.attention(layer, pass_);
            await(event_kind::gate);
            while (!progress_.awaited && running()) co_await progress_.next_event;
            while (prefetch_.awaits(layer) && running()) co_await progress_.next_event;
            if (!running()) co_return;
            step_.fill(source_, pass_, layer);
            if (!decide(account_.layers[layer])) co_return;
            while (running() && work_.make_progress()) co_await progress_.next_event;
            end_step(account_.layers[layer]);
            if (!running()) co_return;
        }
        executor_.head(static_cast<uint32_t>(std::ranges::count_if(
            pass_.tokens, [](const pass_token &token) { return token.output; })));
        await(event_kind::head);
        while (!progress_.awaited && running()) co_await progress_.next_event;
        if (!progress_.awaited) co_return;
        end_pass();
        progress_.state = course_state::passed;
        co_await progress_.next_event;
    }
}

// One layer step, from the gate's scores to the work that it starts.
bool pipeline::decide(layer_report &report) {
    const instance::stepping mark;
    note_step(layer(), account_.tokens);
    begin_.step_ns = now_ns();
    if (!account_.timed([&] { return choose(report); })) return false;
    executor_.route(step_.computed(), step_.weights());
    if (!account_.timed([&] { return work_.assign_slots(); })) return false;
    work_.start();
    if (listeners_.clock) executor_.policies_took(listeners_.clock->unreported_ns());
    if (listeners_.events) listeners_.events->decided(memories_, now_ns());
    return true;
}

// Chooses who computes which expert, and where.
bool pipeline::choose(layer_report &report) {
    if (!router_.select(step_, source_, pass_, report, guard_.is_on(guard::substitution)))
        return false;
    step_.weigh(source_, pass_);
    step_.group();
    work_.look_up(report);
    if (listeners_.watcher) listeners_.watcher->step(step_.view(), pass_, source_);
    observe();
    work_.settle();
    return work_.assign();
}

void pipeline::observe() {
    for (instance *policy : observers_)
        policy->call(entry_point::observer_observe, policy->observer->observe, step_.lent());
}

// A transfer has ended: its content is there, and its owner is told.
void pipeline::land(uint32_t transfer) {
    const transfer_record &record = transport_.record(transfer);
    if (record.link == link_disk) return work_.page_read(record.page);
    if (record.owned_by != owner::serve)
        memories_.ledger_of_page(record.page).land(record.page, record.segments);
    switch (record.owned_by) {
        case owner::demand:    // the items of the step have it, and release it
        case owner::prefetch:  // so do the entries of the buffer
            return;
        case owner::slot_prefetch:
        case owner::behind:
            return behind_.arrived(transfer);
        case owner::fill:
            --initial_fill_.under_way;
            return transport_.release(transfer);
        case owner::serve:  // nothing of it stays
            return transport_.release(transfer);
    }
}

void pipeline::piece_crossed(const completion &completion) {
    const uint32_t ended = transport_.piece_done(completion.tag, completion.duration_ns);
    if (ended != MOORAGE_NONE) land(ended);
}

void pipeline::handle(const completion &completion) {
    const instance::stepping mark;
    if (!account_.virtual_time) learn(completion);
    if (listeners_.events) show(completion);
    switch (completion.kind) {
        case event_kind::piece:
            return piece_crossed(completion);
        case event_kind::gate:
        case event_kind::head:
            progress_.awaited = progress_.awaited || completion.kind == progress_.awaiting;
            return;
        default:
            return work_.operation_ended(completion);
    }
}

void pipeline::end_step(layer_report &report) {
    const instance::stepping mark;
    account_.step_ended(executor_, layer());
    charge_to(layer() + 1);
    account_.experts_ns += (now_ns() - begin_.step_ns) * step_.view().token_count;
    work_.end(report);
    step_.advance(account_.tokens);
}

void pipeline::end_pass() {
    note_no_step();
    update_guard();
    account_.tokens += pass_.tokens.size();
    if (listeners_.events) show_pass();
    step_.tokens_done(account_.tokens);
    account_.pass_ended(pass_, now_ns());
    source_.pass_done(pass_, now_ns());
}

void pipeline::finish(run_report &report) {
    prefetch_.drain(account_.bytes);
    behind_.cancel();
    behind_.drop_unasked();
    MOORAGE_INVARIANT(memories_.is_consistent() &&
                      "what is there has a slot, and what has one is there or coming");
    charge_to(source_.layers());  // and with it what was charged before
    if (host_)
        report.host = {host_->slots(), host_->requested(), host_->hits(),
                       transport_.moved_bytes(link_disk) - host_->first_bytes(),
                       host_->first_bytes()};
    account_.report(executor_, memories_, transport_, budget_.is_per_layer(), report);
    report.has_predictions = prefetch_.is_active();
    report.faults = {faults_.counts().begin(), faults_.counts().end()};
    report.without_advice = {faults_.without_advice().begin(), faults_.without_advice().end()};
}

}  // namespace moorage::core
