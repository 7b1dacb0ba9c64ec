// parent_watch.cpp - reads the parent's state from /proc twice a second.
#include "core/host/parent_watch.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/log.h"
#include "core/base/text.h"
#include "core/host/call.h"
#include "core/host/ending.h"

namespace moorage::core {

namespace {

constexpr auto interval = std::chrono::milliseconds(500);

struct watch_state {
    std::mutex lock;
    std::condition_variable changed;
    bool is_ending = false;
    pthread_t thread{};
    bool runs = false;
};
// Never destroyed: if a policy calls exit(), the destructor would wait for the thread.
watch_state &watching = *new watch_state;

// "12 (moorage) T 1 ...": the name may contain anything, so its end is the last parenthesis.
bool is_stopped(pid_t process) {
    const int file = open(format("/proc/{}/stat", process).c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    char text[512];
    const ssize_t got = read(file, text, sizeof(text));
    close(file);
    const std::string_view line(text, got > 0 ? static_cast<size_t>(got) : 0);
    const size_t end = line.rfind(')');
    return end != std::string_view::npos && line.substr(end).starts_with(") T");
}

void continue_parent(bool &is_warned) {
    const pid_t parent = getppid();
    // Somebody who stops the whole program stops its processes one after the other.
    if (!is_stopped(parent)) return;
    kill(parent, SIGCONT);
    if (std::exchange(is_warned, true)) return;
    const std::string policies = loaded_policies(*board);
    log_warning(format("{} stopped the process that supervises this one; it was continued",
                       policies.empty() ? "somebody" : policies + ", or somebody outside,"));
}

void *watch_parent(void *) {
    bool is_warned = false;
    std::unique_lock held(watching.lock);
    while (!watching.changed.wait_for(held, interval, [] { return watching.is_ending; }))
        continue_parent(is_warned);
    continue_parent(is_warned);
    // A stop that it has not obeyed yet does not show. This discards it.
    kill(getppid(), SIGCONT);
    return nullptr;
}

}  // namespace

void begin_parent_watch() {
    watching.is_ending = false;
    sigset_t any_signal, previous;
    sigfillset(&any_signal);
    pthread_sigmask(SIG_SETMASK, &any_signal, &previous);
    watching.runs = pthread_create(&watching.thread, nullptr, watch_parent, nullptr) == 0;
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

void end_parent_watch() {
    if (!std::exchange(watching.runs, false)) return;
    {
        const std::lock_guard held(watching.lock);
        watching.is_ending = true;
    }
    watching.changed.notify_one();
    pthread_join(watching.thread, nullptr);
}

}  // namespace moorage::core
