// protocol_fuzz.cpp - fuzz target of messages between nodes. Any bytes give a refusal in one line,
// or values within the bounds. The first byte chooses between a whole message and the body of a
// kind without a checksum.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tools/protocol/messages.h"

using namespace moorage::core;

namespace {

constexpr peer_sizes sizes{.layers = 4, .experts = 8, .hidden = 3, .rows_max = 6};

void require(bool condition) {
    if (!condition) std::abort();
}

// Whether it was taken.
bool is_accepted(const objection &objection) {
    require(objection.text.find('\n') == std::string::npos);
    require((objection.reason == refusal_reason::none) == objection.text.empty());
    return objection.text.empty();
}

void read_call(std::span<const std::byte> body) {
    call_view call;
    if (!is_accepted(read(body, sizes, call))) return;
    require(call.layer < sizes.layers && call.rows != 0 && call.rows <= sizes.rows_max);
    require(call.hidden_states.size() == size_t{call.rows} * sizes.hidden);
    for (const float value : call.hidden_states) require(std::isfinite(value));
    size_t sum = 0;
    uint32_t next = 0;
    for (const expert_rows &expert : call.experts) {
        require(expert.expert >= next && expert.expert < sizes.experts);
        next = expert.expert + 1;
        sum += expert.rows;
    }
    require(sum == call.row_of.size());
    for (const uint32_t row : call.row_of) require(row < call.rows);
}

void read_reply(std::span<const std::byte> body) {
    reply_view reply;
    if (!is_accepted(read(body, sizes, reply))) return;
    require(reply.layer < sizes.layers &&
            reply.outputs.size() == size_t{reply.pairs} * sizes.hidden);
    for (const float value : reply.outputs) require(std::isfinite(value));
}

void read_weights(std::span<const std::byte> body) {
    weights_view weights;
    if (!is_accepted(read(body, sizes, weights))) return;
    require(weights.range.layer < sizes.layers && weights.range.expert < sizes.experts);
    require(!weights.bytes.empty() && weights.bytes.size() == weights.range.bytes);
    require(weights.range.offset + weights.range.bytes <= weights.image_bytes);
}

void read_body(message_kind kind, std::span<const std::byte> body) {
    greeting hello;
    refusal_view refusal;
    ping_view ping;
    pong_view pong;
    statistics_view statistics;
    weights_range range;
    ask_view asked;
    tokens_view news;
    switch (kind) {
        case message_kind::hello:
        case message_kind::welcome:
            return is_accepted(read(body, hello)) ? require(hello.server.size() <= name_bytes_max)
                                                  : void();
        case message_kind::refusal:
        case message_kind::failed:
            return is_accepted(read(body, refusal)) ? require(refusal.text.size() <= text_bytes_max)
                                                    : void();
        case message_kind::call:
            return read_call(body);
        case message_kind::reply:
            return read_reply(body);
        case message_kind::ping:
            return void(is_accepted(read(body, ping)));
        case message_kind::pong:
            return void(is_accepted(read(body, pong)));
        case message_kind::statistics:
            return is_accepted(read(body, sizes, statistics))
                       ? require(statistics.activations.size() == 32)
                       : void();
        case message_kind::weights_wanted:
            return is_accepted(read(body, sizes, range)) ? require(range.bytes <= weights_bytes_max)
                                                         : void();
        case message_kind::weights:
            return read_weights(body);
        case message_kind::ask:
            if (!is_accepted(read(body, asked))) return;
            require(!asked.prompt.empty() && asked.prompt.size() <= ask_tokens_max);
            return require(asked.new_tokens >= 1 && asked.new_tokens <= ask_tokens_max);
        case message_kind::tokens:
            return is_accepted(read(body, news)) ? require(news.last || !news.ids.empty()) : void();
        default:
            return;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    // Memory as a wire lends it, at a multiple of 8 and of exactly this size, so that a read beyond
    // it is noticed.
    const std::unique_ptr<std::byte[]> lent(new std::byte[size - 1]);
    if (size > 1) std::memcpy(lent.get(), data + 1, size - 1);
    const std::span<const std::byte> bytes(lent.get(), size - 1);
    constexpr uint8_t requests = static_cast<uint8_t>(message_kind::ask) - message_kinds - 1;
    if (const uint8_t kind = data[0] % (message_kinds + 3); kind != 0) {
        const uint8_t named = kind > message_kinds ? kind + requests : kind;
        read_body(static_cast<message_kind>(named), bytes);
        return 0;
    }
    frame whole;
    if (is_accepted(read_frame(bytes, whole))) read_body(whole.header.kind, whole.body);
    return 0;
}
