// request_desk.h - requests that come to a home over the wire. Takes them, hands them to the home's
// source, and answers as text is written.
//
//   request_desk desk(node.connections(), {vocabulary, context});
//   node.set_desk(&desk);   // below: an option of the source
//   options.take_request = [&](model_request &request) { return desk.next(request); };
//   ... a pass ...  desk.send();
//
// Requests are numbered from 1 in the order of their arrival, as long as the process lives. Logs
// and calls to other nodes use this number. Bounds: at most waiting_max requests and
// waiting_tokens_max of their ids wait. Further requests are told that the home is busy.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tools/node/links.h"
#include "tools/node/span_log.h"
#include "core/source/model_source.h"

namespace moorage::core {

struct desk_limits {
    uint32_t vocabulary = 0;
    uint32_t context_max = 0;  // tokens of a prompt and of the text written after it
};

// Counts since the start, except the last two.
struct desk_figures {
    uint64_t taken = 0, ended = 0, refused = 0;
    uint64_t cancelled = 0;  // the rest is not wanted: the asker said so, or went
    uint64_t failed = 0;     // requests whose run broke off
    uint64_t prompt_tokens = 0, written_tokens = 0;
    uint64_t waiting = 0, under_way = 0;
};

class request_desk {
public:
    static constexpr uint64_t waiting_max = 1024, waiting_tokens_max = uint64_t{1} << 22;

    // `connections` is borrowed.
    request_desk(links &connections, const desk_limits &limits)
        : links_(connections), limits_(limits) {}
    // The log for requests that end. Borrowed.
    void log_to(span_log *spans) { spans_ = spans; }

    // Takes a request.
    void arrived(link &sender, const frame &message);
    // Takes a cancellation. For an unknown request it does nothing.
    void cancel(const link &sender, uint64_t id);
    void gone(const link &peer);

    // For the source, which counts requests from 0 on. The next request. False: none waits.
    bool next(model_request &source_request);
    void wrote(uint64_t source_number, int32_t id);
    void ended(uint64_t source_number);
    // Requests under way that nobody waits for any more.
    std::vector<uint64_t> take_given_up();
    // Sends what was written since the last call.
    void send();
    // Ends all requests under way with this text. The source counts from 0 again.
    void fail(const std::string &text, refusal_reason reason = refusal_reason::lacks);
    // The home ends before its requests do. Waiting ones are told so, too.
    void end();

    bool idle() const { return waiting_.empty() && under_way_.empty(); }
    // A place for the number of the request under way, so that others can report at which request
    // the process died. Borrowed.
    void show_oldest(std::atomic<uint64_t> *place) { shown_ = place; }
    // The number of the oldest request under way. 0: none.
    uint64_t oldest() const { return under_way_.empty() ? 0 : under_way_.front().number; }
    desk_figures figures() const;

private:
    struct request {
        uint64_t connection = 0, id = 0;         // the asker's
        uint64_t number = 0, source_number = 0;  // its number here, and at the source
        uint64_t arrived_ns = 0, begun_ns = 0;
        uint32_t queued_us = 0;
        uint32_t asked_tokens = 0, written_tokens = 0;
        bool has_ended = false, unwanted = false;
        model_request source_request;  // until it is handed out
        std::vector<int32_t> unsent;   // written but not sent
    };
    void refuse(link &sender, uint64_t id, refusal_reason reason, const std::string &text);
    request *find_under_way(uint64_t source_number);
    void answer(request &pending);
    void log(const request &pending, span_end end);

    links &links_;
    const desk_limits limits_;
    void show() {
        if (shown_) shown_->store(oldest(), std::memory_order_relaxed);
    }
    span_log *spans_ = nullptr;
    std::atomic<uint64_t> *shown_ = nullptr;
    std::deque<request> waiting_;
    std::deque<request> under_way_;  // rising by number
    uint64_t taken_ = 0, next_source_number_ = 0;
    uint64_t waiting_tokens_ = 0;
    desk_figures figures_;
};

}  // namespace moorage::core
