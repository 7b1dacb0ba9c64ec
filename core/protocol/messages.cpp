// messages.cpp - writes bodies, and reads bodies that may come from any sender.
#include "core/protocol/messages.h"

#include <algorithm>
#include <cstring>

#include "core/base/finite.h"
#include "core/base/text.h"
#include "core/protocol/byte_reader.h"
#include "core/protocol/crc32c.h"

namespace moorage::core {

namespace {

objection wrong(refusal_reason why, std::string text) { return {why, std::move(text)}; }

objection ends(const byte_reader &from, const char *what) {
    if (from.whole()) return {};
    return wrong(refusal_reason::size, format("a {} whose lengths do not fit its bytes", what));
}

bool finite(std::span<const float> values) { return first_odd(values) == values.size(); }

void write_range(byte_writer &to, const weights_range &of) {
    to.value(of.layer);
    to.value(of.expert);
    to.value(of.offset);
    to.value(of.bytes);
}

weights_range read_range(byte_reader &from) {
    weights_range read;
    read.layer = from.value<uint32_t>();
    read.expert = from.value<uint32_t>();
    read.offset = from.value<uint64_t>();
    read.bytes = from.value<uint64_t>();
    return read;
}

objection check(const weights_range &of, const peer_sizes &sizes) {
    if (of.layer >= sizes.layers || of.expert >= sizes.experts)
        return wrong(refusal_reason::shape,
                     format("weights of expert {} of layer {}; there are {} of {} layers",
                            of.expert, of.layer, sizes.experts, sizes.layers));
    if (of.offset > UINT64_MAX - weights_bytes_max)
        return wrong(refusal_reason::size,
                     format("a range of weights from byte {}, beyond the end of any", of.offset));
    if (of.bytes == 0 || of.bytes > weights_bytes_max)
        return wrong(refusal_reason::size, format("a range of {} bytes of weights; 1 to {} may be "
                                                  "asked for at one time",
                                                  of.bytes, weights_bytes_max));
    return {};
}

// Checks that each expert is in the layer and occurs once, and that the rows add up to the list.
objection check_experts(std::span<const expert_rows> experts, uint64_t pairs, const peer_sizes &of,
                        uint32_t rows) {
    uint64_t sum = 0;
    uint32_t next = 0;
    for (const expert_rows &one : experts) {
        if (one.expert < next || one.expert >= of.experts || one.rows == 0 || one.rows > rows)
            return wrong(refusal_reason::shape,
                         format("{} rows for expert {}; the {} experts of a layer are named in "
                                "rising order, with 1 to {} rows each",
                                one.rows, one.expert, of.experts, rows));
        next = one.expert + 1;
        sum += one.rows;
    }
    if (sum != pairs || pairs == 0)
        return wrong(refusal_reason::shape,
                     format("experts of a call take {} rows, and {} are listed", sum, pairs));
    return {};
}

}  // namespace

void write(std::vector<std::byte> &message, const greeting &of) {
    byte_writer to(message);
    to.value(of.features);
    to.value(of.cluster);
    to.value(of.model);
    to.value(of.plan);
    to.value(of.sizes.layers);
    to.value(of.sizes.experts);
    to.value(of.sizes.hidden);
    to.value(of.sizes.rows_max);
    for (const std::string_view text : {of.server, of.model_name, of.software})
        to.text(text, name_bytes_max);
    to.align();
}

objection read(std::span<const std::byte> body, greeting &out) {
    byte_reader from(body);
    out.features = from.value<uint64_t>();
    out.cluster = from.value<uint64_t>();
    out.model = from.value<uint64_t>();
    out.plan = from.value<uint64_t>();
    out.sizes.layers = from.value<uint32_t>();
    out.sizes.experts = from.value<uint32_t>();
    out.sizes.hidden = from.value<uint32_t>();
    out.sizes.rows_max = from.value<uint32_t>();
    for (std::string_view *text : {&out.server, &out.model_name, &out.software})
        *text = from.text(name_bytes_max);
    from.align();
    return ends(from, "greeting");
}

void write(std::vector<std::byte> &message, const refusal_view &of) {
    byte_writer to(message);
    to.value(static_cast<uint32_t>(of.why));
    to.value(of.layer);
    to.value(of.expert);
    to.text(of.text, text_bytes_max);
    to.align();
}

objection read(std::span<const std::byte> body, refusal_view &out) {
    byte_reader from(body);
    const auto why = from.value<uint32_t>();
    // Reasons of later versions are unknown here and become `unexpected`.
    out.why = static_cast<refusal_reason>(why == 0 || why >= refusal_reasons
                                              ? static_cast<uint32_t>(refusal_reason::unexpected)
                                              : why);
    out.layer = from.value<uint32_t>();
    out.expert = from.value<uint32_t>();
    out.text = from.text(text_bytes_max);
    from.align();
    return ends(from, "refusal");
}

void write(std::vector<std::byte> &message, const ping_view &of) {
    byte_writer(message).value(of.sent_ns);
}

objection read(std::span<const std::byte> body, ping_view &out) {
    byte_reader from(body);
    out.sent_ns = from.value<uint64_t>();
    return ends(from, "ping");
}

void write(std::vector<std::byte> &message, const pong_view &of) {
    byte_writer to(message);
    to.value(of.sent_ns);
    to.value(of.received_ns);
    to.value(of.answered_ns);
    to.value(of.draining);
    to.value(of.waiting);
}

objection read(std::span<const std::byte> body, pong_view &out) {
    byte_reader from(body);
    out.sent_ns = from.value<uint64_t>();
    out.received_ns = from.value<uint64_t>();
    out.answered_ns = from.value<uint64_t>();
    out.draining = from.value<uint32_t>();
    out.waiting = from.value<uint32_t>();
    return ends(from, "pong");
}

void write(std::vector<std::byte> &message, const statistics_view &of) {
    byte_writer to(message);
    to.value(of.calls);
    to.value(of.rows);
    to.value(of.window_ms);
    to.value(uint64_t{of.activations.size()});
    to.list(of.activations);
}

objection read(std::span<const std::byte> body, const peer_sizes &of, statistics_view &out) {
    byte_reader from(body);
    out.calls = from.value<uint64_t>();
    out.rows = from.value<uint64_t>();
    out.window_ms = from.value<uint64_t>();
    const auto count = from.value<uint64_t>();
    if (count != uint64_t{of.layers} * of.experts)
        return wrong(refusal_reason::shape,
                     format("statistics of {} experts; the model has {} of {} layers", count,
                            of.experts, of.layers));
    out.activations = from.list<uint64_t>(count);
    return ends(from, "list of statistics");
}

void write(std::vector<std::byte> &message, const weights_range &of) {
    byte_writer to(message);
    write_range(to, of);
}

objection read(std::span<const std::byte> body, const peer_sizes &of, weights_range &out) {
    byte_reader from(body);
    out = read_range(from);
    if (objection bad = ends(from, "request for weights"); bad.why != refusal_reason::none)
        return bad;
    return check(out, of);
}

void write(std::vector<std::byte> &message, const weights_view &of) {
    byte_writer to(message);
    write_range(to, of.range);
    to.value(of.image_bytes);
    to.value(crc32c(of.bytes));
    to.value(uint32_t{0});
    to.list(of.bytes);
}

objection read(std::span<const std::byte> body, const peer_sizes &of, weights_view &out) {
    byte_reader from(body);
    out.range = read_range(from);
    out.image_bytes = from.value<uint64_t>();
    const auto sum = from.value<uint32_t>();
    const auto zero = from.value<uint32_t>();
    out.bytes = from.rest();
    if (objection bad = check(out.range, of); bad.why != refusal_reason::none) return bad;
    if (!from.ok() || zero != 0 || out.bytes.size() != out.range.bytes ||
        out.range.offset + out.range.bytes > out.image_bytes)
        return wrong(refusal_reason::size,
                     format("{} bytes of weights from {} on, of {}", out.bytes.size(),
                            out.range.offset, out.image_bytes));
    if (crc32c(out.bytes) != sum)
        return wrong(refusal_reason::checksum, "weights that were changed on their way");
    return {};
}

void write(std::vector<std::byte> &message, const ask_view &of) {
    byte_writer to(message);
    to.value(of.new_tokens);
    to.value(static_cast<uint32_t>(of.prompt.size()));
    to.list(of.prompt);
}

objection read(std::span<const std::byte> body, ask_view &out) {
    byte_reader from(body);
    out.new_tokens = from.value<uint32_t>();
    const auto count = from.value<uint32_t>();
    if (count == 0 || count > ask_tokens_max || out.new_tokens == 0 ||
        out.new_tokens > ask_tokens_max)
        return wrong(refusal_reason::size,
                     format("a request with {} tokens that wants {}; 1 to {} of each are possible",
                            count, out.new_tokens, ask_tokens_max));
    out.prompt = from.list<int32_t>(count);
    return ends(from, "request");
}

void write(std::vector<std::byte> &message, const tokens_view &of) {
    byte_writer to(message);
    to.value(static_cast<uint32_t>(of.last));
    to.value(of.queued_us);
    to.value(static_cast<uint32_t>(of.ids.size()));
    to.list(of.ids);
}

objection read(std::span<const std::byte> body, tokens_view &out) {
    byte_reader from(body);
    const auto last = from.value<uint32_t>();
    out.queued_us = from.value<uint32_t>();
    const auto count = from.value<uint32_t>();
    out.ids = from.list<int32_t>(count);
    out.last = last == 1;
    if (objection bad = ends(from, "list of tokens"); bad.why != refusal_reason::none) return bad;
    if (last > 1 || (count == 0 && last == 0))
        return wrong(refusal_reason::shape, "an answer that neither says anything nor ends");
    return {};
}

std::span<float> write(std::vector<std::byte> &message, const call_view &of, uint32_t hidden) {
    byte_writer to(message);
    to.value(of.layer);
    to.value(of.rows);
    to.value(hidden);
    to.value(of.wait_us);
    to.value(static_cast<uint32_t>(of.experts.size()));
    to.value(static_cast<uint32_t>(of.row_of.size()));
    to.list(of.experts);
    to.list(of.row_of);
    const size_t values = size_t{of.rows} * hidden;
    return {reinterpret_cast<float *>(to.room(values * sizeof(float))), values};
}

objection read(std::span<const std::byte> body, const peer_sizes &of, call_view &out) {
    byte_reader from(body);
    out.layer = from.value<uint32_t>();
    out.rows = from.value<uint32_t>();
    const auto hidden = from.value<uint32_t>();
    out.wait_us = from.value<uint32_t>();
    const auto experts = from.value<uint32_t>(), pairs = from.value<uint32_t>();
    if (out.layer >= of.layers || out.rows == 0 || out.rows > of.rows_max || hidden != of.hidden ||
        experts > of.experts)
        return wrong(refusal_reason::shape,
                     format("a call of layer {}, {} rows of {} values and {} experts; there are {} "
                            "layers, at most {} rows of {} values, {} experts",
                            out.layer, out.rows, hidden, experts, of.layers, of.rows_max, of.hidden,
                            of.experts));
    out.experts = from.list<expert_rows>(experts);
    out.row_of = from.list<uint32_t>(pairs);
    out.hidden_states = from.list<float>(uint64_t{out.rows} * hidden);
    if (objection bad = ends(from, "call"); bad.why != refusal_reason::none) return bad;
    if (objection bad = check_experts(out.experts, pairs, of, out.rows);
        bad.why != refusal_reason::none)
        return bad;
    if (std::ranges::any_of(out.row_of, [&](uint32_t row) { return row >= out.rows; }))
        return wrong(refusal_reason::shape, format("a call names a row beyond its {}", out.rows));
    if (!finite(out.hidden_states))
        return wrong(refusal_reason::values,
                     "a call with hidden states that are no finite numbers");
    return {};
}

std::span<float> write(std::vector<std::byte> &message, const reply_view &of, uint32_t hidden) {
    byte_writer to(message);
    to.value(of.layer);
    to.value(hidden);
    to.value(of.queued_us);
    to.value(of.computed_us);
    to.value(of.pairs);
    to.value(uint32_t{0});
    const size_t values = size_t{of.pairs} * hidden;
    return {reinterpret_cast<float *>(to.room(values * sizeof(float))), values};
}

void set_times(std::vector<std::byte> &message, uint32_t queued_us, uint32_t computed_us) {
    const uint32_t times[] = {queued_us, computed_us};
    std::memcpy(message.data() + frame_header_bytes + 2 * sizeof(uint32_t), times, sizeof(times));
}

objection read(std::span<const std::byte> body, const peer_sizes &of, reply_view &out) {
    byte_reader from(body);
    out.layer = from.value<uint32_t>();
    const auto hidden = from.value<uint32_t>();
    out.queued_us = from.value<uint32_t>();
    out.computed_us = from.value<uint32_t>();
    out.pairs = from.value<uint32_t>();
    const auto zero = from.value<uint32_t>();
    if (out.layer >= of.layers || hidden != of.hidden || zero != 0)
        return wrong(refusal_reason::shape,
                     format("a reply of layer {} in {} values; there are {} layers of {}",
                            out.layer, hidden, of.layers, of.hidden));
    out.outputs = from.list<float>(uint64_t{out.pairs} * hidden);
    if (objection bad = ends(from, "reply"); bad.why != refusal_reason::none) return bad;
    if (!finite(out.outputs))
        return wrong(refusal_reason::values, "a reply with outputs that are no finite numbers");
    return {};
}

uint64_t message_bytes_of(const peer_sizes &of, uint32_t top_k) {
    const uint64_t row = uint64_t{of.hidden} * sizeof(float) + sizeof(uint32_t);
    return frame_header_bytes + 64 + uint64_t{of.experts} * sizeof(expert_rows) +
           uint64_t{of.rows_max} * std::max<uint64_t>(top_k, 1) * row;
}

}  // namespace moorage::core
