// policy_caller.h - the only place that calls policies. It notes the call on the board, stops
// exceptions, and checks that the process is unchanged.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/host/call.h"
#include "core/host/faults.h"
#include "core/host/surroundings.h"
#include "core/host/threads.h"
#include "moorage/module.h"

namespace moorage::core {

// The host's time inside one policy, by function.
struct entry_times {
    struct sum {
        uint64_t calls = 0, ns = 0;
    };
    std::array<sum, entry_points> by_entry{};
    uint64_t calls = 0, ns = 0;  // totals
};

struct service_host;

// While it lives, the calling thread is inside a [load] or [control] call to this host's instance.
class in_control {
public:
    explicit in_control(const service_host &host);
    ~in_control();
    in_control(const in_control &) = delete;

private:
    const service_host *outer_;
};

class policy_caller {
public:
    const service_host *host = nullptr;  // borrowed

    moorage_plugin *plugin = nullptr;
    std::string name;
    uint32_t owner = 0;
    bool is_self_contained = false;  // its library does (library_ways.h)
    entry_times *times = nullptr;    // borrowed; null: calls are not timed
    fault_log *faults = nullptr;     // null: changes made by a call go to `disturbance`
    std::string disturbance;

    // `function` is from a table of the policy and takes the plugin as its first argument.
    template <class Answer, class... Parameters, class... Arguments>
    Answer call(entry_point which, Answer (*function)(moorage_plugin *, Parameters...),
                Arguments... arguments) {
        if (outside_of_steps(which)) return control(which, function, plugin, arguments...);
        if (of_wire(which)) {
            const in_control mark(*host);
            return raw<false>(which, function, plugin, arguments...);
        }
        return raw<false>(which, function, plugin, arguments...);
    }
    // Checks everything that the policy's library may change.
    template <class Answer, class... Parameters, class... Arguments>
    Answer control(entry_point which, Answer (*function)(Parameters...), Arguments... arguments) {
        const in_control mark(*host);
        if (is_self_contained && board->guard.load(std::memory_order_relaxed) != call_guard::full)
            return raw<false>(which, function, arguments...);
        const thread_watch threads(owner, !is_self_contained);
        remember_surroundings();
        return raw<true>(which, function, arguments...);
    }
    // Reads data that a call handed out. This counts as part of the call, because the pointer may
    // be invalid.
    template <class Read>
    auto read(entry_point which, Read &&reader) const {
        const policy_call at_work(owner, which);
        return reader();
    }

private:
    // Comparisons rather than a switch: those of other tags vanish, and the rest is known where a
    // call is made. A switch of all calls was 5 % of an emulated step's instructions.
    enum class thread_tag : uint8_t { step, control, any };
    [[gnu::always_inline]] static constexpr bool of_wire(entry_point which) {
#define MOORAGE_CALL(member, table, function, ...) || which == entry_point::table##_##function
        return false MOORAGE_CALLS_OF_wire(MOORAGE_CALL);
#undef MOORAGE_CALL
    }
    // Calls of a wire are [control], too, but there are many: what they change is not looked at.
    // Placement's come through instance::control().
    [[gnu::always_inline]] static constexpr bool outside_of_steps(entry_point which) {
#define MOORAGE_CALL(member, table, function, kind, tag, need) \
    || (thread_tag::tag == thread_tag::control && which == entry_point::table##_##function)
        return (false MOORAGE_CALLS(MOORAGE_CALL)) && !of_wire(which);
#undef MOORAGE_CALL
    }
    template <bool All, class Answer, class... Parameters, class... Arguments>
    Answer raw(entry_point which, Answer (*function)(Parameters...), Arguments... arguments) {
        const policy_call at_work(owner, which);
        if constexpr (std::is_void_v<Answer>) {
            timed(which, function, arguments...);
            look<All>(which, at_work.guard());
        } else {
            const Answer answer = timed(which, function, arguments...);
            look<All>(which, at_work.guard());
            return answer;
        }
    }
    template <class Answer, class... Parameters, class... Arguments>
    Answer timed(entry_point which, Answer (*function)(Parameters...), Arguments... arguments) {
        if (times == nullptr) return without_throwing(function, arguments...);
        const stop_watch running(*times, which);
        return without_throwing(function, arguments...);
    }
    class stop_watch {
    public:
        stop_watch(entry_times &times, entry_point which) : times_(times), which_(which) {}
        ~stop_watch() {
            const auto ns = static_cast<uint64_t>(
                std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin_).count());
            entry_times::sum &entry = times_.by_entry[static_cast<size_t>(which_)];
            ++entry.calls;
            entry.ns += ns;
            ++times_.calls;
            times_.ns += ns;
        }

    private:
        entry_times &times_;
        entry_point which_;
        std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    };
    // An exception ends here in std::terminate, while the call is still on the board.
    template <class Answer, class... Parameters, class... Arguments>
    static Answer without_throwing(Answer (*function)(Parameters...),
                                   Arguments... arguments) noexcept {
        return function(arguments...);
    }
    template <bool All>
    void look(entry_point which, call_guard guard) {
        if (!All && guard == call_guard::usual) {
            if (!arithmetic_shows_usual()) check_surroundings(which, false);
        } else if (guard != call_guard::off) {
            check_surroundings(which, true);
        }
    }
    void check_surroundings(entry_point which, bool whole_state);
};

}  // namespace moorage::core
