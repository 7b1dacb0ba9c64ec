// machine_speed.h - measures the best rates of the processor and its memory: the bounds with which
// kernels are compared.
//
//   thread_pool pool(0);
//   const double bytes_per_second = measure_read_bandwidth(pool, 0.5);
#pragma once

#include "core/execute/thread_pool.h"

namespace moorage::core {

// Bytes per second that all threads of the pool together read from memory, from lower addresses to
// higher ones. The buffer has 512 MiB, far more than the caches. Each pass reads the next 32 MiB of
// it. There are passes for `seconds`, and at least 16. The result is the fastest pass, because it
// serves as a bound and other programs only slow it. 0: there is no memory for the buffer.
double measure_read_bandwidth(thread_pool &pool, double seconds);

// Float32 operations per second of multiply-adds that stay in registers (two operations each), over
// all threads of the pool. The best of passes of about a tenth of a millisecond.
double measure_multiply_add_rate(thread_pool &pool, double seconds);

// All main memory, in bytes.
uint64_t host_memory_bytes();

}  // namespace moorage::core
