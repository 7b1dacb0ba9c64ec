// instance.cpp - the life of an instance: create, find tables, activate, reset, destroy.
#include "core/host/instance.h"

#include <cassert>
#include <cmath>
#include <utility>

#include "core/base/text.h"
#include "core/host/library.h"
#include "core/host/parameters.h"
#include "core/host/services.h"

namespace moorage::core {

namespace {

// The kind that it runs as, or the first of its kinds if none is given.
std::string label_of(const policy &policy, std::string_view kind) {
    if (!kind.empty()) return format("{} plugin {}", kind, policy.name());
    for (const std::string_view kind : kinds)
        if (policy.is(kind)) return format("{} plugin {}", kind, policy.name());
    return format("plugin {}", policy.name());
}

// All kinds of a policy, for calls that belong to no single kind.
std::string kinds_of(const policy &policy) {
    std::string names;
    for (const std::string_view kind : kinds)
        if (policy.is(kind)) names += (names.empty() ? "" : ", ") + std::string(kind);
    return names;
}

const char *status_name(int32_t code) {
    switch (code) {
        case MOORAGE_INVALID_ARGUMENT:
            return "invalid argument";
        case MOORAGE_UNSUPPORTED:
            return "unsupported";
        case MOORAGE_OUT_OF_MEMORY:
            return "out of memory";
        case MOORAGE_WRONG_STATE:
            return "wrong state";
        default:
            return "internal error";
    }
}

// The requirements of each table, from its header. `bytes`: up to the last required function. A
// plugin's table is at least this long.
template <class Table>
struct required_of;
#define MOORAGE_CALL(member, name, function, kind, tag, need) &&(requirement::need || t.function)
#define MOORAGE_TABLE(member, name, id, last)                                                  \
    template <>                                                                                \
    struct required_of<moorage_##member> {                                                     \
        static constexpr size_t bytes = offsetof(moorage_##member, last) + sizeof(void (*)()); \
        static bool are_there(const moorage_##member &t) {                                     \
            return true MOORAGE_CALLS_OF_##member(MOORAGE_CALL);                               \
        }                                                                                      \
    };
namespace requirement {
constexpr bool required = false, optional = true;
}
MOORAGE_TABLES(MOORAGE_TABLE)
#undef MOORAGE_CALL
#undef MOORAGE_TABLE

// Functions of which a policy has both or none.
template <class Table>
bool has_whole_pairs(const Table &) {
    return true;
}
bool has_whole_pairs(const moorage_wire &t) { return !t.remember == !t.forget; }

}  // namespace

struct instance::content {
    policy_caller &caller;
    const policy &registered_policy;
    library &home;
    service_host host;
    parameter_values parameters;
    moorage_plugin calls{};  // the plugin's own struct, completed
    moorage_limits limits{};
    bool active = false;
    table_copies tables;

    content(policy_caller &calling, const policy &policy, library &library,
            const environment &environment)
        : caller(calling),
          registered_policy(policy),
          home(library),
          host(environment, label_of(policy, environment.kind)) {
        caller.host = &host;
        caller.name = policy.name();
        caller.owner = owner_of(policy.name(), kinds_of(policy), policy.path.string());
        caller.is_self_contained = library.is_self_contained;
        note_owner_of_library(reinterpret_cast<const void *>(library.module.create), caller.owner);
        caller.faults = environment.faults;
    }
    ~content();

    error failed(const char *call, int32_t code) const {
        return error{format("{}: {} failed ({}): {}", host.label, call, status_name(code),
                            host.last_error.empty() ? "no text given" : host.last_error)};
    }
    // Reports other changes by the call, if there is no fault log for them.
    status undisturbed() {
        if (caller.disturbance.empty()) return success();
        return error{format("{}: {}", host.label, std::exchange(caller.disturbance, {}))};
    }
    status make();
    status check_calls();
    template <class Table>
    status find(const char *id, Table &table, const Table *&target);
};

instance::content::~content() {
    if (!caller.plugin) return;
    const auto lock = load_lock();
    if (active) caller.control(entry_point::deactivate, calls.deactivate, caller.plugin);
    if (calls.destroy) caller.control(entry_point::destroy, calls.destroy, caller.plugin);
    --home.instances;
}

status instance::content::make() {
    const auto lock = load_lock();
    if (auto ready = initialise(home); !ready) return ready.failure();
    const auto values = typed_values(registered_policy.params, parameters);
    host.random = policy_stream(host.inputs.seed, registered_policy.name());
    moorage_plugin *plugin = nullptr;
    const int32_t code =
        caller.control(entry_point::create, registered_policy.module->create,
                       registered_policy.descriptor->plugin_name, &host.table, values.data(),
                       static_cast<uint32_t>(values.size()), &plugin);
    if (code != MOORAGE_OK) return failed("create", code);
    if (!plugin)
        return error{format("{}: create answered ok but left out null; set *out", host.label)};
    caller.plugin = plugin;
    ++home.instances;
    home.used = true;
    if (auto kept = undisturbed(); !kept) return kept;
    return check_calls();
}

status instance::content::check_calls() {
    const uint32_t size = caller.read(entry_point::create, [&] { return caller.plugin->size; });
    if (size < plugin_size_min || size > record_size_max)
        return error{
            format("{}: moorage_plugin has size {}, expected {} or more; set size to "
                   "sizeof(moorage_plugin)",
                   host.label, size, plugin_size_min)};
    calls =
        caller.read(entry_point::create, [&] { return completed<moorage_plugin>(caller.plugin); });
    if (calls.destroy && calls.activate && calls.deactivate && calls.reset && calls.get_interface)
        return success();
    return error{
        format("{}: a function of moorage_plugin is null; destroy, activate, deactivate, reset and "
               "get_interface are required",
               host.label)};
}

template <class Table>
status instance::content::find(const char *id, Table &table, const Table *&target) {
    if (!registered_policy.is(id)) return success();
    const void *answer =
        caller.control(entry_point::get_interface, calls.get_interface, caller.plugin, id);
    if (!answer)
        return error{
            format("{}: declares {} but get_interface answers null for it", host.label, id)};
    const auto size = caller.read(entry_point::get_interface, [&] {
        uint32_t bytes = 0;
        std::memcpy(&bytes, answer, sizeof(bytes));
        return bytes;
    });
    if (size < required_of<Table>::bytes || size > record_size_max)
        return error{format("{}: table {} has size {}, expected {} or more; set its size",
                            host.label, id, size, required_of<Table>::bytes)};
    table = caller.read(entry_point::get_interface, [&] { return completed<Table>(answer); });
    if (!required_of<Table>::are_there(table) || !has_whole_pairs(table))
        return error{format("{}: table {} lacks a required function", host.label, id)};
    target = &table;
    return success();
}

instance::instance() = default;
instance::~instance() = default;

result<std::unique_ptr<instance>> instance::create(const policy &policy, const settings &settings,
                                                   const environment &environment) {
    library *home = library_of(policy.module);
    assert(home && "a policy comes from a registry");
    std::unique_ptr<instance> created(new instance);
    created->content_ = std::make_unique<content>(created->caller_, policy, *home, environment);
    content &c = *created->content_;
    auto values = check_parameters(c.host.label, policy.params, settings);
    if (!values) return values.failure();
    c.parameters = std::move(values).value();
    if ((policy.descriptor->needs & MOORAGE_NEEDS_FUTURE) && !environment.future)
        return error{format(
            "{} needs the whole trace in advance, which this source cannot give; use another "
            "policy or a trace as source",
            c.host.label)};
    if (auto done = c.make(); !done) return done.failure();
#define MOORAGE_TABLE(member, name, id, last)                                      \
    if (const status found = c.find(id, c.tables.member, created->member); !found) \
        return found.failure();
    MOORAGE_TABLES(MOORAGE_TABLE)
#undef MOORAGE_TABLE
    return created;
}

status instance::activate(const moorage_limits &limits) {
    content &c = *content_;
    if (c.active)
        return error{
            format("{}: activate on an active instance; deactivate it first", c.host.label)};
    c.host.mapped = true;
    c.host.last_error.clear();
    c.host.random = policy_stream(c.host.inputs.seed, c.registered_policy.name());
    if (c.host.inputs.future) c.host.inputs.future->rewind();
    const moorage_limits limits_copy = limits;  // a copy, which the plugin may change
    const int32_t code =
        c.caller.control(entry_point::activate, c.calls.activate, c.caller.plugin, &limits_copy);
    if (code != MOORAGE_OK) {
        c.host.mapped = false;
        return c.failed("activate", code);
    }
    c.limits = limits;
    c.active = true;
    return c.undisturbed();
}

void instance::deactivate() {
    content &c = *content_;
    if (!c.active) return;
    c.caller.control(entry_point::deactivate, c.calls.deactivate, c.caller.plugin);
    c.active = c.host.mapped = false;
}

void instance::reset() {
    content &c = *content_;
    assert(c.active && "reset needs an active instance");
    c.host.random = policy_stream(c.host.inputs.seed, c.registered_policy.name());
    if (c.host.inputs.future) c.host.inputs.future->rewind();
    c.caller.control(entry_point::reset, c.calls.reset, c.caller.plugin);
}

status instance::control(entry_point which, const std::function<int32_t(moorage_plugin *)> &work) {
    content &c = *content_;
    c.host.last_error.clear();
    using function = std::function<int32_t(moorage_plugin *)>;
    int32_t (*const run)(const function *, moorage_plugin *) =
        [](const function *wrapped, moorage_plugin *plugin) { return (*wrapped)(plugin); };
    const int32_t code = c.caller.control(which, run, &work, c.caller.plugin);
    if (code != MOORAGE_OK) return c.failed(std::string(name_of(which)).c_str(), code);
    return c.undisturbed();
}

result<std::vector<fact>> instance::state_facts() {
    constexpr uint32_t facts_max = 64;
    constexpr size_t name_max = 64;
    std::vector<fact> stated;
    if (!facts) return stated;
    const std::string &label = content_->host.label;
    std::vector<moorage_fact> records(facts_max);
    uint32_t count = 0;
    const status done = control(entry_point::facts_facts, [&](moorage_plugin *plugin) {
        count = facts->facts(plugin, records.data(), facts_max);
        return MOORAGE_OK;
    });
    if (!done) return done.failure();
    if (count > facts_max)
        return error{
            format("{}: facts returned {}, and there was room for {}", label, count, facts_max)};
    for (uint32_t i = 0; i < count; ++i) {
        const char *text = records[i].plugin_name;
        const std::string_view name = content_->caller.read(entry_point::facts_facts, [&] {
            return text ? std::string_view(text, strnlen(text, name_max + 1)) : std::string_view();
        });
        if (name.empty() || name.size() > name_max || std::isnan(records[i].value))
            return error{format("{}: fact {} has no name of 1 to {} letters, or no value", label, i,
                                name_max)};
        stated.push_back({std::string(name), records[i].value});
    }
    return stated;
}

const policy &instance::registered_policy() const { return content_->registered_policy; }
const moorage_limits &instance::limits() const { return content_->limits; }
const std::vector<std::pair<std::string, setting_value>> &instance::parameters() const {
    return content_->parameters;
}

}  // namespace moorage::core
