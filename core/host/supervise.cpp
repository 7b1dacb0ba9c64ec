// supervise.cpp - gives works to children, watches their boards, ends calls and steps that take too
// long, and reads how children died.
#include "core/host/supervise.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/host/child_process.h"
#include "core/host/ending.h"
#include "core/host/parent_watch.h"
#include "core/host/strays.h"
#include "moorage/base.h"

namespace moorage::core {

namespace {

using namespace std::chrono_literals;
using ms = std::chrono::milliseconds;

constexpr int passed_signals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr ms tick = 50ms;
constexpr ms patience = 300ms;              // from asking a child to end until ending it
constexpr ms stop_max = 200ms;              // how long a child may be stopped
constexpr ms insistence = 1s;               // a second request after this time ends at once
constexpr uint32_t plan_limit_factor = 30;  // searching for a placement plan takes longer; not in
                                            // runs
constexpr uint64_t plan_idle_share = 100;   // a plan computes if it gets 1 % of a processor
constexpr uint32_t standstill_factor = 6;  // of the limit of a call, until a step is reported
// A layer step is endless if it makes this many policy calls within the time limit of one call. A
// step of 60 experts of 17 MB in pieces of 16 KiB has 65,000.
constexpr uint64_t step_calls_max = 200'000;

volatile std::sig_atomic_t asked_to_end = 0;
void keep_signal(int signal) { asked_to_end = signal; }

bool is_passed(int signal) {
    return std::ranges::find(passed_signals, signal) != std::end(passed_signals);
}

// While it lives, the signals that ask this process to end are blocked, and only wait() sees them.
class kept_signals {
public:
    kept_signals() {
        asked_to_end = 0;
        sigset_t blocked;
        sigemptyset(&blocked);
        for (const int signal : passed_signals) sigaddset(&blocked, signal);
        sigprocmask(SIG_BLOCK, &blocked, &mask_);
        for (size_t i = 0; i < std::size(passed_signals); ++i) {
            sigaction(passed_signals[i], nullptr, &previous_actions_[i]);
            if (previous_actions_[i].sa_handler == SIG_IGN) continue;  // nohup
            struct sigaction keeping {};
            keeping.sa_handler = keep_signal;
            sigaction(passed_signals[i], &keeping, nullptr);
        }
    }
    ~kept_signals() { restore(); }
    kept_signals(const kept_signals &) = delete;
    void restore() const {
        restore_actions();
        if (!stay_blocked) sigprocmask(SIG_SETMASK, &mask_, nullptr);
    }
    void wait(std::vector<pollfd> &events, ms at_most) const {
        const timespec limit{at_most.count() / 1000, at_most.count() % 1000 * 1'000'000};
        ppoll(events.data(), events.size(), &limit, &mask_);
    }

    bool stay_blocked = false;  // the next code of this process must not be interrupted

private:
    void restore_actions() const {
        for (size_t i = 0; i < std::size(passed_signals); ++i)
            sigaction(passed_signals[i], &previous_actions_[i], nullptr);
    }
    sigset_t mask_;
    struct sigaction previous_actions_[std::size(passed_signals)];
};

// The sum over all threads of a process; 0: not available.
uint64_t processor_time_ns(pid_t process) {
    clockid_t clock;
    timespec time;
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Has a search for a plan used up its processor time? Processor time is used so that other programs
// do not change the plan. A search that hardly computes for as long hangs.
bool overran_plan(child_process::lane &lane, pid_t process, ms passed, bool begins, ms limit) {
    const uint64_t before_ns = lane.processor_ns;
    lane.processor_ns = processor_time_ns(process);
    if (begins) {
        lane.plan_begun_ns = lane.processor_ns;
        lane.plan_idle = ms{0};
        return false;
    }
    const auto ns = static_cast<uint64_t>(std::chrono::nanoseconds(passed).count());
    const bool computes = (lane.processor_ns - before_ns) * plan_idle_share > ns;
    lane.plan_idle = computes ? ms{0} : lane.plan_idle + passed;
    const std::chrono::nanoseconds taken(lane.processor_ns - lane.plan_begun_ns);
    return taken >= limit || lane.plan_idle >= limit;
}

// Has the call lasted longer than allowed since it was first seen?
uint32_t overrun_call(child_process &child, uint32_t place, ms passed) {
    const call_board &page = *child.page;
    const call_board::lane &board_lane = page.lanes[place];
    child_process::lane &lane = child.lanes[place];
    const uint64_t calls = board_lane.calls;
    const auto entry = static_cast<entry_point>(static_cast<uint32_t>(board_lane.current));
    const bool stands = entry != entry_point::none && calls == lane.call_seen;
    lane.call_stood = stands ? lane.call_stood + passed : ms{0};
    lane.call_seen = calls;
    if (entry == entry_point::placement_plan) {
        const uint32_t plan_limit = page.call_limit_ms * plan_limit_factor;
        const bool overran = overran_plan(lane, child.process, passed, !stands, ms{plan_limit});
        return plan_limit != 0 && overran ? plan_limit : 0;
    }
    const uint32_t limit = page.call_limit_ms;
    return limit != 0 && lane.call_stood >= ms{limit} ? limit : 0;
}
uint32_t overrun_call(child_process &child, ms passed) {
    for (uint32_t place = 0; place < call_board::lanes_max; ++place)
        if (const uint32_t limit_ms = overrun_call(child, place, passed); limit_ms != 0) {
            child.page->overran_lane = place + 1;
            return limit_ms;
        }
    return 0;
}

// A step that makes no call may compute for as long as it needs, so it is only reported.
void report_standstill(const child_process &child, ms passed) {
    const call_board &page = *child.page;
    const ms limit{page.call_limit_ms * standstill_factor};
    if (limit == ms{0} || page.in_step == 0 || page.lanes[0].calls != child.step_calls) return;
    if (child.step_stood < limit || child.step_stood - passed >= limit) return;
    const std::string layer =
        page.layer == MOORAGE_NONE ? "" : format("layer {}, ", page.layer.load());
    log_warning(format("no policy has been called for {} s in {}token {}: it computes, or "
                       "something hangs",
                       static_cast<double>(limit.count()) / 1000, layer, page.token.load()));
}

// Has a layer step lasted too long although its calls return? The policy that is most often seen at
// work keeps it from ending.
uint32_t overrun_step(child_process &child, ms passed) {
    const call_board &page = *child.page;
    const uint64_t step = (page.token + 1) << 24 ^ uint64_t { page.layer } << 1 ^ page.in_step;
    if (step != child.step_seen) {
        child.step_seen = step;
        child.step_stood = ms{0};
        child.step_calls = page.lanes[0].calls;
        child.busiest_owner = 0;
        return 0;
    }
    child.step_stood += passed;
    report_standstill(child, passed);
    if (const uint64_t current = page.lanes[0].current; static_cast<uint32_t>(current) != 0)
        child.busiest_owner = current;
    const uint32_t limit = page.call_limit_ms;
    const bool is_endless =
        page.in_step != 0 && page.lanes[0].calls - child.step_calls >= step_calls_max;
    // A look seldom sees short calls, but the next one comes soon.
    constexpr int looks_max = 1'000'000;
    for (int look = 0; is_endless && child.busiest_owner == 0 && look < looks_max; ++look)
        if (const uint64_t seen = page.lanes[0].current; static_cast<uint32_t>(seen) != 0)
            child.busiest_owner = seen;
    // Even if no policy was seen, the step ends, but later.
    const uint32_t factor = child.busiest_owner != 0 ? 1 : 10;
    return limit != 0 && is_endless && child.step_stood >= ms{limit} * factor ? limit : 0;
}

// `passed`: time since the last look. Time in which the machine or the program was stopped does not
// count.
void watch(child_process &child, ms passed, const supervision &options) {
    child.lived += passed;
    // A child that was asked to end but cannot take the signal, as in vfork(), is ended here.
    if (child.end_wanted_for && options.end_within_ms != 0 &&
        (*child.end_wanted_for += passed) >= ms{options.end_within_ms}) {
        child.end_wanted_for.reset();
        child.ending_for = patience;
        child.late = true;
        send_signal(child, SIGKILL, options.quiet);
        return;
    }
    if (child.ending_for) {
        const ms previous = *child.ending_for;
        *child.ending_for += passed;
        if (previous < patience && *child.ending_for >= patience)
            send_signal(child, SIGKILL, options.quiet);
        return;
    }
    if (child.stop_signal != 0) {
        // Somebody who stops the whole program also continues its processes one after the other.
        // So a short stop is no fault. If only bundled policies are loaded, somebody outside
        // stopped it, and may continue it.
        child.stopped_for += passed;
        if (child.stopped_for < stop_max || loaded_policies(*child.page).empty()) return;
        child.ending_for = ms{0};
        send_signal(child, SIGKILL, options.quiet);
        return;
    }
    child.limit_ms = overrun_call(child, passed);
    if (child.limit_ms == 0) {
        child.limit_ms = overrun_step(child, passed);
        child.endless = child.limit_ms != 0;
    }
    if (child.limit_ms == 0 && options.time_limit_s > 0 &&
        child.lived >= std::chrono::duration<double>(options.time_limit_s))
        child.limit_ms = static_cast<uint32_t>(options.time_limit_s * 1000);
    if (child.limit_ms == 0) return;
    child.ending_for = ms{0};
    send_signal(child, SIGTERM, false);
}

// A terminal stops all processes of a program, including this one. A policy causes any other stop.
void look_for_stop(child_process &child, int state) {
    child.stopped_for = ms{0};
    child.stop_signal = 0;
    if (!WIFSTOPPED(state)) return;
    const int signal = WSTOPSIG(state);
    if (signal != SIGTSTP && signal != SIGTTIN && signal != SIGTTOU) child.stop_signal = signal;
}

// The ending of a child that has ended; nothing if it lives.
std::optional<ending> reap(child_process &child, const supervision &options, bool is_asked) {
    int state = 0;
    for (;;) {
        if (waitpid(child.process, &state, WNOHANG | WUNTRACED | WCONTINUED) != child.process)
            return std::nullopt;
        if (WIFEXITED(state) || WIFSIGNALED(state)) break;
        look_for_stop(child, state);
    }
    if (options.quiet) kill(-child.process, SIGKILL);  // ends processes that policies started
    take_sent(child, options);
    ending found = read_ending(*child.page, state, child.output);
    if (found.finished && !has_arrived_whole(child)) {
        found.finished = false;
        found.garbled = true;
    }
    found.overran = child.limit_ms != 0 && !found.finished;
    found.endless = child.endless && found.overran;
    found.limit_ms = child.limit_ms;
    found.stopped = child.stop_signal != 0 && !found.finished;
    found.late = child.late && !found.finished;
    if (found.late) found.limit_ms = options.end_within_ms;
    if (found.endless) blame(found, *child.page, child.busiest_owner);
    note_suspects(found, *child.page, is_asked);
    found.bytes = std::move(child.sent);
    return found;
}

ending not_started() {
    ending none;
    none.note = std::string("no process can be made: ") + std::strerror(errno);
    return none;
}

// Runs works in the order of their indices with several children, and passes on a signal.
class supervisor {
public:
    supervisor(size_t count, size_t at_once, const indexed_work &work, const supervision &options,
               const std::function<void(size_t, ending)> &ended)
        : count_(count), at_once_(at_once), work_(work), options_(options), ended_(ended) {
        end_parent_watch();  // a fork copies one thread only
        adopt_strays();
        others_ = children_of_process();
    }

    int operator()() {
        while (next_ < count_ || !children_.empty()) {
            if (signal_ == 0) start_children();
            if (children_.empty()) break;
            wait();
            const ms passed = since_last_look();
            if (asked_to_end != 0) pass_on(std::exchange(asked_to_end, 0));
            for (size_t i = 0; i < children_.size();) {
                if (look(*children_[i], passed))
                    children_.erase(children_.begin() + static_cast<std::ptrdiff_t>(i));
                else
                    ++i;
            }
        }
        signals_.stay_blocked = signal_ != 0 && options_.may_go_on;
        return signal_;
    }

private:
    void start_children() {
        while (next_ < count_ && children_.size() < at_once_) {
            const child_start start{[this] { signals_.restore(); }, &children_};
            const size_t index = next_++;
            auto child = start_child(work_, options_, start);
            if (!child) {
                ended_(index, not_started());
                continue;
            }
            order_work(*child, index);
            children_.push_back(std::move(child));
        }
    }

    void wait() const {
        std::vector<pollfd> events;
        bool handles = true;
        for (const auto &child : children_) {
            handles = handles && child->handle >= 0;
            for (const int end : {child->handle, child->bytes, child->said})
                if (end >= 0) events.push_back({end, POLLIN, 0});
        }
        signals_.wait(events, handles ? tick : tick / 10);
    }

    ms since_last_look() {
        const auto now = std::chrono::steady_clock::now();
        const ms passed = std::min(std::chrono::duration_cast<ms>(now - seen_), 2 * tick);
        seen_ += passed;
        if (now - seen_ > 2 * tick) seen_ = now;
        return passed;
    }

    void pass_on(int signal) {
        const auto now = std::chrono::steady_clock::now();
        const bool insists = signal_ != 0 && now - asked_ > insistence;
        if (signal_ == 0) asked_ = now;
        signal_ = signal;
        for (const auto &child : children_) {
            send_signal(*child, insists ? SIGKILL : signal, insists && options_.quiet);
            if (child->stop_signal != 0) send_signal(*child, SIGCONT, false);
            if (!child->end_wanted_for) child->end_wanted_for = ms{0};
            // A child that does many works is not waited for: its result is lost anyway.
            if (options_.may_go_on && !child->ending_for) child->ending_for = ms{0};
        }
    }

    // A terminal signals the whole group. A child may have died of the signal before this process
    // sees it.
    void await_own_signal() {
        constexpr ms patience_of_groups{50};
        std::vector<pollfd> none;
        if (asked_to_end == 0) signals_.wait(none, patience_of_groups);
        if (asked_to_end != 0) pass_on(std::exchange(asked_to_end, 0));
    }

    // Is the child finished?
    bool look(child_process &child, ms passed) {
        if (take_sent(child, options_)) {
            ending done;
            done.finished = true;
            done.bytes = std::move(child.sent);
            const size_t index = *std::exchange(child.index, std::nullopt);
            child.limit_ms = 0;
            if (next_ < count_ && signal_ == 0)
                order_work(child, next_++);
            else
                ::close(std::exchange(child.orders, -1));
            ended_(index, std::move(done));
        }
        watch(child, passed, options_);
        auto end = reap(child, options_, signal_ != 0);
        if (!end) return false;
        if (signal_ == 0 && !end->overran && is_passed(end->signal)) await_own_signal();
        const bool left_any = end_strays(kept_processes(child.process));
        if (left_any && end->forked.empty()) {
            end->forked = loaded_policies(*child.page);
            if (end->forked.empty()) end->forked = "a policy";
        }
        const bool is_asked = signal_ != 0 && end->signal != 0;
        // Among many works, one that the signal ended has not failed.
        const bool is_lost = is_asked && options_.may_go_on;
        if (child.index && !is_lost) ended_(*child.index, std::move(*end));
        return true;
    }

    std::vector<pid_t> kept_processes(pid_t ended) const {
        std::vector<pid_t> kept = others_;
        for (const auto &child : children_)
            if (child->process != ended) kept.push_back(child->process);
        return kept;
    }

    const size_t count_, at_once_;
    const indexed_work &work_;
    const supervision &options_;
    const std::function<void(size_t, ending)> &ended_;
    kept_signals signals_;
    std::vector<std::unique_ptr<child_process>> children_;
    std::vector<pid_t> others_;  // children of this process that are not supervised here
    size_t next_ = 0;
    int signal_ = 0;  // the signal that asked this process to end
    std::chrono::steady_clock::time_point seen_ = std::chrono::steady_clock::now(), asked_ = seen_;
};

}  // namespace

int supervise_all(size_t count, size_t at_once, const indexed_work &work,
                  const supervision &options, const std::function<void(size_t, ending)> &ended) {
    assert(at_once > 0);
    return supervisor(count, at_once, work, options, ended)();
}

void end_by(int signal) {
    sigset_t passed;
    sigemptyset(&passed);
    for (const int passed_signal : passed_signals) sigaddset(&passed, passed_signal);
    std::raise(signal);
    sigprocmask(SIG_UNBLOCK, &passed, nullptr);
}

ending supervise(const std::function<int(const sender &)> &work, const supervision &options) {
    ending only;
    const int signal = supervise_all(
        1, 1, [&](size_t, const sender &send) { return work(send); }, options,
        [&](size_t, ending end) { only = std::move(end); });
    if (signal != 0 && only.signal == signal) end_by(signal);
    return only;
}

}  // namespace moorage::core
