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

uint32_t owner_of(const core::policy &policy) {
    return core::owner_of(policy.name(), "", policy.path.string());
}

class hosted final : public actor {
public:
    explicit hosted(std::unique_ptr<core::instance> instance) : instance_(std::move(instance)) {
        plugin = instance_->plugin();
        static_cast<core::policy_tables &>(*this) = *instance_;
    }
    status activate(const moorage_limits &limits) override { return instance_->activate(limits); }
    void deactivate() override { instance_->deactivate(); }
    void reset() override { instance_->reset(); }
    status control(core::entry_point which,
                   const std::function<int32_t(moorage_plugin *)> &work) override {
        return instance_->control(which, work);
    }

private:
    std::unique_ptr<core::instance> instance_;
};

// Sizes of version 2.0; the tables may have grown since.
constexpr size_t host_bytes = 40, service_bytes = 16, view_bytes = 72, limits_bytes = 104;

class first_host final : public actor {
public:
    first_host(const core::policy &policy, const core::environment &environment)
        : policy_(policy),
          services_(environment, "policy under test"),
          host_(host_bytes, fence::page),
          residency_(view_bytes, fence::page),
          limits_(limits_bytes, fence::page),
          clock_(service_bytes, fence::page),
          random_(service_bytes, fence::page),
          residency_service_(service_bytes, fence::page),
          costs_service_(service_bytes, fence::page),
          future_(service_bytes, fence::page) {
        instance() = this;
        copy_truncated(residency_, environment.residency);
        services_.inputs.residency = reinterpret_cast<const moorage_residency *>(residency_.data());
        services_.table.get_service = get_service;
        copy_truncated(host_, &services_.table);
    }
    ~first_host() override {
        if (plugin) calls_.destroy(plugin);
        instance() = nullptr;
    }
    status create_plugin(const core::settings &params) {
        auto values = core::check_parameters("policy under test", policy_.params, params);
        if (!values) return values.failure();
        const auto typed = core::typed_values(policy_.params, *values);
        services_.random = core::policy_stream(services_.inputs.seed, policy_.name());
        const core::policy_call running_call(owner, core::entry_point::create);
        const int32_t code =
            policy_.module->create(policy_.descriptor->plugin_name, host(), typed.data(),
                                   static_cast<uint32_t>(typed.size()), &plugin);
        if (code != MOORAGE_OK) {
            plugin = nullptr;
            return error{services_.last_error};
        }
        calls_ = core::completed<moorage_plugin>(plugin);
#define MOORAGE_TABLE(member, name, id, last) member = find(id, tables_.member);
        MOORAGE_TABLES(MOORAGE_TABLE)
#undef MOORAGE_TABLE
        return core::success();
    }
    status activate(const moorage_limits &limits) override {
        copy_truncated(limits_, &limits);
        services_.mapped = true;
        const int32_t code =
            calls_.activate(plugin, reinterpret_cast<const moorage_limits *>(limits_.data()));
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
        static first_host *current = nullptr;
        return current;
    }
    const moorage_host *host() { return reinterpret_cast<const moorage_host *>(host_.data()); }
    // Copies the first bytes of a record. Its size field gets their number.
    static void copy_truncated(fenced<char> &target, const void *source) {
        const auto bytes = static_cast<uint32_t>(target.capacity());
        std::memcpy(target.data(), source, bytes);
        std::memcpy(target.data(), &bytes, sizeof(bytes));
    }
    template <class Table>
    const Table *find(const char *id, Table &table) {
        const void *found = policy_.is(id) ? calls_.get_interface(plugin, id) : nullptr;
        if (!found) return nullptr;
        table = core::completed<Table>(found);
        return &table;
    }
    // host_data belongs to services_, so its functions work.
    static const void *get_service(const moorage_host *, const char *name) {
        first_host &self = *instance();
        const void *full_table = full_service(self, name);
        if (!full_table) return nullptr;
        for (auto [id, table] : {std::pair{MOORAGE_SERVICE_CLOCK, &self.clock_},
                                 {MOORAGE_SERVICE_RANDOM, &self.random_},
                                 {MOORAGE_SERVICE_RESIDENCY, &self.residency_service_},
                                 {MOORAGE_SERVICE_COSTS, &self.costs_service_},
                                 {MOORAGE_SERVICE_FUTURE, &self.future_}}) {
            if (std::string_view(id) != name) continue;
            copy_truncated(*table, full_table);
            return table->data();
        }
        return nullptr;  // this host has no log and no thread-check
    }
    static const void *full_service(first_host &self, const char *name) {
        static const moorage_host full_table = core::service_host({}, "").table;
        moorage_host host_table = full_table;
        host_table.host_data = &self.services_;
        return host_table.get_service(&host_table, name);
    }

    const core::policy &policy_;
    core::service_host services_;
    fenced<char> host_, residency_, limits_, clock_, random_, residency_service_, costs_service_,
        future_;
    moorage_plugin calls_{};
    core::table_copies tables_;
};

}  // namespace

core::result<std::unique_ptr<actor>> hosted_actor(const core::policy &policy,
                                                  const core::settings &params,
                                                  const core::environment &environment) {
    auto instance = core::instance::create(policy, params, environment);
    if (!instance) return instance.failure();
    std::unique_ptr<actor> created(new hosted(std::move(instance).value()));
    created->owner = owner_of(policy);
    created->lossy = (policy.descriptor->flags & MOORAGE_POLICY_LOSSY) != 0;
    return created;
}

core::result<std::unique_ptr<actor>> first_host_actor(const core::policy &policy,
                                                      const core::settings &params,
                                                      const core::environment &environment) {
    auto host = std::make_unique<first_host>(policy, environment);
    host->owner = owner_of(policy);
    host->lossy = (policy.descriptor->flags & MOORAGE_POLICY_LOSSY) != 0;
    if (auto done = host->create_plugin(params); !done) return done.failure();
    return std::unique_ptr<actor>(std::move(host));
}

}  // namespace moorage::check
