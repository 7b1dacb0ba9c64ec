// hooks.h - watches calls of the C library for memory and for the time of day.
//
// The program defines malloc and clock_gettime itself and forwards them, so that libraries loaded
// later reach these definitions. Without a watch the cost is one test of a flag. Sanitizers bring
// their own malloc. Then nothing is watched, and the tests that need it are skipped.
#pragma once

#include <cstdint>

namespace moorage::check {

struct activity {
    uint64_t allocations = 0;  // malloc, calloc, realloc, aligned_alloc and the like
    uint64_t frees = 0;
    uint64_t clock_reads = 0;
};

// False if other definitions are in use.
bool can_watch();

// Counts the calls of this thread between begin and end.
void begin_watch();
activity end_watch();

// Bytes allocated minus bytes freed by the whole process since the first call.
int64_t live_bytes();

// Adds this to every time that is read from now on.
void shift_clock(int64_t seconds);

}  // namespace moorage::check
