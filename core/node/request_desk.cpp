// request_desk.cpp - checks requests, queues them, sends the text that is written.
#include "core/node/request_desk.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/base/visible.h"

namespace moorage::core {

void request_desk::refuse(link &from, uint64_t id, refusal_reason why, const std::string &text) {
    ++figures_.refused;
    links_.count(why);
    message_bytes written = links_.take_memory();
    write(written, refusal_view{.why = why, .text = text});
    links_.send(from, std::move(written), message_kind::failed, id);
}

void request_desk::arrived(link &from, const frame &of) {
    ask_view asked;
    if (const objection bad = read(of.body, asked); bad.why != refusal_reason::none)
        return links_.refuse(from, bad.why, bad.text);
    const uint64_t id = of.header.id;
    const uint64_t tokens = uint64_t{asked.new_tokens} + asked.prompt.size();
    if (tokens > limits_.context_max)
        return refuse(from, id, refusal_reason::size,
                      format("{} tokens of a prompt and {} to write are more than the {} that this "
                             "home has room for; ask for less, or start it with a larger --context",
                             asked.prompt.size(), asked.new_tokens, limits_.context_max));
    for (const int32_t one : asked.prompt)
        if (one < 0 || static_cast<uint32_t>(one) >= limits_.vocabulary)
            return refuse(from, id, refusal_reason::shape,
                          format("token {} is not among the model's {}", one, limits_.vocabulary));
    if (links_.draining()) return refuse(from, id, refusal_reason::draining, "the home ends");
    if (waiting_.size() >= waiting_max || waiting_tokens_ + tokens > waiting_tokens_max)
        return refuse(from, id, refusal_reason::busy,
                      format("{} requests wait already", waiting_.size()));
    waiting_tokens_ += tokens;
    request one;
    one.connection = from.connection;
    one.id = id;
    one.number = ++taken_;
    one.arrived_ns = steady_ns();
    one.of.ids.assign(asked.prompt.begin(), asked.prompt.end());
    one.of.new_tokens = asked.new_tokens;
    ++figures_.taken;
    figures_.prompt_tokens += asked.prompt.size();
    log_info(format("node: request {} of {}: {} tokens, {} to write", one.number,
                    visible(from.address), asked.prompt.size(), asked.new_tokens));
    waiting_.push_back(std::move(one));
}

void request_desk::cancel(const link &from, uint64_t id) {
    const auto its = [&](const request &one) {
        return one.connection == from.connection && one.id == id;
    };
    for (request &one : waiting_)
        if (its(one)) one.unwanted = true;
    for (request &one : under_way_)
        if (its(one)) one.unwanted = true;
}

void request_desk::gone(const link &which) {
    for (auto *const all : {&waiting_, &under_way_})
        for (request &one : *all)
            if (one.connection == which.connection) one.unwanted = true;
}

bool request_desk::next(model_request &out) {
    while (!waiting_.empty()) {
        request one = std::move(waiting_.front());
        waiting_.pop_front();
        waiting_tokens_ -= one.of.ids.size() + one.of.new_tokens;
        if (one.unwanted) {
            ++figures_.cancelled;
            continue;
        }
        out = std::move(one.of);
        one.begun_ns = steady_ns();
        one.asked_tokens = static_cast<uint32_t>(out.ids.size());
        const uint64_t waited_us = (one.begun_ns - one.arrived_ns) / 1000;
        one.queued_us = static_cast<uint32_t>(std::min<uint64_t>(waited_us, UINT32_MAX));
        one.of = {};
        one.handed = handed_++;
        under_way_.push_back(std::move(one));
        show();
        return true;
    }
    return false;
}

request_desk::request *request_desk::under_way(uint64_t of_source) {
    const auto at = std::ranges::find(under_way_, of_source, &request::handed);
    return at == under_way_.end() ? nullptr : &*at;
}

void request_desk::wrote(uint64_t of_source, int32_t id) {
    ++figures_.written_tokens;
    request *const one = under_way(of_source);
    if (!one) return;
    one->news.push_back(id);
    ++one->written_tokens;
}

void request_desk::ended(uint64_t of_source) {
    if (request *const one = under_way(of_source)) one->over = true;
}

std::vector<uint64_t> request_desk::take_given_up() {
    std::vector<uint64_t> all;
    for (const request &one : under_way_)
        if (one.unwanted && !one.over) all.push_back(one.handed);
    return all;
}

void request_desk::answer(request &one) {
    link *const to = links_.find(one.connection);
    if (!to || one.unwanted) return one.news.clear();
    message_bytes written = links_.take_memory();
    write(written, tokens_view{one.over, one.queued_us, one.news});
    links_.send(*to, std::move(written), message_kind::tokens, one.id, one.number);
    one.news.clear();
}

void request_desk::send() {
    // A connection that is lost while sending is only marked, in gone().
    for (request &one : under_way_)
        if (one.over || !one.news.empty()) answer(one);
    std::erase_if(under_way_, [&](const request &one) {
        if (!one.over) return false;
        ++(one.unwanted ? figures_.cancelled : figures_.ended);
        log(one, one.unwanted ? span_end::cancelled : span_end::done);
        log_info(format("node: request {} ends{} after {} ms", one.number,
                        one.unwanted ? ", unwanted," : "",
                        (steady_ns() - one.arrived_ns) / 1'000'000));
        return true;
    });
    show();
}

void request_desk::fail(const std::string &text, refusal_reason why) {
    handed_ = 0;
    for (request &one : under_way_) {
        ++figures_.failed;
        log(one, span_end::failed);
        link *const to = one.unwanted ? nullptr : links_.find(one.connection);
        if (!to) continue;
        message_bytes written = links_.take_memory();
        write(written, refusal_view{.why = why, .text = text});
        links_.send(*to, std::move(written), message_kind::failed, one.id, one.number);
    }
    under_way_.clear();
    show();
}

void request_desk::end() {
    const std::string why = "the home ends, and had no time for it";
    fail(why, refusal_reason::draining);
    for (const request &one : waiting_) {
        if (one.unwanted) continue;
        if (link *const asker = links_.find(one.connection))
            refuse(*asker, one.id, refusal_reason::draining, why);
    }
    waiting_.clear();
    waiting_tokens_ = 0;
}

void request_desk::log(const request &one, span_end end) {
    if (!spans_) return;
    spans_->add({.kind = span_kind::request,
                 .end = end,
                 .experts = one.written_tokens,
                 .rows = one.asked_tokens,
                 .request = one.number,
                 .begun_ns = one.arrived_ns,
                 .started_ns = one.begun_ns,
                 .ended_ns = steady_ns()});
}

desk_figures request_desk::figures() const {
    desk_figures now = figures_;
    now.waiting = waiting_.size();
    now.under_way = under_way_.size();
    return now;
}

}  // namespace moorage::core
