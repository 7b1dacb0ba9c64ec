// request_desk.cpp - checks requests, queues them, sends the text that is written.
#include "tools/node/request_desk.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/base/visible.h"

namespace moorage::core {

void request_desk::refuse(link &sender, uint64_t id, refusal_reason reason,
                          const std::string &text) {
    ++figures_.refused;
    links_.count_refusal(reason);
    message_bytes written = links_.take_memory();
    write(written, refusal_view{.reason = reason, .text = text});
    links_.send(sender, std::move(written), message_kind::failed, id);
}

void request_desk::arrived(link &sender, const frame &message) {
    ask_view asked;
    if (const objection problem = read(message.body, asked); problem.reason != refusal_reason::none)
        return links_.refuse(sender, problem.reason, problem.text);
    const uint64_t id = message.header.id;
    const uint64_t tokens = uint64_t{asked.new_tokens} + asked.prompt.size();
    if (tokens > limits_.context_max)
        return refuse(sender, id, refusal_reason::size,
                      format("{} tokens of a prompt and {} to write are more than the {} that this "
                             "home has room for; ask for less, or start it with a larger --context",
                             asked.prompt.size(), asked.new_tokens, limits_.context_max));
    for (const int32_t token : asked.prompt)
        if (token < 0 || static_cast<uint32_t>(token) >= limits_.vocabulary)
            return refuse(
                sender, id, refusal_reason::shape,
                format("token {} is not among the model's {}", token, limits_.vocabulary));
    if (links_.draining()) return refuse(sender, id, refusal_reason::draining, "the home ends");
    if (waiting_.size() >= waiting_max || waiting_tokens_ + tokens > waiting_tokens_max)
        return refuse(sender, id, refusal_reason::busy,
                      format("{} requests wait already", waiting_.size()));
    waiting_tokens_ += tokens;
    request pending;
    pending.connection = sender.connection;
    pending.id = id;
    pending.number = ++taken_;
    pending.arrived_ns = steady_ns();
    pending.source_request.ids.assign(asked.prompt.begin(), asked.prompt.end());
    pending.source_request.new_tokens = asked.new_tokens;
    ++figures_.taken;
    figures_.prompt_tokens += asked.prompt.size();
    log_info(format("node: request {} of {}: {} tokens, {} to write", pending.number,
                    visible(sender.address), asked.prompt.size(), asked.new_tokens));
    waiting_.push_back(std::move(pending));
}

void request_desk::cancel(const link &sender, uint64_t id) {
    const auto matches = [&](const request &pending) {
        return pending.connection == sender.connection && pending.id == id;
    };
    for (request &pending : waiting_)
        if (matches(pending)) pending.unwanted = true;
    for (request &pending : under_way_)
        if (matches(pending)) pending.unwanted = true;
}

void request_desk::gone(const link &peer) {
    for (auto *const queue : {&waiting_, &under_way_})
        for (request &pending : *queue)
            if (pending.connection == peer.connection) pending.unwanted = true;
}

bool request_desk::next(model_request &source_request) {
    while (!waiting_.empty()) {
        request pending = std::move(waiting_.front());
        waiting_.pop_front();
        waiting_tokens_ -= pending.source_request.ids.size() + pending.source_request.new_tokens;
        if (pending.unwanted) {
            ++figures_.cancelled;
            continue;
        }
        source_request = std::move(pending.source_request);
        pending.begun_ns = steady_ns();
        pending.asked_tokens = static_cast<uint32_t>(source_request.ids.size());
        const uint64_t waited_us = (pending.begun_ns - pending.arrived_ns) / 1000;
        pending.queued_us = static_cast<uint32_t>(std::min<uint64_t>(waited_us, UINT32_MAX));
        pending.source_request = {};
        pending.source_number = next_source_number_++;
        under_way_.push_back(std::move(pending));
        show();
        return true;
    }
    return false;
}

request_desk::request *request_desk::find_under_way(uint64_t source_number) {
    const auto found = std::ranges::find(under_way_, source_number, &request::source_number);
    return found == under_way_.end() ? nullptr : &*found;
}

void request_desk::wrote(uint64_t source_number, int32_t id) {
    ++figures_.written_tokens;
    request *const pending = find_under_way(source_number);
    if (!pending) return;
    pending->unsent.push_back(id);
    ++pending->written_tokens;
}

void request_desk::ended(uint64_t source_number) {
    if (request *const pending = find_under_way(source_number)) pending->has_ended = true;
}

std::vector<uint64_t> request_desk::take_given_up() {
    std::vector<uint64_t> given_up;
    for (const request &pending : under_way_)
        if (pending.unwanted && !pending.has_ended) given_up.push_back(pending.source_number);
    return given_up;
}

void request_desk::answer(request &pending) {
    link *const target = links_.find(pending.connection);
    if (!target || pending.unwanted) return pending.unsent.clear();
    message_bytes written = links_.take_memory();
    write(written, tokens_view{pending.has_ended, pending.queued_us, pending.unsent});
    links_.send(*target, std::move(written), message_kind::tokens, pending.id, pending.number);
    pending.unsent.clear();
}

void request_desk::send() {
    // A connection that is lost while sending is only marked, in gone().
    for (request &pending : under_way_)
        if (pending.has_ended || !pending.unsent.empty()) answer(pending);
    std::erase_if(under_way_, [&](const request &pending) {
        if (!pending.has_ended) return false;
        ++(pending.unwanted ? figures_.cancelled : figures_.ended);
        log(pending, pending.unwanted ? span_end::cancelled : span_end::done);
        log_info(format("node: request {} ends{} after {} ms", pending.number,
                        pending.unwanted ? ", unwanted," : "",
                        (steady_ns() - pending.arrived_ns) / 1'000'000));
        return true;
    });
    show();
}

void request_desk::fail(const std::string &text, refusal_reason reason) {
    next_source_number_ = 0;
    for (request &pending : under_way_) {
        ++figures_.failed;
        log(pending, span_end::failed);
        link *const target = pending.unwanted ? nullptr : links_.find(pending.connection);
        if (!target) continue;
        message_bytes written = links_.take_memory();
        write(written, refusal_view{.reason = reason, .text = text});
        links_.send(*target, std::move(written), message_kind::failed, pending.id, pending.number);
    }
    under_way_.clear();
    show();
}

void request_desk::end() {
    const std::string text = "the home ends, and had no time for it";
    fail(text, refusal_reason::draining);
    for (const request &pending : waiting_) {
        if (pending.unwanted) continue;
        if (link *const asker = links_.find(pending.connection))
            refuse(*asker, pending.id, refusal_reason::draining, text);
    }
    waiting_.clear();
    waiting_tokens_ = 0;
}

void request_desk::log(const request &pending, span_end end) {
    if (!spans_) return;
    spans_->add({.kind = span_kind::request,
                 .end = end,
                 .experts = pending.written_tokens,
                 .rows = pending.asked_tokens,
                 .request = pending.number,
                 .begun_ns = pending.arrived_ns,
                 .started_ns = pending.begun_ns,
                 .ended_ns = steady_ns()});
}

desk_figures request_desk::figures() const {
    desk_figures now = figures_;
    now.waiting = waiting_.size();
    now.under_way = under_way_.size();
    return now;
}

}  // namespace moorage::core
