// threads.h - whose threads run in this process, and whose code a dying one is in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace moorage::core {

// Threads of this process; 0 where the kernel does not say.
size_t threads_of_process();

// Notes on the board whose call left more threads than it found. `looks`: false: it cannot.
class thread_watch {
public:
    thread_watch(uint32_t owner, bool looks)
        : owner_(owner), before_(looks ? threads_of_process() : 0) {}
    ~thread_watch();
    thread_watch(const thread_watch &) = delete;

private:
    const uint32_t owner_;
    const size_t before_;
};

// Remembers where the library that has `code` lies; and a policy of it, by its place on the board.
void note_library(const std::string &path, const void *code);
void note_owner_of_library(const void *code, uint32_t owner);

// The calling thread is the one that calls policies.
void note_calling_thread();

// For the last words of a thread, from an instruction and a stack pointer: notes on the board the
// library whose code it runs, where the thread is not the one that calls policies. Safe in a signal
// handler.
void note_culprit_of(uintptr_t instruction, uintptr_t stack);

}  // namespace moorage::core
