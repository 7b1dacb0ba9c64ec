// streams.cpp - advances steps: at random, at once, late, or on threads.
#include "tests/gpu/pretended/streams.h"

#include <algorithm>
#include <chrono>

namespace pretended {

namespace {

bool can_run(const step &step) {
    return !step.awaited_event ||
           step.awaited_event->passed.load(std::memory_order_acquire) >= step.number;
}

// Without a lock: see stream::last_.
template <class Ready>
void wait_until(Ready &&ready) {
    for (uint32_t asked = 0; !ready(); ++asked)
        asked < 64 ? std::this_thread::yield()
                   : std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace

std::vector<told_word> &told_words() {
    static thread_local std::vector<told_word> words;
    return words;
}

void stream::run(const step &step) {
    if (step.run) step.run();
    const uint32_t fences = unseen_.empty() ? 0 : unseen_.back().fences + 1;
    for (told_word &word : told_words()) {
        word.fences += fences;
        unseen_.push_back(word);
    }
    told_words().clear();
    if (step.passed_event) step.passed_event->passed.store(step.number, std::memory_order_release);
}

void stream::show(size_t count, const std::function<uint32_t()> &random) {
    for (; count != 0 && !unseen_.empty(); --count) {
        const auto behind = std::ranges::find_if(
            unseen_, [&](const told_word &word) { return word.fences != unseen_.front().fences; });
        const auto next = unseen_.begin() + random() % (behind - unseen_.begin());
        std::atomic_ref(*next->address).store(next->bits, std::memory_order_release);
        unseen_.erase(next);
    }
}

stream::stream(order stream_order) {
    if (stream_order != order::threads) return;
    last_ = new node;
    thread_ = std::thread([this, first = last_] { loop(first); });
}

stream::~stream() {
    if (!thread_.joinable()) return;
    stop_.store(true, std::memory_order_release);
    thread_.join();
}

void stream::submit(step next) {
    if (!thread_.joinable()) {
        steps_.push_back(std::move(next));
        return;
    }
    ++submitted_;
    node *added = new node{std::move(next), {}};
    node *previous = last_;
    last_ = added;
    previous->next.store(added, std::memory_order_release);
}

void stream::loop(node *current) {
    for (;;) {
        node *next = nullptr;
        wait_until([&] {
            next = current->next.load(std::memory_order_acquire);
            return next || stop_.load(std::memory_order_acquire);
        });
        delete current;
        if (!next) return;
        current = next;
        wait_until([&] { return can_run(current->queued_step); });
        run(current->queued_step);
        show(SIZE_MAX, [&, state = uint64_t{0x9e3779b97f4a7c15}]() mutable {
            state = state * 6364136223846793005u + done_.load(std::memory_order_relaxed) * 2 + 1;
            return static_cast<uint32_t>(state >> 33);
        });
        done_.fetch_add(1, std::memory_order_release);
    }
}

bool stream::idle() const {
    return thread_.joinable() ? done_.load(std::memory_order_acquire) == submitted_
                              : steps_.empty();
}

// An event behind a kernel's words passes once the host can see all of them.
bool stream::can_move() const {
    return !steps_.empty() && can_run(steps_.front()) &&
           (has_shown_all() || !steps_.front().passed_event);
}

void stream::move() {
    const step front = std::move(steps_.front());
    steps_.pop_front();
    run(front);
}

all_streams::all_streams(const settings &settings)
    : settings_(settings),
      state_(settings.seed * 2654435761u + 1),
      moves_left_(settings.moves_max) {
    for (uint32_t device = 0; device < settings.devices; ++device) make(device);
}

stream *all_streams::make(uint32_t device) {
    streams_.push_back(std::make_unique<stream>(settings_.stream_order));
    streams_.back()->device = device;
    return streams_.back().get();
}

// Work that the stream was given still runs.
void all_streams::destroy(stream *stream) {
    finish(*stream);
    std::erase_if(streams_, [&](const auto &owned) { return owned.get() == stream; });
}

bool all_streams::move(stream &stream) {
    if (!stream.can_move() || moves_left_ == 0) return false;
    --moves_left_;
    stream.move();
    if (settings_.stream_order == order::eager) show(stream, SIZE_MAX);
    return true;
}

void all_streams::show(stream &stream, size_t count) {
    stream.show(count, [this] { return random(); });
}

void all_streams::submit(stream &target, step next) {
    if (settings_.ignores_events && next.awaited_event) return;
    target.submit(std::move(next));
    if (settings_.stream_order != order::eager) return;
    for (bool moved = true; moved;) {
        moved = false;
        for (const auto &stream : streams_) moved = move(*stream) || moved;
    }
}

// Every few hundred steps each stream gets its own pace: some run ahead, some hardly move.
stream &all_streams::draw() {
    if (turns_++ % 256 == 0)
        for (const auto &stream : streams_) stream->weight = 1u << (random() % 4 * 3);
    uint32_t total = 0;
    for (const auto &stream : streams_) total += stream->weight;
    uint32_t position = random() % total;
    size_t which = 0;
    while (position >= streams_[which]->weight) position -= streams_[which++]->weight;
    return *streams_[which];
}

// Advances only the work that the event's recording needs, so that all other work starves.
bool all_streams::advance(const event &event, uint64_t number) {
    while (event.passed.load() < number) {
        stream &awaited = *event.recorded_on;
        if (move(awaited)) continue;
        if (!awaited.has_shown_all()) return true;  // the host sees it bit by bit
        const step *front = awaited.front();
        if (moves_left_ == 0) return false;
        if (front && front->awaited_event && front->awaited_event->recorded_on != &awaited) {
            if (!advance(*front->awaited_event, front->number)) return false;
            continue;
        }
        // It has been recorded elsewhere since.
        bool moved = false;
        for (const auto &stream : streams_) moved = move(*stream) || moved;
        if (!moved) return false;
    }
    return true;
}

bool all_streams::query(event &event) {
    if (settings_.stream_order != order::threads)
        for (const auto &stream : streams_)
            show(*stream, random() % (stream->unseen_count() / 4 + 2));
    switch (settings_.stream_order) {
        case order::drawn:
            move(draw());
            break;
        case order::lazy:
            if (event.has_passed() || !event.recorded_on) break;
            if (event.recorded_on->asked++ < event.recorded_on->patience) break;
            event.recorded_on->asked = 0;
            event.recorded_on->patience = random() % 3 == 0 ? random() % 200 : random() % 2;
            advance(event, event.recorded);
            break;
        case order::threads:
            if (!event.has_passed()) std::this_thread::yield();
            break;
        case order::eager:
            break;
    }
    return event.has_passed();
}

bool all_streams::finish(stream &stream) {
    if (settings_.stream_order == order::threads) {
        wait_until([&] { return stream.idle(); });
        return true;
    }
    while (!stream.idle()) {
        if (moves_left_ == 0) return false;
        for (const auto &moving : streams_) {
            show(*moving, SIZE_MAX);
            move(*moving);
        }
    }
    show(stream, SIZE_MAX);
    return true;
}

bool all_streams::finish(uint32_t device) {
    return std::ranges::all_of(
        streams_, [&](const auto &stream) { return stream->device != device || finish(*stream); });
}

}  // namespace pretended
