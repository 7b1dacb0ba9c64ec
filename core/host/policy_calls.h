// policy_calls.h - the kinds of policies, their tables and the calls of each, as lists;
// made from sdk/include/moorage by tools/abi_tables; do not edit.
//
//   MOORAGE_KINDS(KIND)    KIND(name), in the order of the documentation
//   MOORAGE_TABLES(TABLE)  TABLE(member, name, id, last); last: the last required function
//   MOORAGE_CALLS(CALL)    CALL(member, name, function, kind, tag, need), as in the headers
//   MOORAGE_CALLS_OF_member(CALL), those of one table
//
// kind: what a call counts as; "": calls that belong to no kind. tag: step, control or any. need:
// required or optional.
#pragma once

#include <cstddef>

namespace moorage::core {

inline constexpr std::size_t stage_kind_count = 7;  // the first of the kinds

}  // namespace moorage::core

// clang-format off
#define MOORAGE_KINDS(KIND) \
    KIND(router) \
    KIND(cache) \
    KIND(budget) \
    KIND(prefetch) \
    KIND(dispatch) \
    KIND(placement) \
    KIND(transport) \
    KIND(wire)

#define MOORAGE_TABLES(TABLE) \
    TABLE(router, router, MOORAGE_INTERFACE_ROUTER, select) \
    TABLE(cache, cache, MOORAGE_INTERFACE_CACHE, victims) \
    TABLE(budget, budget, MOORAGE_INTERFACE_BUDGET, plan) \
    TABLE(prefetch, prefetch, MOORAGE_INTERFACE_PREFETCH, plan) \
    TABLE(dispatch, dispatch, MOORAGE_INTERFACE_DISPATCH, assign) \
    TABLE(placement, placement, MOORAGE_INTERFACE_PLACEMENT, plan) \
    TABLE(transport, transport, MOORAGE_INTERFACE_TRANSPORT, next) \
    TABLE(wire, wire, MOORAGE_INTERFACE_WIRE, close) \
    TABLE(facts, facts, MOORAGE_INTERFACE_FACTS, facts) \
    TABLE(observer, observer, MOORAGE_INTERFACE_OBSERVER, observe) \
    TABLE(replayer, replay, MOORAGE_INTERFACE_REPLAY, replay)

#define MOORAGE_CALLS_OF_router(CALL) \
    CALL(router, router, select, "router", step, required)

#define MOORAGE_CALLS_OF_cache(CALL) \
    CALL(cache, cache, victims, "cache", step, required) \
    CALL(cache, cache, admit, "cache", step, optional) \
    CALL(cache, cache, on_load, "cache", step, optional) \
    CALL(cache, cache, on_evict, "cache", step, optional) \
    CALL(cache, cache, fill, "cache", control, optional) \
    CALL(cache, cache, hold, "cache", step, optional) \
    CALL(cache, cache, give_up, "cache", step, optional)

#define MOORAGE_CALLS_OF_budget(CALL) \
    CALL(budget, budget, plan, "budget", control, required) \
    CALL(budget, budget, interval, "budget", control, optional)

#define MOORAGE_CALLS_OF_prefetch(CALL) \
    CALL(prefetch, prefetch, horizon, "prefetch", control, optional) \
    CALL(prefetch, prefetch, predict, "prefetch", step, optional) \
    CALL(prefetch, prefetch, plan, "prefetch", step, required) \
    CALL(prefetch, prefetch, outcome, "prefetch", step, optional) \
    CALL(prefetch, prefetch, prediction, "prefetch", control, optional)

#define MOORAGE_CALLS_OF_dispatch(CALL) \
    CALL(dispatch, dispatch, assign, "dispatch", step, required) \
    CALL(dispatch, dispatch, outcome, "dispatch", step, optional)

#define MOORAGE_CALLS_OF_placement(CALL) \
    CALL(placement, placement, plan, "placement", control, required) \
    CALL(placement, placement, adopt, "placement", control, optional)

#define MOORAGE_CALLS_OF_transport(CALL) \
    CALL(transport, transport, submit, "transport", step, required) \
    CALL(transport, transport, cancel, "transport", step, required) \
    CALL(transport, transport, promote, "transport", step, required) \
    CALL(transport, transport, next, "transport", step, required)

#define MOORAGE_CALLS_OF_wire(CALL) \
    CALL(wire, wire, open, "wire", control, required) \
    CALL(wire, wire, listen, "wire", control, required) \
    CALL(wire, wire, connect, "wire", control, required) \
    CALL(wire, wire, send, "wire", control, required) \
    CALL(wire, wire, poll, "wire", control, required) \
    CALL(wire, wire, wake, "wire", any, required) \
    CALL(wire, wire, release, "wire", control, required) \
    CALL(wire, wire, close, "wire", control, required) \
    CALL(wire, wire, pace, "wire", control, optional) \
    CALL(wire, wire, remember, "wire", control, optional) \
    CALL(wire, wire, forget, "wire", control, optional)

#define MOORAGE_CALLS_OF_facts(CALL) \
    CALL(facts, facts, facts, "", control, required)

#define MOORAGE_CALLS_OF_observer(CALL) \
    CALL(observer, observer, observe, "", step, required)

#define MOORAGE_CALLS_OF_replayer(CALL) \
    CALL(replayer, replay, replay, "cache", step, required)

#define MOORAGE_CALLS(CALL) \
    MOORAGE_CALLS_OF_router(CALL) \
    MOORAGE_CALLS_OF_cache(CALL) \
    MOORAGE_CALLS_OF_budget(CALL) \
    MOORAGE_CALLS_OF_prefetch(CALL) \
    MOORAGE_CALLS_OF_dispatch(CALL) \
    MOORAGE_CALLS_OF_placement(CALL) \
    MOORAGE_CALLS_OF_transport(CALL) \
    MOORAGE_CALLS_OF_wire(CALL) \
    MOORAGE_CALLS_OF_facts(CALL) \
    MOORAGE_CALLS_OF_observer(CALL) \
    MOORAGE_CALLS_OF_replayer(CALL)

// clang-format on
