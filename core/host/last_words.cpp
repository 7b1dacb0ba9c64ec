// last_words.cpp - handlers of fatal signals and of std::terminate. Everything in them is safe in a
// signal handler.
#include "core/host/last_words.h"

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include <sys/mman.h>
#include <ucontext.h>

#include "core/base/mapped_file.h"
#include "core/host/call.h"
#include "core/host/threads.h"

namespace moorage::core {

namespace {

constexpr int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
struct sigaction previous_actions[NSIG];

// Builds text without allocating memory.
class line {
public:
    line &operator<<(const char *text) {
        while (*text && used_ + 1 < sizeof(text_)) text_[used_++] = *text++;
        return *this;
    }
    line &operator<<(uintptr_t address) {
        char digits[2 * sizeof(address) + 1] = {};
        size_t position = sizeof(digits) - 1;
        do {
            digits[--position] = "0123456789abcdef"[address % 16];
            address /= 16;
        } while (address != 0);
        return *this << "0x" << digits + position;
    }
    std::string_view text() const { return {text_, used_}; }

private:
    char text_[512] = {};
    size_t used_ = 0;
};

uintptr_t stack_pointer(const void *context) {
    const auto &machine = static_cast<const ucontext_t *>(context)->uc_mcontext;
#if defined(__x86_64__)
    return static_cast<uintptr_t>(machine.gregs[REG_RSP]);
#elif defined(__aarch64__)
    return machine.sp;
#else
    (void)machine;
    return 0;
#endif
}

uintptr_t instruction_pointer(const void *context) {
    const auto &machine = static_cast<const ucontext_t *>(context)->uc_mcontext;
#if defined(__x86_64__)
    return static_cast<uintptr_t>(machine.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return machine.pc;
#else
    (void)machine;
    return 0;
#endif
}

// A fault near the stack pointer is a stack access, so the stack is full.
bool stack_is_full(uintptr_t address, const void *context) {
    constexpr uintptr_t near = 1 << 16;
    const uintptr_t stack = stack_pointer(context);
    return address + near > stack && address < stack + near;
}

void note_fault(int signal, const siginfo_t &about, const void *context) {
    if (about.si_code <= 0) return;  // sent by a process, perhaps this one: nothing to report
    const auto address = reinterpret_cast<uintptr_t>(about.si_addr);
    line text;
    if (signal == SIGSEGV && stack_is_full(address, context))
        text << "stack overflow at address " << address;
    else
        text << (signal == SIGSEGV || signal == SIGBUS ? "touched" : "at") << " address "
             << address;
    if (const char *changed = first_changed_file()) text << "; meanwhile " << changed << " changed";
    note_on_board(text.text());
    // The file's page has disappeared, which is no policy's fault.
    const char *file = signal == SIGBUS ? mapped_path_at(about.si_addr) : nullptr;
    if (file) std::strncpy(board->file, file, sizeof(board->file) - 1);
}

void last_words(int signal, siginfo_t *about, void *context) {
    note_culprit_of(instruction_pointer(context), stack_pointer(context));
    note_fault(signal, *about, context);
    if (about->si_code <= 0 && about->si_pid != getpid()) board->signal_sender = about->si_pid;
    kill(getppid(), SIGCONT);  // a supervisor that a policy has stopped would not see this death
    const struct sigaction &old = previous_actions[signal];
    sigaction(signal, &old, nullptr);
    if ((old.sa_flags & SA_SIGINFO) && old.sa_sigaction)
        old.sa_sigaction(signal, about, context);  // the sanitizer's report
    else if (about->si_code <= 0)
        raise(signal);  // otherwise the instruction runs again and ends the process
}

[[noreturn]] void last_exception() {
    line text;
    try {
        if (std::current_exception())
            std::rethrow_exception(std::current_exception());
        else
            text << "std::terminate was called";
    } catch (const std::exception &thrown) {
        text << "an exception was thrown: " << thrown.what();
    } catch (...) {
        text << "an exception was thrown that is no std::exception";
    }
    note_on_board(text.text());
    note_culprit_of(0, reinterpret_cast<uintptr_t>(__builtin_frame_address(0)));
    std::abort();
}

}  // namespace

void install_last_words() {
    static bool installed = false;
    if (std::exchange(installed, true)) return;  // before the fork, so the child has them as well
    constexpr size_t stack_bytes = 64 * 1024;
    void *stack =
        mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack != MAP_FAILED) {
        const stack_t signal_stack{stack, 0, stack_bytes};
        sigaltstack(&signal_stack, nullptr);
    }
    for (const int signal : deadly) {
        struct sigaction action {};
        action.sa_sigaction = last_words;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigfillset(&action.sa_mask);
        sigaction(signal, &action, &previous_actions[signal]);
    }
    std::set_terminate(last_exception);
}

}  // namespace moorage::core
