// threads.h - which policies' threads run in this process, and whose code a dying thread runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace moorage::core {

// Threads of this process; 0: the kernel does not say.
size_t threads_of_process();

// Notes on the board whose call left more threads than it found. `looks`: whether the kernel can
// tell.
class thread_watch {
public:
    thread_watch(uint32_t owner, bool looks)
        : owner_(owner), threads_before_(looks ? threads_of_process() : 0) {}
    ~thread_watch();
    thread_watch(const thread_watch &) = delete;

private:
    const uint32_t owner_;
    const size_t threads_before_;
};

// Remembers the address range of the library that contains `code`, and its policy's index on the
// board.
void note_library(const std::string &path, const void *code);
void note_owner_of_library(const void *code, uint32_t owner);

// Declares the calling thread to be the one that calls policies.
void note_calling_thread();

// For the last words of a thread, from its instruction and stack pointers. If the thread is not the
// one that calls policies, notes on the board the library whose code it runs. Safe in a signal
// handler.
void note_culprit_of(uintptr_t instruction, uintptr_t stack);

}  // namespace moorage::core
