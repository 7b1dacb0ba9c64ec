// child.cpp - fork, shared verdict, time-out.
#include "tools/moorage/check/child.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/text.h"
#include "tools/moorage/check/hooks.h"

namespace moorage::check {

namespace {

using core::format;

// Shared between parent and child.
struct board {
    const char *volatile call;  // a literal: the same address on both sides of a fork
    volatile int done;
    int result;
    char text[1500];
};
board *the_board = nullptr;

std::string where(const board &b) {
    return b.call ? format(" in {}", static_cast<const char *>(b.call)) : "";
}

void post(outcome result, const char *text) {
    the_board->result = static_cast<int>(result);
    std::strncpy(the_board->text, text, sizeof(the_board->text) - 1);
    the_board->done = 1;
}

// Output of the policy itself goes to the pipe: it would tear the report apart.
void become_child(int pipe_end) {
    setpgid(0, 0);
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(pipe_end, STDERR_FILENO);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const rlimit memory{rlim_t{4} << 30, rlim_t{4} << 30};
    if (can_watch()) setrlimit(RLIMIT_AS, &memory);  // a sanitizer needs terabytes of addresses
    core::set_log_level(core::log_level::off);
}

// Reads until the child closed its end or the time is up; false when it is up.
bool wait_for_end(int pipe_end, double timeout_s, std::string &said) {
    using clock = std::chrono::steady_clock;
    const auto end = clock::now() + std::chrono::duration<double>(timeout_s);
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(end - clock::now()).count();
        pollfd ready{pipe_end, POLLIN, 0};
        const int count = poll(&ready, 1, static_cast<int>(std::max<int64_t>(left, 0)));
        if (count < 0 && errno == EINTR) continue;
        if (count == 0) return false;
        char bytes[4096];
        const ssize_t got = read(pipe_end, bytes, sizeof(bytes));
        if (got <= 0) return true;
        if (said.size() < 65536) said.append(bytes, static_cast<size_t>(got));
    }
}

std::string last_line(const std::string &said) {
    const auto lines = core::split(said, '\n');
    for (size_t i = lines.size(); i-- > 0;)
        if (!lines[i].empty()) return format("; it said: {}", lines[i].substr(0, 200));
    return "";
}

verdict ending(const board &b, int state, const std::string &said) {
    if (b.done) return {static_cast<outcome>(b.result), b.text};
    if (WIFSIGNALED(state))
        return {outcome::crashed, format("signal {} ({}){}{}", WTERMSIG(state),
                                         strsignal(WTERMSIG(state)), where(b), last_line(said))};
    return {outcome::crashed, format("the process ended with exit code {}{}{}", WEXITSTATUS(state),
                                     where(b), last_line(said))};
}

}  // namespace

void enter_call(const char *what) {
    if (the_board) the_board->call = what;
}
void leave_call() {
    if (the_board) the_board->call = nullptr;
}

void end_child(outcome result, const char *text) {
    post(result, text);
    _exit(0);
}

verdict run_in_child(const std::function<verdict()> &work, double timeout_s) {
    void *shared =
        mmap(nullptr, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ends[2];
    if (shared == MAP_FAILED || pipe2(ends, O_CLOEXEC) != 0)
        return {outcome::skipped, format("no child process: {}", std::strerror(errno))};
    the_board = new (shared) board{};
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        become_child(ends[1]);
        close(ends[1]);
        verdict found;
        try {
            found = work();
        } catch (const std::exception &error) {
            found = failed(
                format("an exception left the policy{}: {}", where(*the_board), error.what()));
        } catch (...) {
            found = failed(format("an exception left the policy{}", where(*the_board)));
        }
        end_child(found.result, found.text.c_str());
    }
    close(ends[1]);
    verdict found{outcome::skipped, format("no child process: {}", std::strerror(errno))};
    if (child > 0) {
        std::string said;
        const bool ended = wait_for_end(ends[0], timeout_s, said);
        if (!ended) kill(-child, SIGKILL), kill(child, SIGKILL);
        int state = 0;
        while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
        }
        kill(-child, SIGKILL);  // what it may have started itself
        found = ended ? ending(*the_board, state, said)
                      : failed(format("did not end within {} s{}", timeout_s, where(*the_board)));
    }
    close(ends[0]);
    munmap(shared, sizeof(board));
    the_board = nullptr;
    return found;
}

}  // namespace moorage::check
