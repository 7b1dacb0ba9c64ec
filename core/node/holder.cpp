// holder.cpp - takes calls, computes them together, answers.
#include "core/node/holder.h"

#include <algorithm>

#include "core/base/log.h"
#include "core/base/text.h"

namespace moorage::core {

namespace {

constexpr uint64_t batches_waiting_max = 8;

uint32_t us_of(uint64_t ns) {
    return static_cast<uint32_t>(std::min<uint64_t>(ns / 1000, UINT32_MAX));
}

}  // namespace

holder::holder(const model &of, thread_pool &pool, const node_plan &plan,
               const expert_store &experts, links &through, span_log &spans)
    : plan_(plan),
      experts_(experts),
      links_(through),
      spans_(spans),
      batch_of_(of.config(), pool),
      activations_(plan.pages()) {}

bool holder::arrived(link &from, const frame &of, uint64_t lent) {
    switch (of.header.kind) {
        case message_kind::call:
            return take_call(from, of, lent);
        case message_kind::cancel:
            if (const auto at = std::ranges::find_if(waiting_,
                                                     [&](const waiting_call &one) {
                                                         return one.connection == from.connection &&
                                                                one.id == of.header.id;
                                                     });
                at != waiting_.end()) {
                ++figures_.cancelled;
                log_end(*at, span_end::cancelled);
                waiting_rows_ -= at->of.rows;
                links_.release(at->lent);
                waiting_.erase(at);
            }
            return false;
        case message_kind::weights_wanted:
            give_weights(from, of);
            return false;
        default:
            links_.refuse(from, refusal_reason::unexpected,
                          "a caller sends calls, cancellations and wishes for weights");
            return false;
    }
}

void holder::fail(link &from, uint64_t id, const refusal_view &why) {
    ++figures_.failed;
    links_.count(why.why);
    message_bytes written = links_.take_memory();
    write(written, why);
    links_.send(from, std::move(written), message_kind::failed, id);
}

bool holder::take_call(link &from, const frame &of, uint64_t lent) {
    const uint64_t id = of.header.id;
    const auto refuse = [&](refusal_reason why, const std::string &text) {
        fail(from, id, {.why = why, .text = text});
        return false;
    };
    waiting_call one{from.connection,   lent, id, steady_ns(), from.server, from.incarnation,
                     of.header.request, {}};
    if (const objection bad = read(of.body, plan_.sizes, one.of); bad.why != refusal_reason::none) {
        // Values may go wrong in a model. A node that gets lengths wrong is no caller.
        if (bad.why == refusal_reason::values) return refuse(bad.why, bad.text);
        links_.refuse(from, bad.why, bad.text);
        return false;
    }
    // The caller's epoch does not matter: an expert that is here has the same bits everywhere.
    for (const expert_rows &expert : one.of.experts)
        if (const uint32_t page = one.of.layer * plan_.sizes.experts + expert.expert;
            !experts_.has(page)) {
            const std::string text = where_is(page, of.header.epoch);
            fail(from, id,
                 {.why = of.header.epoch == plan_.epoch ? refusal_reason::lacks
                                                        : refusal_reason::epoch,
                  .layer = one.of.layer,
                  .expert = expert.expert,
                  .text = text});
            return false;
        }
    if (links_.draining()) return refuse(refusal_reason::draining, "the node ends");
    if (waiting_rows_ != 0 &&
        waiting_rows_ + one.of.rows > batches_waiting_max * plan_.sizes.rows_max)
        return refuse(refusal_reason::busy, format("{} rows wait already", waiting_rows_));
    if (logs(log_level::info))
        log_info(format(
            "node: call {} of {} for its request {}: layer {}, {} experts, {} rows", id,
            from.server < plan_.servers.size() ? plan_.servers[from.server].name : "no server",
            of.header.request, one.of.layer, one.of.experts.size(), one.of.rows));
    waiting_rows_ += one.of.rows;
    waiting_.push_back(one);
    return true;
}

// Why the expert is not here, and what the caller can do.
std::string holder::where_is(uint32_t page, uint64_t epoch) const {
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
    return std::ranges::any_of(waiting_, [&](const waiting_call &one) {
        return one.of.layer == page / plan_.sizes.experts &&
               std::ranges::any_of(one.of.experts, [&](const expert_rows &expert) {
                   return expert.expert == page % plan_.sizes.experts;
               });
    });
}

void holder::give_weights(link &from, const frame &of) {
    weights_range range;
    if (const objection bad = read(of.body, plan_.sizes, range); bad.why != refusal_reason::none)
        return links_.refuse(from, bad.why, bad.text);
    const uint32_t page = range.layer * plan_.sizes.experts + range.expert;
    const uint64_t image_bytes = experts_.image_bytes(page);
    if (!experts_.has(page) || range.offset + range.bytes > image_bytes) {
        const std::string text = experts_.has(page)
                                     ? format("bytes {} to {} of an expert of {} bytes",
                                              range.offset, range.offset + range.bytes, image_bytes)
                                     : "the expert is not in memory here";
        return fail(from, of.header.id,
                    {.why = refusal_reason::lacks,
                     .layer = range.layer,
                     .expert = range.expert,
                     .text = text});
    }
    std::vector<std::byte> bytes;
    experts_.copy(page, range.offset, range.bytes, bytes);
    message_bytes written = links_.take_memory();
    write(written, weights_view{range, image_bytes, bytes});
    figures_.weights_bytes += range.bytes;
    links_.send(from, std::move(written), message_kind::weights, of.header.id);
}

void holder::gone(const link &which) {
    figures_.dropped += std::erase_if(waiting_, [&](const waiting_call &one) {
        if (one.connection != which.connection) return false;
        log_end(one, span_end::lost);
        waiting_rows_ -= one.of.rows;
        links_.release(one.lent);
        return true;
    });
}

void holder::log(const waiting_call &one, span_end end, uint64_t began_ns, uint64_t ended_ns) {
    spans_.add({.kind = span_kind::served,
                .end = end,
                .server = one.server,
                .layer = one.of.layer,
                .experts = static_cast<uint32_t>(one.of.experts.size()),
                .rows = one.of.rows,
                .request = one.request,
                .home = one.home,
                .id = one.id,
                .begun_ns = one.arrived_ns,
                .started_ns = std::min(began_ns, ended_ns),
                .ended_ns = ended_ns});
}

void holder::take_batch() {
    batch_.clear();
    for (uint64_t rows = 0; !waiting_.empty(); waiting_.pop_front()) {
        rows += waiting_.front().of.rows;
        if (!batch_.empty() && rows > plan_.sizes.rows_max) return;
        waiting_rows_ -= waiting_.front().of.rows;
        batch_.push_back(waiting_.front());
    }
}

void holder::add_items(const waiting_call &one, std::span<float> outputs) {
    const call_view &of = one.of;
    size_t pair = 0;
    for (const expert_rows &expert : of.experts) {
        const uint32_t page = of.layer * plan_.sizes.experts + expert.expert;
        items_.push_back({experts_.weights(page), of.hidden_states.data(),
                          of.row_of.subspan(pair, expert.rows),
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
    for (const waiting_call &one : batch_) {
        message_bytes &reply = replies_.emplace_back(links_.take_memory());
        const auto pairs = static_cast<uint32_t>(one.of.row_of.size());
        const auto outputs =
            write(reply, reply_view{one.of.layer, 0, 0, pairs, {}}, plan_.sizes.hidden);
        add_items(one, outputs);
        figures_.rows += one.of.rows;
        figures_.experts += one.of.experts.size();
        figures_.queued_ns += began_ns - one.arrived_ns;
    }
    batch_of_(items_);
    ++figures_.batches;
    figures_.calls += batch_.size();
    figures_.joined += batch_.size() > 1 ? batch_.size() : 0;
    answer(began_ns);
}

void holder::answer(uint64_t began_ns) {
    const uint64_t took_ns = steady_ns() - began_ns;
    figures_.computed_ns += took_ns;
    for (size_t i = 0; i < batch_.size(); ++i) {
        const waiting_call &one = batch_[i];
        set_times(replies_[i], us_of(began_ns - one.arrived_ns), us_of(took_ns));
        log(one, span_end::done, began_ns, began_ns + took_ns);
        if (link *const to = links_.find(one.connection))
            links_.send(*to, std::move(replies_[i]), message_kind::reply, one.id);
        links_.release(one.lent);
    }
}

}  // namespace moorage::core
