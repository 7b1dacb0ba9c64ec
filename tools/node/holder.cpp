// holder.cpp - takes calls, computes them together, answers.
#include "tools/node/holder.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/execute/executor_module.h"

namespace moorage::core {

namespace {

constexpr uint64_t batches_waiting_max = 8;

uint32_t us_of(uint64_t ns) {
    return static_cast<uint32_t>(std::min<uint64_t>(ns / 1000, UINT32_MAX));
}

}  // namespace

holder::holder(const model &model, thread_pool &pool, const node_plan &plan,
               const expert_store &experts, links &connections, span_log &spans)
    : plan_(plan),
      experts_(experts),
      links_(connections),
      spans_(spans),
      joined_experts_(node_arithmetic_of().join(model.config(), pool)),
      activations_(plan.pages()) {}

bool holder::arrived(link &sender, const frame &message, uint64_t wire_message) {
    switch (message.header.kind) {
        case message_kind::call:
            return take_call(sender, message, wire_message);
        case message_kind::cancel:
            if (const auto found = std::ranges::find_if(
                    waiting_,
                    [&](const received_call &call) {
                        return call.connection == sender.connection && call.id == message.header.id;
                    });
                found != waiting_.end()) {
                ++figures_.cancelled;
                log_end(*found, span_end::cancelled);
                waiting_rows_ -= found->body.rows;
                links_.release(found->wire_message);
                waiting_.erase(found);
            }
            return false;
        case message_kind::weights_wanted:
            send_weights(sender, message);
            return false;
        default:
            links_.refuse(sender, refusal_reason::unexpected,
                          "a caller sends calls, cancellations and wishes for weights");
            return false;
    }
}

void holder::fail(link &sender, uint64_t id, const refusal_view &refusal) {
    ++figures_.failed;
    links_.count_refusal(refusal.reason);
    message_bytes written = links_.take_memory();
    write(written, refusal);
    links_.send(sender, std::move(written), message_kind::failed, id);
}

bool holder::take_call(link &sender, const frame &message, uint64_t wire_message) {
    const uint64_t id = message.header.id;
    const auto refuse = [&](refusal_reason reason, const std::string &text) {
        fail(sender, id, {.reason = reason, .text = text});
        return false;
    };
    received_call call{sender.connection,  wire_message,           id, steady_ns(), sender.server,
                       sender.incarnation, message.header.request, {}};
    if (const objection problem = read(message.body, plan_.sizes, call.body);
        problem.reason != refusal_reason::none) {
        // Values may go wrong in a model. A node that gets lengths wrong is no caller.
        if (problem.reason == refusal_reason::values) return refuse(problem.reason, problem.text);
        links_.refuse(sender, problem.reason, problem.text);
        return false;
    }
    // A call from another epoch is computed too, because an expert has the same bits in every
    // epoch. The epoch only decides what a refusal says.
    for (const expert_rows &expert : call.body.experts)
        if (const uint32_t page = call.body.layer * plan_.sizes.experts + expert.expert;
            !experts_.has(page)) {
            const std::string text = explain_missing(page, message.header.epoch);
            fail(sender, id,
                 {.reason = message.header.epoch == plan_.epoch ? refusal_reason::lacks
                                                                : refusal_reason::epoch,
                  .layer = call.body.layer,
                  .expert = expert.expert,
                  .text = text});
            return false;
        }
    if (links_.draining()) return refuse(refusal_reason::draining, "the node ends");
    if (waiting_rows_ != 0 &&
        waiting_rows_ + call.body.rows > batches_waiting_max * plan_.sizes.rows_max)
        return refuse(refusal_reason::busy, format("{} rows wait already", waiting_rows_));
    if (is_logged(log_level::info))
        log_info(format(
            "node: call {} of {} for its request {}: layer {}, {} experts, {} rows", id,
            sender.server < plan_.servers.size() ? plan_.servers[sender.server].name : "no server",
            message.header.request, call.body.layer, call.body.experts.size(), call.body.rows));
    waiting_rows_ += call.body.rows;
    waiting_.push_back(call);
    return true;
}

// Why the expert is not here, and what the caller can do.
std::string holder::explain_missing(uint32_t page, uint64_t epoch) const {
    if (epoch == plan_.epoch) return "by the plan this node does not hold it";
    std::string names;
    for (const uint32_t server : plan_.holders_of(page))
        names += (names.empty() ? "" : ", ") + plan_.servers[server].name;
    return format("epoch {} is the caller's, {} this node's, by which {} hold the expert; {}",
                  epoch, plan_.epoch, names,
                  epoch < plan_.epoch ? "take the newer plan, or ask one of them"
                                      : "ask another one, this node will follow");
}

bool holder::needs(uint32_t page) const {
    return std::ranges::any_of(waiting_, [&](const received_call &call) {
        return call.body.layer == page / plan_.sizes.experts &&
               std::ranges::any_of(call.body.experts, [&](const expert_rows &expert) {
                   return expert.expert == page % plan_.sizes.experts;
               });
    });
}

void holder::send_weights(link &sender, const frame &message) {
    weights_range range;
    if (const objection problem = read(message.body, plan_.sizes, range);
        problem.reason != refusal_reason::none)
        return links_.refuse(sender, problem.reason, problem.text);
    const uint32_t page = range.layer * plan_.sizes.experts + range.expert;
    const uint64_t image_bytes = experts_.image_bytes(page);
    if (!experts_.has(page) || range.offset + range.bytes > image_bytes) {
        const std::string text = experts_.has(page)
                                     ? format("bytes {} to {} of an expert of {} bytes",
                                              range.offset, range.offset + range.bytes, image_bytes)
                                     : "the expert is not in memory here";
        return fail(sender, message.header.id,
                    {.reason = refusal_reason::lacks,
                     .layer = range.layer,
                     .expert = range.expert,
                     .text = text});
    }
    std::vector<std::byte> bytes;
    experts_.copy(page, range.offset, range.bytes, bytes);
    message_bytes written = links_.take_memory();
    write(written, weights_view{range, image_bytes, bytes});
    figures_.weights_bytes += range.bytes;
    links_.send(sender, std::move(written), message_kind::weights, message.header.id);
}

void holder::gone(const link &peer) {
    figures_.dropped += std::erase_if(waiting_, [&](const received_call &call) {
        if (call.connection != peer.connection) return false;
        log_end(call, span_end::lost);
        waiting_rows_ -= call.body.rows;
        links_.release(call.wire_message);
        return true;
    });
}

void holder::log(const received_call &call, span_end end, uint64_t began_ns, uint64_t ended_ns) {
    spans_.add({.kind = span_kind::served,
                .end = end,
                .server = call.server,
                .layer = call.body.layer,
                .experts = static_cast<uint32_t>(call.body.experts.size()),
                .rows = call.body.rows,
                .request = call.request,
                .home = call.home,
                .id = call.id,
                .begun_ns = call.arrived_ns,
                .started_ns = std::min(began_ns, ended_ns),
                .ended_ns = ended_ns});
}

void holder::take_batch() {
    batch_.clear();
    for (uint64_t rows = 0; !waiting_.empty(); waiting_.pop_front()) {
        rows += waiting_.front().body.rows;
        if (!batch_.empty() && rows > plan_.sizes.rows_max) return;
        waiting_rows_ -= waiting_.front().body.rows;
        batch_.push_back(waiting_.front());
    }
}

void holder::add_items(const received_call &call, std::span<float> outputs) {
    const call_view &body = call.body;
    size_t pair = 0;
    for (const expert_rows &expert : body.experts) {
        const uint32_t page = body.layer * plan_.sizes.experts + expert.expert;
        items_.push_back({experts_.weights(page), body.hidden_states.data(),
                          body.row_of.subspan(pair, expert.rows),
                          outputs.data() + pair * plan_.sizes.hidden});
        pair += expert.rows;
        activations_[page] += expert.rows;
    }
}

void holder::compute() {
    take_batch();
    const uint64_t began_ns = steady_ns();
    items_.clear();
    replies_.clear();
    for (const received_call &call : batch_) {
        message_bytes &reply = replies_.emplace_back(links_.take_memory());
        const auto pairs = static_cast<uint32_t>(call.body.row_of.size());
        const auto outputs =
            write(reply, reply_view{call.body.layer, 0, 0, pairs, {}}, plan_.sizes.hidden);
        add_items(call, outputs);
        figures_.rows += call.body.rows;
        figures_.experts += call.body.experts.size();
        figures_.queued_ns += began_ns - call.arrived_ns;
    }
    joined_experts_->compute(items_);
    ++figures_.batches;
    figures_.calls += batch_.size();
    figures_.joined += batch_.size() > 1 ? batch_.size() : 0;
    answer(began_ns);
}

void holder::answer(uint64_t began_ns) {
    const uint64_t took_ns = steady_ns() - began_ns;
    figures_.computed_ns += took_ns;
    for (size_t i = 0; i < batch_.size(); ++i) {
        const received_call &call = batch_[i];
        set_times(replies_[i], us_of(began_ns - call.arrived_ns), us_of(took_ns));
        log(call, span_end::done, began_ns, began_ns + took_ns);
        if (link *const target = links_.find(call.connection))
            links_.send(*target, std::move(replies_[i]), message_kind::reply, call.id);
        links_.release(call.wire_message);
    }
}

}  // namespace moorage::core
