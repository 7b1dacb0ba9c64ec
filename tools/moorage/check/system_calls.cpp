// system_calls.cpp - a seccomp filter that traps; the trap handler names the call.
#include "tools/moorage/check/system_calls.h"

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <iterator>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "tools/moorage/check/child.h"

namespace moorage::check {

namespace {

struct named_call {
    int number;
    const char *name;
};
constexpr named_call names[] = {
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_openat, "open"},
    {SYS_close, "close"},
    {SYS_futex, "futex"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_sched_yield, "sched_yield"},
    {SYS_ppoll, "poll"},
    {SYS_socket, "socket"},
    {SYS_sendto, "send"},
    {SYS_recvfrom, "receive"},
    {SYS_getrandom, "getrandom"},
    {SYS_writev, "writev"},
    {SYS_lseek, "lseek"},
    {SYS_ioctl, "ioctl"},
    {SYS_wait4, "wait"},
    {SYS_clone, "clone"},
    {SYS_flock, "flock"},
    {SYS_fsync, "fsync"},
    {SYS_clock_gettime, "clock_gettime"},
};

void handle_trap(int, siginfo_t *info, void *) {
    static char text[160];
    const char *name = "number";
    for (const named_call &call : names)
        if (call.number == info->si_syscall) name = call.name;
    std::snprintf(
        text, sizeof(text),
        "a step made the system call %s (%d), which may block; do it in activate or not at all",
        name, info->si_syscall);
    end_child(outcome::failed, text);
}

}  // namespace

bool forbid_blocking_calls() {
    struct sigaction action {};
    action.sa_sigaction = handle_trap;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSYS, &action, nullptr);
    constexpr int allowed[] = {SYS_brk,        SYS_mmap,    SYS_munmap,
                               SYS_mremap,     SYS_madvise, SYS_mprotect,
                               SYS_exit_group, SYS_exit,    SYS_rt_sigreturn};
    sock_filter filter[std::size(allowed) + 3];
    size_t n = 0;
    filter[n++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
    for (size_t i = 0; i < std::size(allowed); ++i) {
        const auto jump = static_cast<unsigned char>(std::size(allowed) - i);
        filter[n++] =
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(allowed[i]), jump, 0);
    }
    filter[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
    filter[n++] = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const sock_fprog program{static_cast<unsigned short>(n), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace moorage::check
