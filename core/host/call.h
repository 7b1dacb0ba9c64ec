// call.h - the board: a record of the policy call that this process is making, so that its parent
// can say where it died.
//
// The board is in memory shared with the parent (supervise.h), so it can be read after the process
// that wrote it has died. Policies are called by one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/host/policy_calls.h"

namespace moorage::core {

// The calls of a policy: those of its library and of every policy, then those of its tables, as
// cache_victims and budget_plan. `none`: no policy is at work. `constructors`: a library is being
// opened, including whatever the loader runs. `thread`: no call, but a thread that a library
// started.
enum class entry_point : uint32_t {
    none,
    constructors,
    module,
    descriptor,
    init,
    deinit,
    create,
    get_interface,
    destroy,
    activate,
    deactivate,
    reset,
#define MOORAGE_CALL(member, table, function, ...) table##_##function,
    MOORAGE_CALLS(MOORAGE_CALL)
#undef MOORAGE_CALL
        thread
};
inline constexpr size_t entry_points = static_cast<size_t>(entry_point::thread) + 1;
std::string_view name_of(entry_point call);  // "victims", "plan", ...
std::string_view kind_of(entry_point call);  // "cache", ...; "" for calls of any kind

// `[plugins] guard`: how closely calls are watched. off: only the current call is noted.
enum class call_guard : uint32_t { off, usual, full };

struct call_board {
    static constexpr uint32_t owners_max = 256;
    struct owner {
        char policy[64], kinds[96], library[256];  // truncated
    };
    // A lane belongs to one thread that calls policies. Lane 0 is the working thread's. Lane 1
    // belongs to the thread that makes a node's plans.
    struct lane {
        // Upper half: the owner's index in `owners`. Lower half: the entry point.
        std::atomic<uint64_t> current{0};
        std::atomic<uint64_t> calls{0};  // so far; does not change while a call hangs
    };
    static constexpr uint32_t lanes_max = 2;
    lane lanes[lanes_max];
    std::atomic<uint32_t> layer{0}, in_step{0};
    std::atomic<uint64_t> token{0};
    std::atomic<uint32_t> owner_count{0};
    owner owners[owners_max];
    // Details that only the child knows: where it faulted, what was thrown, what a policy said
    // last. The lane and its `calls` are noted as well, so that text from an earlier call is not
    // used.
    char note[1024];
    std::atomic<uint64_t> note_call{0};
    std::atomic<uint32_t> note_lane{0};
    std::atomic<uint32_t> overran_lane{0};  // the lane whose call was ended, counted from 1; 0:
                                            // none
    // The mapped file whose access faulted. The file has changed, and no policy is to blame.
    char file[512];
    std::atomic<uint32_t> call_limit_ms{10'000};  // 0: none
    std::atomic<call_guard> guard{call_guard::usual};
    std::atomic<uint32_t> done{0};      // the work ended, successfully or not
    std::atomic<int32_t> exit_code{0};  // of the work; the kernel's status came later
    // The library in whose code one of its own threads ended the process, whichever call was
    // running.
    char culprit[256];
    std::atomic<uint32_t> culprit_owner{0};  // the same as an owner, counted from 1; 0: none
    // Owners, counted from 1, that the kernel does not know. threads_owner: the first one that left
    // threads running after its call. forked_owner: the latest one whose call returned in a second
    // process.
    std::atomic<uint32_t> threads_owner{0}, forked_owner{0};
    // The child counts and sums what it sends. The parent must have received the same.
    std::atomic<uint64_t> sent_bytes{0}, sent_sum{0};
    // The process that sent the signal of which this one dies; 0: itself, the kernel, or unknown.
    std::atomic<int32_t> signal_sender{0};
    // The parent's errno of printing for the child; 0: no write has failed.
    std::atomic<int32_t> print_errno{0};
};

// The board of this process. Without a supervisor it is the process's own and not shared.
extern call_board *board;

// The calling thread's lane; 0 until the planning thread sets it.
extern constinit thread_local uint32_t lane_of_thread;
inline void use_planning_lane() { lane_of_thread = 1; }
inline call_board::lane &own_lane() { return board->lanes[lane_of_thread]; }

// A policy's index among the owners; the same three texts give the same index. Index 0 is the
// library that is being opened. If there are too many policies, the others share the last index.
uint32_t owner_of(std::string_view policy, std::string_view kinds, std::string_view library);
uint32_t owner_being_opened(std::string_view library);
// The index that the same owner keeps while further libraries are opened.
uint32_t lasting_owner(uint32_t owner);

// Notes what is known before this process dies. Safe in a signal handler.
void note_on_board(std::string_view text);
// Notes that a thread of this library ends the process. Safe in a signal handler.
void note_culprit(std::string_view library, uint32_t owner_from_1);

// Tells whether this process is the host's. A process that a policy forks has a copy of everything
// and must not continue as the host. The kernel clears this word in every child; children of the
// host set it again.
extern std::atomic<uint32_t> *own_process;
void become_own_process();
inline bool is_stranger() { return own_process->load(std::memory_order_relaxed) == 0; }
// Ends a process that a policy forked, in a call of `owner`. The host's process has gone on
// meanwhile, so the lanes say another call.
[[noreturn]] void end_stranger(uint32_t owner);

// Sets the layer step of all calls until the next step, or that there is none.
inline void note_step(uint32_t layer, uint64_t token) {
    board->layer.store(layer, std::memory_order_relaxed);
    board->token.store(token, std::memory_order_relaxed);
    board->in_step.store(1, std::memory_order_relaxed);
}
inline void note_no_step() { board->in_step.store(0, std::memory_order_relaxed); }

// Marks a call while it lives. Calls nest: a policy asks a service that calls another policy.
class policy_call {
public:
    policy_call(uint32_t owner, entry_point call)
        : lane_(own_lane()),
          previous_(lane_.current.load(std::memory_order_relaxed)),
          owner_(owner) {
        lane_.calls.store(lane_.calls.load(std::memory_order_relaxed) + 1,
                          std::memory_order_relaxed);
        lane_.current.store(uint64_t{owner} << 32 | static_cast<uint32_t>(call),
                            std::memory_order_relaxed);
    }
    ~policy_call() {
        if (is_stranger()) end_stranger(owner_);
        lane_.current.store(previous_, std::memory_order_relaxed);
    }
    call_guard guard() const { return board->guard.load(std::memory_order_relaxed); }
    policy_call(const policy_call &) = delete;
    policy_call &operator=(const policy_call &) = delete;

private:
    call_board::lane &lane_;
    const uint64_t previous_;
    const uint32_t owner_;
};

}  // namespace moorage::core
