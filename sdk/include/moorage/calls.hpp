// calls.hpp - the functions of a C++ class that the host calls; refuses functions it would not
// call.
//
// These functions make a class answer for a kind. All are called as [step] unless noted:
//   observer   void observe(const step &)
//   router     uint32_t select(const step &, route &)
//   facts      uint32_t facts(std::span<moorage_fact>) [control], of any kind
//   cache      void victims(const room &, pages &);  optional: bool admit(const admission &),
//              void on_load(uint32_t page, uint32_t segments, int32_t cause),
//              void on_evict(uint32_t page, int32_t cause), bool hold(uint32_t page),
//              void give_up(const room &, pages &), void fill(const room &, pages &) [control]
//   budget     bool plan(const budget_request &, budget_plan &) [control]; optional:
//              uint64_t interval() [control]
//   prefetch   void plan(const step &, const forecast &, orders &); uint32_t horizon() [control];
//              optional: uint32_t predict(const step &, uint32_t layer, uint32_t distance,
//              std::span<uint32_t> experts, std::span<float> scores), void outcome(...),
//              uint32_t prediction() [control]
//   dispatch   uint32_t assign(const step &, const items &, std::span<uint32_t> devices,
//              std::span<uint32_t> order); optional: void outcome(const dispatched &)
//   transport  void submit(const transfer &), void cancel(uint32_t id),
//              void promote(uint32_t id, int32_t cause), bool next(uint32_t link, piece &)
//   placement  void plan(const moorage_cluster &, const moorage_demand &,
//              std::span<const moorage_copy> current, copies &) [control], which may throw
//              (std::invalid_argument: no plan exists, and why); optional:
//              bool adopt(const moorage_move &) [control]; activate() and reset() may be left out
//   wire       wire.hpp lists them; activate() and reset() may be left out
// A function is found by its name and its arguments. A member with the name of a call must fit that
// call. This holds for calls of the class's own kinds, and for observe, victims and plan. A member
// with other arguments, another result or private access would never be called, and nobody would
// notice. So it does not compile. Overloads and templates are fine if one of them fits. Helpers may
// have the names of other kinds' calls. A class must not be final: its members could not be found
// this way.
#pragma once

#include <concepts>
#include <type_traits>

#include "policy.hpp"

namespace moorage::detail {

template <class P>
concept observes = requires(P &p, const step &s) {
    p.observe(s);
};
template <class P>
concept routes = requires(P &p, const step &s, route &r) {
    { p.select(s, r) } -> std::convertible_to<uint32_t>;
};
template <class P>
concept caches = requires(P &p, const room &r, pages &out) {
    p.victims(r, out);
};
template <class P>
concept admits = requires(P &p, const admission &a) {
    { p.admit(a) } -> std::convertible_to<bool>;
};
template <class P>
concept sees_loads = requires(P &p) {
    p.on_load(0u, 0u, 0);
};
template <class P>
concept sees_evictions = requires(P &p) {
    p.on_evict(0u, 0);
};
template <class P>
concept fills = requires(P &p, const room &r, pages &out) {
    p.fill(r, out);
};
template <class P>
concept holds = requires(P &p) {
    { p.hold(0u) } -> std::convertible_to<bool>;
};
template <class P>
concept gives_up = requires(P &p, const room &r, pages &out) {
    p.give_up(r, out);
};
// replay.hpp
template <class P>
concept takes_singles = requires(P &p) {
    { p.single_requests().request(0u, 0u) } -> std::convertible_to<uint32_t>;
};
template <class P>
concept budgets = requires(P &p, const budget_request &r, budget_plan &out) {
    { p.plan(r, out) } -> std::convertible_to<bool>;
};
template <class P>
concept has_interval = requires(P &p) {
    { p.interval() } -> std::convertible_to<uint64_t>;
};
template <class P>
concept prefetches = requires(P &p, const step &s, const forecast &f, orders &o) {
    p.plan(s, f, o);
};
template <class P>
concept has_horizon = requires(P &p) {
    { p.horizon() } -> std::convertible_to<uint32_t>;
};
template <class P>
concept predicts = requires(P &p, const step &s) {
    {
        p.predict(s, 0u, 0u, std::span<uint32_t>(), std::span<float>())
        } -> std::convertible_to<uint32_t>;
};
template <class P>
concept chooses_prediction = requires(P &p) {
    { p.prediction() } -> std::convertible_to<uint32_t>;
};
template <class P>
concept sees_prefetches = requires(P &p, const prefetch_outcome &o) {
    p.outcome(o);
};
template <class P>
concept dispatches = requires(P &p, const step &s, const items &i) {
    {
        p.assign(s, i, std::span<uint32_t>(), std::span<uint32_t>())
        } -> std::convertible_to<uint32_t>;
};
template <class P>
concept sees_dispatches = requires(P &p, const dispatched &d) {
    p.outcome(d);
};
template <class P>
concept transports = requires(P &p, const transfer &t, piece &out) {
    p.submit(t);
    p.cancel(0u);
    p.promote(0u, 0);
    { p.next(0u, out) } -> std::convertible_to<bool>;
};
template <class P>
concept places = requires(P &p, const moorage_cluster &c, const moorage_demand &d, copies &out) {
    p.plan(c, d, std::span<const moorage_copy>(), out);
};
template <class P>
concept states_facts = requires(P &p) {
    { p.facts(std::span<moorage_fact>()) } -> std::convertible_to<uint32_t>;
};
template <class P>
concept adopts = requires(P &p, const moorage_move &m) {
    { p.adopt(m) } -> std::convertible_to<bool>;
};
template <class P>
concept activates = requires(P &p, const limits &l) {
    p.activate(l);
};
template <class P>
concept deactivates = requires(P &p) {
    p.deactivate();
};
template <class P>
concept resets = requires(P &p) {
    p.reset();
};
template <class P>
concept has_params = requires {
    std::span<const param>(P::params);
};

// names_X: the class or one of its bases has a member X of any sort and access. The test: a class
// inherits from it and from another class with a member X, which makes the name ambiguous. The
// compiler finds this before overloads and access matter. No class can inherit from a final class;
// module.hpp refuses it, once.
#define MOORAGE_CALL(X)                                    \
    struct other_##X {                                     \
        int X;                                             \
    };                                                     \
    template <class P>                                     \
    struct both_##X : P, other_##X {};                     \
    template <class P>                                     \
    concept names_##X = !std::is_final_v<P> && !requires { \
        &both_##X<P>::X;                                   \
    };
MOORAGE_CALL(observe)
MOORAGE_CALL(select)
MOORAGE_CALL(victims)
MOORAGE_CALL(admit)
MOORAGE_CALL(on_load)
MOORAGE_CALL(on_evict)
MOORAGE_CALL(fill)
MOORAGE_CALL(hold)
MOORAGE_CALL(give_up)
MOORAGE_CALL(single_requests)
MOORAGE_CALL(replay)
MOORAGE_CALL(plan)
MOORAGE_CALL(interval)
MOORAGE_CALL(predict)
MOORAGE_CALL(prediction)
MOORAGE_CALL(outcome)
MOORAGE_CALL(assign)
MOORAGE_CALL(submit)
MOORAGE_CALL(cancel)
MOORAGE_CALL(promote)
MOORAGE_CALL(next)
MOORAGE_CALL(adopt)
MOORAGE_CALL(facts)
MOORAGE_CALL(listen)
MOORAGE_CALL(connect)
MOORAGE_CALL(send)
MOORAGE_CALL(poll)
MOORAGE_CALL(pace)
MOORAGE_CALL(remember)
MOORAGE_CALL(activate)
MOORAGE_CALL(deactivate)
MOORAGE_CALL(reset)
MOORAGE_CALL(params)
#undef MOORAGE_CALL

// Does not compile and shows the right signature, once for each member that does not fit.
#define MOORAGE_CALL_FITS(X, FITS, SIGNATURE)                                       \
    static_assert((FITS) || !names_##X<P>, "member " #X                             \
                                           " would never be called: it has to be, " \
                                           "public: " SIGNATURE "; or give it another name")
template <class P>
constexpr bool calls_of_any_kind_fit() {
    MOORAGE_CALL_FITS(observe, observes<P>, "void observe(const moorage::step &)");
    MOORAGE_CALL_FITS(activate, activates<P>, "void activate(const moorage::limits &)");
    MOORAGE_CALL_FITS(deactivate, deactivates<P>, "void deactivate()");
    MOORAGE_CALL_FITS(reset, resets<P>, "void reset()");
    MOORAGE_CALL_FITS(params, has_params<P>, "static constexpr moorage::param params[] = {...}");
    return true;
}

// The functions that a class of the kind must have.
template <class P>
constexpr bool calls_that_make_a_kind_fit() {
    constexpr bool has_kind = routes<P> || caches<P> || budgets<P> || prefetches<P> ||
                              dispatches<P> || transports<P> || places<P> || wires<P>;
    MOORAGE_CALL_FITS(victims, caches<P>, "void victims(const moorage::room &, moorage::pages &)");
    MOORAGE_CALL_FITS(
        plan, budgets<P> || prefetches<P> || places<P>,
        "bool plan(const moorage::budget_request &, moorage::budget_plan &), or "
        "void plan(const moorage::step &, const moorage::forecast &, moorage::orders &), or "
        "void plan(const moorage_cluster &, const moorage_demand &, "
        "std::span<const moorage_copy> current, moorage::copies &)");
    // Helpers may have the names of the other calls.
    MOORAGE_CALL_FITS(select, has_kind, "uint32_t select(const moorage::step &, moorage::route &)");
    MOORAGE_CALL_FITS(assign, has_kind,
                      "uint32_t assign(const moorage::step &, const moorage::items &, "
                      "std::span<uint32_t> devices, std::span<uint32_t> order)");
    MOORAGE_CALL_FITS(facts, !has_kind || states_facts<P>,
                      "uint32_t facts(std::span<moorage_fact>)");
    static_assert(
        transports<P> || !(names_submit<P> && names_cancel<P> && names_promote<P> && names_next<P>),
        "members submit, cancel, promote and next would never be called: they have to be, "
        "public: void submit(const moorage::transfer &), void cancel(uint32_t id), "
        "void promote(uint32_t id, int32_t cause), "
        "bool next(uint32_t link, moorage::piece &); or give them other names");
    static_assert(
        wires<P> || !(names_listen<P> && names_connect<P> && names_send<P> && names_poll<P>),
        "members listen, connect, send and poll would never be called: wire.hpp has the "
        "functions of a wire, all of which have to be there, public; or give them other "
        "names");
    return true;
}

template <class P>
constexpr bool cache_calls_fit() {
    MOORAGE_CALL_FITS(admit, admits<P>, "bool admit(const moorage::admission &)");
    MOORAGE_CALL_FITS(on_load, sees_loads<P>,
                      "void on_load(uint32_t page, uint32_t segments, int32_t cause)");
    MOORAGE_CALL_FITS(on_evict, sees_evictions<P>, "void on_evict(uint32_t page, int32_t cause)");
    MOORAGE_CALL_FITS(fill, fills<P>, "void fill(const moorage::room &, moorage::pages &)");
    MOORAGE_CALL_FITS(hold, holds<P>, "bool hold(uint32_t page)");
    MOORAGE_CALL_FITS(give_up, gives_up<P>,
                      "void give_up(const moorage::room &, moorage::pages &)");
    MOORAGE_CALL_FITS(single_requests, takes_singles<P> && !admits<P>,
                      "auto single_requests(), in a class without admit, which returns an object "
                      "with uint32_t request(uint32_t page, uint32_t missed)");
    static_assert(!names_replay<P>,
                  "member replay would never be called: replay.hpp makes that call out of the "
                  "others; give it another name");
    return true;
}

template <class P>
constexpr bool prefetch_calls_fit() {
    static_assert(has_horizon<P>, "a prefetch policy lacks, public: uint32_t horizon()");
    MOORAGE_CALL_FITS(predict, predicts<P>,
                      "uint32_t predict(const moorage::step &, uint32_t layer, uint32_t distance, "
                      "std::span<uint32_t> experts, std::span<float> scores)");
    MOORAGE_CALL_FITS(prediction, chooses_prediction<P>, "uint32_t prediction()");
    return true;
}

template <class P>
constexpr bool placement_calls_fit() {
    MOORAGE_CALL_FITS(adopt, adopts<P>, "bool adopt(const moorage_move &)");
    return true;
}

template <class P>
constexpr bool wire_calls_fit() {
    MOORAGE_CALL_FITS(pace, paces<P>, "void pace(uint64_t connection, uint64_t bytes_per_s)");
    MOORAGE_CALL_FITS(remember, remembers<P>,
                      "uint64_t remember(const void *memory, uint64_t bytes), beside "
                      "void forget(uint64_t memory)");
    return true;
}

template <class P>
constexpr bool every_call_fits() {
    bool fit = calls_of_any_kind_fit<P>() && calls_that_make_a_kind_fit<P>();
    if constexpr (caches<P>) fit = fit && cache_calls_fit<P>();
    if constexpr (prefetches<P>) fit = fit && prefetch_calls_fit<P>();
    if constexpr (places<P>) fit = fit && placement_calls_fit<P>();
    if constexpr (wires<P>) fit = fit && wire_calls_fit<P>();
    if constexpr (budgets<P>) MOORAGE_CALL_FITS(interval, has_interval<P>, "uint64_t interval()");
    if constexpr (prefetches<P> || dispatches<P>)
        MOORAGE_CALL_FITS(
            outcome, (prefetches<P> && sees_prefetches<P>) || (dispatches<P> && sees_dispatches<P>),
            "void outcome(const moorage::prefetch_outcome &), of a prefetch policy, or "
            "void outcome(const moorage::dispatched &), of a dispatch policy");
    return fit;
}
#undef MOORAGE_CALL_FITS

}  // namespace moorage::detail
