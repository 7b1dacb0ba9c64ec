// child_process.h - one supervised child: starting it, reading what it sends, timing its calls.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/host/supervise.h"

namespace moorage::core {

struct board_unmapping {
    void operator()(call_board *page) const;
};

struct child_process {
    pid_t process = -1;
    int handle = -1;  // a pidfd of the process; -1: the kernel has none
    // This side's ends. bytes: what the child sends. said: what it prints, if that is kept. orders:
    // its orders.
    int bytes = -1, said = -1, orders = -1;
    std::unique_ptr<call_board, board_unmapping> page;
    std::optional<size_t> index;  // of its current work
    std::string received, output;
    std::string sent;  // by its current work, without frames
    // Totals of the received frames. `garbled`: other bytes came between them.
    uint64_t seen_bytes = 0, seen_sum = 0;
    bool garbled = false;

    std::chrono::milliseconds lived{0}, step_stood{0};
    uint64_t step_calls = 0, step_seen = 0;
    // One lane of the call board when the parent last looked: its call, and how long that call has
    // lasted. For a placement plan's search, which may take long, three more values are kept: the
    // child's processor time at the start and at the last look, and how long it has been idle.
    struct lane {
        uint64_t call_seen = 0, plan_begun_ns = 0, processor_ns = 0;
        std::chrono::milliseconds call_stood{0}, plan_idle{0};
    };
    lane lanes[call_board::lanes_max];
    uint64_t busiest_owner = 0;  // `current` of the board when an endless step was seen
    int stop_signal = 0;         // the signal that stopped it; 0: it runs
    std::chrono::milliseconds stopped_for{0};
    std::optional<std::chrono::milliseconds> ending_for;  // since it was asked to end
    uint32_t limit_ms = 0;                                // the limit that it overran
    bool endless = false;
    std::optional<std::chrono::milliseconds> end_wanted_for;  // since it was asked to end
    bool late = false;                                        // it did not end then

    child_process() = default;
    child_process(const child_process &) = delete;
    ~child_process();
    void close_all();
};

// The signal state that a child restores before it works.
struct child_start {
    std::function<void()> restore_signals;
    const std::vector<std::unique_ptr<child_process>> *siblings = nullptr;
};

// Null with errno if no process can be created.
std::unique_ptr<child_process> start_child(const indexed_work &work, const supervision &options,
                                           const child_start &start);
// Makes the child do a work. If the child is already gone, that is noticed later.
void order_work(child_process &child, size_t index);

// Reads what the child has sent and printed, and prints what it asked to print. True: its work has
// ended, and it waits for the next one.
bool take_sent(child_process &child, const supervision &options);
// Has everything that the child sent arrived unchanged?
bool has_arrived_whole(const child_process &child);

void send_signal(const child_process &child, int signal, bool group);

}  // namespace moorage::core
