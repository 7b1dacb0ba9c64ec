// load_run.h - asks homes for texts at given times, whatever they answer, and notes when what came.
//
// The loop is open: a request is sent when its time has come, not when the one before is answered,
// and every time is counted from when it was meant to be sent. So a home that stands still for five
// seconds shows in every request that was due meanwhile, and so does a client that is too late
// itself (sent_ns). Nothing is asked twice.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/node/node_plan.h"
#include "core/node/wire.h"
#include "core/source/model_source.h"

namespace moorage::core {

struct load_request {
    uint32_t home = 0;   // server of the plan
    uint64_t at_ns = 0;  // since the load began; not falling
    model_request of;
};

// How a request ended.
enum class load_end : uint8_t {
    answered,
    refused,  // the home says why
    lost,     // the connection ended under way
    away,     // the home was not connected when it was due
    late,     // nothing came for load_options::patience_ns, or the home is silent
    stopped   // the load was ended before
};
const char *name_of(load_end how);

// Times since the load began; MOORAGE_NEVER: has not happened.
struct load_outcome {
    load_end how = load_end::stopped;
    uint64_t sent_ns = MOORAGE_NEVER, first_ns = MOORAGE_NEVER, ended_ns = MOORAGE_NEVER;
    uint64_t number = 0;     // that its home gave it, for its log; 0: it did not answer
    uint32_t queued_us = 0;  // at the home, until its first pass
    std::vector<int32_t> written;
    std::string text;  // why it was not answered; of a lost one also how much had come
};

struct load_options {
    // That homes are waited for before the load begins. One that is there and has no place for
    // another connection is tried again until then; one that is not there is not waited for.
    uint64_t connect_ns = 5'000'000'000;
    uint64_t patience_ns = 60'000'000'000;  // for the next token of a request
    // A home that answers nothing for so long, not even a ping, is stopped or hung.
    uint64_t silence_ns = 20'000'000'000;
    std::function<bool()> stop = {};  // asked now and then
    // Sees what came of a request, as it comes.
    std::function<void(size_t request, std::span<const int32_t> ids)> on_tokens = {};
    // Asked of a request after on_tokens: nobody wants the rest. It is cancelled, and answered.
    std::function<bool(size_t request)> has_enough = {};
    // Sees a request that has ended, in order of their ends.
    std::function<void(size_t request, const load_outcome &)> on_end = {};
};

// Over a wire that is open; `plan` says whom to greet how. Outcomes in the order of the requests.
// Requires: homes below the plan's servers, times that do not fall.
std::vector<load_outcome> run_load(wire &over, const node_plan &plan, uint64_t incarnation,
                                   const std::vector<load_request> &requests,
                                   const load_options &options);

}  // namespace moorage::core
