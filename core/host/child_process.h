// child_process.h - one supervised child: how it begins, what it sends, how long its call stands.
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
    int handle = -1;  // a descriptor of the process; -1: the kernel has none
    // This side's ends: of what it sends, of what it writes where that is kept, of its orders.
    int bytes = -1, said = -1, orders = -1;
    std::unique_ptr<call_board, board_unmapping> page;
    std::optional<size_t> index;  // of the work that it does
    std::string received, output;
    std::string sent;  // of its work, without frames

    std::chrono::milliseconds lived{0}, step_stood{0};
    uint64_t step_calls = 0, step_seen = 0;
    // A lane of the board as the last look saw it: its call, and how long that has stood. For a
    // plan it keeps the child's processor time at its begin and at the last look, and how long the
    // child has hardly computed.
    struct lane {
        uint64_t call_seen = 0, plan_begun_ns = 0, processor_ns = 0;
        std::chrono::milliseconds call_stood{0}, plan_idle{0};
    };
    lane lanes[call_board::lanes_max];
    uint64_t busiest_owner = 0;  // `current` of the board when a step that does not end was seen
    int stop_signal = 0;         // that it is stopped by; 0: it runs
    std::chrono::milliseconds stopped_for{0};
    std::optional<std::chrono::milliseconds> ending_for;  // since it was asked to end
    uint32_t limit_ms = 0;                                // that it overran
    bool endless = false;

    child_process() = default;
    child_process(const child_process &) = delete;
    ~child_process();
    void close_all();
};

// What a child is to do before it works: the signals as they were.
struct child_start {
    std::function<void()> restore_signals;
    const std::vector<std::unique_ptr<child_process>> *siblings = nullptr;
};

// Null, and errno, where there is no process to be had.
std::unique_ptr<child_process> start_child(const indexed_work &work, const supervision &how,
                                           const child_start &start);
// Has the child do a work. Where it is gone already, that is seen later.
void order_work(child_process &child, size_t index);

// Takes what the child has sent and written. True: its work has ended, it waits for the next.
bool take_sent(child_process &child);

void send_signal(const child_process &child, int signal, bool group);

}  // namespace moorage::core
