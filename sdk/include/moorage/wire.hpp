// wire.hpp - the functions of a C++ class that make it a wire (wire.h), and its table.
//
//   void open(const moorage_wire_limits &)                        may throw
//   uint64_t listen(std::string_view address, std::string &bound)  may throw; returns the number
//   uint64_t connect(const wire_target &)                         may throw; returns the number
//   uint32_t send(uint64_t connection, std::span<const moorage_wire_part> parts, uint64_t user)
//   uint32_t poll(std::span<moorage_wire_event> events, uint64_t wait_ns)
//   void wake()                                                   called from any thread
//   void release(uint64_t message)
//   void close(uint64_t number, bool at_once)
// Optional: void pace(uint64_t connection, uint64_t bytes_per_s);
//           uint64_t remember(const void *memory, uint64_t bytes), which may throw, and
//           void forget(uint64_t memory).
// activate() and reset() may be left out.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "wire.h"

namespace moorage {

struct wire_target : moorage_wire_target {
    std::span<const char *const> addresses() const { return {host_addresses, address_count}; }
    std::string_view identity() const { return host_identity ? host_identity : ""; }
};

namespace detail {

template <class P>
concept wires = requires(P &p, const moorage_wire_limits &limits, const wire_target &target,
                         std::string &bound) {
    p.open(limits);
    { p.listen(std::string_view(), bound) } -> std::convertible_to<uint64_t>;
    { p.connect(target) } -> std::convertible_to<uint64_t>;
    {
        p.send(uint64_t{}, std::span<const moorage_wire_part>(), uint64_t{})
        } -> std::convertible_to<uint32_t>;
    { p.poll(std::span<moorage_wire_event>(), uint64_t{}) } -> std::convertible_to<uint32_t>;
    p.wake();
    p.release(uint64_t{});
    p.close(uint64_t{}, false);
};
template <class P>
concept paces = requires(P &p) {
    p.pace(uint64_t{}, uint64_t{});
};
template <class P>
concept remembers = requires(P &p) {
    { p.remember(static_cast<const void *>(nullptr), uint64_t{}) } -> std::convertible_to<uint64_t>;
    p.forget(uint64_t{});
};

// `Holder` has the host of an instance and turns exceptions into statuses.
template <class P, class Holder>
struct wire_table {
    static P &self(moorage_plugin *plugin) { return *static_cast<P *>(plugin->plugin_data); }
    template <class Work>
    static int32_t guarded(moorage_plugin *plugin, Work &&work) noexcept {
        return Holder::guarded(Holder::from(plugin)->host, work);
    }
    static int32_t open(moorage_plugin *plugin, const moorage_wire_limits *limits) noexcept {
        return guarded(plugin, [&] { self(plugin).open(*limits); });
    }
    static int32_t listen(moorage_plugin *plugin, const char *address, char *out,
                          uint64_t *number) noexcept {
        return guarded(plugin, [&] {
            std::string bound;
            *number = self(plugin).listen(address, bound);
            out[bound.copy(out, MOORAGE_WIRE_ADDRESS_MAX - 1)] = '\0';
        });
    }
    static int32_t connect(moorage_plugin *plugin, const moorage_wire_target *target,
                           uint64_t *number) noexcept {
        return guarded(plugin, [&] {
            wire_target local_target{};
            std::memcpy(&local_target, target,
                        std::min<size_t>(target->size, sizeof(local_target)));
            *number = self(plugin).connect(local_target);
        });
    }
    static uint32_t send(moorage_plugin *plugin, uint64_t connection,
                         const moorage_wire_part *parts, uint32_t count, uint64_t user) noexcept {
        return self(plugin).send(connection, std::span(parts, count), user);
    }
    static uint32_t poll(moorage_plugin *plugin, moorage_wire_event *events, uint32_t capacity,
                         uint64_t wait_ns) noexcept {
        return self(plugin).poll(std::span(events, capacity), wait_ns);
    }
    static void wake(moorage_plugin *plugin) noexcept { self(plugin).wake(); }
    static void release(moorage_plugin *plugin, uint64_t message) noexcept {
        self(plugin).release(message);
    }
    static void close(moorage_plugin *plugin, uint64_t number, uint32_t at_once) noexcept {
        self(plugin).close(number, at_once != 0);
    }
    static void pace(moorage_plugin *plugin, uint64_t connection, uint64_t bytes_per_s) noexcept {
        self(plugin).pace(connection, bytes_per_s);
    }
    static int32_t remember(moorage_plugin *plugin, const void *memory, uint64_t bytes,
                            uint64_t *number) noexcept {
        return guarded(plugin, [&] { *number = self(plugin).remember(memory, bytes); });
    }
    static void forget(moorage_plugin *plugin, uint64_t memory) noexcept {
        self(plugin).forget(memory);
    }

    static constexpr moorage_wire make() {
        moorage_wire t{};
        t.size = sizeof(t);
        t.open = open, t.listen = listen, t.connect = connect, t.send = send, t.poll = poll;
        t.wake = wake, t.release = release, t.close = close;
        if constexpr (paces<P>) t.pace = pace;
        if constexpr (remembers<P>) t.remember = remember, t.forget = forget;
        return t;
    }
};

}  // namespace detail
}  // namespace moorage
