// hooks.h - watches what the process asks of the C library: memory and the time of day.
//
// The program defines malloc and clock_gettime itself and forwards them, so that libraries loaded
// later reach these definitions. While nothing is watched the cost is one test of a flag.
// Sanitizers bring their own malloc: there nothing is watched, and the tests that need it are
// skipped.
#pragma once

#include <cstdint>

namespace moorage::check {

struct activity {
    uint64_t allocations = 0;  // malloc, calloc, realloc, aligned_alloc and the like
    uint64_t frees = 0;
    uint64_t clock_reads = 0;
};

// False where the definitions are not the ones in use.
bool can_watch();

// Counts what the calling thread does between begin and end.
void begin_watch();
activity end_watch();

// Bytes allocated minus bytes freed by the whole process since the first call.
int64_t live_bytes();

// Adds to every time that is read from now on.
void shift_clock(int64_t seconds);

}  // namespace moorage::check
