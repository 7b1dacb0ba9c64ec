// wire_plugin.cpp - makes the instance, opens it, passes calls on.
#include "tools/node/wire_plugin.h"

#include <algorithm>

#include "core/base/text.h"
#include "core/config/stage_policy.h"
#include "core/host/call.h"
#include "core/host/instance.h"
#include "tools/node/links.h"

namespace moorage::core {

namespace {

moorage_wire_limits limits_of(const node_plan &plan) {
    const uint64_t longest = message_bytes_of(plan.sizes, plan.top_k);
    moorage_wire_limits limits{};
    limits.size = sizeof(limits);
    limits.connections_max = static_cast<uint32_t>(links::connections_max(plan.servers.size()));
    limits.handshakes_max = 32;
    limits.handshakes_per_s = 200;
    limits.queue_messages_max = 256;
    limits.message_bytes_max[MOORAGE_WIRE_CALLS] = longest;
    limits.message_bytes_max[MOORAGE_WIRE_BULK] = 2 * weights_bytes_max;
    limits.queue_bytes_max = longest;
    limits.receive_bytes_max = std::max(2 * longest, 4 * weights_bytes_max);
    limits.connect_ns = 2'000'000'000;
    limits.close_ns = 500'000'000;
    return limits;
}

class wire_plugin final : public wire {
public:
    wire_plugin(std::unique_ptr<instance> plugin_instance, wire_calls calls)
        : instance_(std::move(plugin_instance)),
          table_(*instance_->wire),
          noted_(calls == wire_calls::noted) {}

    status open(const moorage_wire_limits &limits) {
        return instance_->control(entry_point::wire_open, [&](moorage_plugin *plugin) {
            return table_.open(plugin, &limits);
        });
    }
    result<std::string> listen(const std::string &address) override {
        char bound[MOORAGE_WIRE_ADDRESS_MAX] = {};
        uint64_t listener = 0;
        const status done =
            instance_->control(entry_point::wire_listen, [&](moorage_plugin *plugin) {
                return table_.listen(plugin, address.c_str(), bound, &listener);
            });
        if (!done) return done.failure();
        bound[sizeof(bound) - 1] = 0;
        return std::string(bound);
    }
    result<uint64_t> connect(int32_t channel, std::span<const std::string> addresses) override {
        std::vector<const char *> texts;
        for (const std::string &address : addresses) texts.push_back(address.c_str());
        moorage_wire_target target{};
        target.size = sizeof(target);
        target.channel = channel;
        target.host_addresses = texts.data();
        target.address_count = static_cast<uint32_t>(texts.size());
        uint64_t connection = 0;
        if (!noted_) {
            const in_control mark = instance_->marked();
            if (table_.connect(instance_->plugin(), &target, &connection) == MOORAGE_OK)
                return connection;
            return error{format("no connection to {} can begin", addresses.front())};
        }
        const status done = instance_->control(
            entry_point::wire_connect,
            [&](moorage_plugin *plugin) { return table_.connect(plugin, &target, &connection); });
        if (!done) return done.failure();
        return connection;
    }
    uint32_t send(uint64_t connection, std::span<const moorage_wire_part> parts,
                  uint64_t user) override {
        return call(entry_point::wire_send, table_.send, connection, parts.data(),
                    static_cast<uint32_t>(parts.size()), user);
    }
    // A poll that waits is no call that hangs: it returns well before call_limit_ms.
    uint32_t poll(std::span<moorage_wire_event> events, uint64_t wait_ns) override {
        if (const uint64_t limit_ms = noted_ ? board->call_limit_ms.load() : 0; limit_ms != 0)
            wait_ns = std::min(wait_ns, limit_ms * 1'000'000 / 4);
        const uint32_t count = call(entry_point::wire_poll, table_.poll, events.data(),
                                    static_cast<uint32_t>(events.size()), wait_ns);
        return std::min(count, static_cast<uint32_t>(events.size()));
    }
    // From any thread, so not noted as the call at work.
    void wake() override { table_.wake(instance_->plugin()); }
    void release(uint64_t message) override {
        call(entry_point::wire_release, table_.release, message);
    }
    void close(uint64_t number, bool at_once) override {
        call(entry_point::wire_close, table_.close, number, static_cast<uint32_t>(at_once ? 1 : 0));
    }

private:
    template <class Answer, class... Parameters, class... Arguments>
    Answer call(entry_point entry, Answer (*function)(moorage_plugin *, Parameters...),
                Arguments... arguments) {
        if (noted_) return instance_->call(entry, function, arguments...);
        const in_control mark = instance_->marked();
        return function(instance_->plugin(), arguments...);
    }

    std::unique_ptr<instance> instance_;
    const moorage_wire &table_;
    const bool noted_;
};

}  // namespace

result<std::unique_ptr<wire>> open_wire(const run_config &config, const registry &policies,
                                        const node_plan &plan, wire_calls calls) {
    const auto chosen = find_policy(policies, config.wire, "wire");
    if (!chosen) return chosen.failure();
    auto plugin_instance = instance::create(**chosen, config.wire.params,
                                            environment{.seed = config.seed, .kind = "wire"});
    if (!plugin_instance) return plugin_instance.failure();
    moorage_limits none{};
    none.size = sizeof(none);
    if (const status active = (*plugin_instance)->activate(none); !active) return active.failure();
    auto opened = std::make_unique<wire_plugin>(std::move(*plugin_instance), calls);
    if (const status open = opened->open(limits_of(plan)); !open)
        return error{config.wire.place + ": " + open.failure().text, open.failure().usage};
    return std::unique_ptr<wire>(std::move(opened));
}

}  // namespace moorage::core
