// call.h - the board: which call into which policy this process is making, for whoever has to say
// where it died.
//
// The board lies in memory shared with the parent (supervise.h), so it is read after the death of
// the process that wrote it. Policies are called by one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

namespace moorage::core {

// The calls, by the name that the headers of the SDK give them; `none`: no policy is at work.
// `constructors` are those of a library being opened, with whatever else the loader runs of it.
// `thread`: no call, but a thread that a library started.
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
    observe,
    select,
    victims,
    admit,
    on_load,
    on_evict,
    fill,
    hold,
    give_up,
    replay,
    budget_plan,
    budget_interval,
    horizon,
    prediction,
    predict,
    prefetch_plan,
    prefetch_outcome,
    assign,
    dispatch_outcome,
    submit,
    cancel,
    promote,
    next,
    placement_plan,
    adopt,
    facts,
    thread,
    wire_open,  // from here on those of wires
    wire_listen,
    wire_connect,
    wire_send,
    wire_poll,
    wire_wake,
    wire_release,
    wire_close,
    wire_pace,
    wire_remember,
    wire_forget
};
std::string_view name_of(entry_point call);  // "victims", "plan", ...
std::string_view kind_of(entry_point call);  // "cache", ...; "" where any kind has it

// `[plugins] guard`: how closely calls are watched. off: only who is at work is noted.
enum class call_guard : uint32_t { off, usual, full };

struct call_board {
    static constexpr uint32_t owners_max = 256;
    struct owner {
        char policy[64], kinds[96], library[256];  // cut off where longer
    };
    // A lane belongs to one thread that calls policies. Lane 0 is the working thread's, lane 1 that
    // of the thread beside it, which makes a node's plans.
    struct lane {
        // The owner's place in `owners` in the upper half, the entry in the lower one.
        std::atomic<uint64_t> current{0};
        std::atomic<uint64_t> calls{0};  // made so far: one that hangs does not change it
    };
    static constexpr uint32_t lanes_max = 2;
    lane lanes[lanes_max];
    std::atomic<uint32_t> layer{0}, in_step{0};
    std::atomic<uint64_t> token{0};
    std::atomic<uint32_t> owner_count{0};
    owner owners[owners_max];
    // What the child knows better: where it faulted, what was thrown, what a policy said last; and
    // the lane and its `calls` when it was written, for what was said in an earlier call has
    // nothing to do with it.
    char note[1024];
    std::atomic<uint64_t> note_call{0};
    std::atomic<uint32_t> note_lane{0};
    std::atomic<uint32_t> overran_lane{0};  // counted from 1: whose call was ended; 0: none was
    // The mapped file in which it faulted: it changed, and no policy is to blame.
    char file[512];
    std::atomic<uint32_t> call_limit_ms{10'000};  // 0: none
    std::atomic<call_guard> guard{call_guard::usual};
    std::atomic<uint32_t> done{0};      // the work came to its end, however it went ...
    std::atomic<int32_t> exit_code{0};  // ... and with this; what the kernel says came after it
    // The library in whose code a thread of its own ended the process, whoever was being called.
    char culprit[256];
    std::atomic<uint32_t> culprit_owner{0};  // the same as an owner, counted from 1; 0: none yet
    // Owners, each counted from 1, of what the kernel does not tell: the first that started
    // threads which go on after the call; the latest whose call made a second process return.
    std::atomic<uint32_t> threads_owner{0}, forked_owner{0};
};

// The board of this process; one of its own, unshared, where nobody supervises it.
extern call_board *board;

// The calling thread's lane; 0 until it says that it is the one beside.
extern constinit thread_local uint32_t lane_of_thread;
inline void take_lane_beside() { lane_of_thread = 1; }
inline call_board::lane &own_lane() { return board->lanes[lane_of_thread]; }

// A policy's place among the owners, the same for the same three texts. The first place is that of
// whatever library is being opened, and that of policies beyond the last place is the last one.
uint32_t owner_of(std::string_view policy, std::string_view kinds, std::string_view library);
uint32_t owner_being_opened(std::string_view library);
// The same owner at a place that it keeps, once further libraries are opened.
uint32_t lasting_owner(uint32_t owner);

// What is known about the death to come. Safe in a signal handler.
void note_on_board(std::string_view text);
// That a thread of this library ends the process. Safe in a signal handler.
void note_culprit(std::string_view library, uint32_t owner_from_1);

// A process that a policy forks has all that this one has, and must not go on as this one. The
// kernel clears this word in every child; those that the host forks set it again.
extern std::atomic<uint32_t> *own_process;
void become_own_process();
inline bool is_stranger() { return own_process->load(std::memory_order_relaxed) == 0; }
// Ends such a child, and notes who was being called.
[[noreturn]] void end_stranger();

// The layer step under way, for all calls until the next one; and that there is none.
inline void note_step(uint32_t layer, uint64_t token) {
    board->layer.store(layer, std::memory_order_relaxed);
    board->token.store(token, std::memory_order_relaxed);
    board->in_step.store(1, std::memory_order_relaxed);
}
inline void note_no_step() { board->in_step.store(0, std::memory_order_relaxed); }

// Marks a call while it lives. Calls nest (a policy asks a service that calls another).
class policy_call {
public:
    policy_call(uint32_t owner, entry_point call)
        : on_(own_lane()), before_(on_.current.load(std::memory_order_relaxed)) {
        on_.calls.store(on_.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        on_.current.store(uint64_t{owner} << 32 | static_cast<uint32_t>(call),
                          std::memory_order_relaxed);
    }
    ~policy_call() {
        if (is_stranger()) end_stranger();
        on_.current.store(before_, std::memory_order_relaxed);
    }
    call_guard guard() const { return board->guard.load(std::memory_order_relaxed); }
    policy_call(const policy_call &) = delete;
    policy_call &operator=(const policy_call &) = delete;

private:
    call_board::lane &on_;
    const uint64_t before_;
};

}  // namespace moorage::core
