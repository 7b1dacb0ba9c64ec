// messages.h - the bodies of messages: their content, how it is written and how it is read.
//
//   begin_frame(message);
//   write(message, greeting{...});
//   end_frame(message, {.kind = message_kind::hello, ...});
//
//   call_view asked;
//   if (const auto found = read(frame.body, sizes, asked); found.reason != refusal_reason::none)
//
// Results of reading borrow from the body, which is aligned to 8 bytes. A list is read only after
// its length was checked against the remaining bytes and the sizes of the model.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tools/protocol/frame.h"

namespace moorage::core {

// Sizes that both sides of a connection agree on when they greet.
struct peer_sizes {
    uint32_t layers = 0, experts = 0, hidden = 0;  // layers: only those with experts
    uint32_t rows_max = 0;                         // of one call
};

// Bits of greeting::features. A node uses only features that the other one has.
constexpr uint64_t feature_weights = 1;  // answers weights_wanted

constexpr size_t name_bytes_max = 255, text_bytes_max = 1023;

struct greeting {  // body of hello and welcome
    uint64_t features = 0;
    uint64_t cluster = 0, model = 0, plan = 0;  // fingerprints
    peer_sizes sizes;
    std::string_view server, model_name, software;
};

struct refusal_view {  // body of refusal, and of failed with the expert concerned
    refusal_reason reason = refusal_reason::none;
    uint32_t layer = no_server, expert = no_server;
    std::string_view text;
};

struct expert_rows {
    uint32_t expert, rows;  // rows: how many of the call's rows use it, at least 1
    bool operator==(const expert_rows &) const = default;
};

// Hidden states for the experts of one layer, and which expert takes which row. row_of lists the
// rows of experts[0], then those of experts[1], and so on.
struct call_view {
    uint32_t layer = 0;
    uint32_t rows = 0;
    uint32_t wait_us = 0;                  // how long the sender waits; 0: not stated
    std::span<const expert_rows> experts;  // ascending, each once
    std::span<const uint32_t> row_of;      // [sum of their rows] each below `rows`
    std::span<const float> hidden_states;  // [rows, hidden]
};

// Outputs in the order of the call's row_of, without weights. The home sums over a token's experts
// in the order of its ranks, so the result has the same bits as in a single process.
struct reply_view {
    uint32_t layer = 0;
    uint32_t queued_us = 0, computed_us = 0;
    uint32_t pairs = 0;
    std::span<const float> outputs;  // [pairs, hidden]
};

struct ping_view {
    uint64_t sent_ns = 0;  // by the sender's clock; pong returns it
};
struct pong_view {
    uint64_t sent_ns = 0, received_ns = 0, answered_ns = 0;  // the last two by the answering node's
                                                             // clock
    uint32_t draining = 0, waiting = 0;                      // waiting: calls in its queue
};

struct statistics_view {
    uint64_t calls = 0, rows = 0, window_ms = 0;
    std::span<const uint64_t> activations;  // [layers, experts] rows
};

struct weights_range {  // of an expert's image (core/model/segment.h)
    uint32_t layer = 0, expert = 0;
    uint64_t offset = 0, bytes = 0;
};
struct weights_view {
    weights_range range;
    uint64_t image_bytes = 0;  // of the whole expert
    std::span<const std::byte> bytes;
};
constexpr uint64_t weights_bytes_max = uint64_t{1} << 20;  // limit of one range

// Asks a home to continue a prompt. The home answers with `tokens` until the last ones, or with
// `failed`. `cancel` ends it.
struct ask_view {
    uint32_t new_tokens = 0;          // at least 1; the answer may be shorter
    std::span<const int32_t> prompt;  // at least 1 id; the home checks them against its model
};
struct tokens_view {
    bool last = false;             // nothing follows; then the list may be empty
    uint32_t queued_us = 0;        // from its arrival to the start of its first pass
    std::span<const int32_t> ids;  // written since the previous message
};
constexpr uint32_t ask_tokens_max = uint32_t{1} << 20;  // limit of a prompt, and of the new tokens

void write(std::vector<std::byte> &message, const greeting &ours);
void write(std::vector<std::byte> &message, const refusal_view &refusal);
void write(std::vector<std::byte> &message, const ping_view &ping);
void write(std::vector<std::byte> &message, const pong_view &pong);
void write(std::vector<std::byte> &message, const statistics_view &statistics);
void write(std::vector<std::byte> &message, const weights_range &range);
void write(std::vector<std::byte> &message, const weights_view &weights);
void write(std::vector<std::byte> &message, const ask_view &request);
void write(std::vector<std::byte> &message, const tokens_view &tokens);
// Space for [rows, hidden] or [pairs, hidden] values, which the caller fills in; the view's own
// floats are ignored. It moves when anything is appended.
std::span<float> write(std::vector<std::byte> &message, const call_view &call, uint32_t hidden);
std::span<float> write(std::vector<std::byte> &message, const reply_view &reply, uint32_t hidden);

// Sets the times of a message that holds a reply.
void set_times(std::vector<std::byte> &message, uint32_t queued_us, uint32_t computed_us);

// objection::reason is none if `theirs` is valid.
objection read(std::span<const std::byte> body, greeting &theirs);
objection read(std::span<const std::byte> body, refusal_view &refusal);
objection read(std::span<const std::byte> body, ping_view &ping);
objection read(std::span<const std::byte> body, pong_view &pong);
objection read(std::span<const std::byte> body, ask_view &request);
objection read(std::span<const std::byte> body, tokens_view &tokens);
objection read(std::span<const std::byte> body, const peer_sizes &sizes,
               statistics_view &statistics);
objection read(std::span<const std::byte> body, const peer_sizes &sizes, weights_range &range);
objection read(std::span<const std::byte> body, const peer_sizes &sizes, weights_view &weights);
objection read(std::span<const std::byte> body, const peer_sizes &sizes, call_view &call);
objection read(std::span<const std::byte> body, const peer_sizes &sizes, reply_view &reply);

// Bytes of the longest call or reply of a model: rows_max rows with `top_k` experts each.
uint64_t message_bytes_of(const peer_sizes &sizes, uint32_t top_k);

}  // namespace moorage::core
