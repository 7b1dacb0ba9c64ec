// supervise.cpp - forks, watches the children's boards, ends calls that stand too long, and reads
// what the dead left.
#include "core/host/supervise.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/host/ending.h"
#include "core/host/last_words.h"

namespace moorage::core {

namespace {

using namespace std::chrono_literals;
using ms = std::chrono::milliseconds;

constexpr int passed_signals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr ms tick = 50ms;
constexpr ms patience = 300ms;  // between asking a child to end and ending it
constexpr size_t said_max = 65536;
constexpr uint32_t plan_limit_factor = 30;  // plans of placements are searched for, outside of runs

volatile std::sig_atomic_t asked_to_end = 0;
void keep_signal(int signal) { asked_to_end = signal; }

// While it lives, the signals that ask this process to end are kept, and seen by wait() only.
class kept_signals {
public:
    kept_signals() {
        asked_to_end = 0;
        sigset_t blocked;
        sigemptyset(&blocked);
        for (const int signal : passed_signals) sigaddset(&blocked, signal);
        sigprocmask(SIG_BLOCK, &blocked, &mask_);
        for (size_t i = 0; i < std::size(passed_signals); ++i) {
            sigaction(passed_signals[i], nullptr, &before_[i]);
            if (before_[i].sa_handler == SIG_IGN) continue;  // nohup
            struct sigaction keeping {};
            keeping.sa_handler = keep_signal;
            sigaction(passed_signals[i], &keeping, nullptr);
        }
    }
    ~kept_signals() { restore(); }
    kept_signals(const kept_signals &) = delete;
    void restore() const {
        for (size_t i = 0; i < std::size(passed_signals); ++i)
            sigaction(passed_signals[i], &before_[i], nullptr);
        sigprocmask(SIG_SETMASK, &mask_, nullptr);
    }
    void wait(std::vector<pollfd> &for_what, ms at_most) const {
        const timespec limit{at_most.count() / 1000, at_most.count() % 1000 * 1'000'000};
        ppoll(for_what.data(), for_what.size(), &limit, &mask_);
    }

private:
    sigset_t mask_;
    struct sigaction before_[std::size(passed_signals)];
};

struct unmapping {
    void operator()(call_board *at) const { munmap(at, sizeof(call_board)); }
};

struct child {
    size_t index = 0;
    pid_t process = -1;
    int handle = -1;  // a descriptor of the process; -1: the kernel has none
    int bytes = -1, said = -1;
    std::unique_ptr<call_board, unmapping> page;
    std::string received, output;
    uint64_t call_seen = 0;
    ms call_stood{0}, lived{0};
    std::optional<ms> ending_for;  // since it was asked to end
    uint32_t limit_ms = 0;         // that it overran

    ~child() {
        for (const int open : {handle, bytes, said})
            if (open >= 0) close(open);
    }
};

bool write_all(int to, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = write(to, text.data(), text.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        text.remove_prefix(static_cast<size_t>(written));
    }
    return true;
}

[[noreturn]] void live(call_board *page, int bytes, int said, pid_t parent,
                       const std::function<int(const sender &)> &work) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(EXIT_FAILURE);  // it died before it could be told
    if (said >= 0) {
        setpgid(0, 0);  // so that what a policy starts can be ended with it
        const int null = open("/dev/null", O_RDWR);
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(said, STDERR_FILENO);
        close(null);
        close(said);
    }
    board = page;
    install_last_words();
    const int code = work([&](std::string_view text) { write_all(bytes, text); });
    std::fflush(nullptr);
    board->done = 1;
    std::exit(code);
}

// The page begins as this process's own board stands, its owners included.
std::unique_ptr<call_board, unmapping> shared_board() {
    void *page = mmap(nullptr, sizeof(call_board), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return nullptr;
    auto *made = new (page) call_board;
    std::copy(std::begin(board->owners), std::end(board->owners), made->owners);
    made->owner_count = board->owner_count.load();
    made->call_limit_ms = board->call_limit_ms.load();
    made->guard = board->guard.load();
    return std::unique_ptr<call_board, unmapping>(made);
}

// Null, and errno, where there is no process to be had.
std::unique_ptr<child> start(size_t index, const std::function<int(const sender &)> &work,
                             bool quiet, const kept_signals &signals) {
    auto made = std::make_unique<child>();
    made->index = index;
    made->page = shared_board();
    if (!made->page) return nullptr;
    int bytes[2], said[2] = {-1, -1};
    if (pipe2(bytes, O_CLOEXEC) != 0) return nullptr;
    made->bytes = bytes[0];
    if (quiet && pipe2(said, O_CLOEXEC) != 0) {
        close(bytes[1]);
        return nullptr;
    }
    made->said = said[0];
    std::fflush(nullptr);  // or both would write what is buffered
    const pid_t parent = getpid();
    made->process = fork();
    if (made->process == 0) {
        signals.restore();
        live(made->page.release(), bytes[1], said[1], parent, work);
    }
    const int failed = errno;
    close(bytes[1]);
    if (quiet) close(said[1]);
    errno = failed;
    if (made->process < 0) return nullptr;
    made->handle = static_cast<int>(syscall(SYS_pidfd_open, made->process, 0));
    for (const int open : {made->bytes, made->said})
        if (open >= 0) fcntl(open, F_SETFL, O_NONBLOCK);
    return made;
}

// Takes what has come; closes `from` at its end.
void take(int &from, std::string &into, size_t at_most) {
    char some[16384];
    while (from >= 0) {
        const ssize_t got = read(from, some, sizeof(some));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) {
            close(std::exchange(from, -1));
            return;
        }
        if (into.size() < at_most) into.append(some, static_cast<size_t>(got));
    }
}

void send(const child &to, int signal, bool group) {
    if (group) kill(-to.process, signal);
    kill(to.process, signal);
}

// `passed`: since the last look; a stopped machine or program does not count against a call.
void watch(child &one, ms passed, const supervision &how) {
    one.lived += passed;
    if (one.ending_for) {
        const ms before = *one.ending_for;
        *one.ending_for += passed;
        if (before < patience && *one.ending_for >= patience) send(one, SIGKILL, how.quiet);
        return;
    }
    const call_board &page = *one.page;
    const uint64_t call = page.calls;
    const bool standing = static_cast<uint32_t>(page.current) != 0 && call == one.call_seen;
    one.call_stood = standing ? one.call_stood + passed : ms{0};
    one.call_seen = call;
    const bool searches =
        static_cast<uint32_t>(page.current) == static_cast<uint32_t>(entry_point::placement_plan);
    const uint32_t limit = page.call_limit_ms * (searches ? plan_limit_factor : 1);
    if (limit != 0 && one.call_stood >= ms{limit})
        one.limit_ms = limit;
    else if (how.time_limit_s > 0 && one.lived >= std::chrono::duration<double>(how.time_limit_s))
        one.limit_ms = static_cast<uint32_t>(how.time_limit_s * 1000);
    if (one.limit_ms == 0) return;
    one.ending_for = ms{0};
    send(one, SIGTERM, false);
}

// The ending of a child that has ended; nothing where it lives.
std::optional<ending> reap(child &one, const supervision &how) {
    int state = 0;
    if (waitpid(one.process, &state, WNOHANG) != one.process) return std::nullopt;
    if (how.quiet) kill(-one.process, SIGKILL);  // what a policy started
    take(one.bytes, one.received, SIZE_MAX);
    take(one.said, one.output, said_max);
    ending found = read_ending(*one.page, state, one.output);
    found.overran = one.limit_ms != 0 && !found.finished;
    found.limit_ms = one.limit_ms;
    found.bytes = std::move(one.received);
    return found;
}

ending not_started() {
    ending none;
    none.note = std::string("no process can be made: ") + std::strerror(errno);
    return none;
}

}  // namespace

void supervise_all(size_t count, size_t at_once,
                   const std::function<int(size_t, const sender &)> &work, const supervision &how,
                   const std::function<void(size_t, ending)> &ended) {
    assert(at_once > 0);
    kept_signals signals;
    std::vector<std::unique_ptr<child>> living;
    size_t next = 0;
    int passed_on = 0, died_of_it = 0;
    auto seen = std::chrono::steady_clock::now();
    while (next < count || !living.empty()) {
        while (next < count && living.size() < at_once && passed_on == 0) {
            const size_t index = next++;
            auto made = start(
                index, [&](const sender &out) { return work(index, out); }, how.quiet, signals);
            if (made)
                living.push_back(std::move(made));
            else
                ended(index, not_started());
        }
        if (living.empty() && passed_on != 0) break;
        std::vector<pollfd> events;
        bool handles = true;
        for (const auto &one : living) {
            handles = handles && one->handle >= 0;
            for (const int open : {one->handle, one->bytes, one->said})
                if (open >= 0) events.push_back({open, POLLIN, 0});
        }
        signals.wait(events, handles ? tick : tick / 10);
        const auto now = std::chrono::steady_clock::now();
        const ms passed = std::min(std::chrono::duration_cast<ms>(now - seen), 2 * tick);
        seen = now;
        if (asked_to_end != 0) {
            passed_on = std::exchange(asked_to_end, 0);
            for (const auto &one : living) send(*one, passed_on, false);
        }
        for (size_t i = 0; i < living.size();) {
            child &one = *living[i];
            take(one.bytes, one.received, SIZE_MAX);
            take(one.said, one.output, said_max);
            watch(one, passed, how);
            auto end = reap(one, how);
            if (!end) {
                ++i;
                continue;
            }
            if (passed_on != 0 && end->signal == passed_on) died_of_it = passed_on;
            const size_t index = one.index;
            living.erase(living.begin() + static_cast<std::ptrdiff_t>(i));
            ended(index, std::move(*end));
        }
    }
    signals.restore();
    if (died_of_it != 0) std::raise(died_of_it);
}

ending supervise(const std::function<int(const sender &)> &work, const supervision &how) {
    ending only;
    supervise_all(
        1, 1, [&](size_t, const sender &out) { return work(out); }, how,
        [&](size_t, ending end) { only = std::move(end); });
    return only;
}

}  // namespace moorage::core
