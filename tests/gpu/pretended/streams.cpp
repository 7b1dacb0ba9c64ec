// streams.cpp - advances steps: at random, at once, late, or on threads.
#include "tests/gpu/pretended/streams.h"

#include <algorithm>
#include <chrono>

namespace pretended {

namespace {

bool free_to_run(const step &one) {
    return !one.after || one.after->passed.load(std::memory_order_acquire) >= one.number;
}

// Without a lock: see stream::last_.
template <class Ready>
void wait_until(Ready &&ready) {
    for (uint32_t asked = 0; !ready(); ++asked)
        asked < 64 ? std::this_thread::yield()
                   : std::this_thread::sleep_for(std::chrono::microseconds(20));
}

}  // namespace

std::vector<told_word> &told() {
    static thread_local std::vector<told_word> words;
    return words;
}

void stream::run(const step &one) {
    if (one.run) one.run();
    const uint32_t fences = unseen_.empty() ? 0 : unseen_.back().fences + 1;
    for (told_word &word : told()) {
        word.fences += fences;
        unseen_.push_back(word);
    }
    told().clear();
    if (one.passes) one.passes->passed.store(one.number, std::memory_order_release);
}

void stream::show(size_t count, const std::function<uint32_t()> &random) {
    for (; count != 0 && !unseen_.empty(); --count) {
        const auto behind = std::ranges::find_if(
            unseen_, [&](const told_word &word) { return word.fences != unseen_.front().fences; });
        const auto next = unseen_.begin() + random() % (behind - unseen_.begin());
        std::atomic_ref(*next->to).store(next->bits, std::memory_order_release);
        unseen_.erase(next);
    }
}

stream::stream(order how) {
    if (how != order::threads) return;
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
    node *made = new node{std::move(next), {}};
    node *before = last_;
    last_ = made;
    before->next.store(made, std::memory_order_release);
}

void stream::loop(node *at) {
    for (;;) {
        node *next = nullptr;
        wait_until([&] {
            next = at->next.load(std::memory_order_acquire);
            return next || stop_.load(std::memory_order_acquire);
        });
        delete at;
        if (!next) return;
        at = next;
        wait_until([&] { return free_to_run(at->what); });
        run(at->what);
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
    return !steps_.empty() && free_to_run(steps_.front()) && (told_all() || !steps_.front().passes);
}

void stream::move() {
    const step front = std::move(steps_.front());
    steps_.pop_front();
    run(front);
}

all_streams::all_streams(const settings &how)
    : how_(how), state_(how.seed * 2654435761u + 1), moves_left_(how.moves) {
    for (uint32_t device = 0; device < how.devices; ++device) make(device);
}

stream *all_streams::make(uint32_t device) {
    streams_.push_back(std::make_unique<stream>(how_.how));
    streams_.back()->device = device;
    return streams_.back().get();
}

// Work that the stream was given still runs.
void all_streams::destroy(stream *one) {
    finish(*one);
    std::erase_if(streams_, [&](const auto &own) { return own.get() == one; });
}

bool all_streams::move(stream &one) {
    if (!one.can_move() || moves_left_ == 0) return false;
    --moves_left_;
    one.move();
    if (how_.how == order::eager) show(one, SIZE_MAX);
    return true;
}

void all_streams::show(stream &one, size_t count) {
    one.show(count, [this] { return random(); });
}

void all_streams::submit(stream &to, step next) {
    if (how_.deaf && next.after) return;
    to.submit(std::move(next));
    if (how_.how != order::eager) return;
    for (bool moved = true; moved;) {
        moved = false;
        for (const auto &one : streams_) moved = move(*one) || moved;
    }
}

// Every few hundred steps each stream gets its own pace: some run ahead, some hardly move.
stream &all_streams::draw() {
    if (turns_++ % 256 == 0)
        for (const auto &one : streams_) one->weight = 1u << (random() % 4 * 3);
    uint32_t all = 0;
    for (const auto &one : streams_) all += one->weight;
    uint32_t at = random() % all;
    size_t which = 0;
    while (at >= streams_[which]->weight) at -= streams_[which++]->weight;
    return *streams_[which];
}

// Advances only the work that the event's recording needs, so that all other work starves.
bool all_streams::advance(const event &to, uint64_t number) {
    while (to.passed.load() < number) {
        stream &on = *to.where;
        if (move(on)) continue;
        if (!on.told_all()) return true;  // the host sees it bit by bit
        const step *front = on.front();
        if (moves_left_ == 0) return false;
        if (front && front->after && front->after->where != &on) {
            if (!advance(*front->after, front->number)) return false;
            continue;
        }
        // It has been recorded elsewhere since.
        bool moved = false;
        for (const auto &one : streams_) moved = move(*one) || moved;
        if (!moved) return false;
    }
    return true;
}

bool all_streams::query(event &of) {
    if (how_.how != order::threads)
        for (const auto &one : streams_) show(*one, random() % (one->unseen() / 4 + 2));
    switch (how_.how) {
        case order::drawn:
            move(draw());
            break;
        case order::lazy:
            if (of.reached() || !of.where) break;
            if (of.where->asked++ < of.where->patience) break;
            of.where->asked = 0;
            of.where->patience = random() % 3 == 0 ? random() % 200 : random() % 2;
            advance(of, of.recorded);
            break;
        case order::threads:
            if (!of.reached()) std::this_thread::yield();
            break;
        case order::eager:
            break;
    }
    return of.reached();
}

bool all_streams::finish(stream &one) {
    if (how_.how == order::threads) {
        wait_until([&] { return one.idle(); });
        return true;
    }
    while (!one.idle()) {
        if (moves_left_ == 0) return false;
        for (const auto &other : streams_) {
            show(*other, SIZE_MAX);
            move(*other);
        }
    }
    show(one, SIZE_MAX);
    return true;
}

bool all_streams::finish(uint32_t device) {
    return std::ranges::all_of(
        streams_, [&](const auto &one) { return one->device != device || finish(*one); });
}

}  // namespace pretended
