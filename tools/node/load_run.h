// load_run.h - asks homes for texts at given times, whatever they answer, and notes the times of
// the answers.
//
// The loop is open: a request is sent at its time, not when the one before is answered. Every time
// is counted from when the request was meant to be sent. So if a home stands still for five
// seconds, every request that was due meanwhile shows it. A client that is late itself shows too
// (sent_ns). Nothing is asked twice.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tools/node/node_plan.h"
#include "tools/node/wire.h"
#include "core/source/model_source.h"

namespace moorage::core {

struct load_request {
    uint32_t home = 0;   // server of the plan
    uint64_t at_ns = 0;  // since the load began; never decreases
    model_request request;
};

// How a request ended.
enum class load_end : uint8_t {
    answered,
    refused,  // the home gives a reason
    lost,     // the connection ended during the request
    away,     // the home was not connected when it was due
    late,     // nothing came for load_options::patience_ns, or the home is silent
    stopped   // the load was ended before
};
const char *name_of(load_end end);

// Times since the load began; MOORAGE_NEVER: has not happened.
struct load_outcome {
    load_end end = load_end::stopped;
    uint64_t sent_ns = MOORAGE_NEVER, first_ns = MOORAGE_NEVER, ended_ns = MOORAGE_NEVER;
    uint64_t number = 0;     // the number that its home gave it, for the log; 0: no answer
    uint32_t queued_us = 0;  // time at the home before its first pass
    std::vector<int32_t> written;
    std::string text;  // why it was not answered; for a lost one also how much had come
};

struct load_options {
    // How long homes are waited for before the load begins. A home that is there but has no place
    // for another connection is tried again until then. A home that is not there is not waited for.
    uint64_t connect_ns = 5'000'000'000;
    uint64_t patience_ns = 60'000'000'000;  // for the next token of a request
    // A home that answers nothing for so long, not even a ping, counts as stopped or hung.
    uint64_t silence_ns = 20'000'000'000;
    std::function<bool()> stop = {};  // asked now and then
    // Sees the tokens of a request as they come.
    std::function<void(size_t request, std::span<const int32_t> ids)> on_tokens = {};
    // Asked after on_tokens: whether the rest of the request is not wanted. Then it is cancelled,
    // and counts as answered.
    std::function<bool(size_t request)> has_enough = {};
    // Sees each request that has ended, in the order of their ends.
    std::function<void(size_t request, const load_outcome &)> on_end = {};
};

// Uses an open wire. `plan` gives the servers and the greeting. Outcomes are in the order of the
// requests. Requires: homes below the plan's servers, times that never decrease.
std::vector<load_outcome> run_load(wire &message_wire, const node_plan &plan, uint64_t incarnation,
                                   const std::vector<load_request> &requests,
                                   const load_options &options);

}  // namespace moorage::core
