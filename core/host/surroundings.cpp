// surroundings.cpp - remembers, compares and restores.
#include "core/host/surroundings.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <clocale>
#include <csignal>
#include <cstring>
#include <mutex>

#include "core/base/text.h"

namespace moorage::core {

namespace {

struct state {
    lasting_surroundings lasting;
    locale_t thread_locale;
    struct sigaction actions[NSIG];
    sigset_t blocked;
    stack_t signal_stack;
};
// Per thread. Signal handlers, locale and directory belong to the process, the rest does not.
thread_local state kept;
std::mutex umask_mutex;  // reading the umask means setting it

// Without real-time signals and those that cannot be handled.
constexpr int signals = 32;
bool checked(int signal) { return signal != SIGKILL && signal != SIGSTOP; }

mode_t current_umask() {
    const std::lock_guard alone(umask_mutex);
    const mode_t mask = umask(0);
    umask(mask);
    return mask;
}

// Limits below which a run cannot go on.
constexpr struct {
    __rlimit_resource resource;
    const char *name;
} watched_limits[] = {{RLIMIT_FSIZE, "the limit of file sizes"},
                      {RLIMIT_NOFILE, "the limit of open files"},
                      {RLIMIT_CPU, "the limit of processor time"},
                      {RLIMIT_AS, "the limit of memory"}};

constexpr const char *lost = " (it cannot be put back)";

void put_back_arithmetic() {
#if defined(__x86_64__)
    const uint32_t sse = usual_sse;
    const uint16_t x87 = usual_x87;
    __asm__ volatile("ldmxcsr %0" : : "m"(sse));
    __asm__ volatile("fldcw %0" : : "m"(x87));
#elif defined(__aarch64__)
    const uint64_t control = 0;
    __asm__ volatile("msr fpcr, %0" : : "r"(control));
#endif
}

// The C library adds its own flag (SA_RESTORER) to actions that it sets, but inherited ones lack
// it.
bool same_action(const struct sigaction &a, const struct sigaction &b) {
    constexpr int restorer = 0x04000000;
    return a.sa_handler == b.sa_handler && ((a.sa_flags ^ b.sa_flags) & ~restorer) == 0;
}

std::string text_of_signals() {
    std::string names;
    for (int signal = 1; signal < signals; ++signal) {
        struct sigaction now {};
        if (!checked(signal) || sigaction(signal, nullptr, &now) != 0 ||
            same_action(now, kept.actions[signal]))
            continue;
        sigaction(signal, &kept.actions[signal], nullptr);
        const char *name = sigabbrev_np(signal);
        names += std::string(names.empty() ? "the handler of SIG" : ", SIG") + (name ? name : "?");
    }
    return names;
}

}  // namespace

void remember_surroundings() {
    kept.lasting = {};
    kept.thread_locale = uselocale(nullptr);
    for (int signal = 1; signal < signals; ++signal)
        sigaction(signal, nullptr, &kept.actions[signal]);
    sigprocmask(SIG_SETMASK, nullptr, &kept.blocked);
    sigaltstack(nullptr, &kept.signal_stack);
}

std::string restore_surroundings(bool whole_state) {
    std::string changes;
    const auto add = [&](const std::string &change) {
        changes += (changes.empty() ? "" : ", ") + change;
    };
    if (!arithmetic_is_usual()) {
        put_back_arithmetic();
        add("the floating-point environment (rounding, exceptions or subnormal numbers)");
    }
    if (!whole_state) return changes;
    if (uselocale(nullptr) != kept.thread_locale) {
        uselocale(kept.thread_locale);
        add("the thread's locale");
    }
    if (const std::string lasting = kept.lasting.restore(); !lasting.empty()) add(lasting);
    if (const std::string handlers = text_of_signals(); !handlers.empty()) add(handlers);
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, nullptr, &blocked);
    for (int signal = 1; signal < signals; ++signal) {
        if (sigismember(&blocked, signal) == sigismember(&kept.blocked, signal)) continue;
        sigprocmask(SIG_SETMASK, &kept.blocked, nullptr);
        add("the mask of blocked signals");
        break;
    }
    stack_t signal_stack{};
    sigaltstack(nullptr, &signal_stack);
    if (signal_stack.ss_sp != kept.signal_stack.ss_sp ||
        signal_stack.ss_flags != kept.signal_stack.ss_flags) {
        sigaltstack(&kept.signal_stack, nullptr);
        add("the signal stack");
    }
    return changes;
}

lasting_surroundings::lasting_surroundings() : umask_(current_umask()) {
    char directory[PATH_MAX];
    if (getcwd(directory, sizeof(directory))) directory_ = directory;
    if (const char *locale = std::setlocale(LC_ALL, nullptr)) locale_ = locale;
    static_assert(std::size(watched_limits) == limit_count);
    for (size_t i = 0; i < limit_count; ++i) {
        rlimit now{};
        getrlimit(watched_limits[i].resource, &now);
        limits_[i] = {now.rlim_cur, now.rlim_max};
    }
}

std::string lasting_surroundings::restore() const {
    const lasting_surroundings now;
    std::string changes;
    const auto add = [&](const std::string &change) {
        changes += (changes.empty() ? "" : ", ") + change;
    };
    if (now.locale_ != locale_) {
        std::setlocale(LC_ALL, locale_.c_str());
        add("the locale");
    }
    if (now.directory_ != directory_ && !directory_.empty() && !now.directory_.empty())
        add(std::string("the working directory") + (chdir(directory_.c_str()) == 0 ? "" : lost));
    if (now.umask_ != umask_) {
        umask(umask_);
        add("the umask");
    }
    for (size_t i = 0; i < limit_count; ++i) {
        if (now.limits_[i] == limits_[i]) continue;
        const rlimit previous{limits_[i].current, limits_[i].max};
        const bool is_back = setrlimit(watched_limits[i].resource, &previous) == 0;
        add(std::string(watched_limits[i].name) + (is_back ? "" : lost));
    }
    return changes;
}

std::string lasting_surroundings::restore_at_end() const {
    const std::string changes = restore();
    if (changes.empty()) return changes;
    const bool is_back = changes.find(lost) == std::string::npos;
    return format(
        "{} of the process was changed by a policy within a step{}; [plugins] guard = \"full\" "
        "names the call",
        changes, is_back ? ", and was put back at the end" : "");
}

error lasting_surroundings::explained(error failure) const {
    if (const std::string changed = restore_at_end(); !changed.empty())
        failure.text += "; " + changed;
    return failure;
}

}  // namespace moorage::core
