// module.hpp - turns C++ policy classes into a moorage module: thunks, tables, the exported
// function.
//
// calls.hpp lists the functions that make a class answer for a kind.
// A cache policy also gets the fast path of counting replays (replay.hpp).
#pragma once

#include <array>
#include <exception>
#include <memory>
#include <new>
#include <tuple>
#include <utility>

#include "calls.hpp"
#include "policy.hpp"
#include "replay.hpp"

namespace moorage::detail {

template <class P>
constexpr std::span<const param> params_of() {
    if constexpr (has_params<P>)
        return P::params;
    else
        return {};
}

template <class P>
P &self(moorage_plugin *plugin) {
    return *static_cast<P *>(plugin->plugin_data);
}
inline const step &as_step(const moorage_step *s) { return static_cast<const step &>(*s); }

// Life of an instance: the C struct, the policy object, and its host.
template <class P>
struct holder {
    moorage_plugin plugin{};
    const moorage_host *host;
    moorage::host services;
    P policy;

    holder(const moorage_host *table, const moorage_value *values)
        : host(table), services(table), policy(setup(table, params_of<P>(), values)) {
        plugin = {sizeof(plugin), 0, &policy, destroy, activate, deactivate, reset, get_interface};
    }
    static holder *from(moorage_plugin *plugin) { return reinterpret_cast<holder *>(plugin); }
    static void destroy(moorage_plugin *plugin) noexcept { delete from(plugin); }
    static int32_t activate(moorage_plugin *plugin, const moorage_limits *limits) noexcept {
        if constexpr ((places<P> || wires<P>)&&!requires(P & p) { p.activate(*limits); })
            return (void)plugin, (void)limits, MOORAGE_OK;
        else
            return guarded(from(plugin)->host, [&] { from(plugin)->policy.activate(*limits); });
    }
    static void deactivate(moorage_plugin *plugin) noexcept {
        if constexpr (requires(P & p) { p.deactivate(); })
            from(plugin)->policy.deactivate();
        else
            (void)plugin;
    }
    static void reset(moorage_plugin *plugin) noexcept {
        if constexpr ((places<P> || wires<P>)&&!requires(P & p) { p.reset(); })
            (void)plugin;
        else
            from(plugin)->policy.reset();
    }
    static const void *get_interface(moorage_plugin *, const char *id) noexcept;
    template <class Work>
    static int32_t guarded(const moorage_host *host, Work &&work) noexcept {
        try {
            work();
            return MOORAGE_OK;
        } catch (const std::bad_alloc &) {
            host->set_error(host, "out of memory");
            return MOORAGE_OUT_OF_MEMORY;
        } catch (const std::invalid_argument &error) {
            host->set_error(host, error.what());
            return MOORAGE_INVALID_ARGUMENT;
        } catch (const std::exception &error) {
            host->set_error(host, error.what());
            return MOORAGE_INTERNAL;
        } catch (...) {
            host->set_error(host, "unknown exception");
            return MOORAGE_INTERNAL;
        }
    }
};

// The tables of one policy class. Every function is a noexcept thunk; a missing one is null.
template <class P>
struct tables {
    static void observe(moorage_plugin *plugin, const moorage_step *s) noexcept {
        self<P>(plugin).observe(as_step(s));
    }
    static uint32_t select(moorage_plugin *plugin, const moorage_step *s,
                           moorage_route *out) noexcept {
        return self<P>(plugin).select(as_step(s), static_cast<route &>(*out));
    }
    static uint32_t victims(moorage_plugin *plugin, const moorage_room *r, uint32_t *out) noexcept {
        pages list(out, r->count);
        self<P>(plugin).victims(*r, list);
        return list.size();
    }
    static uint32_t admit(moorage_plugin *plugin, const moorage_admission *a) noexcept {
        return self<P>(plugin).admit(*a) ? 1 : 0;
    }
    static void on_load(moorage_plugin *plugin, uint32_t page, uint32_t segments,
                        int32_t cause) noexcept {
        self<P>(plugin).on_load(page, segments, cause);
    }
    static void on_evict(moorage_plugin *plugin, uint32_t page, int32_t cause) noexcept {
        self<P>(plugin).on_evict(page, cause);
    }
    static uint32_t fill(moorage_plugin *plugin, const moorage_room *r, uint32_t *out) noexcept {
        pages list(out, r->count);
        self<P>(plugin).fill(*r, list);
        return list.size();
    }
    static uint32_t hold(moorage_plugin *plugin, uint32_t page) noexcept {
        return self<P>(plugin).hold(page) ? 1 : 0;
    }
    static uint32_t give_up(moorage_plugin *plugin, const moorage_room *r, uint32_t *out) noexcept {
        pages list(out, r->count);
        self<P>(plugin).give_up(*r, list);
        return list.size();
    }
    static void replay(moorage_plugin *plugin, const moorage_replay *run) noexcept {
        replayer<P>(self<P>(plugin), *run, *holder<P>::from(plugin)->services.residency())();
    }
    static uint32_t plan_budget(moorage_plugin *plugin, const moorage_budget_request *r,
                                moorage_budget_plan *out) noexcept {
        return self<P>(plugin).plan(*r, *out) ? 1 : 0;
    }
    static uint64_t interval(moorage_plugin *plugin) noexcept { return self<P>(plugin).interval(); }
    static uint32_t horizon(moorage_plugin *plugin) noexcept { return self<P>(plugin).horizon(); }
    static uint32_t predict(moorage_plugin *plugin, const moorage_step *s, uint32_t layer,
                            uint32_t distance, uint32_t capacity, uint32_t *experts,
                            float *scores) noexcept {
        return self<P>(plugin).predict(as_step(s), layer, distance,
                                       std::span<uint32_t>(experts, capacity),
                                       std::span<float>(scores, capacity));
    }
    static uint32_t plan_prefetch(moorage_plugin *plugin, const moorage_step *s,
                                  const moorage_forecast *f, moorage_orders *out) noexcept {
        orders list(out);
        self<P>(plugin).plan(as_step(s), static_cast<const forecast &>(*f), list);
        return list.size();
    }
    static void prefetch_seen(moorage_plugin *plugin, const moorage_prefetch_outcome *o) noexcept {
        self<P>(plugin).outcome(*o);
    }
    static uint32_t prediction(moorage_plugin *plugin) noexcept {
        return self<P>(plugin).prediction();
    }
    static uint32_t assign(moorage_plugin *plugin, const moorage_step *s, const moorage_items *i,
                           uint32_t *devices, uint32_t *order) noexcept {
        return self<P>(plugin).assign(as_step(s), static_cast<const items &>(*i),
                                      std::span<uint32_t>(devices, i->count),
                                      std::span<uint32_t>(order, i->count));
    }
    static void dispatch_seen(moorage_plugin *plugin, const moorage_dispatched *d) noexcept {
        self<P>(plugin).outcome(*d);
    }
    static void submit(moorage_plugin *plugin, const moorage_transfer *t) noexcept {
        self<P>(plugin).submit(*t);
    }
    static void cancel(moorage_plugin *plugin, uint32_t id) noexcept { self<P>(plugin).cancel(id); }
    static void promote(moorage_plugin *plugin, uint32_t id, int32_t cause) noexcept {
        self<P>(plugin).promote(id, cause);
    }
    static uint32_t next(moorage_plugin *plugin, uint32_t link, moorage_piece *out) noexcept {
        return self<P>(plugin).next(link, *out) ? 1 : 0;
    }
    static int32_t place(moorage_plugin *plugin, const moorage_cluster *c, const moorage_demand *d,
                         const moorage_copy *current, uint64_t current_count, moorage_copy *out,
                         uint64_t *count) noexcept {
        *count = 0;
        return holder<P>::guarded(holder<P>::from(plugin)->host, [&] {
            copies list(out, uint64_t{d->host_model_first[d->models]} * c->devices);
            self<P>(plugin).plan(*c, *d, std::span<const moorage_copy>(current, current_count),
                                 list);
            *count = list.size();
        });
    }
    static uint32_t facts(moorage_plugin *plugin, moorage_fact *out, uint32_t capacity) noexcept {
        return self<P>(plugin).facts(std::span<moorage_fact>(out, capacity));
    }
    static uint32_t adopt(moorage_plugin *plugin, const moorage_move *m) noexcept {
        return self<P>(plugin).adopt(*m) ? 1 : 0;
    }

    // One entry per kind: its id and its table. The table is null if the class is not of the kind.
    static const void *find(std::string_view id) {
        if constexpr (observes<P>) {
            static constexpr moorage_observer table{sizeof(table), 0, observe};
            if (id == MOORAGE_INTERFACE_OBSERVER) return &table;
        }
        if constexpr (routes<P>) {
            static constexpr moorage_router table{sizeof(table), 0, select};
            if (id == MOORAGE_INTERFACE_ROUTER) return &table;
        }
        if constexpr (caches<P>) {
            static constexpr moorage_cache table = cache_table();
            if (id == MOORAGE_INTERFACE_CACHE) return &table;
            static constexpr moorage_replayer fast{sizeof(fast), MOORAGE_REPLAY_DERIVED, replay};
            if (id == MOORAGE_INTERFACE_REPLAY) return &fast;
        }
        if constexpr (states_facts<P>) {
            static constexpr moorage_facts table{sizeof(table), 0, facts};
            if (id == MOORAGE_INTERFACE_FACTS) return &table;
        }
        if constexpr (budgets<P>) {
            static constexpr moorage_budget table = budget_table();
            if (id == MOORAGE_INTERFACE_BUDGET) return &table;
        }
        if constexpr (prefetches<P>) {
            static constexpr moorage_prefetch table = prefetch_table();
            if (id == MOORAGE_INTERFACE_PREFETCH) return &table;
        }
        if constexpr (dispatches<P>) {
            static constexpr moorage_dispatch table = dispatch_table();
            if (id == MOORAGE_INTERFACE_DISPATCH) return &table;
        }
        if constexpr (transports<P>) {
            static constexpr moorage_transport table{sizeof(table), 0,       submit,
                                                     cancel,        promote, next};
            if (id == MOORAGE_INTERFACE_TRANSPORT) return &table;
        }
        if constexpr (places<P>) {
            static constexpr moorage_placement table = placement_table();
            if (id == MOORAGE_INTERFACE_PLACEMENT) return &table;
        }
        if constexpr (wires<P>) {
            static constexpr moorage_wire table = wire_table<P, holder<P>>::make();
            if (id == MOORAGE_INTERFACE_WIRE) return &table;
        }
        return nullptr;
    }
    static constexpr moorage_cache cache_table() {
        moorage_cache t{};
        t.size = sizeof(t), t.victims = victims;
        if constexpr (admits<P>) t.admit = admit;
        if constexpr (sees_loads<P>) t.on_load = on_load;
        if constexpr (sees_evictions<P>) t.on_evict = on_evict;
        if constexpr (fills<P>) t.fill = fill;
        if constexpr (holds<P>) t.hold = hold;
        if constexpr (gives_up<P>) t.give_up = give_up;
        return t;
    }
    static constexpr moorage_budget budget_table() {
        moorage_budget t{sizeof(moorage_budget), 0, plan_budget, nullptr};
        if constexpr (has_interval<P>) t.interval = interval;
        return t;
    }
    static constexpr moorage_prefetch prefetch_table() {
        moorage_prefetch t{
            sizeof(moorage_prefetch), 0, horizon, nullptr, plan_prefetch, nullptr, nullptr};
        if constexpr (predicts<P>) t.predict = predict;
        if constexpr (sees_prefetches<P>) t.outcome = prefetch_seen;
        if constexpr (chooses_prediction<P>) t.prediction = prediction;
        return t;
    }
    static constexpr moorage_dispatch dispatch_table() {
        moorage_dispatch t{sizeof(moorage_dispatch), 0, assign, nullptr};
        if constexpr (sees_dispatches<P>) t.outcome = dispatch_seen;
        return t;
    }
    static constexpr moorage_placement placement_table() {
        moorage_placement t{sizeof(moorage_placement), 0, place, nullptr};
        if constexpr (adopts<P>) t.adopt = adopt;
        return t;
    }
};

template <class P>
const void *holder<P>::get_interface(moorage_plugin *, const char *id) noexcept {
    return tables<P>::find(id);
}

// The named parameters of "alpha|beta" as bits of their positions. MOORAGE_NONE: a name is not
// declared.
template <class P>
constexpr uint32_t bits_of_params(std::string_view names) {
    uint32_t bits = 0;
    while (!names.empty()) {
        const std::string_view name = names.substr(0, names.find('|'));
        size_t i = 0;
        while (i < params_of<P>().size() && name != params_of<P>()[i].plugin_key) ++i;
        if (i >= params_of<P>().size() || i > 30) return MOORAGE_NONE;
        bits |= 1u << i;
        names.remove_prefix(name.size() < names.size() ? name.size() + 1 : name.size());
    }
    return bits;
}

template <class P>
struct description {
    // Interfaces that are not a kind of their own.
    static constexpr uint32_t beside_count = uint32_t{observes<P>} + states_facts<P> + caches<P>;
    static constexpr uint32_t kind_count = beside_count + routes<P> + caches<P> + budgets<P> +
                                           prefetches<P> + dispatches<P> + transports<P> +
                                           places<P> + wires<P>;
    static constexpr std::array<const char *, kind_count> kinds = [] {
        std::array<const char *, kind_count> ids{};
        size_t n = 0;
        if (routes<P>) ids[n++] = MOORAGE_INTERFACE_ROUTER;
        if (caches<P>) ids[n++] = MOORAGE_INTERFACE_CACHE;
        if (budgets<P>) ids[n++] = MOORAGE_INTERFACE_BUDGET;
        if (prefetches<P>) ids[n++] = MOORAGE_INTERFACE_PREFETCH;
        if (dispatches<P>) ids[n++] = MOORAGE_INTERFACE_DISPATCH;
        if (transports<P>) ids[n++] = MOORAGE_INTERFACE_TRANSPORT;
        if (places<P>) ids[n++] = MOORAGE_INTERFACE_PLACEMENT;
        if (wires<P>) ids[n++] = MOORAGE_INTERFACE_WIRE;
        if (observes<P>) ids[n++] = MOORAGE_INTERFACE_OBSERVER;
        if (states_facts<P>) ids[n++] = MOORAGE_INTERFACE_FACTS;
        if (caches<P>) ids[n++] = MOORAGE_INTERFACE_REPLAY;
        return ids;
    }();
    // These come first: a member that does not fit can leave a class without a kind, and clang
    // stops after one error.
    static_assert(!std::is_final_v<P>,
                  "a policy class is not final: whether its members fit is seen by inheriting it");
    static_assert(every_call_fits<P>());
    static_assert(kind_count > beside_count,
                  "the class answers for no kind: check the names and arguments of its functions");
    static constexpr uint32_t method_params = bits_of_params<P>(P::about.method_params);
    static_assert(method_params != MOORAGE_NONE,
                  "about.method_params: each name between | must be one of the first 31 params");
    static constexpr moorage_descriptor value{sizeof(moorage_descriptor),
                                              P::about.flags,
                                              P::about.name,
                                              P::about.version,
                                              P::about.summary,
                                              P::about.source,
                                              kinds.data(),
                                              params_of<P>().data(),
                                              kind_count,
                                              static_cast<uint32_t>(params_of<P>().size()),
                                              P::about.needs,
                                              method_params};
};

template <class... P>
struct module {
    static const moorage_descriptor *descriptor(uint32_t index) noexcept {
        static constexpr const moorage_descriptor *descriptors[] = {&description<P>::value...};
        return index < sizeof...(P) ? descriptors[index] : nullptr;
    }
    template <class Q>
    static int32_t make(const moorage_host *host, const moorage_value *values, uint32_t count,
                        moorage_plugin **out) noexcept {
        if (count != params_of<Q>().size()) {
            host->set_error(host, "as many values as declared parameters are needed");
            return MOORAGE_INVALID_ARGUMENT;
        }
        return holder<Q>::guarded(host, [&] { *out = &(new holder<Q>(host, values))->plugin; });
    }
    static int32_t create(const char *name, const moorage_host *host, const moorage_value *values,
                          uint32_t count, moorage_plugin **out) noexcept {
        int32_t status = MOORAGE_INVALID_ARGUMENT;
        const bool found = ((std::string_view(P::about.name) == name
                                 ? (status = make<P>(host, values, count, out), true)
                                 : false) ||
                            ...);
        if (!found) host->set_error(host, "no policy of this name in the library");
        return status;
    }
};

}  // namespace moorage::detail

// Exports a library with the given reverse-domain id, version and policy classes. If it needs minor
// version m or newer, put this before: #define MOORAGE_MINOR_NEEDED m
#ifndef MOORAGE_MINOR_NEEDED
#define MOORAGE_MINOR_NEEDED 0
#endif
#define MOORAGE_POLICIES(ID, VERSION, ...)                                                     \
    extern "C" __attribute__((visibility("default"))) const moorage_module *moorage_module_v2( \
        void);                                                                                 \
    extern "C" const moorage_module *moorage_module_v2(void) {                                 \
        using all = ::moorage::detail::module<__VA_ARGS__>;                                    \
        static constexpr moorage_module record{sizeof(moorage_module),                         \
                                               0,                                              \
                                               MOORAGE_ABI_MAJOR,                              \
                                               MOORAGE_ABI_MINOR,                              \
                                               ID,                                             \
                                               VERSION,                                        \
                                               std::tuple_size_v<std::tuple<__VA_ARGS__>>,     \
                                               MOORAGE_MINOR_NEEDED,                           \
                                               nullptr,                                        \
                                               nullptr,                                        \
                                               all::descriptor,                                \
                                               all::create};                                   \
        return &record;                                                                        \
    }
