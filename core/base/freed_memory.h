// freed_memory.h - what the C library does with memory that is freed.
#pragma once

namespace moorage::core {

// Keeps up to 64 MiB that is free at the end of the heap for the next allocation, and takes blocks
// of up to 32 MiB from there. By default the C library returns 128 KiB at once and takes such
// blocks from the system, one by one: a program that fills and frees tables in turns then spends
// most of its time in the system, above all on virtual machines. Call it before the first thread.
// It has no effect on other C libraries and on sanitizers.
void keep_freed_memory();

}  // namespace moorage::core
