// pipeline.cpp - one layer step from source to report, a stage at a time.
#include "core/pipeline/pipeline.h"

#include <algorithm>
#include <cassert>

#include "core/pipeline/policy_clock.h"

namespace moorage::core {

// Of every device.
static std::vector<instance *> all_of(instance *first, std::vector<instance *> more) {
    more.insert(more.begin(), first);
    return more;
}

pipeline::pipeline(const parts &of)
    : source_(*of.from),
      executor_(*of.where),
      now_ns_(*executor_.clock()),
      costs_(*of.costs),
      shown_(*of.shown),
      truth_(of.truth),
      faults_(*of.faults),
      router_(*of.policies.router, faults_, of.routing, source_.streams()),
      cache_(all_of(of.policies.cache, of.policies.more_caches), truth_, faults_),
      budget_(all_of(of.policies.budget, of.policies.more_budgets), faults_, truth_, cache_,
              of.slots, of.part_rows, of.per_layer),
      transport_(*of.policies.transport, executor_, faults_, of.transfers_max, source_.layers(),
                 source_.experts()),
      host_(of.host ? std::make_unique<host_store>(*of.policies.host_cache, *of.host, faults_,
                                                   transport_, costs_)
                    : nullptr),
      behind_(truth_, cache_, transport_, costs_, account_.bytes),
      prefetch_(*of.policies.prefetch, faults_, truth_, transport_, costs_, source_,
                of.buffer_slots),
      dispatch_(*of.policies.dispatch, faults_, {costs_, of.more_costs}, truth_, of.others,
                source_.experts()),
      guard_(of.guard, {true, prefetch_.active(), of.routing.lossy}),
      account_(source_.layers(), source_.streams(), executor_.virtual_time()),
      step_(source_, of.needs, of.hidden, costs_.shape().versions()),
      work_({.where = executor_,
             .costs = {costs_, of.more_costs},
             .truth = truth_,
             .cache = cache_,
             .transport = transport_,
             .host = host_.get(),
             .behind = behind_,
             .prefetch = prefetch_,
             .dispatch = dispatch_,
             .guarding = guard_,
             .account = account_,
             .step = step_,
             .tokens = pass_,
             .layers = source_.layers(),
             .buffer_slots = of.buffer_slots,
             .from_disk = of.from_disk,
             .others = of.others}),
      told_{of.watcher, of.clock, of.events} {
    if (truth_.devices() > 1) account_.devices.resize(truth_.devices());
    // One call per instance and step, however many stages it serves.
    const stages &all = of.policies;
    std::vector<instance *> each{all.router,   all.cache,    all.host_cache, all.budget,
                                 all.prefetch, all.dispatch, all.transport};
    each.insert(each.end(), all.more_caches.begin(), all.more_caches.end());
    each.insert(each.end(), all.more_budgets.begin(), all.more_budgets.end());
    for (instance *one : each)
        if (one && one->observer &&
            std::find(observers_.begin(), observers_.end(), one) == observers_.end())
            observers_.push_back(one);
    stands_.course = course();
    stands_.event.enter(stands_.course.handle());
}

bool pipeline::next_pass() {
    for (;;) {
        const stand now = go_on();
        if (now != stand::waiting) return now == stand::passed;
        // While anything of the step is open the course would only look and wait again.
        do handle(executor_.wait());
        while (work_.waits() && running());
    }
}

pipeline::stand pipeline::go_on() {
    stands_.where = stand::waiting;
    stands_.event.resume();
    if (stands_.course.ended()) stands_.where = stand::ended;
    return stands_.where;
}

// The whole run. It stops at co_await stands_.event, and stands_.where says why. Whenever it is
// resumed, it checks again what it waits for.
flow pipeline::course() {
    executor_.begin_run();
    const auto layers = static_cast<uint32_t>(account_.layers.size());
    while (running()) {
        if (arrangement_due()) co_await arrange();
        if (!running()) co_return;
        if (!source_.next(pass_)) {
            account_.charge_idle(executor_);
            if (source_.wakes_ns() == MOORAGE_NEVER) co_return;
            stands_.where = stand::idle;
            co_await stands_.event;
            charge_to(layers);
            continue;
        }
        begin_pass();
        for (uint32_t layer = 0; layer < layers; ++layer) {
            executor_.attention(layer, pass_);
            await(event_kind::gate);
            while (!stands_.awaited && running()) co_await stands_.event;
            while (prefetch_.awaits(layer) && running()) co_await stands_.event;
            if (!running()) co_return;
            step_.fill(source_, pass_, layer);
            if (!decide(account_.layers[layer])) co_return;
            while (running() && work_.open()) co_await stands_.event;
            end_step(account_.layers[layer]);
            if (!running()) co_return;
        }
        executor_.head(static_cast<uint32_t>(
            std::ranges::count_if(pass_.tokens, [](const pass_token &one) { return one.output; })));
        await(event_kind::head);
        while (!stands_.awaited && running()) co_await stands_.event;
        if (!stands_.awaited) co_return;
        end_pass();
        stands_.where = stand::passed;
        co_await stands_.event;
    }
}

// One layer step, from the gate's scores to the work that it starts.
bool pipeline::decide(layer_report &account) {
    const instance::stepping mark;
    note_step(layer(), account_.tokens);
    before_.step_ns = now_ns();
    if (!account_.timed([&] { return choose(account); })) return false;
    executor_.route(step_.computed(), step_.weights());
    if (!account_.timed([&] { return work_.load(); })) return false;
    work_.start();
    if (told_.clock) executor_.policies_took(told_.clock->untold_ns());
    if (told_.events) told_.events->decided(truth_, now_ns());
    return true;
}

// Chooses who computes which expert, and where.
bool pipeline::choose(layer_report &account) {
    if (!router_.select(step_, source_, pass_, account, guard_.on(guard::substitution)))
        return false;
    step_.weigh(source_, pass_);
    step_.group();
    work_.look_up(account);
    if (told_.watcher) told_.watcher->step(step_.view(), pass_, source_);
    observe();
    work_.settle();
    return work_.assign();
}

void pipeline::observe() {
    for (instance *one : observers_)
        one->call(entry_point::observe, one->observer->observe, step_.lent());
}

// A transfer has ended: its content is there, and its owner is told.
void pipeline::land(uint32_t transfer) {
    const transfer_record &record = transport_.record(transfer);
    if (record.link == link_disk) return work_.page_read(record.page);
    if (record.of != owner::serve) truth_.of(record.page).land(record.page, record.segments);
    switch (record.of) {
        case owner::demand:    // the items of the step have it, and release it
        case owner::prefetch:  // so do the entries of the buffer
            return;
        case owner::slot_prefetch:
        case owner::behind:
            return behind_.arrived(transfer);
        case owner::fill:
            --first_.under_way;
            return transport_.release(transfer);
        case owner::serve:  // nothing of it stays
            return transport_.release(transfer);
    }
}

void pipeline::piece_crossed(const completion &done) {
    const uint32_t ended = transport_.piece_done(done.tag, done.duration_ns);
    if (ended != MOORAGE_NONE) land(ended);
}

void pipeline::handle(const completion &done) {
    const instance::stepping mark;
    if (!account_.virtual_time) learn(done);
    if (told_.events) show(done);
    switch (done.kind) {
        case event_kind::piece:
            return piece_crossed(done);
        case event_kind::gate:
        case event_kind::head:
            stands_.awaited = stands_.awaited || done.kind == stands_.awaiting;
            return;
        default:
            return work_.done(done);
    }
}

void pipeline::end_step(layer_report &account) {
    const instance::stepping mark;
    account_.step_ended(executor_, layer());
    charge_to(layer() + 1);
    account_.experts_ns += (now_ns() - before_.step_ns) * step_.view().token_count;
    work_.end(account);
    step_.advance(account_.tokens);
}

void pipeline::end_pass() {
    note_no_step();
    compare_pass();
    account_.tokens += pass_.tokens.size();
    if (told_.events) show_pass();
    step_.tokens_done(account_.tokens);
    account_.pass_ended(pass_, now_ns());
    source_.pass_done(pass_, now_ns());
}

void pipeline::finish(run_report &report) {
    prefetch_.drain(account_.bytes);
    behind_.cancel();
    behind_.drop_unasked();
    assert(truth_.add_up() && "what is there has a slot, and what has one is there or coming");
    charge_to(source_.layers());  // and with it what was charged before
    if (host_)
        report.host = {host_->slots(), host_->requested(), host_->hits(),
                       transport_.moved_bytes(link_disk) - host_->first_bytes(),
                       host_->first_bytes()};
    account_.report(executor_, truth_, transport_, budget_.per_layer(), report);
    report.has_predictions = prefetch_.active();
    report.faults = {faults_.counts().begin(), faults_.counts().end()};
    report.without_advice = {faults_.without_advice().begin(), faults_.without_advice().end()};
}

}  // namespace moorage::core
