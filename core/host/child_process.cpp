// child_process.cpp - forks, and runs the child's side: it takes orders, works, and ends without
// running what policies registered for the exit.
#include "core/host/child_process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/host/last_words.h"
#include "core/host/library.h"
#include "core/host/parent_watch.h"
#include "core/host/threads.h"

// From the leak sanitizer, if the program has it. It normally checks at exit, which a child skips.
extern "C" __attribute__((weak)) int __lsan_do_recoverable_leak_check();

namespace moorage::core {

namespace {

constexpr size_t said_max = 65536;
constexpr uint64_t frame_bytes_max = uint64_t{1} << 36;  // a larger size is garbage

// Precedes each part that a child sends.
struct frame {
    enum kind_of_frame : uint64_t {
        bytes = 0x62797465,
        end = 0x656e6421,
        print = 0x7072696e,
        print_error = 0x6572726f
    };
    bool is_known(bool prints) const {
        return kind == bytes || kind == end || (prints && (kind == print || kind == print_error));
    }
    uint64_t kind, size;
};

// The child's own ends, open as long as it lives.
struct child_ends {
    int bytes = -1, said = -1, orders = -1;
};
child_ends own_ends;
bool parent_prints = false;

// A checksum over the payloads of frames, in their order (FNV-1a).
uint64_t sum_further(uint64_t sum, std::string_view text) {
    for (const char byte : text) sum = (sum ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    return sum;
}

bool write_all(int target, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(target, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        text.remove_prefix(static_cast<size_t>(written));
    }
    return true;
}

void write_frame(int target, frame::kind_of_frame kind, std::string_view text) {
    const frame head{kind, text.size()};
    board->sent_sum = sum_further(board->sent_sum, text);
    board->sent_bytes += sizeof(head) + text.size();
    if (write_all(target, {reinterpret_cast<const char *>(&head), sizeof(head)}))
        write_all(target, text);
}

// Nothing: there is no more work.
std::optional<size_t> next_order(int orders) {
    size_t index = 0;
    ssize_t got;
    do got = recv(orders, &index, sizeof(index), MSG_WAITALL);
    while (got < 0 && errno == EINTR);
    if (got != sizeof(index)) return std::nullopt;
    return index;
}

// Called if a policy calls exit(). The host never does.
void note_exit() {
    if (board->done == 0)
        note_culprit_of(0, reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
}

[[noreturn]] void end_at_once(int code) {
    end_parent_watch();
    std::fflush(nullptr);
    end_libraries();
    if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check() != 0 && code == 0)
        code = 23;  // the sanitizer's own exit code
    board->exit_code = code;
    board->done = 1;
    _exit(code);
}

void begin_quietly(int said) {
    setpgid(0, 0);  // so that processes started by policies can be ended with it
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(said, STDERR_FILENO);
    close(null);
    close(said);
}

[[noreturn]] void run_child(call_board *page, const child_ends &ends, pid_t parent,
                            const indexed_work &work, const supervision &options) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(EXIT_FAILURE);  // the parent died before the setting took effect
    // Policies of this child must not reach the descriptors of an outer child.
    for (const int outer : {own_ends.bytes, own_ends.said, own_ends.orders})
        if (outer >= 0) close(outer);
    own_ends = ends;
    parent_prints = options.print != nullptr;
    if (ends.said >= 0) begin_quietly(ends.said);
    board = page;
    become_own_process();
    note_calling_thread();
    install_last_words();
    std::atexit(note_exit);
    begin_parent_watch();
    const size_t threads = threads_of_process();
    int code = EXIT_FAILURE;
    while (const auto index = next_order(ends.orders)) {
        note_no_step();
        code = work(*index,
                    [&](std::string_view text) { write_frame(ends.bytes, frame::bytes, text); });
        const bool goes_on =
            options.may_go_on && options.may_go_on() && threads_of_process() == threads;
        if (!goes_on) break;
        std::fflush(nullptr);
        write_frame(ends.bytes, frame::end, {});
    }
    end_at_once(code);
}

// The page starts as a copy of this process's own board, including its owners.
std::unique_ptr<call_board, board_unmapping> shared_board() {
    void *page = mmap(nullptr, sizeof(call_board), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return nullptr;
    auto *fresh_board = new (page) call_board;
    const uint32_t owners = std::min(board->owner_count.load(), call_board::owners_max);
    std::copy(board->owners, board->owners + owners, fresh_board->owners);
    fresh_board->owner_count = owners;
    fresh_board->call_limit_ms = board->call_limit_ms.load();
    fresh_board->guard = board->guard.load();
    return std::unique_ptr<call_board, board_unmapping>(fresh_board);
}

// Reads what has arrived; closes `source` at its end.
void read_available(int &source, std::string &target, size_t bytes_max) {
    char part[16384];
    while (source >= 0) {
        const ssize_t got = read(source, part, sizeof(part));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) {
            close(std::exchange(source, -1));
            return;
        }
        if (target.size() < bytes_max) target.append(part, static_cast<size_t>(got));
    }
}

}  // namespace

void board_unmapping::operator()(call_board *page) const { munmap(page, sizeof(call_board)); }

child_process::~child_process() { close_all(); }

void child_process::close_all() {
    for (int *end : {&handle, &bytes, &said, &orders})
        if (*end >= 0) close(std::exchange(*end, -1));
}

std::unique_ptr<child_process> start_child(const indexed_work &work, const supervision &options,
                                           const child_start &start) {
    auto child = std::make_unique<child_process>();
    child->page = shared_board();
    if (!child->page) return nullptr;
    int bytes[2] = {-1, -1}, said[2] = {-1, -1}, orders[2] = {-1, -1};
    const bool pipes_ready = pipe2(bytes, O_CLOEXEC) == 0 &&
                             (!options.quiet || pipe2(said, O_CLOEXEC) == 0) &&
                             socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, orders) == 0;
    const int lacking = errno;
    child->bytes = bytes[0], child->said = said[0], child->orders = orders[0];
    const child_ends ends{bytes[1], said[1], orders[1]};
    const auto close_ends = [&](int code) {
        for (const int end : {ends.bytes, ends.said, ends.orders})
            if (end >= 0) close(end);
        errno = code;
    };
    if (!pipes_ready) return close_ends(lacking), nullptr;
    std::fflush(nullptr);  // otherwise both would write what is buffered
    const pid_t parent = getpid();
    child->process = fork();
    if (child->process == 0) {
        start.restore_signals();
        // Otherwise the siblings would not see the end of their orders when the parent dies.
        for (const auto &sibling : *start.siblings) sibling->close_all();
        call_board *page = child->page.release();
        child->close_all();
        run_child(page, ends, parent, work, options);
    }
    close_ends(errno);
    if (child->process < 0) return nullptr;
    child->handle = static_cast<int>(syscall(SYS_pidfd_open, child->process, 0));
    for (const int end : {child->bytes, child->said})
        if (end >= 0) fcntl(end, F_SETFL, O_NONBLOCK);
    return child;
}

void order_work(child_process &child, size_t index) {
    child.index = index;
    child.sent.clear();
    child.lived = child.step_stood = std::chrono::milliseconds{0};
    for (auto &lane : child.lanes) lane.call_stood = std::chrono::milliseconds{0};
    static_cast<void>(send(child.orders, &index, sizeof(index), MSG_NOSIGNAL));
}

bool take_sent(child_process &child, const supervision &options) {
    read_available(child.bytes, child.received, SIZE_MAX);
    read_available(child.said, child.output, said_max);
    bool ended = false;
    size_t used = 0;
    frame head{};
    while (!child.garbled && child.received.size() - used >= sizeof(head)) {
        std::memcpy(&head, child.received.data() + used, sizeof(head));
        child.garbled = head.size > frame_bytes_max || !head.is_known(options.print != nullptr);
        if (child.garbled || child.received.size() - used - sizeof(head) < head.size) break;
        const std::string_view text(child.received.data() + used + sizeof(head), head.size);
        child.seen_sum = sum_further(child.seen_sum, text);
        child.seen_bytes += sizeof(head) + head.size;
        if (head.kind == frame::print)
            child.page->print_errno = options.print(text, printed_on::output);
        else if (head.kind == frame::print_error)
            options.print(text, printed_on::errors);
        else
            child.sent.append(text);
        used += sizeof(head) + head.size;
        ended = head.kind == frame::end;
    }
    child.received.erase(0, used);
    if (ended && !has_arrived_whole(child)) child.garbled = true;
    // It waits for an order that does not come, and ends.
    if (child.garbled && child.orders >= 0) close(std::exchange(child.orders, -1));
    return ended && !child.garbled;
}

bool has_arrived_whole(const child_process &child) {
    return !child.garbled && child.received.empty() && child.seen_sum == child.page->sent_sum &&
           child.seen_bytes == child.page->sent_bytes;
}

bool has_printing_parent() { return parent_prints; }
int print_by_parent(std::string_view text, printed_on target) {
    const auto kind = target == printed_on::errors ? frame::print_error : frame::print;
    if (!text.empty()) write_frame(own_ends.bytes, kind, text);
    return print_errno_of_parent();
}
int print_errno_of_parent() { return board->print_errno; }

void send_signal(const child_process &child, int signal, bool group) {
    if (group) kill(-child.process, signal);
    kill(child.process, signal);
}

}  // namespace moorage::core
