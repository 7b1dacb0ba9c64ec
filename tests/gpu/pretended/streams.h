// streams.h - the queues of the pretended GPU: steps in order, events between them, and the rules
// by which they advance.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/gpu/pretended/pretended.h"

namespace pretended {

using work = std::function<double()>;  // the seconds that it takes, where time is kept

struct capture;
class stream;

// A word that a kernel writes to host memory. The host sees it some time after the kernel has run
// and before a later event has passed. Words between two fences arrive in any order.
struct told_word {
    uint32_t *address, bits, fences;  // before it
};
// Words written by the step that the calling thread runs.
std::vector<told_word> &told_words();

struct event {
    std::atomic<uint64_t> passed{0};  // how many of its recordings the streams have reached
    uint64_t recorded = 0;
    uint32_t device = 0;
    double at_s = 0;
    stream *recorded_on = nullptr;  // of the last recording
    std::shared_ptr<capture>
        recording_capture;       // the last recording is of this capture, not of a queue
    uint64_t capture_steps = 0;  // steps of `recorded_on` in the capture before it
    bool has_passed() const { return passed.load(std::memory_order_acquire) >= recorded; }
};

// Waits for `awaited_event`, works, then passes `passed_event`.
struct step {
    work run;
    event *awaited_event = nullptr, *passed_event = nullptr;
    uint64_t number = 0;  // of the event's recordings
};

class stream {
public:
    explicit stream(order stream_order);
    ~stream();
    stream(const stream &) = delete;

    void submit(step next);
    bool idle() const;
    // Not for streams that are threads: whether the front can run; if so, runs it.
    bool can_move() const;
    void move();
    const step *front() const { return steps_.empty() ? nullptr : &steps_.front(); }
    // Shows the host `count` more of its words, drawn by `random`.
    void show(size_t count, const std::function<uint32_t()> &random);
    size_t unseen_count() const { return unseen_.size(); }
    bool has_shown_all() const { return unseen_.empty(); }

    uint32_t device = 0;
    int priority = 0;
    std::shared_ptr<capture> capturing;
    uint32_t weight = 1;               // how often it is this one that moves on; of order::drawn
    uint32_t patience = 0, asked = 0;  // of order::lazy
    double free_s = 0;                 // time at which its queued work ends, if time is kept

private:
    struct node {
        step queued_step;
        std::atomic<node *> next{nullptr};
    };
    void loop(node *current);
    void run(const step &step);

    std::deque<step> steps_;
    std::vector<told_word> unseen_;
    // A thread takes from a list of which the host only ever touches the end. A lock, or a look at
    // the thread's progress, would put the host in step with the stream without an event. A checker
    // of races would then not see that the host did not ask.
    node *last_ = nullptr;
    uint64_t submitted_ = 0;
    std::atomic<uint64_t> done_{0};
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

// All streams of the machine. The first are the legacy streams of each device.
class all_streams {
public:
    explicit all_streams(const settings &settings);
    stream &legacy(uint32_t device) { return *streams_[device]; }
    stream *make(uint32_t device);
    void destroy(stream *stream);

    void submit(stream &target, step next);
    // Like cudaEventQuery: streams may advance, then returns whether the event has passed.
    bool query(event &event);
    // False: they hang.
    bool finish(stream &stream);
    bool finish(uint32_t device);
    double free_s() const {  // of the last of them
        double last_s = 0;
        for (const auto &stream : streams_) last_s = std::max(last_s, stream->free_s);
        return last_s;
    }
    uint64_t count() const { return streams_.size() - settings_.devices; }

private:
    stream &draw();
    bool move(stream &stream);
    void show(stream &stream, size_t count);
    bool advance(const event &event, uint64_t number);
    uint32_t random() {
        // A generator of its own, for the same order with every library.
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(state_ >> 33);
    }

    settings settings_;
    uint64_t state_, moves_left_;
    uint32_t turns_ = 0;
    std::vector<std::unique_ptr<stream>> streams_;
};

}  // namespace pretended
