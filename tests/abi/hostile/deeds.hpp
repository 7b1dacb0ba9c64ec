// deeds.hpp - ways in which a library's code can end its host process, hang it, or change it
// secretly. Deeds have names. hostile_test.cpp has the required text of each.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cfenv>
#include <chrono>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

namespace hostile {

inline volatile int zero = 0;
inline int *volatile nowhere = nullptr;

struct half_made {
    half_made() { call(); }
    virtual ~half_made() = default;
    virtual void tell() = 0;
    void call() { tell(); }  // pure: its own class does not have it yet
};
struct concrete : half_made {
    void tell() override {}
};

__attribute__((noinline)) inline int recurse_forever(volatile char *caller_frame) {
    volatile char frame[4096];
    frame[0] = caller_frame ? caller_frame[0] : 0;
    return zero == 0 ? recurse_forever(frame) + frame[1] : 0;
}

inline void die_of_bus_error() {
    char name[] = "/tmp/moorage-hostile-XXXXXX";
    const int file = mkstemp(name);
    unlink(name);
    auto *page = static_cast<volatile char *>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    page[0] = 1;  // the file has no bytes
}

inline void free_twice() {
    void *volatile block = malloc(4000);  // volatile: else a compiler may leave it all out
    free(block);
    free(block);
}

inline void die_of_want() {
    const rlimit little{rlim_t{64} << 20, rlim_t{64} << 20};
    setrlimit(RLIMIT_AS, &little);
    static char *volatile kept;  // otherwise the compiler leaves out unread memory
    for (size_t bytes = 1 << 20;; bytes *= 2) kept = new char[bytes];
}

// Starts a thread that does the deed a little after the call.
inline void later(void (*deed)()) {
    std::thread([deed] {
        std::this_thread::sleep_for(std::chrono::milliseconds(3));
        deed();
    }).detach();
}
inline void hang() {
    while (zero == 0) continue;
}
// Stops as a traced process does. A waiting parent is told of a stop.
inline void stop_traced() {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
}
inline void print_much() {
    std::printf("{\"this\": \"is no report\"}\n");
    std::fflush(stdout);
    const std::string_view text = "nor is this\n";
    zero = write(STDOUT_FILENO, text.data(), text.size()) < 0;
    zero = 0;
}

struct deed {
    std::string_view name;
    void (*act)();
};

// These end, kill or hang the process.
inline const deed ends[] = {
    {"write_null", [] { *nowhere = 1; }},
    {"read_wild", [] { zero = *reinterpret_cast<volatile int *>(uintptr_t{0x123456789000}); }},
    {"read_odd", [] { zero = *reinterpret_cast<volatile int *>(~uintptr_t{0} << 48 | 8); }},
    {"write_code", [] { *reinterpret_cast<volatile char *>(&die_of_want) = 1; }},
    {"call_null", [] { reinterpret_cast<void (*)()>(uintptr_t(zero))(); }},
    {"run_data", [] { reinterpret_cast<void (*)()>(const_cast<int *>(&zero))(); }},
    {"overflow", [] { recurse_forever(nullptr); }},
    {"bus", die_of_bus_error},
    {"divide", [] { zero = 4711 / zero; }},
    {"trap", [] { __builtin_trap(); }},
    {"abort", [] { std::abort(); }},
    {"pure_virtual", [] { concrete(); }},
    {"free_twice", free_twice},
    {"throw", [] { throw std::runtime_error("I throw"); }},
    {"throw_int", [] { throw 17; }},
    {"terminate", [] { std::terminate(); }},
    {"want", die_of_want},
    {"exit", [] { std::exit(0); }},
    {"exit_7", [] { std::exit(7); }},
    {"quick_exit", [] { std::quick_exit(0); }},
    {"_exit", [] { _exit(0); }},
    {"exit_group", [] { syscall(SYS_exit_group, 0); }},
    {"kill", [] { kill(getpid(), SIGKILL); }},
    {"thread", [] { std::thread([] { *nowhere = 1; }).join(); }},
    {"loop",
     [] {
         while (zero == 0) continue;
     }},
    {"sleep",
     [] {
         for (;;) pause();
     }},
    {"doze", [] { std::this_thread::sleep_for(std::chrono::seconds(2)); }},
    {"deaf",
     [] {
         for (std::signal(SIGTERM, SIG_IGN);;) pause();
     }},
    {"stop",
     [] {
         for (;;) raise(SIGSTOP);
     }},
    {"stop_traced", stop_traced},
    {"deadlock",
     [] {
         std::mutex mutex;
         mutex.lock();
         mutex.lock();
     }},
};

// These return, and leave something behind.
inline const deed left_behind[] = {
    {"later_write_null", [] { later([] { *nowhere = 1; }); }},
    {"later_throw", [] { later([] { throw std::runtime_error("a thread throws"); }); }},
    {"later_exit", [] { later([] { std::exit(0); }); }},
    {"later__exit", [] { later([] { _exit(0); }); }},
    {"later_stop", [] { later([] { raise(SIGSTOP); }); }},
    {"stop_parent", [] { kill(getppid(), SIGSTOP); }},
    {"stop_parent_and_wait",
     [] {
         kill(getppid(), SIGSTOP);
         usleep(100'000);
     }},
    {"at_exit_hang", [] { std::atexit(hang); }},
    {"at_exit_die", [] { std::atexit([] { *nowhere = 1; }); }},
    {"at_exit__exit", [] { std::atexit([] { _exit(0); }); }},
    {"fork", [] { zero = fork() < 0; }},
    {"fork_and_sleep",
     [] {
         if (fork() == 0)
             for (;;) pause();
     }},
    {"print", print_much},
};

// These change the process and return.
inline const deed disturbances[] = {
    {"rounding", [] { std::fesetround(FE_UPWARD); }},
    {"traps", [] { feenableexcept(FE_UNDERFLOW); }},
    {"locale", [] { std::setlocale(LC_ALL, "C.UTF-8"); }},
    {"directory", [] { zero = chdir("/"); }},
    {"handler", [] { std::signal(SIGSEGV, SIG_IGN); }},
    {"umask", [] { umask(0777); }},
    {"limit",
     [] {
         rlimit few{};
         getrlimit(RLIMIT_NOFILE, &few);
         few.rlim_cur = 64;
         setrlimit(RLIMIT_NOFILE, &few);
     }},
    {"no_files",
     [] {
         const rlimit none{0, 0};
         setrlimit(RLIMIT_FSIZE, &none);
     }},
    {"mask",
     [] {
         sigset_t signals;
         sigfillset(&signals);
         sigprocmask(SIG_BLOCK, &signals, nullptr);
     }},
};

// Does the deed of that name, such as "raise_15". An unknown name does nothing.
inline void act(std::string_view name) {
    if (name.starts_with("raise_")) raise(std::atoi(name.data() + 6));
    for (const deed &candidate : ends)
        if (candidate.name == name) candidate.act();
    for (const deed &candidate : disturbances)
        if (candidate.name == name) candidate.act();
    for (const deed &candidate : left_behind)
        if (candidate.name == name) candidate.act();
}

template <class T>
void overwrite(const T *lent) {
    if (lent) std::memset(const_cast<T *>(lent), 0xa5, sizeof(T));
}

}  // namespace hostile
