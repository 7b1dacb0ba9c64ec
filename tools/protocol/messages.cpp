// messages.cpp - writes bodies, and reads bodies that may come from any sender.
#include "tools/protocol/messages.h"

#include <algorithm>
#include <cstring>

#include "core/base/finite.h"
#include "core/base/text.h"
#include "tools/protocol/byte_reader.h"
#include "tools/protocol/crc32c.h"

namespace moorage::core {

namespace {

objection make_objection(refusal_reason reason, std::string text) {
    return {reason, std::move(text)};
}

objection check_end(const byte_reader &reader, const char *subject) {
    if (reader.is_complete()) return {};
    return make_objection(refusal_reason::size,
                          format("a {} whose lengths do not fit its bytes", subject));
}

bool all_finite(std::span<const float> values) { return first_non_finite(values) == values.size(); }

void write_range(byte_writer &writer, const weights_range &range) {
    writer.value(range.layer);
    writer.value(range.expert);
    writer.value(range.offset);
    writer.value(range.bytes);
}

weights_range read_range(byte_reader &reader) {
    weights_range read;
    read.layer = reader.value<uint32_t>();
    read.expert = reader.value<uint32_t>();
    read.offset = reader.value<uint64_t>();
    read.bytes = reader.value<uint64_t>();
    return read;
}

objection check_range(const weights_range &range, const peer_sizes &sizes) {
    if (range.layer >= sizes.layers || range.expert >= sizes.experts)
        return make_objection(refusal_reason::shape,
                              format("weights of expert {} of layer {}; there are {} of {} layers",
                                     range.expert, range.layer, sizes.experts, sizes.layers));
    if (range.offset > UINT64_MAX - weights_bytes_max)
        return make_objection(
            refusal_reason::size,
            format("a range of weights from byte {}, beyond the end of any", range.offset));
    if (range.bytes == 0 || range.bytes > weights_bytes_max)
        return make_objection(refusal_reason::size,
                              format("a range of {} bytes of weights; 1 to {} may be "
                                     "asked for at one time",
                                     range.bytes, weights_bytes_max));
    return {};
}

// Checks that each expert is in the layer and occurs once, and that the rows add up to the list.
objection check_experts(std::span<const expert_rows> experts, uint64_t pairs,
                        const peer_sizes &sizes, uint32_t rows) {
    uint64_t sum = 0;
    uint32_t next = 0;
    for (const expert_rows &entry : experts) {
        if (entry.expert < next || entry.expert >= sizes.experts || entry.rows == 0 ||
            entry.rows > rows)
            return make_objection(
                refusal_reason::shape,
                format("{} rows for expert {}; the {} experts of a layer are named in "
                       "rising order, with 1 to {} rows each",
                       entry.rows, entry.expert, sizes.experts, rows));
        next = entry.expert + 1;
        sum += entry.rows;
    }
    if (sum != pairs || pairs == 0)
        return make_objection(
            refusal_reason::shape,
            format("experts of a call take {} rows, and {} are listed", sum, pairs));
    return {};
}

}  // namespace

void write(std::vector<std::byte> &message, const greeting &ours) {
    byte_writer writer(message);
    writer.value(ours.features);
    writer.value(ours.cluster);
    writer.value(ours.model);
    writer.value(ours.plan);
    writer.value(ours.sizes.layers);
    writer.value(ours.sizes.experts);
    writer.value(ours.sizes.hidden);
    writer.value(ours.sizes.rows_max);
    for (const std::string_view text : {ours.server, ours.model_name, ours.software})
        writer.text(text, name_bytes_max);
    writer.align();
}

objection read(std::span<const std::byte> body, greeting &theirs) {
    byte_reader reader(body);
    theirs.features = reader.value<uint64_t>();
    theirs.cluster = reader.value<uint64_t>();
    theirs.model = reader.value<uint64_t>();
    theirs.plan = reader.value<uint64_t>();
    theirs.sizes.layers = reader.value<uint32_t>();
    theirs.sizes.experts = reader.value<uint32_t>();
    theirs.sizes.hidden = reader.value<uint32_t>();
    theirs.sizes.rows_max = reader.value<uint32_t>();
    for (std::string_view *text : {&theirs.server, &theirs.model_name, &theirs.software})
        *text = reader.text(name_bytes_max);
    reader.align();
    return check_end(reader, "greeting");
}

void write(std::vector<std::byte> &message, const refusal_view &refusal) {
    byte_writer writer(message);
    writer.value(static_cast<uint32_t>(refusal.reason));
    writer.value(refusal.layer);
    writer.value(refusal.expert);
    writer.text(refusal.text, text_bytes_max);
    writer.align();
}

objection read(std::span<const std::byte> body, refusal_view &refusal) {
    byte_reader reader(body);
    const auto number = reader.value<uint32_t>();
    // Reasons of later versions are unknown here and become `unexpected`.
    refusal.reason = static_cast<refusal_reason>(
        number == 0 || number >= refusal_reasons ? static_cast<uint32_t>(refusal_reason::unexpected)
                                                 : number);
    refusal.layer = reader.value<uint32_t>();
    refusal.expert = reader.value<uint32_t>();
    refusal.text = reader.text(text_bytes_max);
    reader.align();
    return check_end(reader, "refusal");
}

void write(std::vector<std::byte> &message, const ping_view &ping) {
    byte_writer(message).value(ping.sent_ns);
}

objection read(std::span<const std::byte> body, ping_view &ping) {
    byte_reader reader(body);
    ping.sent_ns = reader.value<uint64_t>();
    return check_end(reader, "ping");
}

void write(std::vector<std::byte> &message, const pong_view &pong) {
    byte_writer writer(message);
    writer.value(pong.sent_ns);
    writer.value(pong.received_ns);
    writer.value(pong.answered_ns);
    writer.value(pong.draining);
    writer.value(pong.waiting);
}

objection read(std::span<const std::byte> body, pong_view &pong) {
    byte_reader reader(body);
    pong.sent_ns = reader.value<uint64_t>();
    pong.received_ns = reader.value<uint64_t>();
    pong.answered_ns = reader.value<uint64_t>();
    pong.draining = reader.value<uint32_t>();
    pong.waiting = reader.value<uint32_t>();
    return check_end(reader, "pong");
}

void write(std::vector<std::byte> &message, const statistics_view &statistics) {
    byte_writer writer(message);
    writer.value(statistics.calls);
    writer.value(statistics.rows);
    writer.value(statistics.window_ms);
    writer.value(uint64_t{statistics.activations.size()});
    writer.list(statistics.activations);
}

objection read(std::span<const std::byte> body, const peer_sizes &sizes,
               statistics_view &statistics) {
    byte_reader reader(body);
    statistics.calls = reader.value<uint64_t>();
    statistics.rows = reader.value<uint64_t>();
    statistics.window_ms = reader.value<uint64_t>();
    const auto count = reader.value<uint64_t>();
    if (count != uint64_t{sizes.layers} * sizes.experts)
        return make_objection(refusal_reason::shape,
                              format("statistics of {} experts; the model has {} of {} layers",
                                     count, sizes.experts, sizes.layers));
    statistics.activations = reader.list<uint64_t>(count);
    return check_end(reader, "list of statistics");
}

void write(std::vector<std::byte> &message, const weights_range &range) {
    byte_writer writer(message);
    write_range(writer, range);
}

objection read(std::span<const std::byte> body, const peer_sizes &sizes, weights_range &range) {
    byte_reader reader(body);
    range = read_range(reader);
    if (objection problem = check_end(reader, "request for weights");
        problem.reason != refusal_reason::none)
        return problem;
    return check_range(range, sizes);
}

void write(std::vector<std::byte> &message, const weights_view &weights) {
    byte_writer writer(message);
    write_range(writer, weights.range);
    writer.value(weights.image_bytes);
    writer.value(crc32c(weights.bytes));
    writer.value(uint32_t{0});
    writer.list(weights.bytes);
}

objection read(std::span<const std::byte> body, const peer_sizes &sizes, weights_view &weights) {
    byte_reader reader(body);
    weights.range = read_range(reader);
    weights.image_bytes = reader.value<uint64_t>();
    const auto checksum = reader.value<uint32_t>();
    const auto zero = reader.value<uint32_t>();
    weights.bytes = reader.rest();
    if (objection problem = check_range(weights.range, sizes);
        problem.reason != refusal_reason::none)
        return problem;
    if (!reader.ok() || zero != 0 || weights.bytes.size() != weights.range.bytes ||
        weights.range.offset + weights.range.bytes > weights.image_bytes)
        return make_objection(refusal_reason::size,
                              format("{} bytes of weights from {} on, of {}", weights.bytes.size(),
                                     weights.range.offset, weights.image_bytes));
    if (crc32c(weights.bytes) != checksum)
        return make_objection(refusal_reason::checksum, "weights that were changed on their way");
    return {};
}

void write(std::vector<std::byte> &message, const ask_view &request) {
    byte_writer writer(message);
    writer.value(request.new_tokens);
    writer.value(static_cast<uint32_t>(request.prompt.size()));
    writer.list(request.prompt);
}

objection read(std::span<const std::byte> body, ask_view &request) {
    byte_reader reader(body);
    request.new_tokens = reader.value<uint32_t>();
    const auto count = reader.value<uint32_t>();
    if (count == 0 || count > ask_tokens_max || request.new_tokens == 0 ||
        request.new_tokens > ask_tokens_max)
        return make_objection(
            refusal_reason::size,
            format("a request with {} tokens that wants {}; 1 to {} of each are possible", count,
                   request.new_tokens, ask_tokens_max));
    request.prompt = reader.list<int32_t>(count);
    return check_end(reader, "request");
}

void write(std::vector<std::byte> &message, const tokens_view &tokens) {
    byte_writer writer(message);
    writer.value(static_cast<uint32_t>(tokens.last));
    writer.value(tokens.queued_us);
    writer.value(static_cast<uint32_t>(tokens.ids.size()));
    writer.list(tokens.ids);
}

objection read(std::span<const std::byte> body, tokens_view &tokens) {
    byte_reader reader(body);
    const auto last = reader.value<uint32_t>();
    tokens.queued_us = reader.value<uint32_t>();
    const auto count = reader.value<uint32_t>();
    tokens.ids = reader.list<int32_t>(count);
    tokens.last = last == 1;
    if (objection problem = check_end(reader, "list of tokens");
        problem.reason != refusal_reason::none)
        return problem;
    if (last > 1 || (count == 0 && last == 0))
        return make_objection(refusal_reason::shape,
                              "an answer that neither says anything nor ends");
    return {};
}

std::span<float> write(std::vector<std::byte> &message, const call_view &call, uint32_t hidden) {
    byte_writer writer(message);
    writer.value(call.layer);
    writer.value(call.rows);
    writer.value(hidden);
    writer.value(call.wait_us);
    writer.value(static_cast<uint32_t>(call.experts.size()));
    writer.value(static_cast<uint32_t>(call.row_of.size()));
    writer.list(call.experts);
    writer.list(call.row_of);
    const size_t values = size_t{call.rows} * hidden;
    return {reinterpret_cast<float *>(writer.room(values * sizeof(float))), values};
}

objection read(std::span<const std::byte> body, const peer_sizes &sizes, call_view &call) {
    byte_reader reader(body);
    call.layer = reader.value<uint32_t>();
    call.rows = reader.value<uint32_t>();
    const auto hidden = reader.value<uint32_t>();
    call.wait_us = reader.value<uint32_t>();
    const auto experts = reader.value<uint32_t>(), pairs = reader.value<uint32_t>();
    if (call.layer >= sizes.layers || call.rows == 0 || call.rows > sizes.rows_max ||
        hidden != sizes.hidden || experts > sizes.experts)
        return make_objection(
            refusal_reason::shape,
            format("a call of layer {}, {} rows of {} values and {} experts; there are {} "
                   "layers, at most {} rows of {} values, {} experts",
                   call.layer, call.rows, hidden, experts, sizes.layers, sizes.rows_max,
                   sizes.hidden, sizes.experts));
    call.experts = reader.list<expert_rows>(experts);
    call.row_of = reader.list<uint32_t>(pairs);
    call.hidden_states = reader.list<float>(uint64_t{call.rows} * hidden);
    if (objection problem = check_end(reader, "call"); problem.reason != refusal_reason::none)
        return problem;
    if (objection problem = check_experts(call.experts, pairs, sizes, call.rows);
        problem.reason != refusal_reason::none)
        return problem;
    if (std::ranges::any_of(call.row_of, [&](uint32_t row) { return row >= call.rows; }))
        return make_objection(refusal_reason::shape,
                              format("a call names a row beyond its {}", call.rows));
    if (!all_finite(call.hidden_states))
        return make_objection(refusal_reason::values,
                              "a call with hidden states that are no finite numbers");
    return {};
}

std::span<float> write(std::vector<std::byte> &message, const reply_view &reply, uint32_t hidden) {
    byte_writer writer(message);
    writer.value(reply.layer);
    writer.value(hidden);
    writer.value(reply.queued_us);
    writer.value(reply.computed_us);
    writer.value(reply.pairs);
    writer.value(uint32_t{0});
    const size_t values = size_t{reply.pairs} * hidden;
    return {reinterpret_cast<float *>(writer.room(values * sizeof(float))), values};
}

void set_times(std::vector<std::byte> &message, uint32_t queued_us, uint32_t computed_us) {
    const uint32_t times[] = {queued_us, computed_us};
    std::memcpy(message.data() + frame_header_bytes + 2 * sizeof(uint32_t), times, sizeof(times));
}

objection read(std::span<const std::byte> body, const peer_sizes &sizes, reply_view &reply) {
    byte_reader reader(body);
    reply.layer = reader.value<uint32_t>();
    const auto hidden = reader.value<uint32_t>();
    reply.queued_us = reader.value<uint32_t>();
    reply.computed_us = reader.value<uint32_t>();
    reply.pairs = reader.value<uint32_t>();
    const auto zero = reader.value<uint32_t>();
    if (reply.layer >= sizes.layers || hidden != sizes.hidden || zero != 0)
        return make_objection(refusal_reason::shape,
                              format("a reply of layer {} in {} values; there are {} layers of {}",
                                     reply.layer, hidden, sizes.layers, sizes.hidden));
    reply.outputs = reader.list<float>(uint64_t{reply.pairs} * hidden);
    if (objection problem = check_end(reader, "reply"); problem.reason != refusal_reason::none)
        return problem;
    if (!all_finite(reply.outputs))
        return make_objection(refusal_reason::values,
                              "a reply with outputs that are no finite numbers");
    return {};
}

uint64_t message_bytes_of(const peer_sizes &sizes, uint32_t top_k) {
    const uint64_t row = uint64_t{sizes.hidden} * sizeof(float) + sizeof(uint32_t);
    return frame_header_bytes + 64 + uint64_t{sizes.experts} * sizeof(expert_rows) +
           uint64_t{sizes.rows_max} * std::max<uint64_t>(top_k, 1) * row;
}

}  // namespace moorage::core
