// machine_speed.h - what the processor and its memory can do at best, measured: the bounds that
// kernels are compared with.
//
//   thread_pool pool(0);
//   const double bytes_per_second = measure_read_bandwidth(pool, 0.5);
#pragma once

#include "core/execute/cpu/thread_pool.h"

namespace moorage::core {

// Bytes per second that all threads of the pool together read from memory, in order, from a buffer
// far larger than the caches (512 MiB): the best of the passes over 32 MiB of it made within
// `seconds`, 16 at least. The best, since it serves as a bound and what else runs on the machine
// only ever slows it. 0: no memory for the buffer.
double measure_read_bandwidth(thread_pool &pool, double seconds);

// Float32 operations per second of multiply-adds that stay in registers (two operations each),
// over all threads of the pool; the best of passes of about a tenth of a millisecond.
double measure_multiply_add_rate(thread_pool &pool, double seconds);

// Of main memory there is in all.
uint64_t host_memory_bytes();

}  // namespace moorage::core
