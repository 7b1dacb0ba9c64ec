// pipeline.cpp - one layer step from source to report, a stage at a time.
#include "core/pipeline/pipeline.h"

#include <algorithm>
#include <cassert>

namespace moorage::core {

pipeline::pipeline(const parts &of)
    : source_(*of.from),
      executor_(*of.where),
      costs_(*of.costs),
      shown_(*of.shown),
      truth_(*of.truth),
      faults_(*of.faults),
      router_(*of.policies.router, faults_, of.routing, source_.streams()),
      cache_(*of.policies.cache, truth_, faults_),
      budget_(*of.policies.budget, faults_, truth_, cache_, of.slots, of.part_rows),
      transport_(*of.policies.transport, executor_, faults_, of.transfers_max, source_.layers(),
                 source_.experts()),
      host_(of.host ? std::make_unique<host_store>(*of.policies.host_cache, *of.host, faults_,
                                                   transport_, costs_)
                    : nullptr),
      behind_(truth_, cache_, transport_, costs_),
      prefetch_(*of.policies.prefetch, faults_, truth_, transport_, costs_, source_,
                of.buffer_slots),
      remote_(of.others, source_.experts()),
      dispatch_(*of.policies.dispatch, faults_, costs_, of.others, source_.experts()),
      guard_(of.guard, {true, prefetch_.active(), of.routing.lossy}),
      per_layer_(of.per_layer),
      virtual_time_(executor_.virtual_time()),
      from_disk_(of.from_disk),
      predicts_(prefetch_.from_resident() && executor_.predicts()),
      step_(source_, of.needs),
      account_(source_.layers(), source_.streams()),
      watcher_(of.watcher) {
    // One call per instance and step, however many stages it serves.
    const stages &all = of.policies;
    for (instance *one : {all.router, all.cache, all.host_cache, all.budget, all.prefetch,
                          all.dispatch, all.transport})
        if (one && one->observer &&
            std::find(observers_.begin(), observers_.end(), one) == observers_.end())
            observers_.push_back(one);
    const size_t items = source_.experts();
    items_.reserve(items);
    places_of_items_.resize(items);
    taken_.reserve(of.buffer_slots);
    to_cache_.reserve(items);
    to_cache_items_.reserve(items);
    placed_.resize(items);
    waiting_.reserve(2 * items);
    read_first_.reserve(items);
    predict_from_.reserve(items);
    course_ = course();
    event_.enter(course_.handle());
}

bool pipeline::next_pass() {
    for (;;) {
        const stand now = go_on();
        if (now != stand::waiting) return now == stand::passed;
        // While anything of the step is open the course would only look and wait again.
        do handle(executor_.wait());
        while (open_ != 0 && running());
    }
}

pipeline::stand pipeline::go_on() {
    stand_ = stand::waiting;
    event_.resume();
    if (course_.ended()) stand_ = stand::ended;
    return stand_;
}

// The whole run. It stands at co_await event_, with stand_ saying why, and looks again at what it
// waits for whenever it is resumed.
flow pipeline::course() {
    while (running()) {
        if (arrangement_due()) co_await arrange();
        if (!running()) co_return;
        if (!source_.next(pass_)) {
            if (source_.wakes_ns() == MOORAGE_NEVER) co_return;
            stand_ = stand::idle;
            co_await event_;
            continue;
        }
        begin_pass();
        for (uint32_t layer = 0; layer < source_.layers(); ++layer) {
            executor_.attention(layer, pass_);
            await(event_kind::gate);
            while (!awaited_ && running()) co_await event_;
            while (prefetch_.awaits(layer) && running()) co_await event_;
            if (!running()) co_return;
            step_.fill(source_, pass_, layer);
            if (!decide(account_.layers[layer])) co_return;
            while (computing()) co_await event_;
            end_step(account_.layers[layer]);
            if (!running()) co_return;
        }
        executor_.head(static_cast<uint32_t>(
            std::ranges::count_if(pass_.tokens, [](const pass_token &one) { return one.output; })));
        await(event_kind::head);
        while (!awaited_ && running()) co_await event_;
        if (!awaited_) co_return;
        end_pass();
        stand_ = stand::passed;
        co_await event_;
    }
}

// One layer step, from the gate's scores to the work that it starts.
bool pipeline::decide(layer_report &account) {
    const instance::stepping mark;
    note_step(layer(), account_.tokens);
    decided_ns_ = now_ns();
    if (!timed([&] { return choose(account); })) return false;
    executor_.route(step_.chosen(), step_.weights());
    // Room in the cache, demand transfers.
    if (!timed([&] { return load_missing(); })) return false;
    start_compute();
    if (prefetches() && !predicting_) plan_prefetch();  // else as soon as it is predicted
    return true;
}

// Who computes what, where.
bool pipeline::choose(layer_report &account) {
    if (!router_.select(step_, source_, pass_, account, guard_.on(guard::substitution)))
        return false;
    step_.weigh(source_, pass_);
    step_.group();
    find_items(account);  // looks up and pins
    if (host_)
        for (const step_item &item : items_)
            if (item.missing != 0) host_->hold(item.page);
    if (watcher_) watcher_->step(step_.view(), pass_, source_);
    observe();
    prefetch_.settle(step_, taken_, account_.bytes);  // cuts off what was not asked for
    join_transfers();
    const uint64_t backlog_ns = load_backlog_ns();
    const uint64_t behind_bytes = behind_.left_bytes();
    if (!dispatch_.assign(step_, items_, backlog_ns, 0,
                          behind_bytes == 0 ? 0 : costs_.load_ns(behind_bytes)))
        return false;
    if (!guard_.on(guard::cache)) load_no_more();
    if (from_disk_) compute_all_here();
    return true;
}

// Counts hits by what is resident now, and pins every expert of the step. Resident experts come
// first, each group in the order of the step.
void pipeline::find_items(layer_report &account) {
    const moorage_step &view = step_.view();
    const uint32_t count = view.distinct_count, base = view.layer * view.experts;
    const uint32_t *const distinct = step_.distinct(), *const tokens = step_.distinct_tokens();
    uint32_t whole = 0, partial = 0;
    for (uint32_t i = 0; i < count; ++i) whole += truth_.whole(base + distinct[i]);
    items_.resize(count);
    step_item *const items = items_.data();
    uint32_t *const places = places_of_items_.data();
    uint32_t next_whole = 0, next_missing = whole;
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t page = base + distinct[i];
        const ledger::found found = truth_.pin(page);
        const uint32_t place = found.missing == 0 ? next_whole++ : next_missing++;
        places[i] = place;
        step_item &item = items[place];
        item.begin(distinct[i], page, tokens[i]);
        item.missing = found.missing;
        item.cached = found.kept;
        partial += found.partly;
    }
    account.experts.requested += count;
    account.experts.hits += whole;
    account.experts.partial_hits += partial;
    account.experts.misses += count - whole - partial;
    if (!prefetch_.active()) return;
    static const lent_vector<uint32_t> nothing;
    const lent_vector<uint32_t> &predicted =
        std::exchange(foretold_, false) ? prefetch_.predicted(view.layer) : nothing;
    step_.predicted(predicted);
    if (predicted.empty()) return;
    account.predicted += view.distinct_count;
    const size_t first = std::min<size_t>(predicted.size(), view.distinct_count);
    for (size_t i = 0; i < first; ++i)
        account.predicted_right += step_.item_of(predicted[i]) != MOORAGE_NONE;
}

void pipeline::observe() {
    for (instance *one : observers_)
        one->call(entry_point::observe, one->observer->observe, step_.lent());
}

// The index of a segment's transfer in step_item; a whole expert goes with its top.
static uint32_t part_of(uint8_t segments) { return segments == MOORAGE_BOTTOM ? 1 : 0; }

// Tells items of transfers under way.
void pipeline::join_transfers() {
    for (const prefetch_stage::taken &one : taken_) {
        step_item &item = items_[places_of_items_[step_.item_of(one.page % truth_.experts())]];
        item.transfers[part_of(one.segments)] = one.transfer;
    }
    for (step_item &item : items_) {
        if (item.missing == 0) continue;
        if (host_) item.read_ns = host_->wait_ns(item.page);
        item.load_left_bytes =
            costs_.expert_bytes(share(item.missing)) - behind_.moved_bytes(item.page);
        for (const uint32_t id : item.transfers) {
            if (id == MOORAGE_NONE) continue;
            item.load_left_bytes -= transport_.record(id).moved_bytes;
        }
    }
}

// Late prefetches of an expert that is computed elsewhere after all: settle() took them for used.
void pipeline::give_up_prefetch(step_item &item) {
    for (const uint32_t id : item.transfers) {
        if (id == MOORAGE_NONE) continue;
        transport_.cancel(id);
        const transfer_record &record = transport_.record(id);
        const uint64_t sent = record.bytes - record.unsent_bytes;
        account_.bytes.prefetch_used -= sent;
        account_.bytes.prefetch_wasted += sent;
        account_.bytes.prefetch_cut_off += sent;
        truth_.give_up(item.page, record.segments);
    }
}

// A processor whose experts are on disk has no second place to compute them from: what the dispatch
// policy leaves to the CPU is read, too, but passes through.
void pipeline::compute_all_here() {
    for (step_item &item : items_) {
        if (item.site != MOORAGE_SITE_CPU) continue;
        item.site = MOORAGE_SITE_GPU;
        item.passes = item.missing != 0 && !item.behind;
        item.behind = false;
    }
}

// Gives every expert that will be on the GPU its slot in the cache, as far as there are any; the
// others pass through the staging slots. What is missing is marked as in flight.
bool pipeline::load_missing() {
    to_cache_.clear();
    to_cache_items_.clear();
    bool later = false;
    for (uint32_t i = 0, count = static_cast<uint32_t>(items_.size()); i < count; ++i) {
        step_item &item = items_[i];
        if (item.missing == 0 && item.cached) {
            item.behind = false;
            continue;
        }
        if (item.site != MOORAGE_SITE_GPU && item.missing != 0) {
            give_up_prefetch(item);
            const bool starts = item.behind && !item.cached && item.missing == MOORAGE_WHOLE;
            item.behind = starts || behind_.under_way(item.page);
            later |= starts;
            continue;
        }
        item.behind = false;
        if (behind_.under_way(item.page)) item.transfers[0] = behind_.take(item.page);
        truth_.expect_passing(item.page, item.missing);
        if (item.cached || item.passes) continue;
        to_cache_.push_back(item.page);
        to_cache_items_.push_back(i);
    }
    return (to_cache_.empty() || find_room()) && (!later || load_later());
}

// Starts the loads that nobody waits for. Those under way already go on.
bool pipeline::load_later() {
    to_cache_.clear();
    to_cache_items_.clear();
    for (uint32_t i = 0; i < items_.size(); ++i) {
        if (!items_[i].behind || items_[i].cached) continue;
        truth_.free_rows(items_[i].page, MOORAGE_WHOLE);  // of a prefetch that was given up
        to_cache_.push_back(items_[i].page);
        to_cache_items_.push_back(i);
    }
    if (to_cache_.empty()) return true;
    if (!behind_.start(to_cache_, started_)) return false;
    for (size_t n = 0; n < to_cache_.size(); ++n) items_[to_cache_items_[n]].behind = started_[n];
    return true;
}

bool pipeline::find_room() {
    if (!guard_.on(guard::cache) && step_.view().phase == MOORAGE_PREFILL) {  // displaces nothing
        const uint32_t spare = truth_.free(truth_.pool_of_layer(layer()));
        to_cache_.resize(std::min<size_t>(to_cache_.size(), spare));
    }
    const std::span<placement_in_cache> placed(placed_.data(), to_cache_.size());
    if (!cache_.load(to_cache_, MOORAGE_DEMAND, false, placed)) return false;
    for (size_t n = 0; n < to_cache_.size(); ++n) {
        step_item &item = items_[to_cache_items_[n]];
        item.cached = placed[n].cached;
        if (placed[n].victim != MOORAGE_NONE) release({&placed[n].victim, 1});
        if (placed[n].victim != MOORAGE_NONE || !item.cached) guard_.matters(guard::cache);
        if (item.cached) truth_.adopt(item.page);
    }
    return true;
}

// Queues the segments of an item on the GPU, after the transfer that brings them.
void pipeline::start_segment(uint32_t index, uint8_t segments) {
    step_item &item = items_[index];
    const bool there = (item.missing & segments) == 0;
    const uint32_t transfer = there ? MOORAGE_NONE : item.transfers[part_of(segments)];
    executor_.expert_on_gpu({item.page, item.tokens, share(segments), transfer, index, segments});
    ++item.open;
    ++open_;
}

// It reads host memory, where the expert may have to come to first.
void pipeline::start_on_cpu(uint32_t index) {
    step_item &item = items_[index];
    account_.activation_bytes += costs_.activation_bytes(item.tokens);
    ++item.open;
    ++open_;
    if (host_ && !host_->use(item.page, owner::demand))
        read_first_.push_back(index);
    else
        executor_.expert_on_cpu({item.page, item.tokens, 1, MOORAGE_NONE, index});
}

void pipeline::used_on_cpu(const completion &done) {
    if (done.kind == event_kind::cpu_expert) host_->done(items_[done.tag].page);
}

// A page has come from disk.
void pipeline::page_read(uint32_t page) {
    host_->landed(page);
    std::erase_if(read_first_, [&](uint32_t index) {
        const step_item &item = items_[index];
        if (item.page != page) return false;
        executor_.expert_on_cpu({page, item.tokens, 1, MOORAGE_NONE, index});
        return true;
    });
}

// The GPU stream runs in order, so what need not wait goes first: resident experts and segments,
// then what comes, in the order of the dispatch policy. What the arena has no room for waits until
// something that was staged has been computed.
void pipeline::start_compute() {
    waiting_.clear();
    next_waiting_ = 0;
    remote_.clear();
    const bool split = truth_.rows().split(layer());
    for (const uint32_t index : dispatch_.order()) {
        step_item &item = items_[index];
        if (item.site >= MOORAGE_SITE_REMOTE) {
            remote_.add(index);
        } else if (item.site == MOORAGE_SITE_CPU) {
            start_on_cpu(index);
        } else if (!split) {
            if (item.missing == 0) start_segment(index, MOORAGE_WHOLE);
        } else if (!(item.missing & MOORAGE_TOP)) {
            start_segment(index, MOORAGE_TOP);
            if (item.missing == 0) start_segment(index, MOORAGE_BOTTOM);
        }
    }
    if (!remote_.empty()) open_ += remote_.start(step_, items_);
    if (predicts_ && prefetches() && layer() + 1 < source_.layers()) predict();
    for (const uint32_t index : dispatch_.order()) {
        const step_item &item = items_[index];
        if (item.site != MOORAGE_SITE_GPU || item.missing == 0) continue;
        if (!split) {
            waiting_.emplace_back(index, uint8_t{MOORAGE_WHOLE});
            continue;
        }
        if (item.missing & MOORAGE_TOP) waiting_.emplace_back(index, uint8_t{MOORAGE_TOP});
        waiting_.emplace_back(index, uint8_t{MOORAGE_BOTTOM});
    }
    start_waiting();
}

// From what the GPU has by then: shared experts, and those that are resident as a whole.
void pipeline::predict() {
    predict_from_.clear();
    for (const step_item &item : items_)
        if (item.site == MOORAGE_SITE_GPU && item.missing == 0)
            predict_from_.push_back(item.expert);
    executor_.predict(layer(), pass_, predict_from_);
    predicting_ = true;
    ++open_;
}

void pipeline::plan_prefetch() {
    foretold_ = true;
    timed([&] {
        prefetch_.plan(step_, pass_, window_ns(), load_backlog_ns(), held_frames());
        return true;
    });
}

// Segments of one expert stay in order because the queue is.
void pipeline::start_waiting() {
    for (; next_waiting_ < waiting_.size(); ++next_waiting_) {
        const auto [index, segments] = waiting_[next_waiting_];
        step_item &item = items_[index];
        uint32_t &transfer = item.transfers[part_of(segments)];
        if ((item.missing & segments) != 0 && transfer == MOORAGE_NONE) {
            if (!truth_.has_room(item.page, segments, item.cached)) return;
            truth_.take_rows(item.page, segments, item.cached);
            transfer = transport_.submit(owner::demand, link_h2d, item.page, segments,
                                         costs_.expert_bytes(share(segments)), now_ns());
        }
        start_segment(index, segments);
    }
}

// Whether something of the step is still to come. Nothing under way frees room for what still
// waits only when prefetched segments took it all: they are given up then.
bool pipeline::computing() {
    if (!running()) return false;
    if (open_ == 0 && next_waiting_ != waiting_.size()) {
        prefetch_.drain(account_.bytes);
        start_waiting();
        assert(open_ != 0 && "the staging slots are for demand alone");
    }
    return open_ != 0;
}

// What the cache does not keep leaves the arena as soon as it has been computed: first for what the
// step still waits for, then for prefetches that found no room.
void pipeline::segment_done(step_item &item, uint8_t segments) {
    const uint8_t kept = item.cached ? cached_segments() : uint8_t{0};
    if (segments & kept) return;
    truth_.free_rows(item.page, segments);
    room_freed();
}

void pipeline::room_freed() {
    start_waiting();
    if (prefetch_.orders_wait()) prefetch_.order_again(held_frames());
}

// A top segment that came by way of the buffer, and that the cache keeps, moves to its slot once it
// has been computed.
void pipeline::move_top(step_item &item) {
    if (!item.cached || !truth_.rows().must_move(item.page)) return;
    const auto index = static_cast<uint32_t>(&item - items_.data());
    executor_.move_top(
        {item.page, 0, share(MOORAGE_TOP), MOORAGE_NONE, index, uint8_t{MOORAGE_TOP}},
        truth_.take_slot(item.page));
    ++item.open;
    ++open_;
}

// Frames of the buffer that experts of the step hold until it ends: those that came out of it, but
// for whole ones that are cached now.
uint32_t pipeline::held_frames() const {
    uint32_t held = 0;
    for (size_t i = 0; i < taken_.size(); ++i) {
        const uint32_t page = taken_[i].page;
        const auto same = [&](const prefetch_stage::taken &one) { return one.page == page; };
        if (std::any_of(taken_.begin(), taken_.begin() + static_cast<ptrdiff_t>(i), same)) continue;
        const auto item = std::ranges::find(items_, page, &step_item::page);
        held += truth_.rows().in_frame(page) &&
                (truth_.rows().split(layer()) || (item != items_.end() && !item->cached));
    }
    return held;
}

uint64_t pipeline::load_backlog_ns() const {
    const uint64_t bytes = transport_.demand_backlog_bytes(link_h2d);
    return bytes == 0 ? 0 : costs_.load_ns(bytes);
}

// Until the next layer is routed, as far as it can be foreseen: the longer of what the link and the
// GPU still have to do for this layer, then attention and the hand-over of the gate's result.
uint64_t pipeline::window_ns() const {
    uint64_t gpu_ns = 0;
    for (const step_item &item : items_) {
        const bool done = item.open == 0 && item.run_ns != 0;
        if (item.site == MOORAGE_SITE_GPU && !done) gpu_ns += costs_.gpu_expert_ns(item.tokens, 1);
    }
    const bool last = step_.view().layer + 1 == source_.layers();
    const uint64_t head_ns = last ? costs_.head_ns(pass_.tokens.size()) : 0;
    return std::max(gpu_ns, load_backlog_ns()) + head_ns + attention_ns() + costs_.sync_ns();
}

// A transfer has ended: what it brought is there, and its owner is told.
void pipeline::land(uint32_t transfer) {
    const transfer_record &record = transport_.record(transfer);
    if (record.link == link_disk) return page_read(record.page);
    if (record.of != owner::serve) truth_.land(record.page, record.segments);
    switch (record.of) {
        case owner::demand:    // the items of the step have it, and release it
        case owner::prefetch:  // so do the entries of the buffer
            return;
        case owner::behind:
            return behind_.arrived(transfer);
        case owner::fill:
            --filling_;
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
    if (!virtual_time_) learn(done);
    switch (done.kind) {
        case event_kind::piece:
            return piece_crossed(done);
        case event_kind::gpu_expert:
        case event_kind::cpu_expert:
        case event_kind::remote_expert: {
            step_item &item = items_[done.tag];
            item.run_ns += done.duration_ns;
            --item.open;
            --open_;
            const bool on_gpu = done.kind == event_kind::gpu_expert;
            if (host_ && !on_gpu) [[unlikely]]
                used_on_cpu(done);
            if (on_gpu ? (done.segments & MOORAGE_TOP) != 0 : item.missing == 0) move_top(item);
            if (on_gpu) segment_done(item, done.segments);
            return;
        }
        case event_kind::moved: {
            step_item &item = items_[done.tag];
            truth_.moved(item.page);
            --item.open;
            --open_;
            room_freed();
            return;
        }
        case event_kind::prediction:
            predicting_ = false;
            --open_;
            return plan_prefetch();
        case event_kind::gate:
        case event_kind::head:
            awaited_ = awaited_ || done.kind == awaiting_;
            return;
    }
}

// Unpins, drops what got no slot, and tells the dispatch policy what its choices took.
void pipeline::end_step(layer_report &account) {
    const instance::stepping mark;
    for (step_item &item : items_) {
        truth_.unpin(item.page, item.cached || item.behind);
        if (host_ && item.missing != 0) host_->let_go(item.page);
        if (item.site == MOORAGE_SITE_CPU) ++account.experts.on_cpu;
        if (item.site >= MOORAGE_SITE_REMOTE) ++account.experts.remote;
        bool loaded = false;
        for (const uint32_t id : item.transfers) {
            if (id == MOORAGE_NONE) continue;
            item.load_ns += transport_.record(id).busy_ns;
            loaded = item.site == MOORAGE_SITE_GPU;
            transport_.release(id);
        }
        account.experts.loaded += loaded;
    }
    account_.step_ended(executor_, layer());
    charge_to(layer() + 1);
    account_.experts_ns += (now_ns() - decided_ns_) * step_.view().token_count;
    dispatch_.outcome(step_.view().layer, items_);
    step_.advance(account_.tokens);
}

void pipeline::end_pass() {
    note_no_step();
    compare_pass();
    account_.tokens += pass_.tokens.size();
    step_.tokens_done(account_.tokens);
    account_.pass_ended(pass_, now_ns());
    source_.pass_done(pass_, now_ns());
}

void pipeline::finish(run_report &report) {
    prefetch_.drain(account_.bytes);
    behind_.cancel();
    assert(truth_.adds_up() && "what is there has a slot, and what has one is there or coming");
    charge_to(source_.layers());  // and with it what was charged before
    if (host_)
        report.host = {host_->slots(), host_->requested(), host_->hits(),
                       transport_.moved_bytes(link_disk) - host_->first_bytes(),
                       host_->first_bytes()};
    account_.report(executor_, truth_, transport_, per_layer_, report);
    report.has_predictions = prefetch_.active();
    report.faults = {faults_.counts().begin(), faults_.counts().end()};
    report.without_advice = {faults_.without_advice().begin(), faults_.without_advice().end()};
}

}  // namespace moorage::core
