// actor.cpp - instances made by the host's own code, and by a copy of the first host's.
#include "tools/moorage/check/actor.h"

#include <cstring>
#include <string_view>

#include "core/base/text.h"
#include "core/host/library.h"
#include "core/host/parameters.h"

namespace moorage::check {

namespace {

using core::error;
using core::format;
using core::status;

uint32_t owner_of(const core::policy &of) {
    return core::owner_of(of.name(), "", of.path.string());
}

class hosted final : public actor {
public:
    explicit hosted(std::unique_ptr<core::instance> made) : made_(std::move(made)) {
        plugin = made_->plugin();
        observer = made_->observer, facts = made_->facts, replayer = made_->replayer;
        router = made_->router, cache = made_->cache;
        budget = made_->budget, prefetch = made_->prefetch, dispatch = made_->dispatch;
        transport = made_->transport, placement = made_->placement, wire = made_->wire;
    }
    status activate(const moorage_limits &limits) override { return made_->activate(limits); }
    void deactivate() override { made_->deactivate(); }
    void reset() override { made_->reset(); }
    status control(core::entry_point which,
                   const std::function<int32_t(moorage_plugin *)> &work) override {
        return made_->control(which, work);
    }

private:
    std::unique_ptr<core::instance> made_;
};

// Sizes of version 2.0; the tables may have grown since.
constexpr size_t host_bytes = 40, service_bytes = 16, view_bytes = 72, limits_bytes = 104;

class first_host final : public actor {
public:
    first_host(const core::policy &of, const core::environment &where)
        : of_(of),
          services_(where, "policy under test"),
          host_(host_bytes, fence::page),
          residency_(view_bytes, fence::page),
          limits_(limits_bytes, fence::page),
          clock_(service_bytes, fence::page),
          random_(service_bytes, fence::page),
          residency_service_(service_bytes, fence::page),
          costs_service_(service_bytes, fence::page),
          future_(service_bytes, fence::page) {
        instance() = this;
        cut(residency_, where.residency);
        services_.where.residency = reinterpret_cast<const moorage_residency *>(residency_.all());
        services_.table.get_service = get_service;
        cut(host_, &services_.table);
    }
    ~first_host() override {
        if (plugin) calls_.destroy(plugin);
        instance() = nullptr;
    }
    status make(const core::settings &params) {
        auto values = core::check_parameters("policy under test", of_.params, params);
        if (!values) return values.failure();
        const auto typed = core::typed_values(of_.params, *values);
        services_.random = core::policy_stream(services_.where.seed, of_.name());
        const core::policy_call at_work(owner, core::entry_point::create);
        const int32_t code = of_.module->create(of_.descriptor->plugin_name, host(), typed.data(),
                                                static_cast<uint32_t>(typed.size()), &plugin);
        if (code != MOORAGE_OK) {
            plugin = nullptr;
            return error{services_.last_error};
        }
        calls_ = core::completed<moorage_plugin>(plugin);
        observer = find(MOORAGE_INTERFACE_OBSERVER, tables_.observer);
        facts = find(MOORAGE_INTERFACE_FACTS, tables_.facts);
        replayer = find(MOORAGE_INTERFACE_REPLAY, tables_.replayer);
        router = find(MOORAGE_INTERFACE_ROUTER, tables_.router);
        cache = find(MOORAGE_INTERFACE_CACHE, tables_.cache);
        budget = find(MOORAGE_INTERFACE_BUDGET, tables_.budget);
        prefetch = find(MOORAGE_INTERFACE_PREFETCH, tables_.prefetch);
        dispatch = find(MOORAGE_INTERFACE_DISPATCH, tables_.dispatch);
        transport = find(MOORAGE_INTERFACE_TRANSPORT, tables_.transport);
        placement = find(MOORAGE_INTERFACE_PLACEMENT, tables_.placement);
        wire = find(MOORAGE_INTERFACE_WIRE, tables_.wire);
        return core::success();
    }
    status activate(const moorage_limits &limits) override {
        cut(limits_, &limits);
        services_.mapped = true;
        const int32_t code =
            calls_.activate(plugin, reinterpret_cast<const moorage_limits *>(limits_.all()));
        if (code != MOORAGE_OK) return error{services_.last_error};
        return core::success();
    }
    void deactivate() override { calls_.deactivate(plugin); }
    void reset() override { calls_.reset(plugin); }
    status control(core::entry_point,
                   const std::function<int32_t(moorage_plugin *)> &work) override {
        services_.last_error.clear();
        if (work(plugin) == MOORAGE_OK) return core::success();
        return error{services_.last_error.empty() ? "no text given" : services_.last_error};
    }

private:
    static first_host *&instance() {
        static first_host *the_one = nullptr;
        return the_one;
    }
    const moorage_host *host() { return reinterpret_cast<const moorage_host *>(host_.all()); }
    // Copies the first bytes of a record. Its size field gets their number.
    static void cut(fenced<char> &to, const void *from) {
        const auto bytes = static_cast<uint32_t>(to.capacity());
        std::memcpy(to.all(), from, bytes);
        std::memcpy(to.all(), &bytes, sizeof(bytes));
    }
    template <class Table>
    const Table *find(const char *id, Table &table) {
        const void *given = of_.is(id) ? calls_.get_interface(plugin, id) : nullptr;
        if (!given) return nullptr;
        table = core::completed<Table>(given);
        return &table;
    }
    // host_data belongs to services_, so its functions work.
    static const void *get_service(const moorage_host *, const char *name) {
        first_host &self = *instance();
        const void *full = full_service(self, name);
        if (!full) return nullptr;
        for (auto [id, room] : {std::pair{MOORAGE_SERVICE_CLOCK, &self.clock_},
                                {MOORAGE_SERVICE_RANDOM, &self.random_},
                                {MOORAGE_SERVICE_RESIDENCY, &self.residency_service_},
                                {MOORAGE_SERVICE_COSTS, &self.costs_service_},
                                {MOORAGE_SERVICE_FUTURE, &self.future_}}) {
            if (std::string_view(id) != name) continue;
            cut(*room, full);
            return room->all();
        }
        return nullptr;  // this host has no log and no thread-check
    }
    static const void *full_service(first_host &self, const char *name) {
        static const moorage_host whole = core::service_host({}, "").table;
        moorage_host as_usual = whole;
        as_usual.host_data = &self.services_;
        return as_usual.get_service(&as_usual, name);
    }

    const core::policy &of_;
    core::service_host services_;
    fenced<char> host_, residency_, limits_, clock_, random_, residency_service_, costs_service_,
        future_;
    moorage_plugin calls_{};
    struct {
        moorage_observer observer;
        moorage_facts facts;
        moorage_replayer replayer;
        moorage_router router;
        moorage_cache cache;
        moorage_budget budget;
        moorage_prefetch prefetch;
        moorage_dispatch dispatch;
        moorage_transport transport;
        moorage_placement placement;
        moorage_wire wire;
    } tables_{};
};

}  // namespace

core::result<std::unique_ptr<actor>> hosted_actor(const core::policy &of,
                                                  const core::settings &params,
                                                  const core::environment &where) {
    auto made = core::instance::create(of, params, where);
    if (!made) return made.failure();
    std::unique_ptr<actor> hosts(new hosted(std::move(made).value()));
    hosts->owner = owner_of(of);
    hosts->lossy = (of.descriptor->flags & MOORAGE_POLICY_LOSSY) != 0;
    return hosts;
}

core::result<std::unique_ptr<actor>> first_host_actor(const core::policy &of,
                                                      const core::settings &params,
                                                      const core::environment &where) {
    auto made = std::make_unique<first_host>(of, where);
    made->owner = owner_of(of);
    made->lossy = (of.descriptor->flags & MOORAGE_POLICY_LOSSY) != 0;
    if (auto done = made->make(params); !done) return done.failure();
    return std::unique_ptr<actor>(std::move(made));
}

}  // namespace moorage::check
